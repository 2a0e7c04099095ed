"""Quantiles of integer samples, exactly, and their distribution-free confidence intervals.

Definition. The quantile of order p of n values is the inverse of the empirical distribution
function: the smallest value x with at least n*p of the n values <= x, i.e. the order statistic of
rank ceil(n*p), counted from 1 (Hyndman and Fan, "Sample quantiles in statistical packages", 1996,
type 1; numpy calls it ``inverted_cdf``). It is always a measured value, never interpolated; p is a
fraction, so that ceil(n*p) is exact (in doubles, ceil(100 * 0.07) is 8).

Interval. If B ~ Binomial(n, p), the interval from the r-th to the s-th smallest value covers the
true quantile with probability at least P(r <= B <= s - 1), whatever the distribution (David and
Nagaraja, "Order Statistics", 2003, section 7.1). For small n no pair of ranks reaches the level;
the quantile is then called unsupported. A p99 at 95 % needs 299 rows.
"""

import bisect
import math
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

QUANTILES: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "p50": Fraction(50, 100),
        "p90": Fraction(90, 100),
        "p95": Fraction(95, 100),
        "p99": Fraction(99, 100),
    }
)
"""The quantiles that every summary gives, by name."""

LEVEL: Final = Fraction(95, 100)
"""Confidence level of every interval that Uncia prints."""

_WINDOW_SIGMAS: Final = 12
"""Half width, in standard deviations, of the part of a binomial that is computed; the mass
outside is below 1e-30."""

_DIGITS: Final = 60
"""Decimal digits of `minimum_rows`' arithmetic; with doubles it could be off for large n."""


class Ranks(NamedTuple):
    """A confidence interval as ranks counted from 1: from the `low`-th to the `high`-th value."""

    low: int
    high: int


def rank(n: int, p: Fraction) -> int:
    """The rank (from 1) of the quantile of order `p` among `n` sorted values: ceil(n*p), >= 1.

    Raises:
        ValueError: n < 1, or p outside (0, 1].
    """
    if n < 1:
        raise ValueError("a quantile needs at least one value")
    if not 0 < p <= 1:
        raise ValueError("the order of a quantile lies in (0, 1]")
    return max(1, math.ceil(n * p))


def quantile(ordered: Ints, p: Fraction) -> int | None:
    """The quantile of order `p` of ascending values; None if there are none.

    Args:
        ordered: shape (n,), ascending, any unit.
        p: order in (0, 1].
    """
    if ordered.size == 0:
        return None
    return int(ordered[rank(ordered.size, p) - 1])


def quantiles_of(values: npt.ArrayLike, orders: Iterable[Fraction | float]) -> list[float]:
    """The quantiles of values that need not be sorted.

    Args:
        values: shape (n,), n >= 1, any unit.
        orders: in (0, 1]; a float stands for its shortest decimal text.

    Raises:
        ValueError: there are no values, or an order is out of range.
    """
    ordered = np.sort(np.asarray(values))
    return [float(ordered[rank(ordered.size, Fraction(str(p))) - 1]) for p in orders]


@lru_cache(maxsize=4096)
def confidence_ranks(n: int, p: Fraction, level: Fraction = LEVEL) -> Ranks | None:
    """Ranks of a distribution-free confidence interval for the quantile of order `p`.

    Of all pairs with 1 <= r < s <= n and P(r <= B <= s - 1) >= level, B ~ Binomial(n, p), the one
    with the least s - r; of several, the one with the greatest coverage. The choice depends on n,
    p and the level alone, never on the data.

    Returns:
        The ranks, or None if no pair reaches the level: n is too small for this quantile.
    """
    if n < 2 or not 0 < p < 1:
        return None
    first, mass = binomial(n, p)
    # below[i] = P(B < first + i); the last entry is 1.
    below = np.concatenate(([0.0], np.cumsum(mass)))
    low = np.arange(max(1, first), first + mass.size)  # candidates for r
    below_low = below[low - first]
    # The least s with P(B < s) >= P(B < r) + level.
    offset = np.searchsorted(below, below_low + float(level), side="left")
    high = first + offset
    fits = (offset < below.size) & (high <= n) & (high > low)
    if not fits.any():
        return None
    low, high, below_low, offset = low[fits], high[fits], below_low[fits], offset[fits]
    coverage = below[offset] - below_low
    best = np.lexsort((-coverage, high - low))[0]
    return Ranks(int(low[best]), int(high[best]))


def confidence_interval(
    ordered: Ints, p: Fraction, level: Fraction = LEVEL
) -> tuple[int, int] | None:
    """The order-statistic confidence interval of a quantile, as two of the values.

    Args:
        ordered: shape (n,), ascending.
        p: order in (0, 1).
        level: coverage, at least.

    Returns:
        (lower, upper), or None if n is too small (see `confidence_ranks`).
    """
    ranks = confidence_ranks(int(ordered.size), p, level)
    if ranks is None:
        return None
    return int(ordered[ranks.low - 1]), int(ordered[ranks.high - 1])


@lru_cache(maxsize=256)
def minimum_rows(p: Fraction, level: Fraction = LEVEL) -> int:
    """The smallest n for which a confidence interval of the quantile of order `p` exists.

    It exists if the interval from the smallest to the largest value has the coverage:
    1 - p**n - (1 - p)**n >= level. At 95 %: 6 rows for p50, 29 for p90, 59 for p95, 299 for p99,
    2,995 for p99.9, 29,956 for p99.99.
    """
    if not 0 < p < 1:
        raise ValueError("the order of a quantile with an interval lies in (0, 1)")
    with localcontext(Context(prec=_DIGITS)):
        # The condition is monotonic in n: find the smallest n by bisection.
        above = 2
        while not _covered(above, p, level):
            above *= 2
        candidates = range(above // 2 + 1, above + 1)
        return candidates[bisect.bisect_left(candidates, True, key=lambda n: _covered(n, p, level))]


def _covered(n: int, p: Fraction, level: Fraction) -> bool:
    """Whether the interval from the smallest to the largest of `n` values covers the quantile."""
    order = Decimal(p.numerator) / Decimal(p.denominator)
    wanted = Decimal(level.numerator) / Decimal(level.denominator)
    return 1 - order**n - (1 - order) ** n >= wanted


def binomial(n: int, p: Fraction) -> tuple[int, Floats]:
    """Binomial(n, p) around its mode: (the first count, the probabilities from there on).

    The mass outside is below 1e-30. scipy is not used: its distribution function rounds differently
    on either side of the mode, so the choice between intervals of equal coverage would be random.

    By the ratio of neighbours, P(k+1)/P(k) = (n-k)/(k+1) * p/(1-p), outwards from the mode: exact
    to rounding for any n, without factorials.
    """
    odds = float(p / (1 - p))
    mode = math.floor((n + 1) * p)
    half = math.ceil(_WINDOW_SIGMAS * math.sqrt(float(n * p * (1 - p)))) + 64
    first, last = max(0, mode - half), min(n, mode + half)
    up = np.arange(mode, last, dtype=np.float64)
    down = np.arange(mode, first, -1, dtype=np.float64)
    rising = np.cumprod((n - up) / (up + 1.0) * odds)
    falling = np.cumprod(down / ((n - down + 1.0) * odds))
    mass = np.concatenate((falling[::-1], [1.0], rising))
    return first, mass / mass.sum()
