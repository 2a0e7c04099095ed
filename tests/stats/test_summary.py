from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.experiment.table import summary_table
from uncia.stats import summary, untimed

MS = 1_000_000
S = 1_000_000_000


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Invocations with what each row gives; the rest is null or plain."""
    plain = {"function": "f", "attempt": 1, "outcome": "ok", "experiment": "warm"}
    full = [{**plain, "invocation": str(i), **row} for i, row in enumerate(rows)]
    names = list(dict.fromkeys(name for row in full for name in row))
    data = pa.table({name: [row.get(name) for row in full] for name in names})
    return record.conform(data, "invocations")


def answered(
    latencies_ms: list[float], experiment: str = "warm", **more: Any
) -> list[dict[str, Any]]:
    """Requests 10 ms apart that were sent 50 us late and took so long."""
    return [
        {
            "experiment": experiment,
            "scheduled": i * 10 * MS,
            "sent": i * 10 * MS + 50_000,
            "received": i * 10 * MS + round(latency * MS),
            **more,
        }
        for i, latency in enumerate(latencies_ms)
    ]


def meta(**experiments: dict[str, Any]) -> dict[str, Any]:
    return {"experiments": experiments}


def test_quantiles_of_the_rows_that_went_well() -> None:
    rows = answered([1, 2, 3, 4])
    rows += [
        {"scheduled": 0, "sent": 9, "received": 900 * MS, "outcome": "function_error"},
        {"scheduled": 0, "sent": 9, "outcome": "timeout"},
        {"scheduled": 0, "outcome": "transport_error"},
    ]
    result = summary.summarise(table(rows), {})
    assert result["invocations"] == 7
    assert result["sent"] == 6
    assert result["answered"] == 5
    assert result["failed"] == 3
    assert result["outcomes"] == {
        "ok": 4,
        "function_error": 1,
        "timeout": 1,
        "transport_error": 1,
    }
    assert result["latency_rows"] == 4
    assert result["latency_ms"] == {
        "p50": 2.0,
        "p90": 4.0,
        "p95": 4.0,
        "p99": 4.0,
        "max": 4.0,
        "mean": 2.5,
    }
    assert result["latency_answered_rows"] == 5
    assert result["latency_answered_ms"]["max"] == 900.0
    assert result["unsupported_quantiles"] == ["p50", "p90", "p95", "p99"]
    assert result["lag_us"]["p50"] == 50.0
    assert result["offered_rate"] == pytest.approx(6 / 0.03)


def test_what_is_not_known_is_none_and_never_zero() -> None:
    result = summary.summarise(table([{"outcome": "timeout", "scheduled": 0}]), {})
    assert result["latency_rows"] == 0
    assert set(result["latency_ms"].values()) == {None}
    assert set(result["latency_ci95_ms"].values()) == {None}
    assert set(result["lag_us"].values()) == {None}
    assert result["mr"] is None
    assert result["tmr"] is None
    assert result["achieved_rate"] is None
    assert result["offered_rate"] is None


def test_an_experiment_that_was_described_and_has_no_rows_is_told_of() -> None:
    result = summary.experiments(table(answered([1.0] * 10)), meta(warm={}, cold={}))
    assert list(result) == ["warm", "cold"]
    assert result["cold"]["invocations"] == 0
    assert result["cold"]["latency_ms"]["p50"] is None
    assert "cold: no request was made." in summary.warnings(result)


def test_an_empty_table_without_any_description() -> None:
    assert summary.experiments(record.empty("invocations"), {}) == {}


def test_rows_without_an_experiment_have_a_name_of_their_own() -> None:
    rows = answered([1.0, 2.0])
    for row in rows:
        row["experiment"] = None
    assert list(summary.experiments(table(rows), {})) == ["(no experiment)"]


def test_ratios_are_to_the_median_of_warm() -> None:
    rows = answered([2.0] * 300) + answered([20.0] * 290 + [60.0] * 10, "cold")
    result = summary.experiments(table(rows), meta(warm={}, cold={}))
    assert result["cold"]["mr"] == 10.0
    assert result["cold"]["tr"] == 30.0
    assert result["cold"]["tmr"] == 3.0
    assert result["cold"]["base"] == "warm"
    assert result["warm"]["mr"] == 1.0
    assert result["warm"]["mr_ci95"] == [1.0, 1.0]
    low, high = result["cold"]["tr_ci95"]
    assert low <= 30.0 <= high


def test_another_base_may_be_named() -> None:
    rows = answered([2.0] * 9, "plain") + answered([8.0] * 9, "other")
    result = summary.experiments(table(rows), meta(plain={}, other={"base": "plain"}))
    assert result["other"]["mr"] == 4.0
    assert result["plain"]["mr"] is None
    assert result["plain"]["tmr"] == 1.0


def test_a_wait_is_subtracted_for_the_ratios_alone() -> None:
    rows = answered([2.0] * 9) + answered([1020.0] * 8 + [1060.0], "wait")
    result = summary.experiments(table(rows), meta(warm={}, wait={"wait_ns": S}))["wait"]
    assert result["latency_ms"]["p50"] == 1020.0
    assert result["wait_ms"] == 1000.0
    assert result["mr"] == 10.0
    assert result["tr"] == 30.0
    assert result["tmr"] == 3.0


def test_a_request_that_took_less_than_its_wait_leaves_no_ratio() -> None:
    rows = answered([2.0] * 9) + answered([900.0] * 9, "wait")
    result = summary.experiments(table(rows), meta(warm={}, wait={"wait_ns": S}))
    assert result["wait"]["mr"] is None
    assert result["wait"]["latency_ms"]["p50"] == 900.0
    assert any("less than the declared wait" in text for text in summary.warnings(result))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=400),
    st.lists(st.integers(1, 10**9), min_size=1, max_size=40),
)
def test_tmr_is_tr_over_mr(own: list[int], base: list[int]) -> None:
    result = summary.stellar_ratios(np.sort(np.array(own)), np.sort(np.array(base)))
    assert result["tmr"] == pytest.approx(result["tr"] / result["mr"])
    assert (result["tr_ci95"] is None) == (len(own) < 299 or len(base) < 6)
    assert (result["tmr_ci95"] is None) == (len(own) < 299)
    assert (result["mr_ci95"] is None) == (len(own) < 6 or len(base) < 6)


@pytest.mark.parametrize(
    ("expect", "failed"),
    [
        (None, 4),
        ([], 4),
        (["throttled"], 1),
        ({"throttled": "allowed"}, 1),
        ({"throttled": "none"}, 4),
        ({"throttled": "at most 3"}, 1),
        ({"throttled": "at most 2"}, 4),
        ({"throttled": "at most 30%"}, 1),
        ({"throttled": "at most 29.9%"}, 4),
        ({"throttled": "at least 1%"}, 1),
        ({"throttled": "allowed", "timeout": "allowed"}, 0),
        ({"cold": "at least 95%"}, 4),
    ],
)
def test_failures_are_outcomes_that_were_not_declared(expect: Any, failed: int) -> None:
    rows = answered([1.0] * 6)
    rows += [{"outcome": "throttled", "scheduled": 0, "sent": 1, "received": 2}] * 3
    rows += [{"outcome": "timeout", "scheduled": 0, "sent": 1}]
    assert summary.summarise(table(rows), {"expect": expect})["failed"] == failed


def test_a_burst_with_jitter_is_one_burst() -> None:
    rows = [
        {"burst": number, "scheduled": number * S + i * MS, "received": number * S + 9 * MS}
        for number, size in enumerate([4, 20, 4])
        for i in range(size)
    ]
    result = summary.summarise(table(rows), {})["by_burst_size"]
    assert [(item["size"], item["bursts"]) for item in result] == [(4, 2), (20, 1)]


def test_streams_and_runs_count_their_bursts_apart() -> None:
    rows = [
        {"run": run, "invocation": f"{run}:mix-{stream}-{i}", "burst": 0, "scheduled": stream * MS}
        for run in ("a", "b")
        for stream, size in enumerate([2, 5])
        for i in range(size)
    ]
    result = summary.summarise(table(rows), {})["by_burst_size"]
    assert [(item["size"], item["bursts"]) for item in result] == [(2, 2), (5, 2)]


def test_bursts_are_told_apart_by_size() -> None:
    rows = []
    for number, size in enumerate([1, 3, 3]):
        for i in range(size):
            rows.append(
                {
                    "burst": number,
                    "scheduled": number * S,
                    "sent": number * S + 1,
                    "received": number * S + (size + i) * MS,
                    "outcome": "throttled" if number == 2 and i == 2 else "ok",
                }
            )
    result = summary.summarise(table(rows), {"expect": ["throttled"]})["by_burst_size"]
    assert [item["size"] for item in result] == [1, 3]
    assert [item["bursts"] for item in result] == [1, 2]
    assert [item["invocations"] for item in result] == [1, 6]
    assert [item["latency_rows"] for item in result] == [1, 5]
    assert result[1]["latency_ms"]["p50"] == 4.0
    assert summary.summarise(table(answered([1.0])), {})["by_burst_size"] == []


def test_cold_starts_and_instances_are_counted() -> None:
    rows = answered([1.0, 2.0], start="cold", instance="a") + answered(
        [1.0], start="warm", instance="b"
    )
    result = summary.summarise(table(rows), {})
    assert result["cold"] == 2
    assert result["starts"] == {"cold": 2, "warm": 1}
    assert result["instances"] == 2


def test_starts_that_nobody_reports_are_not_none() -> None:
    assert summary.summarise(table(answered([1.0, 2.0])), {})["cold"] is None
    assert summary.summarise(table(answered([1.0], start="warm")), {})["cold"] == 0


def test_starts_that_the_platform_did_not_report_are_neither_cold_nor_warm() -> None:
    rows = answered([1.0] * 2, start="cold") + answered([1.0] * 8, start="warm")
    rows += answered([1.0] * 9) + answered([1.0], outcome="function_error")
    rows += answered([1.0] * 5, outcome="throttled")
    summaries = summary.experiments(table(rows), meta(warm={}))
    assert (summaries["warm"]["start_rows"], summaries["warm"]["unknown_starts"]) == (15, 10)
    sentence = (
        "warm: the platform did not say of 10 of 25 requests how they started; the share of cold"
        " ones is of the others."
    )
    assert sentence in summary.warnings(summaries)
    # Where no start is known there is no such share.
    nothing = summary.experiments(table(answered([1.0] * 9)), meta(warm={}))
    assert "how they started" not in " ".join(summary.warnings(nothing))


def test_a_trace_that_names_cold_starts_alone_knows_the_others() -> None:
    rows: list[dict[str, Any]] = [{"start": "cold"}, {}, {}, {}]
    result = summary.summarise(table(rows), {})
    assert (result["start_rows"], result["unknown_starts"]) == (4, 0)


def test_what_begins_a_sequence_starts_no_function() -> None:
    roots = answered([9.0] * 5)
    hops = [{"parent": str(n % 5), "start": "warm" if n else "cold"} for n in range(25)]
    chain = {"streams": [{"hops": {"kind": "sequence", "stages": {}}}]}
    summaries = summary.experiments(table(roots + hops), meta(warm=chain))
    assert (summaries["warm"]["start_rows"], summaries["warm"]["unknown_starts"]) == (25, 0)
    assert "how they started" not in " ".join(summary.warnings(summaries))
    # A hop that the platform did not log is unknown all the same.
    some = summary.summarise(table([*roots, *hops, {"parent": "1"}]), chain)
    assert (some["start_rows"], some["unknown_starts"]) == (25, 1)


def test_warnings_say_what_a_reader_must_know() -> None:
    rows = answered([1.0] * 20)
    rows += [{"outcome": "timeout", "scheduled": 0, "sent": 5 * MS}]
    rows += [{"outcome": "transport_error", "scheduled": 0}]
    answer = summary.warnings(summary.experiments(table(rows), meta(warm={})))
    assert answer[0] == "warm: 1 of 22 scheduled requests were never sent."
    assert answer[1].startswith("warm: 2 of 22 requests failed (1 timeout, 1 transport_error)")
    assert any("generator was late" in text and "5.00 ms" in text for text in answer)
    assert any(text.startswith("p99 rests on fewer than the 299 rows") for text in answer)
    assert not any(text.startswith("p50 rests") for text in answer)


def test_what_was_accepted_and_not_waited_for_has_succeeded_without_a_latency() -> None:
    rows = [{**row, "received": None} for row in answered([1, 2])]
    warnings = summary.warnings(summary.experiments(table(rows), meta(warm={})))
    assert "warm: no request was answered, so it has no latency." in warnings
    assert "succeeded" not in " ".join(warnings)


def test_without_a_base_a_warning_says_so() -> None:
    result = summary.experiments(table(answered([1.0] * 20, "other")), {})
    assert any("no base" in text for text in summary.warnings(result))


def test_the_summary_is_plain_json() -> None:
    import json

    rows = answered([1.0] * 20) + answered([2.0] * 20, "burst", burst=1)
    text = json.dumps(summary.experiments(table(rows), meta(warm={})), allow_nan=False)
    assert json.loads(text)["burst"]["mr"] == 2.0


def test_plain_text_columns_and_missing_columns_will_do() -> None:
    data = pa.table(
        {
            "function": ["f"] * 3,
            "outcome": ["ok"] * 3,
            "scheduled": [0, 1, 2],
            "received": [MS, MS + 1, MS + 2],
        }
    )
    result = summary.summarise(data, {})
    assert result["latency_ms"]["p50"] == 1.0
    assert result["sent"] == 0
    assert result["lag_us"]["p99"] is None


def test_the_docs_name_every_key() -> None:
    import re
    from pathlib import Path

    docs = Path(__file__).parents[2] / "docs" / "reference" / "statistics.md"
    table = docs.read_text(encoding="utf-8").split("## `summary.json`")[1]
    named = set(re.findall(r"`([a-z0-9_]+)`", table))
    keys = set(summary.summarise(table_of_nothing(), {}))
    assert keys - named == {"tr_ci95", "tmr_ci95"}


def table_of_nothing() -> pa.Table:
    return record.empty("invocations")


def test_the_terminal_counts_restored_starts_where_there_are_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cold = summary.summarise(table(answered([1.0] * 3, start="cold")), {})
    summary_table({"a": cold})
    assert "restored" not in capsys.readouterr().out
    restored = summary.summarise(table(answered([1.0] * 7, start="restored")), {})
    summary_table({"a": cold, "b": restored})
    heads, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    at = heads.index("restored")
    assert [line[at - 1 : at + 1] for line in lines] == [["3", "0"], ["0", "7"]]


def test_the_terminal_has_no_number_of_starts_that_nobody_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = summary.summarise(table(answered([1.0] * 3)), {})
    warm = summary.summarise(table(answered([1.0] * 3, start="warm")), {})
    summary_table({"a": unknown, "b": warm})
    heads, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert [line[heads.index("cold")] for line in lines] == ["-", "0"]


def test_the_terminal_says_of_how_many_invocations_hops_are_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cold = summary.summarise(table(answered([1.0] * 3, start="cold")), {})
    summary_table({"a": {**cold, "invocations": 15, "hop_rows": 12}})
    assert "3 of 15" in capsys.readouterr().out


def test_answers_before_their_requests_were_due_have_no_latency() -> None:
    year = 366 * 24 * 3600 * 1000
    rows = answered([1, 2, 3, -0.001, -1000, year, year + 1], "a") + answered([-1], "b")
    result = summary.experiments(table(rows), meta(a={}, b={}))
    assert result["a"]["latency_ms"]["max"] == year
    assert (result["a"]["latency_rows"], result["a"]["latency_answered_rows"]) == (4, 4)
    assert [result[name]["absurd_latency_rows"] for name in "ab"] == [3, 1]
    warnings = summary.warnings(result)
    absurd = "requests were answered before they were due, or more than a year later"
    assert f"a: 3 of 7 {absurd}; they are not in its latencies." in warnings
    assert f"b: 1 of 1 {absurd}; they are not in its latencies." in warnings
    assert any(text.startswith("b: no request that succeeded has plausible") for text in warnings)


def test_rows_of_a_trace_were_not_left_unsent() -> None:
    rows = [{"started": i, "ended": i + 1} for i in range(3)]
    [result] = summary.experiments(table(rows), {}).values()
    assert (result["unsent_rows"], result["untimed_rows"]) == (0, 3)
    text = "\n".join(summary.warnings({"t": result}))
    assert (
        "t: its rows have no times of a client, as those of a trace, so it has no latency" in text
    )
    assert "never sent" not in text
    assert untimed.why_no_lag(result) == "its rows have no times of a client, as those of a trace"


def test_why_there_is_no_lag() -> None:
    def why(row: dict[str, Any]) -> str:
        return untimed.why_no_lag(summary.summarise(table([row]), {}))

    assert why({"scheduled": 1}) == "no request was sent"
    assert why({"sent": 1}) == "no request that was sent has the time when it was due"


def test_each_reason_is_said_once() -> None:
    parts = [[{"started": 1}], [{"started": 2}], [{"scheduled": 1, "outcome": "timeout"}], []]
    summaries = [
        summary.summarise(table(rows) if rows else table_of_nothing(), {}) for rows in parts
    ]
    expected = "Its rows have no times of a client, as those of a trace; no request succeeded."
    assert untimed.sentence(untimed.why_no_latency, summaries) == expected
    assert untimed.sentence(untimed.why_no_latency, []) == "No request was made."
