import math

import numpy as np
import pyarrow as pa
import pytest

from uncia import record
from uncia.stats import comparison, gates, verdicts
from uncia.stats.columns import pc
from uncia.stats.comparison import WHOLE_RUN, Change, Figures, GroupedCost, Measured
from uncia.stats.quantiles import Floats

MS = 1_000_000
S = 1_000_000_000


def table(latencies_ms: dict[str, Floats], failed: int = 0) -> pa.Table:
    rows = []
    for experiment, values in latencies_ms.items():
        for i, value in enumerate(values):
            rows.append(
                {
                    "function": "f",
                    "invocation": f"{experiment}-{i}",
                    "attempt": 1,
                    "experiment": experiment,
                    "outcome": "timeout" if i < failed else "ok",
                    "scheduled": i * MS,
                    "sent": i * MS + 1000 + i,
                    "received": None if i < failed else i * MS + round(value * MS),
                    "start": "cold" if i % 4 == 0 else "warm",
                }
            )
    data = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    return record.conform(data, "invocations")


def costs(values: dict[str, Floats]) -> dict[str, dict[str, GroupedCost]]:
    return {
        name: {"t": GroupedCost(item * 1e-6, np.ones(item.size, np.int64))}
        for name, item in values.items()
    }


def run(latencies_ms: dict[str, Floats], label: str, *, failed: int = 0) -> Figures:
    meta = {"experiments": {name: {} for name in latencies_ms}}
    result = comparison.measured(table(latencies_ms, failed), meta, costs(latencies_ms))
    return comparison.figures(result, label)


def sample(seed: int, n: int = 500, slow: float = 1.0) -> Floats:
    return np.random.default_rng(seed).lognormal(0, 0.4, n) * slow


def by_key(changes: list[Change]) -> dict[tuple[str, str, str], Change]:
    return {(c.experiment, c.metric, c.tariff): c for c in changes}


def test_a_run_beside_itself_has_not_changed() -> None:
    latencies = {"warm": sample(1), "cold": sample(2, slow=50)}
    result = comparison.compare(run(latencies, "a"), run(latencies, "b"))
    assert {c.metric for c in result} == set(comparison.METRICS)
    for change in result:
        assert change.change == (1.0 if change.kind == "ratio" else 0.0)
        assert not change.significant
        if change.interval is not None:
            assert change.interval[0] <= change.change <= change.interval[1]
    # All but the largest value have an interval here.
    assert {c.metric for c in result if c.interval is None} == {"max"}


def test_a_slower_run_is_told_with_its_size() -> None:
    base = {"warm": sample(1), "cold": sample(2)}
    slow = {"warm": sample(3), "cold": sample(4, slow=1.5)}
    result = by_key(comparison.compare(run(base, "a"), run(slow, "b")))
    cold = result["cold", "p50", ""]
    assert cold.change == pytest.approx(1.5, rel=0.1)
    assert cold.significant
    assert cold.interval is not None
    assert cold.interval[0] < 1.5 < cold.interval[1]
    assert not result["warm", "p50", ""].significant
    assert result["cold", "mr", ""].significant
    assert result["cold", "cost", "t"].significant


def test_the_base_has_an_mr_of_one_without_spread() -> None:
    result = by_key(
        comparison.compare(run({"warm": sample(1)}, "a"), run({"warm": sample(9)}, "b"))
    )
    assert result["warm", "mr", ""].interval == (1.0, 1.0)


def test_chance_is_seldom_taken_for_a_change() -> None:
    significant = total = 0
    for seed in range(60):
        pairs = [run({"warm": sample(2 * seed + side, 400)}, f"{seed}-{side}") for side in (0, 1)]
        result = by_key(comparison.compare(*pairs))
        for metric in ("p50", "p90", "p99", "mean"):
            total += 1
            significant += result["warm", metric, ""].significant
    # 5 % are meant; of 240 trials that hang together by fours, 10 % are out of reach.
    assert significant / total < 0.10


def test_few_rows_give_a_value_without_an_interval() -> None:
    result = run({"warm": sample(1, 58)}, "a")
    assert result["warm", "p50", ""].draws is not None
    for metric, needed in (("p95", 59), ("p99", 299), ("tr", 299), ("tmr", 299), ("lag", 299)):
        figure = result["warm", metric, ""]
        assert figure.value is not None
        assert figure.draws is None
        assert figure.few
        assert figure.needed == needed
        assert figure.rows == 58


