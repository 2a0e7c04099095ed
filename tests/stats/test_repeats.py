"""Several runs a side: the arithmetic of intervals, and how often verdicts are wrong."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.stats import gates, repeats, student, verdicts
from uncia.stats.comparison import Change, Figure
from uncia.stats.verdicts import Finding, Noise

P50 = ("warm", "p50", "")
FAILED = ("warm", "failed", "")
ROWS = 400


def runs(values: Sequence[float], row_spread: float = 0.001) -> list[Figure]:
    """Figures of runs, each with resamples that vary so much."""
    draws = np.exp(np.random.default_rng(7).normal(0, row_spread, 400))
    return [Figure(value, value * draws, ROWS) for value in values]


def counted(hits: Sequence[int], rows: int = ROWS) -> list[Figure]:
    return [Figure(100.0 * n / rows, rows=rows, count=n) for n in hits]


def changed(
    baseline: Sequence[Figure],
    candidate: Sequence[Figure],
    key: tuple[str, str, str] = P50,
    *,
    paired: bool = True,
) -> Change:
    return repeats.change(key, baseline, candidate, paired=paired)


def judged(
    text: str, change: Change | Sequence[Change], noise: Noise | None = None
) -> list[Finding]:
    changes = [change] if isinstance(change, Change) else list(change)
    return verdicts.judge([gates.parse(text)], "change", changes, ["warm"], noise=noise or Noise())


def verdict(text: str, change: Change, noise: Noise | None = None) -> str:
    (finding,) = judged(text, change, noise)
    assert finding.reason
    return finding.verdict


BASE = [1.00, 1.02, 0.97, 1.01, 0.99]
SLOW = [1.21, 1.19, 1.18, 1.22, 1.20]


def test_pairs_have_students_interval_of_their_logarithms() -> None:
    change = changed(runs(BASE), runs(SLOW))
    logs = [math.log(b / a) for a, b in zip(BASE, SLOW, strict=True)]
    half = 2.776445 * statistics.stdev(logs) / math.sqrt(5)
    assert change.change == pytest.approx(math.exp(statistics.mean(logs)))
    assert change.interval == pytest.approx(
        (math.exp(statistics.mean(logs) - half), math.exp(statistics.mean(logs) + half))
    )
    assert change.baseline.value == pytest.approx(statistics.geometric_mean(BASE))
    assert (change.repeats, change.paired) == (5, True)


def test_runs_that_were_not_interleaved_have_welchs_interval() -> None:
    change = changed(runs(BASE), runs([*SLOW, 1.3]), paired=False)
    sides = [[math.log(value) for value in side] for side in (BASE, [*SLOW, 1.3])]
    parts = [statistics.variance(side) / len(side) for side in sides]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True)
    )
    middle = statistics.mean(sides[1]) - statistics.mean(sides[0])
    half = student.quantile(0.975, freedom) * math.sqrt(sum(parts))
    assert change.interval == pytest.approx((math.exp(middle - half), math.exp(middle + half)))


def test_what_a_pair_shares_cancels() -> None:
    drift = [1.0, 1.5, 2.0, 2.5, 3.0]
    base = [a * b for a, b in zip(BASE, drift, strict=True)]
    slow = [a * b for a, b in zip(SLOW, drift, strict=True)]
    assert verdict("p50>10%", changed(runs(base), runs(slow))) == "violated"
    assert verdict("p50>10%", changed(runs(base), runs(slow), paired=False)) == "not judged"


def test_rows_are_a_lower_bound_of_the_variance() -> None:
    # Five runs that happen to agree to a hair, with rows that could not tell so.
    alike = changed(runs([1.0] * 5, 0.2), runs([1.2] * 5, 0.2))
    assert alike.interval is not None
    spread = float(np.log(runs([1.0], 0.2)[0].draws).std())
    half = 2.776445 * math.sqrt(2) * spread / math.sqrt(5)
    assert math.log(alike.interval[1] / alike.interval[0]) == pytest.approx(2 * half, rel=1e-3)
    assert verdict("p50>10%", alike) == "not judged"
    assert verdict("p50>10%", changed(runs([1.0] * 5), runs([1.2] * 5))) == "violated"


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=12),
    st.floats(0.1, 10),
    st.booleans(),
)
def test_units_and_sides_do_not_matter(
    pairs: list[tuple[float, float]], unit: float, paired: bool
) -> None:
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    forth = changed(runs(first), runs(second), paired=paired)
    scaled = changed(
        runs([value * unit for value in first]),
        runs([value * unit for value in second]),
        paired=paired,
    )
    back = changed(runs(second), runs(first), paired=paired)
    assert forth.interval is not None
    assert scaled.interval == pytest.approx(forth.interval, rel=1e-6)
    assert back.interval is not None
    assert (1 / back.interval[1], 1 / back.interval[0]) == pytest.approx(forth.interval, rel=1e-6)


@given(st.lists(st.integers(0, ROWS), min_size=2, max_size=8), st.data())
def test_shares_stay_within_what_is_possible(hits: list[int], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.integers(0, ROWS), min_size=len(hits), max_size=len(hits)))
    change = changed(counted(hits), counted(others), FAILED)
    assert change.change == pytest.approx(100 * (sum(others) - sum(hits)) / (ROWS * len(hits)))
    assert change.interval is not None
    assert change.interval[0] <= change.change + 1e-9
    assert change.change <= change.interval[1] + 1e-9
    # However alike the runs are, so few rows leave some doubt.
    assert change.interval[1] - change.interval[0] > 0.05


@pytest.mark.parametrize(
    ("text", "candidate", "wanted"),
    [
        ("p50>10%", SLOW, "violated"),
        ("p50>20%", SLOW, "not judged"),
        ("p50>40%", SLOW, "holds"),
        ("p50>10%", BASE, "holds"),
        ("p50>0%", BASE, "not judged"),
        ("p50<10%", BASE, "holds"),
        ("p50>+0.1ms", SLOW, "violated"),
        ("p50>+0.2ms", SLOW, "not judged"),
        ("p50>+0.5ms", SLOW, "holds"),
        ("p50>1.1ms", SLOW, "violated"),
        ("p50>1.2ms", SLOW, "not judged"),
        ("p50>1.5ms", SLOW, "holds"),
        ("p50<1.1ms", SLOW, "holds"),
        ("p50<1.5ms", SLOW, "violated"),
    ],
)
def test_verdicts(text: str, candidate: list[float], wanted: str) -> None:
    assert verdict(text, changed(runs(BASE, 1e-9), runs(candidate, 1e-9))) == wanted


def test_a_drop_is_the_other_side() -> None:
    faster = changed(runs(SLOW), runs(BASE))
    assert verdict("p50<10%", faster) == "violated"
    assert verdict("p50<40%", faster) == "holds"
    assert verdict("p50<17%", faster) == "not judged"


def test_shares_of_none_are_known_from_all_rows() -> None:
    none = counted([0] * 5)
    assert verdict("failed>1%", changed(none, none, FAILED)) == "holds"
    # Of so few rows, one failure in a hundred would go unnoticed.
    few = counted([0] * 5, rows=20)
    (finding,) = judged("failed>1%", changed(few, few, FAILED))
    assert finding.verdict == "not judged"
    assert finding.repeats is not None
    assert finding.repeats > 15
    # Rows are what is missing then, however noisy the machine was; with enough, noise is a reason.
    noisy = Noise("other processes used 40 % and 41 %", None)
    (finding,) = judged("failed>1%", changed(few, few, FAILED), noisy)
    assert "100 rows a side are too few to exclude 1 %" in finding.reason
    assert "noisy" not in finding.reason
    once = changed(none, counted([110, 0, 0, 0, 0]), FAILED)
    (finding,) = judged("failed>1%", once, noisy)
    assert "noisy: other processes" in finding.reason
    assert verdict("failed>1%", changed(none, counted([20, 25, 22, 18, 24]), FAILED)) == "violated"
    # All failures in one run: a mishap, or a fault that comes and goes. More runs tell.
    assert verdict("failed>1%", changed(none, counted([110, 0, 0, 0, 0]), FAILED)) == "not judged"
    assert verdict("failed>0", changed(none, counted([1, 0, 0, 0, 0]), FAILED)) == "violated"


def test_fewer_runs_than_needed_are_not_judged() -> None:
    for n in (1, 2, 3):
        (finding,) = judged("p50>10%", changed(runs(BASE[:n]), runs(SLOW[:n])))
        assert finding.verdict == "not judged"
        assert finding.repeats == verdicts.MIN_REPEATS
        assert "a side cannot show how runs differ, 4 can" in finding.reason
    assert verdict("p50>10%", changed(runs(BASE[:4]), runs(SLOW[:4]))) == "violated"


def test_one_run_beside_several_has_no_interval_even_by_rows() -> None:
    change = changed(runs(BASE[:1]), runs(SLOW), paired=False)
    assert change.interval is None
    for rows_only in (False, True):
        result = verdicts.judge(
            [gates.parse("p50>10%")], "b", [change], ["warm"], rows_only=rows_only
        )
        assert [finding.verdict for finding in result] == ["not judged"]
        assert "one run a side cannot show" in result[0].reason


def test_a_value_that_a_run_lacks_cannot_be_judged() -> None:
    broken = [*runs(SLOW[:4]), Figure(None, why="no request succeeded")]
    (finding,) = judged("p50>10%", changed(runs(BASE), broken))
    assert (finding.verdict, finding.missing) == ("not judged", True)
    assert finding.reason == "warm.p50 cannot be computed: run 5: no request succeeded"
    failed = [Figure(None, why="no request succeeded")] * 5
    (finding,) = judged("p50>10%", changed(failed, failed))
    assert finding.reason.endswith("5 of 5 runs: no request succeeded")


def test_too_few_rows_in_a_run_are_not_mended_by_more_runs() -> None:
    few = [Figure(value, rows=100, needed=299) for value in SLOW]
    (finding,) = judged("p99>10%", changed(runs(BASE), few, ("warm", "p99", "")))
    assert finding.verdict == "not judged"
    assert finding.repeats is None
    assert "100 rows a run are too few for a p99, 299 are needed" in finding.reason


def test_what_costs_nothing_has_not_changed() -> None:
    free = [Figure(0.0, np.zeros(4), ROWS)] * 5
    change = changed(free, free, ("", "cost", "free"))
    assert (change.change, change.interval) == (1.0, (1.0, 1.0))
    assert verdict("cost>5%", change) == "holds"
    dear = changed(free, runs(BASE), ("", "cost", "free"))
    assert dear.change == math.inf
    assert verdict("cost>5%", dear) == "not judged"


def test_noise_on_one_side_stands_in_the_way_of_what_it_may_have_caused() -> None:
    slower, same = changed(runs(BASE), runs(SLOW)), changed(runs(BASE), runs(BASE))
    candidate = Noise("other processes used 2 % and 40 %", "candidate")
    baseline = Noise("other processes used 40 % and 2 %", "baseline")
    alike = Noise("other processes used 40 % and 41 %", None)
    assert verdict("p50>10%", slower, candidate) == "not judged"
    assert verdict("p50>10%", slower, baseline) == "violated"
    assert verdict("p50>10%", slower, alike) == "violated"
    assert verdict("p50>10%", same, candidate) == "holds"
    assert verdict("p50>10%", same, baseline) == "not judged"
    assert verdict("p50>10%", same, alike) == "holds"
    # A limit on the value itself: noise may have caused that it is exceeded, not that it is kept.
    assert verdict("p50>1.1ms", slower, alike) == "not judged"
    assert verdict("p50>2ms", slower, alike) == "holds"
    (finding,) = judged("p50>10%", slower, candidate)
    assert "too noisy: other processes used 2 % and 40 %" in finding.reason


def test_many_conditions_together_need_more_for_a_violation() -> None:
    change = changed(runs(BASE), runs([1.2, 1.23, 1.12, 1.27, 1.15]))
    assert verdict("p50>10%", change) == "violated"
    many = [gates.parse(f"p50>{bound}%") for bound in (10, *range(40, 59))]
    result = verdicts.judge(many, "change", [change], ["warm"])
    assert result[0].verdict == "not judged"
    assert "of 20 metrics judged together, one may be so by chance" in result[0].reason
    assert {finding.verdict for finding in result[1:]} == {"holds"}


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("bound", [1.02, 1.4, 0.9])
def test_the_repeats_said_to_decide_do_and_fewer_do_not(paired: bool, bound: float) -> None:
    base, slow = (
        repeats.pool(runs([math.exp(x) for x in np.random.default_rng(seed).normal(mean, 0.1, 5)]))
        for seed, mean in ((1, 0.0), (2, 0.15))
    )
    estimate = repeats.estimate(base, slow, "ratio", paired=paired)
    assert estimate is not None
    needed = estimate.repeats_to_decide(bound)
    assert needed is not None

    def decides(n: int) -> bool:
        low, high = estimate.interval(Fraction(95, 100), n)
        margin = math.exp(0.8416 * estimate.spread / math.sqrt(n))
        return low / margin > bound or high * margin <= bound

    assert decides(needed)
    assert needed == 6 or not decides(needed - 1)


def test_a_change_at_the_bound_is_never_decided() -> None:
    spread = [0.9, 1.1, 0.95, 1.05, 1.0]
    slow = [1.1 / value for value in spread]
    base = [1 / value for value in reversed(spread)]
    change = changed(runs(base), runs(slow))
    assert change.change is not None
    (finding,) = judged(f"p50>{100 * (change.change - 1):.4f}%", change)
    assert finding.verdict == "not judged"
    assert "too near it for any number of repeats" in finding.reason


def simulate(
    rng: np.random.Generator, factor: float, n: int, spread: float, shift: float
) -> tuple[list[Figure], list[Figure]]:
    """Runs that differ by a heavy-tailed factor, on a machine that gets slower meanwhile."""
    noise = spread * rng.standard_t(3, (2, n)) / math.sqrt(3)
    drift = np.cumsum(rng.normal(0, shift, n))
    sides = np.exp(noise + drift)
    sides[1] *= factor
    return runs(list(sides[0]), 0.02), runs(list(sides[1]), 0.02)


@pytest.mark.parametrize("n", [4, 5, 10])
@pytest.mark.parametrize("spread", [0.02, 0.2])
def test_identical_code_is_seldom_called_slower(n: int, spread: float) -> None:
    rng = np.random.default_rng([n, round(100 * spread)])
    counts = Counter(
        verdict("p50>0%", changed(*simulate(rng, 1.0, n, spread, 0.1))) for _ in range(400)
    )
    # 2.5 % are meant at a bound of no change. 10 of 400 are expected; more than 20, once in 500.
    assert counts["violated"] <= 20
    assert counts["holds"] <= 20
    assert counts["not judged"] >= 360


def test_a_slowdown_of_a_tenth_is_found() -> None:
    rng = np.random.default_rng(1)
    counts = Counter(
        verdict("p50>3%", changed(*simulate(rng, 1.1, 10, 0.03, 0.1))) for _ in range(200)
    )
    assert counts["violated"] >= 180
    assert counts["holds"] == 0


def test_reasons_write_numbers_without_exponents() -> None:
    base, change = [100.0, 5000.0, 90.0, 7000.0], [2000.0, 110.0, 40_000.0, 95.0]
    (finding,) = judged("warm.p50>10%", changed(runs(base), runs(change)))
    assert "95 % interval" in finding.reason
    assert "e+" not in finding.reason


def test_one_run_beside_enough_of_the_baseline_is_judged_by_how_those_differ() -> None:
    level = [1.0, 1.02, 0.98, 1.01, 0.99]
    for candidate, wanted in ((1.01, "holds"), (1.4, "violated"), (1.1, "not judged")):
        change = changed(runs(level), runs([candidate]), paired=False)
        assert verdict("p50>10%", change) == wanted
    # Its own value is judged too, with the same spread.
    change = changed(runs(level), runs([1.4]), paired=False)
    assert verdict("p50>1.2ms", change) == "violated"
    assert verdict("p50>1.41ms", change) == "not judged"
    # Student's interval of a further observation: s is 0.0158 here, n 5, t 2.776.
    assert change.interval is not None
    half = (math.log(change.interval[1]) - math.log(change.interval[0])) / 2
    spread = float(np.log(np.array(level)).std(ddof=1))
    assert half == pytest.approx(2.776 * spread * math.sqrt(1 + 1 / 5), rel=1e-3)
    # Of three it is not known.
    assert verdict("p50>10%", changed(runs(level[:3]), runs([1.4]), paired=False)) == "not judged"


def test_a_single_row_is_too_few() -> None:
    change = changed(counted([0], rows=1), counted([0], rows=1), FAILED)
    (finding,) = verdicts.judge(
        [gates.parse("failed>1%")], "change", [change], ["warm"], rows_only=True
    )
    assert "1 row a side is too few to exclude 1 %" in finding.reason
