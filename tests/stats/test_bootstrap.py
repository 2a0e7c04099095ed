import math
from fractions import Fraction

import numpy as np
import pytest

from uncia.stats import bootstrap
from uncia.stats.quantiles import rank

HALF, TAIL = Fraction(1, 2), Fraction(9, 10)
DRAWS = 100_000


def at_most(n: int, k: int, j: int) -> float:
    """P(the k-th smallest of a resample of n values is at most the j-th smallest of them)."""
    share = j / n
    return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize("order", [HALF, TAIL, Fraction(1)])
def test_quantiles_are_distributed_as_those_of_real_resamples(order: Fraction) -> None:
    n = 12
    values = np.arange(1, n + 1, dtype=np.int64)
    draws = bootstrap.quantiles(values, [order], np.random.default_rng(3), DRAWS)[0]
    for j in range(1, n + 1):
        expected = at_most(n, rank(n, order), j)
        # Five standard errors: a right implementation fails once in two million.
        assert (draws <= j).mean() == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(DRAWS))


def test_several_quantiles_come_from_the_same_resample() -> None:
    values = np.arange(20, dtype=np.int64)
    rng = np.random.default_rng(5)
    median, tail, again = bootstrap.quantiles(values, [HALF, TAIL, TAIL], rng, DRAWS)
    assert (median <= tail).all()
    assert (tail == again).all()
    # Against resamples that are really drawn.
    picks = np.sort(values[np.random.default_rng(6).integers(0, 20, (DRAWS, 20))], axis=1)
    real = picks[:, rank(20, TAIL) - 1] - picks[:, rank(20, HALF) - 1]
    assert (tail - median).mean() == pytest.approx(real.mean(), abs=0.06)
    assert (tail - median).std() == pytest.approx(real.std(), rel=0.02)


def test_orders_must_ascend_and_values_be_there() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="ascend"):
        bootstrap.quantiles(np.arange(9, dtype=np.int64), [TAIL, HALF], rng)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap.quantiles(np.empty(0, dtype=np.int64), [HALF], rng)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap.means(np.empty(0, dtype=np.int64), rng)


def test_means_have_the_spread_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).lognormal(0, 1, 400)
    error = values.std() / math.sqrt(400)
    drawn = bootstrap.means(values, np.random.default_rng(4), DRAWS // 10)
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.05 * error)
    assert drawn.std() == pytest.approx(error, rel=0.03)
    monkeypatch.setattr(bootstrap, "_EXACT_DRAWS", 0)
    normal = bootstrap.means(values, np.random.default_rng(4), DRAWS // 10)
    assert normal.std() == pytest.approx(error, rel=0.03)


def test_a_ratio_of_sums_varies_with_what_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    under = np.random.default_rng(1).lognormal(0, 1, 3_000)
    for over in (np.full(3_000, 12.0), under * 12):
        # Against resamples that are really drawn.
        rng = np.random.default_rng(2)
        picks = [rng.integers(0, 3_000, 3_000) for _ in range(1_000)]
        real = np.array([over[rows].sum() / under[rows].sum() for rows in picks])
        for exact in (200_000_000, 0):
            monkeypatch.setattr(bootstrap, "_EXACT_DRAWS", exact)
            draws = bootstrap.ratios_of_sums(over, under, np.random.default_rng(3))
            assert draws.shape == (bootstrap.RESAMPLES,)
            assert draws.mean() == pytest.approx(real.mean(), rel=0.01)
            assert draws.std() == pytest.approx(real.std(), rel=0.15, abs=1e-9)
    for wrong in (np.array([]), np.zeros(3)):
        with pytest.raises(ValueError, match="a ratio needs"):
            bootstrap.ratios_of_sums(wrong, wrong, np.random.default_rng(3))


def test_the_same_seed_and_labels_give_the_same_numbers() -> None:
    def first(seed: int, *labels: str) -> float:
        return float(bootstrap.generator(seed, *labels).random())

    assert first(1, "a", "b") == first(1, "a", "b")
    assert len({first(1, "a", "b"), first(1, "ab"), first(1, "b", "a"), first(2, "a", "b")}) == 4


def test_intervals_and_ratios_keep_what_is_infinite() -> None:
    ratio = bootstrap.ratio(np.array([1.0, 2.0, 0.0]), np.array([2.0, 0.0, 0.0]))
    assert ratio.tolist() == [0.5, math.inf, math.inf]
    distribution = np.concatenate((np.arange(90.0), np.full(10, np.inf)))
    low, high = bootstrap.interval(distribution)
    assert low == 2.0
    assert high == math.inf
    assert bootstrap.interval(np.arange(1000.0)) == (24.0, 974.0)