def test_cold_starts_are_a_share_of_the_rows_whose_start_is_known() -> None:
    known = table({"warm": sample(1, 40)})
    starts = known.column("start").to_pylist()
    half = [start if number < 20 else None for number, start in enumerate(starts)]

    def cold(values: list[str | None]) -> comparison.Figure:
        at = known.schema.get_field_index("start")
        kind = known.schema.field(at)
        changed = known.set_column(at, kind, pa.array(values, pa.utf8()).cast(kind.type))
        measured = comparison.measured(changed, {"experiments": {"warm": {}}}, {})
        return comparison.figures(measured, "a")["warm", "cold", ""]

    assert (cold(starts).value, cold(starts).rows, cold(starts).count) == (25.0, 40, 10)
    assert (cold(half).value, cold(half).rows, cold(half).count) == (25.0, 20, 5)
    assert cold([None] * 40).value is None


def test_failures_are_shares_in_percentage_points() -> None:
    result = by_key(
        comparison.compare(
            run({"warm": sample(1, 200)}, "a"), run({"warm": sample(2, 200)}, "b", failed=30)
        )
    )["warm", "failed", ""]
    assert result.kind == "points"
    assert result.change == 15.0
    assert result.significant
    assert result.candidate.count == 30


def test_the_cost_of_a_run_weighs_experiments_by_their_rows() -> None:
    figures = run({"warm": np.full(30, 2.0), "cold": np.full(10, 6.0)}, "a")
    whole = figures[WHOLE_RUN, "cost", "t"]
    assert whole.value == pytest.approx(3.0)
    # Within an experiment nothing varies, and how many rows each has is no chance.
    assert whole.draws is not None
    assert np.ptp(whole.draws) == pytest.approx(0.0, abs=1e-9)


def test_what_a_run_lacks_is_missing_with_a_reason() -> None:
    two = run({"warm": sample(1), "cold": sample(2)}, "a")
    result = run({"warm": sample(1)}, "b")
    gone = by_key(comparison.compare(two, result))["cold", "p50", ""]
    assert gone.change is None
    assert gone.why == "the candidate has no such experiment or tariff"
    new = by_key(comparison.compare(result, two))["cold", "p50", ""]
    assert new.change is None
    assert "baseline" in new.why


def test_from_nothing_to_something_is_infinitely_more() -> None:
    change = comparison.change(("e", "cost", "t"), comparison.Figure(0.0), comparison.Figure(1.0))
    assert change.change == float("inf")
    same = comparison.change(("e", "cost", "t"), comparison.Figure(0.0), comparison.Figure(0.0))
    assert same.change == 1.0


def test_all_failed_has_reasons_everywhere() -> None:
    figures = run({"warm": sample(1, 20)}, "a", failed=20)
    for metric in (*comparison.LATENCIES, *comparison.RATIOS):
        assert figures["warm", metric, ""].value is None
        assert figures["warm", metric, ""].why == "no request succeeded"
    assert figures["warm", "failed", ""].value == 100.0


def judged(text: str, base: Figures, candidate: Figures) -> list[str]:
    """The verdicts on single runs, by intervals over their rows."""
    changes = comparison.compare(base, candidate)
    names = list(dict.fromkeys(key[0] for key in base if key[0] != WHOLE_RUN))
    result = verdicts.judge([gates.parse(text)], "b", changes, names, rows_only=True)
    assert all(finding.reason for finding in result)
    return ["missing" if finding.missing else finding.verdict for finding in result]


BASE = run({"warm": sample(1), "cold": sample(2)}, "a")
SAME = run({"warm": sample(3), "cold": sample(4)}, "b")
SLOW = run({"warm": sample(3), "cold": sample(4, slow=1.5)}, "b")
FAILED = run({"warm": sample(3), "cold": sample(4)}, "b", failed=40)


