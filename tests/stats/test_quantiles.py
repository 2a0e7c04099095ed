import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.stats.quantiles import (
    LEVEL,
    QUANTILES,
    Ranks,
    binomial,
    confidence_interval,
    confidence_ranks,
    minimum_rows,
    quantile,
    rank,
)

orders = st.fractions(min_value=Fraction(1, 200), max_value=Fraction(199, 200), max_denominator=200)


def coverage(n: int, p: Fraction, ranks: Ranks) -> Fraction:
    """P(low <= B <= high - 1), B ~ Binomial(n, p), exactly."""
    return sum(
        (math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(ranks.low, ranks.high)),
        start=Fraction(0),
    )


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=60), orders)
def test_a_quantile_is_the_least_value_that_enough_values_do_not_exceed(
    values: list[int], p: Fraction
) -> None:
    result = quantile(np.sort(np.array(values, dtype=np.int64)), p)
    enough = [v for v in values if sum(other <= v for other in values) >= len(values) * p]
    assert result == min(enough)


@given(st.integers(1, 500), st.sampled_from([0.5, 0.25, 0.75, 0.875, 0.96875]))
def test_it_is_what_numpy_calls_inverted_cdf(n: int, p: float) -> None:
    values = np.arange(n, dtype=np.int64) * 7
    expected = np.quantile(values, p, method="inverted_cdf")
    # Orders that a double holds exactly; numpy rounds n*p for the others.
    assert quantile(values, Fraction(p)) == expected


def test_ranks_are_exact_where_doubles_are_not() -> None:
    assert math.ceil(100 * 0.07) == 8
    assert rank(100, Fraction(7, 100)) == 7
    assert rank(1000, QUANTILES["p99"]) == 990
    assert rank(1, QUANTILES["p50"]) == 1


def test_there_is_no_quantile_of_nothing() -> None:
    empty = np.empty(0, dtype=np.int64)
    assert quantile(empty, QUANTILES["p50"]) is None
    assert confidence_interval(empty, QUANTILES["p50"]) is None
    with pytest.raises(ValueError, match="at least one"):
        rank(0, QUANTILES["p50"])
    with pytest.raises(ValueError, match="order"):
        rank(5, Fraction(0))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 120), orders, st.sampled_from([LEVEL, Fraction(1, 2), Fraction(99, 100)]))
def test_an_interval_covers_as_promised_and_exists_whenever_it_can(
    n: int, p: Fraction, level: Fraction
) -> None:
    result = confidence_ranks(n, p, level)
    # From the smallest to the largest value is the widest there is.
    possible = 1 - p**n - (1 - p) ** n >= level
    if not possible:
        assert result is None
        return
    assert result is not None
    assert 1 <= result.low < result.high <= n
    assert coverage(n, p, result) >= level - Fraction(1, 10**12)


@settings(max_examples=40, deadline=None)
@given(st.integers(6, 60), orders)
def test_no_narrower_pair_of_ranks_covers_enough(n: int, p: Fraction) -> None:
    result = confidence_ranks(n, p)
    if result is None:
        return
    width = result.high - result.low - 1
    if width == 0:
        return
    for low in range(1, n - width + 1):
        assert coverage(n, p, Ranks(low, low + width)) < LEVEL


@pytest.mark.parametrize(("name", "rows"), [("p50", 6), ("p90", 29), ("p95", 59), ("p99", 299)])
def test_the_least_rows_of_each_quantile(name: str, rows: int) -> None:
    order = QUANTILES[name]
    assert minimum_rows(order) == rows
    assert confidence_ranks(rows, order) is not None
    assert confidence_ranks(rows - 1, order) is None


def test_known_ranks() -> None:
    # The median of 10: from the 2nd to the 9th value, coverage 0.979 (tables of the sign test).
    assert confidence_ranks(10, Fraction(1, 2)) == Ranks(2, 9)
    values = np.arange(1, 11, dtype=np.int64)
    assert confidence_interval(values, Fraction(1, 2)) == (2, 9)


@pytest.mark.parametrize("n", [1, 2, 30, 150])
@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 100), Fraction(99, 100)])
def test_thebinomial_is_exact_for_small_n(n: int, p: Fraction) -> None:
    first, mass = binomial(n, p)
    for index, probability in enumerate(mass):
        k = first + index
        exact = math.comb(n, k) * p**k * (1 - p) ** (n - k)
        assert probability == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


def test_intervals_of_large_samples_have_the_normal_width() -> None:
    n = 4_000_000
    result = confidence_ranks(n, Fraction(1, 2))
    assert result is not None
    half = 1.959964 * math.sqrt(n) / 2
    assert result.high - result.low == pytest.approx(2 * half, rel=2e-3)
    assert (result.high + result.low) / 2 == pytest.approx(n / 2, rel=1e-5)
