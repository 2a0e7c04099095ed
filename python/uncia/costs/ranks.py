"""Spearman's rank correlation of binned values, with a bound of the error from binning.

The mean rank of a bin replaces the ranks within it. So each variable's ranks are the binned ranks
plus a remainder whose mean is zero in every bin of that variable, and whose sum of squares is at
most (n^3 - n) / 12 for n rows (all different; ties make it smaller, down to zero). With C the
binned covariance, V the binned variances and D the largest remainders, Cauchy and Schwarz give
|cov - C| <= sqrt(Vx Dy) + sqrt(Dx Vy) + sqrt(Dx Dy), while each true variance lies in [V, V + D].
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from uncia.costs.bins import Counts, Floats


@dataclass(frozen=True)
class Spearman:
    """A rank correlation and the largest possible error from binning; None if undefined."""

    value: float | None
    error: float | None


@dataclass(frozen=True)
class Binned:
    """One variable of a joint histogram, shape (k,) each.

    Attributes:
        bins: its bins, in the order of the values.
        minimum: the smallest value in each entry.
        maximum: the largest; a bin whose values are all equal changes no rank.
    """

    bins: Counts
    minimum: Floats
    maximum: Floats


def spearman(x: Binned, y: Binned, n: Counts) -> Spearman:
    """Spearman's correlation, with mid-ranks, of a joint histogram.

    Args:
        x: the first variable.
        y: the second.
        n: shape (k,), rows of each pair of bins.
    """
    total = int(n.sum())
    if total == 0:
        return Spearman(None, None)
    ranks_x, spread_x = _ranks(x, n)
    ranks_y, spread_y = _ranks(y, n)
    # Centred, and in units of the number of rows, so that large sums keep their digits.
    weights = n / total
    covariance = math.fsum(weights * ranks_x * ranks_y)
    variances = [math.fsum(weights * ranks * ranks) for ranks in (ranks_x, ranks_y)]
    spreads = [spread_x, spread_y]
    if min(variances) <= 0:
        return Spearman(None, None)
    value = covariance / math.sqrt(variances[0] * variances[1])
    slack = (
        math.sqrt(variances[0] * spreads[1])
        + math.sqrt(variances[1] * spreads[0])
        + math.sqrt(spreads[0] * spreads[1])
    )
    widest = math.sqrt((variances[0] + spreads[0]) * (variances[1] + spreads[1]))
    narrowest = math.sqrt(variances[0] * variances[1])
    corners = itertools.product((covariance - slack, covariance + slack), (narrowest, widest))
    possible = [min(1.0, max(-1.0, high / low)) for high, low in corners]
    return Spearman(min(1.0, max(-1.0, value)), max(abs(bound - value) for bound in possible))


def _ranks(binned: Binned, n: Counts) -> tuple[Floats, float]:
    """Centred mid-ranks over the number of rows, and the largest variance within bins."""
    bins, inverse = np.unique(binned.bins, return_inverse=True)
    counts = np.bincount(inverse, weights=n)
    total = counts.sum()
    before = np.cumsum(counts) - counts
    middle = (before + counts / 2) / total - 0.5
    minimum, maximum = np.full(bins.size, np.inf), np.full(bins.size, -np.inf)
    np.minimum.at(minimum, inverse, binned.minimum)
    np.maximum.at(maximum, inverse, binned.maximum)
    share = np.where(minimum < maximum, counts / total, 0.0)
    within = math.fsum(share * np.maximum(share**2 - 1 / total**2, 0)) / 12
    return middle[inverse], within