@pytest.mark.parametrize(
    ("text", "candidate", "verdicts"),
    [
        ("p50>10%", SAME, ["holds", "holds"]),
        ("p50>10%", SLOW, ["holds", "violated"]),
        ("cold.p50>10%", SLOW, ["violated"]),
        ("warm.p50>10%", SLOW, ["holds"]),
        ("c*.p50>10%", SLOW, ["violated"]),
        ("cold.p50>+10%", SLOW, ["violated"]),
        ("cold.p50>100%", SLOW, ["holds"]),
        ("cold.p50>1ms", BASE, ["not judged"]),
        ("cold.p50>1.1ms", SLOW, ["violated"]),
        ("cold.p50>1100us", SLOW, ["violated"]),
        ("cold.p50>2ms", SLOW, ["holds"]),
        ("cold.p50>+0.2ms", SLOW, ["violated"]),
        ("cold.p50>+2ms", SLOW, ["holds"]),
        ("cold.p50<0.9ms", BASE, ["holds"]),
        ("cold.p50<1.3ms", BASE, ["violated"]),
        ("cold.max>1ms", BASE, ["violated"]),
        ("cold.mr>10%", SLOW, ["violated"]),
        ("cold.mr>1.2x", SLOW, ["violated"]),
        ("cold.tmr>10", SLOW, ["holds"]),
        ("failed>0", SAME, ["holds", "holds"]),
        ("failed>0", FAILED, ["violated", "violated"]),
        ("failed>1%", FAILED, ["violated", "violated"]),
        ("failed>10%", FAILED, ["not judged", "not judged"]),
        ("failed>39", FAILED, ["violated", "violated"]),
        ("failed>40", FAILED, ["holds", "holds"]),
        ("cost>5%", SLOW, ["violated"]),
        ("cost:t>5%", SLOW, ["violated"]),
        ("cost:t>60%", SLOW, ["holds"]),
        ("warm.cost>10%", SLOW, ["not judged"]),
        ("warm.cost>20%", SLOW, ["holds"]),
        ("cold.cost:t>10%", SLOW, ["violated"]),
        ("cost>1", SLOW, ["violated"]),
        ("cost>100usd", SLOW, ["holds"]),
        ("cold.cold>1%", SLOW, ["not judged"]),
        ("cold.cold>10%", SLOW, ["holds"]),
        ("lag>1ms", SLOW, ["holds", "holds"]),
    ],
)
def test_gates(text: str, candidate: Figures, verdicts: list[str]) -> None:
    assert judged(text, BASE, candidate) == verdicts


def test_a_drop_is_the_other_side() -> None:
    assert judged("cold.p50<20%", SLOW, BASE) == ["violated"]
    assert judged("cold.p50<-20%", SLOW, BASE) == ["violated"]
    assert judged("cold.p50<50%", SLOW, BASE) == ["holds"]
    assert judged("cold.p50<20%", BASE, SLOW) == ["holds"]


def test_what_may_be_chance_is_not_judged() -> None:
    base = run({"warm": sample(11, 40)}, "a")
    moved = run({"warm": sample(14, 40, slow=1.08)}, "b")
    change = by_key(comparison.compare(base, moved))["warm", "p50", ""]
    assert change.change is not None
    assert change.change > 1.01
    assert not change.significant
    assert judged("p50>1%", base, moved) == ["not judged"]


def test_few_rows_are_not_judged() -> None:
    base = run({"warm": sample(1), "few": sample(2, 30)}, "a")
    worse = run({"warm": sample(3), "few": sample(4, 30, slow=9)}, "b")
    assert judged("p99>80%", base, worse) == ["holds", "not judged"]
    assert judged("few.p99>20%", base, worse) == ["not judged"]
    assert judged("few.p99>20%", base, base) == ["not judged"]


def test_one_run_a_side_is_not_judged_by_itself() -> None:
    changes = comparison.compare(BASE, SLOW)
    for text in ("cold.p50>10%", "cold.p50>1ms", "cold.p50>+0.2ms", "failed>1%", "cold.max>10%"):
        result = verdicts.judge([gates.parse(text)], "b", changes, ["warm", "cold"])
        for finding in result:
            assert finding.verdict == "not judged"
            assert "one run a side" in finding.reason
            assert finding.repeats == verdicts.MIN_REPEATS
    # How many there were is a fact about these runs, whatever others would do.
    (finding, _) = verdicts.judge([gates.parse("failed>0")], "b", changes, ["warm", "cold"])
    assert finding.verdict == "holds"


def test_what_cannot_be_computed_never_passes() -> None:
    result = run({"warm": sample(3)}, "b")
    assert judged("p50>10%", BASE, result) == ["holds", "missing"]
    assert judged("cold.p50>10%", BASE, result) == ["missing"]
    assert judged("nothing.p50>10%", BASE, SAME) == ["missing"]
    assert judged("cost:other>10%", BASE, SAME) == ["missing"]
    all_failed = run({"warm": sample(3), "cold": sample(4)}, "b", failed=500)
    assert judged("p50>10%", BASE, all_failed) == ["missing", "missing"]
    assert judged("p50>10ms", BASE, all_failed) == ["missing", "missing"]
    unpriced = {key: figure for key, figure in SAME.items() if key[1] != "cost"}
    assert judged("cost>5%", BASE, unpriced) == ["missing"]
    assert judged("cost>5%", unpriced, unpriced) == ["missing"]


def test_a_tariff_that_prices_neither_run_says_nothing_beside_one_that_does() -> None:
    blank = comparison.Figure(None, why="no row could be priced")
    base = BASE | {(WHOLE_RUN, "cost", "blank"): blank}
    other = SAME | {(WHOLE_RUN, "cost", "blank"): blank}
    assert judged("cost>50%", base, other) == ["holds"]
    assert judged("cost:blank>50%", base, other) == ["missing"]


