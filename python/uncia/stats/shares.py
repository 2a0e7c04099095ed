"""The difference of two shares, with an interval that is valid for few rows and for 0 or all hits.

A bootstrap is degenerate at 0: of 0 failures in 3 rows, every resample has 0. So shares are
compared by formulas made for them:

* Newcombe's interval for the difference of two independent shares ("Interval estimation for the
  difference between independent proportions", 1998, method 10), from the two Wilson intervals.
* Where Fisher's exact test finds no difference at the same level, the interval is
  extended to 0: for a handful of rows Newcombe's alone is too narrow (0 of 3 against 3 of 3
  excludes 0, though one split in ten is as extreme by chance).
"""

import math
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from uncia.stats.quantiles import LEVEL

_WINDOW_SIGMAS = 12
"""Half width, in standard deviations, of the part of a distribution that is computed."""

_TIE = 1.0 + 1e-7
"""Probabilities this close count as equal, as they do in R."""


class Share(NamedTuple):
    """`hits` of `rows` rows; 0 <= hits <= rows, rows >= 1."""

    hits: int
    rows: int


def difference(before: Share, after: Share, level: Fraction = LEVEL) -> tuple[float, float]:
    """The confidence interval of ``after - before``, both as parts of 1.

    Raises:
        ValueError: a share without rows, or with more hits than rows.
    """
    low_before, high_before = wilson(before, level)
    low_after, high_after = wilson(after, level)
    first, second = before.hits / before.rows, after.hits / after.rows
    change = second - first
    low = change - math.hypot(second - low_after, high_before - first)
    high = change + math.hypot(high_after - second, first - low_before)
    if (low > 0 or high < 0) and _TIE * fisher(before, after) >= float(1 - level):
        return min(low, 0.0), max(high, 0.0)
    return low, high


def wilson(share: Share, level: Fraction = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of one share, as parts of 1.

    Raises:
        ValueError: no rows, or more hits than rows.
    """
    hits, rows = share
    if rows < 1 or not 0 <= hits <= rows:
        raise ValueError("a share needs 0 <= hits <= rows and rows >= 1")
    z = NormalDist().inv_cdf(float((1 + level) / 2))
    middle = hits + z * z / 2
    half = z * math.sqrt(hits * (rows - hits) / rows + z * z / 4)
    # At none and all the bound is exact; rounding would move it off.
    low = 0.0 if hits == 0 else (middle - half) / (rows + z * z)
    high = 1.0 if hits == rows else (middle + half) / (rows + z * z)
    return low, high


def fisher(before: Share, after: Share) -> float:
    """The p value of Fisher's exact test, two-sided: the probability of all splits of the hits over
    the two groups that are at most as likely as the observed one.
    """
    hits, rows = before.hits + after.hits, before.rows + after.rows
    minimum, maximum = max(0, hits - before.rows), min(hits, after.rows)
    mode = (hits + 1) * (after.rows + 1) // (rows + 2)
    spread = math.sqrt(hits * after.rows * before.rows * (rows - hits) / (rows * rows * rows))
    half = math.ceil(_WINDOW_SIGMAS * spread) + 64
    first, last = max(minimum, mode - half), min(maximum, mode + half)
    if not first <= after.hits <= last:
        return 0.0
    # By the ratio of neighbours, outwards from the mode: no factorials.
    up = np.arange(mode, last, dtype=np.float64)
    down = np.arange(mode, first, -1, dtype=np.float64)
    beyond = before.rows - hits
    rising = np.cumprod((hits - up) * (after.rows - up) / ((up + 1) * (beyond + up + 1)))
    falling = np.cumprod(down * (beyond + down) / ((hits - down + 1) * (after.rows - down + 1)))
    mass = np.concatenate((falling[::-1], [1.0], rising))
    observed = mass[after.hits - first]
    return float(mass[mass <= observed * _TIE].sum() / mass.sum())
