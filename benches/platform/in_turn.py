"""Ratios of figures that two contenders gave in turn, round by round.

What the machine does in a round meets both, so each round has a ratio of its own. The ratio of all
is their geometric mean; its interval (95 %, Student's) comes from how the rounds' ratios vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from uncia.stats.repeats import Estimate


class Ratio(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(candidate: Sequence[float], base: Sequence[float]) -> Ratio:
    """The candidate's figures to those of the base in the same rounds, of which there are two."""
    logarithms = np.log(np.asarray(candidate) / np.asarray(base))
    rounds, mean = len(logarithms), float(logarithms.mean())
    spread = float(logarithms.std(ddof=1))
    estimate = Estimate("ratio", mean, spread, rounds, freedom=rounds - 1)
    return Ratio(float(np.exp(mean)), *estimate.interval())