def test_start_kinds_that_are_not_told_are_missing() -> None:
    data = table({"warm": sample(1, 50)})
    without = data.drop_columns(["start"])
    meta = {"experiments": {"warm": {}}}
    figures = comparison.figures(comparison.measured(without, meta, {}), "a")
    assert judged("cold>1%", figures, figures) == ["missing"]


def test_a_seed_sets_the_intervals() -> None:
    meta = {"experiments": {"warm": {}}}
    result = comparison.measured(table({"warm": sample(1)}), meta, {})

    def mean_of_draws(seed: int) -> float:
        draws = comparison.figures(result, "a", seed)["warm", "p90", ""].draws
        assert draws is not None
        return float(draws.mean())

    assert mean_of_draws(1) == mean_of_draws(1)
    assert mean_of_draws(1) != mean_of_draws(2)


def test_figures_are_the_same_whichever_are_computed() -> None:
    data = table({"warm": sample(1, 400), "cold": sample(2, 500)})
    result = comparison.measured(data, {"experiments": {"warm": {}, "cold": {}}}, {})
    whole = comparison.figures(result, "a")
    cold = {key: figure for key, figure in whole.items() if key[0] == "cold"}
    some = comparison.figures(result, "a", of=["cold"])
    few = comparison.figures(result, "a", of=["cold"], means=False)
    assert some.keys() == cold.keys() == {*few, ("cold", "mean", "")}
    for figures in (some, few):
        for key, figure in figures.items():
            assert figure.value == cold[key].value
            assert (figure.draws is None) == (cold[key].draws is None)
            assert figure.draws is None or np.array_equal(figure.draws, cold[key].draws)


def test_measured_keeps_experiments_without_rows() -> None:
    meta = {"experiments": {"warm": {}, "gone": {}}}
    result = comparison.measured(table({"warm": sample(1, 9)}), meta, {})
    assert isinstance(result["gone"], Measured)
    assert result["gone"].latency.size == 0
    assert comparison.figures(result, "a")["gone", "failed", ""].why == "no request was made"


def with_shares(label: str, rows: int, *, failed: int = 0, cold: int = 0) -> Figures:
    data = pa.table(
        {
            "function": ["f"] * rows,
            "invocation": [str(i) for i in range(rows)],
            "attempt": [1] * rows,
            "experiment": ["e"] * rows,
            "outcome": ["timeout" if i < failed else "ok" for i in range(rows)],
            "start": ["cold" if i < cold else "warm" for i in range(rows)],
        }
    )
    result = record.conform(data, "invocations")
    meta = {"experiments": {"e": {}}}
    return comparison.figures(comparison.measured(result, meta, {}), label)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    # Fisher's p: 1, 0.33, 0.1, 0.03.
    [(1, "not judged"), (2, "not judged"), (3, "not judged"), (4, "violated")],
)
def test_none_against_all_is_a_change_only_on_enough_rows(rows: int, verdict: str) -> None:
    none = with_shares("a", rows)
    assert judged("cold>5%", none, with_shares("b", rows, cold=rows)) == [verdict]
    assert judged("failed>1%", none, with_shares("b", rows, failed=rows)) == [verdict]
    assert judged("cold<5%", with_shares("a", rows, cold=rows), none) == [verdict]
    assert judged("cold>5%", none, none) == ["not judged"]
    assert judged("cold>99%", none, none) == ["holds"]


def test_a_few_failures_of_many_may_be_chance() -> None:
    none = with_shares("a", 100)
    # Fisher's p: 0.06 and 0.03.
    assert judged("failed>1%", none, with_shares("b", 100, failed=5)) == ["not judged"]
    assert judged("failed>1%", none, with_shares("b", 100, failed=6)) == ["violated"]
    assert judged("failed>0", none, with_shares("b", 100, failed=1)) == ["violated"]


@pytest.mark.parametrize(("late", "expected"), [(0, (1.0, 1.0)), (1000, (math.inf, math.inf))])
def test_what_is_nothing_on_both_sides_has_not_changed(
    late: int, expected: tuple[float, float]
) -> None:
    def on_time(seed: int, late: int) -> Figures:
        rows = table({"e": sample(seed)})
        sent = pc.add(rows["scheduled"], late)
        rows = rows.set_column(rows.column_names.index("sent"), "sent", sent)
        return comparison.figures(comparison.measured(rows, {"experiments": {"e": {}}}, {}), "a")

    lag = by_key(comparison.compare(on_time(1, 0), on_time(2, late)))["e", "lag", ""]
    assert (lag.change, lag.interval) == (expected[0], expected)
    assert lag.significant == bool(late)
