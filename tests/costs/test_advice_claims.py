"""What is claimed of a p95: its confidence against exact binomials, and against simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from uncia.costs.advice.claims import claim, confidence_within, level_of, ranks_of, rows_needed
from uncia.errors import UnciaError

MS = 10**6


@pytest.mark.parametrize(("level", "rows"), [("0.95", 59), ("0.99", 90), ("0.5", 14)])
def test_rows_needed_are_the_least_with_which_all_within_the_bound_suffice(
    level: str, rows: int
) -> None:
    wanted = Fraction(level)
    assert rows_needed(wanted) == rows == math.ceil(math.log(1 - wanted) / math.log(0.95))
    assert confidence_within(rows, rows) >= wanted > confidence_within(rows - 1, rows - 1)


@pytest.mark.parametrize(("n", "within"), [(1, 1), (59, 59), (100, 95), (100, 20), (713, 690)])
def test_confidence_is_the_binomial_tail(n: int, within: int) -> None:
    p = Fraction(19, 20)
    exact = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(within))
    assert confidence_within(n, within) == pytest.approx(float(exact), rel=1e-9)


def test_confidence_of_many_rows_is_finite_and_ordered() -> None:
    result = [
        confidence_within(10**8, within) for within in (94_000_000, 95_000_000, 95_010_000, 10**8)
    ]
    assert result[0] == 0.0
    assert result[1] == pytest.approx(0.5, abs=1e-3)
    assert 0.999 < result[2] <= result[3] == 1.0


def test_a_claim_is_wrong_no_more_often_than_it_says() -> None:
    # Rows keep the bound with probability 0.9499, so the p95 lies just above it: every claim that
    # it is kept is wrong.
    rng = np.random.default_rng(95)
    for n, level in ((59, 0.95), (200, 0.95), (1000, 0.8)):
        within = rng.binomial(n, 0.9499, 20_000)
        wrong = float(np.mean([confidence_within(n, int(k)) >= level for k in within]))
        assert wrong <= 1 - level + 4 * math.sqrt(level * (1 - level) / 20_000)
        assert wrong > 0  # the bound is not kept so far from it that nothing is tested


def test_a_function_that_keeps_the_bound_clearly_is_found_to() -> None:
    rng = np.random.default_rng(99)
    within = rng.binomial(300, 0.99, 2_000)
    assert np.mean([confidence_within(300, int(k)) >= 0.95 for k in within]) > 0.95


def _claim(values: list[int], bound: int | None, level: str = "0.95"):  # type: ignore[no-untyped-def]
    ordered = sorted(values)
    middle, interval = ranks_of(len(ordered), Fraction(level))
    at = {rank: ordered[rank - 1] for rank in (middle, *(interval or ()))}
    within = None if bound is None else sum(value <= bound for value in ordered)
    return claim(len(ordered), at, Fraction(level), bound, within)


def test_a_claim_says_yes_no_or_that_it_cannot_tell() -> None:
    values = list(range(1, 201))
    assert _claim(values, 200).meets is True
    assert _claim(values, 189).meets is False  # the p95 of the values is 190
    unsure = _claim(values, 191)
    assert unsure.meets is None
    assert unsure.value == 190
    assert unsure.confidence is not None
    assert unsure.confidence < 0.95
    assert _claim(values, None).meets is None


def test_too_few_rows_have_neither_interval_nor_confidence() -> None:
    few = _claim(list(range(1, 59)), 10**9)
    assert (few.low, few.high, few.confidence, few.meets) == (None, None, None, None)
    assert few.value == 56
    enough = _claim(list(range(1, 60)), 10**9)
    # The interval holds the p95 at 95 %: P(low <= B <= 58) with B ~ Binomial(59, 0.95).
    assert enough.high == 59
    assert enough.low is not None
    assert confidence_within(59, 59) - confidence_within(59, enough.low) >= 0.95
    assert enough.confidence == pytest.approx(1 - 0.95**59)
    assert enough.meets is True


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0, 2.0])
def test_confidences_that_cannot_be_had_are_refused(confidence: float) -> None:
    with pytest.raises(UnciaError, match="is not possible"):
        level_of(confidence)
