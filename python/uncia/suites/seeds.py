"""Intervals over seeds: what a simulation says for each, as a figure of claims.

Seeds are few and independent, and the same for all subjects of a run: all are resampled jointly, so
that a ratio or difference of two subjects is one of pairs. The bootstrap of a few values is too
narrow; its distances from the mean are stretched to those of Student's t.

Draws of functions differ by orders of magnitude in how long they run. Of rates, times and costs the
mean is therefore the geometric one: the ratio of two is the geometric mean of the seeds' ratios, in
which each seed counts alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from uncia.stats import bootstrap, student
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import Floats

_NEEDED: Final = 3
_NORMAL: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def over_seeds(values: Sequence[float | None], *, geometric: bool = False) -> Figure:
    """The mean over seeds with its joint bootstrap distribution.

    Args:
        values: one for each seed, in the order of the seeds; None where it has none.
        geometric: the geometric mean; of values that are not all above 0 there is none.
    """
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    count = known.size
    if count < len(values) or not count:
        missing = len(values) - count
        return Figure(None, why=f"{missing} of {len(values)} seeds have no value")
    if geometric and not (known > 0).all():
        zero = int((known <= 0).sum())
        return Figure(
            None, why=f"it is 0 with {zero} of {count} seeds, so it has no geometric mean"
        )
    scale: Callable[[Floats], Floats] = np.exp if geometric else np.positive
    known = np.log(known) if geometric else known
    mean = known.mean()
    value = float(scale(mean))
    if count < _NEEDED:
        return Figure(value, rows=count, needed=_NEEDED)
    rng = bootstrap.generator(bootstrap.SEED, "seeds", str(count))
    stretch = math.sqrt(count / (count - 1)) * student.quantile(0.975, count - 1) / _NORMAL
    draws = mean + stretch * (bootstrap.means(known, rng) - mean)
    return Figure(value, scale(draws), count)
