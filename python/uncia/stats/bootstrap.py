"""Bootstrap confidence intervals for ratios, differences and means, with a seed.

The plain bootstrap (Efron, 1979; intervals by the percentile method): draw n values from the n
measured ones with replacement, compute the statistic, repeat. For quantiles it is fast and exact:
the k-th smallest of a resample is the measured value of rank ceil(n*U), where U is the k-th
smallest of n uniform numbers, and U ~ Beta(k, n - k + 1). Several order statistics are drawn
jointly, each conditional on the one before. So a quantile costs one Beta variate for each resample,
and the resample itself is never drawn.

Rows are treated as independent. Rows of one burst are not, and runs differ (another machine,
another hour), so for bursts and between runs the true variation is larger than these intervals.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from uncia.stats.quantiles import LEVEL, Floats, Ints, rank

RESAMPLES: Final = 4_000
"""Resamples of an interval; 100 of them lie in each 2.5 % tail."""

SEED: Final = 1_769
"""Default seed, so that two reports of one run are the same."""

_DRAWS_AT_ONCE: Final = 4_000_000
"""Values drawn in one step when resampling a mean: 32 MB."""

_EXACT_DRAWS: Final = 200_000_000
"""Above this many draws (n * resamples), the distribution of the mean is taken as normal; from
50,000 rows on, the difference is smaller than the noise of resampling."""


def generator(seed: int, *labels: str) -> np.random.Generator:
    """A random generator for a purpose: the same seed and labels give the same numbers."""
    keys = [int.from_bytes(label.encode(), "little") for label in labels]
    return np.random.default_rng([seed, *keys])


def quantiles(
    ordered: Ints,
    orders: Sequence[Fraction],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Floats:
    """Joint bootstrap distribution of several quantiles of one sample.

    Args:
        ordered: shape (n,), ascending, n >= 1.
        orders: the orders of the quantiles, ascending.
        rng: random generator.
        resamples: number of resamples.

    Returns:
        Shape (len(orders), resamples): row i holds the quantile of order ``orders[i]`` in each
        resample.

    Raises:
        ValueError: no values, or the orders are not ascending.
    """
    n = int(ordered.size)
    ranks = [rank(n, p) for p in orders]
    if ranks != sorted(ranks):
        raise ValueError("the orders of the quantiles must ascend")
    result = np.empty((len(ranks), resamples), dtype=np.float64)
    uniform: Floats = np.zeros(resamples)
    before = 0
    for row, k in enumerate(ranks):
        if k > before:
            uniform = uniform + (1.0 - uniform) * rng.beta(k - before, n + 1 - k, resamples)
            before = k
        index = np.minimum((uniform * n).astype(np.int64), n - 1)
        result[row] = ordered[index]
    return result


def means(values: Ints | Floats, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """Bootstrap distribution of the mean, shape (resamples,).

    Raises:
        ValueError: no values.
    """
    n = int(values.size)
    if n == 0:
        raise ValueError("a mean needs at least one value")
    if n * resamples > _EXACT_DRAWS:
        centre = float(values.mean())
        return rng.normal(centre, float(values.std()) / np.sqrt(n), resamples)
    result = np.empty(resamples, dtype=np.float64)
    step = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        result[start : start + size] = values[rng.integers(0, n, (size, n))].mean(axis=1)
    return result


def ratios_of_sums(
    over: Floats, under: Floats, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Floats:
    """Bootstrap distribution of sum(over) / sum(under), shape (resamples,).

    Rows are drawn whole: what is over and under stays together. Of very many rows the ratio R is
    taken to be normal around itself, as over - R * under is (the delta method).

    Args:
        over, under: shape (n,), of the same rows; the sum of `under` is positive.
        rng: random generator.
        resamples: number of resamples.

    Raises:
        ValueError: no rows, or the sum of `under` is not positive.
    """
    n = int(over.size)
    total = float(under.sum())
    if n == 0 or total <= 0:
        raise ValueError("a ratio needs at least one row, and a positive sum below")
    if n * resamples > _EXACT_DRAWS:
        centre = float(over.sum()) / total
        spread = float((over - centre * under).std()) / (total / n)
        return rng.normal(centre, spread / np.sqrt(n), resamples)
    result = np.empty(resamples, dtype=np.float64)
    step = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        rows = rng.integers(0, n, (size, n))
        result[start : start + size] = ratio(over[rows].sum(axis=1), under[rows].sum(axis=1))
    return result


def interval(distribution: Floats, level: Fraction = LEVEL) -> tuple[float, float]:
    """The central interval of a bootstrap distribution (percentile method).

    Values that are not finite (ratios with denominator 0) count as infinitely large.
    """
    ordered = np.sort(np.where(np.isfinite(distribution), distribution, np.inf))
    tail = (1 - level) / 2
    n = int(ordered.size)
    low, high = rank(n, tail) - 1, rank(n, 1 - tail) - 1
    return float(ordered[low]), float(ordered[high])


def ratio(over: Floats, under: Floats) -> Floats:
    """Elementwise `over` / `under`; infinite where `under` is not positive."""
    result = np.full(over.shape, np.inf)
    np.divide(over, under, out=result, where=under > 0)
    return result
