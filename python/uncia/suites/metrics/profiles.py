"""How the execution times of a trace's functions vary, by their profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, minimum_rows
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.traced import TracedGroup

_BOUND: Final = 10
"""What the STeLLAR paper calls problematic from."""

_FEWEST: Final = minimum_rows(QUANTILES["p50"])


def _below(group: TracedGroup) -> Figure:
    """Functions whose 99th percentile is less than ten times their median, in percent."""
    count = len(group.tails)
    if not count:
        return Figure(None, why="no function of the trace is in this group")
    needed = _FEWEST if count < _FEWEST else 0
    hits = int(np.count_nonzero(group.tails < _BOUND))
    return Figure(100 * hits / count, rows=count, needed=needed, count=hits)


METRICS: Final = (
    Metric(
        "tmr_below",
        "share",
        "%",
        "Functions whose 99th percentile of execution times is less than 10 times their median.",
        profile=_below,
    ),
)
