"""Transfers of payloads between functions of a chain, as STeLLAR defines their time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.stats import bootstrap, hops
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Ints, minimum_rows, quantile
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.stats.quantiles import Floats
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
_BITS_PER_MS_IN_MBPS: Final = 1e3
"""Bits a millisecond that are a megabit a second."""
_WITHHELD_PART: Final = 3
"""From a third on the median and its interval could fall among those that are withheld."""


def _times(subject: SubjectRows) -> tuple[Ints, int, str]:
    """The ascending transfer times in ns, the size in bytes, and why there are none."""
    table = subject.invocations
    times, withheld, size = hops.payload_times(table, subject.run.spans, subject.meta)
    # The short ones are withheld first: they count as shorter than all others.
    ordered = np.sort(np.array([0] * withheld + times, dtype=np.int64))
    if withheld * _WITHHELD_PART >= ordered.size > 0 and withheld:
        return ordered[:0], size, "too many transfer times are below the error of the clocks"
    return ordered, size, "" if times else "no payload was handed on"


def _draws(subject: SubjectRows, times: Ints) -> Floats:
    """All quantiles of a subject, drawn jointly, ms."""
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "transfer")
    return bootstrap.quantiles(times, tuple(QUANTILES.values()), rng) / _NS_PER_MS


def _quantile(name: str, subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    times, _, why = subject.once(_times)
    order = QUANTILES[name]
    value, n, needed = quantile(times, order), int(times.size), minimum_rows(order)
    if value is None:
        return Figure(None, why=why)
    if n < needed:
        return Figure(value / _NS_PER_MS, rows=n, needed=needed)
    return Figure(value / _NS_PER_MS, _draws(subject, times)[list(QUANTILES).index(name)], n)


def _tail(subject: SubjectRows, tariff: str) -> Figure:
    """The 99th percentile over the median."""
    median, tail = (_quantile(name, subject, tariff) for name in ("p50", "p99"))
    if median.value is None or tail.value is None:
        return Figure(None, why=median.why)
    if median.value <= 0:
        return Figure(None, why="the median is 0, so there is no ratio")
    value = tail.value / median.value
    if median.draws is None or tail.draws is None:
        return Figure(value, rows=tail.rows, needed=minimum_rows(QUANTILES["p99"]))
    return Figure(value, bootstrap.ratio(tail.draws, median.draws), tail.rows)


def _bandwidth(subject: SubjectRows, tariff: str) -> Figure:
    """The payload's size over the median, Mb/s."""
    _, size, _ = subject.once(_times)
    median = _quantile("p50", subject, tariff)
    if median.value is None:
        return median
    if not size or median.value <= 0:
        return Figure(None, why="its payloads have several sizes, or took no time")
    megabits = size * 8 / _BITS_PER_MS_IN_MBPS
    if median.draws is None:
        return Figure(megabits / median.value, rows=median.rows, needed=median.needed)
    return Figure(megabits / median.value, megabits / median.draws, median.rows)


METRICS: Final = (
    *(
        Metric(
            f"transfer_{name}",
            "time",
            "ms",
            f"From before a payload was sent until the next function had it, {name}.",
            partial(_quantile, name),
            of="complete",
        )
        for name in QUANTILES
    ),
    Metric(
        "transfer_tmr",
        "ratio",
        "x",
        "The 99th percentile of that over its median.",
        _tail,
        of="complete",
    ),
    Metric(
        "bandwidth",
        "number",
        "Mb/s",
        "A payload's size over the median of that.",
        _bandwidth,
        of="complete",
    ),
)
