import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.stats.shares import Share, difference, fisher, wilson


def exact(before: Share, after: Share) -> Fraction:
    """Fisher's two-sided p value in whole numbers."""
    hits = before.hits + after.hits
    ways = {
        k: math.comb(after.rows, k) * math.comb(before.rows, hits - k)
        for k in range(max(0, hits - before.rows), min(hits, after.rows) + 1)
    }
    seen = ways[after.hits]
    return Fraction(sum(w for w in ways.values() if w <= seen), sum(ways.values()))


def shares(most: int) -> st.SearchStrategy[Share]:
    return st.integers(1, most).flatmap(
        lambda rows: st.builds(Share, st.integers(0, rows), st.just(rows))
    )


@given(shares(400), shares(400))
def test_fishers_p_is_that_of_whole_numbers(before: Share, after: Share) -> None:
    assert fisher(before, after) == pytest.approx(float(exact(before, after)), abs=1e-12, rel=1e-9)


@settings(max_examples=500)
@given(shares(40), shares(40))
def test_no_interval_claims_more_than_fishers_test(before: Share, after: Share) -> None:
    low, high = difference(before, after)
    moved = after.hits / after.rows - before.hits / before.rows
    assert -1 <= low <= moved + 1e-12
    assert moved - 1e-12 <= high <= 1
    if low > 0 or high < 0:
        assert exact(before, after) < Fraction(5, 100)
    back = difference(after, before)
    assert back == pytest.approx((-high, -low), abs=1e-12)


def test_the_interval_is_the_published_one() -> None:
    # Newcombe 1998, table II, example (a): 56/70 - 48/80, method 10.
    low, high = difference(Share(48, 80), Share(56, 70))
    assert (low, high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))
    # Example (f): 10/10 - 0/20.
    low, high = difference(Share(0, 20), Share(10, 10))
    assert (low, high) == (pytest.approx(0.6791, abs=5e-5), 1.0)


def test_wilsons_interval_reaches_none_and_all_exactly() -> None:
    assert wilson(Share(0, 10)) == (0.0, pytest.approx(0.2775, abs=5e-5))
    assert wilson(Share(10, 10)) == (pytest.approx(0.7225, abs=5e-5), 1.0)


def test_many_rows_are_compared_too() -> None:
    assert fisher(Share(0, 5_000_000), Share(9, 5_000_000)) == pytest.approx(2 / 2**9, rel=1e-4)
    assert fisher(Share(0, 10**7), Share(10**7, 10**7)) == 0.0
    low, _ = difference(Share(100, 10**7), Share(200, 10**7))
    assert low > 0


@pytest.mark.parametrize("share", [Share(0, 0), Share(3, 2), Share(-1, 2)])
def test_a_share_of_nothing_is_refused(share: Share) -> None:
    with pytest.raises(ValueError, match="share"):
        wilson(share)
