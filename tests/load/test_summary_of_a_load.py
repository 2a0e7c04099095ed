"""What is told of a load: while it goes on, and after it."""

import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from subprocess import Popen

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_helpers import ERROR, OK, Inside, Server, finish
from rich.console import Console

from uncia import record
from uncia.errors import UnciaError
from uncia.experiment import progress
from uncia.stats import summary, tails
from uncia.stats.quantiles import minimum_rows
from uncia.workload import tally

Uncia = Callable[..., "Popen[str]"]

PROGRESS = {
    "event": "progress",
    "elapsed_s": 1.0,
    "scheduled": 100,
    "sent": 60,
    "done": 50,
    "in_flight": 10,
    "ok": 45,
    "failed": {"timeout": 5},
    "rate": 59.6,
    "target_rate": 60.0,
    "p50_ms": 1.5,
    "p99_ms": 250.0,
    "lag_p99_us": 40.0,
}


@given(st.fractions(Fraction(1, 50), Fraction(9999, 10_000), max_denominator=10_000))
def test_the_rows_that_a_quantile_needs_are_the_fewest_that_do(p: Fraction) -> None:
    n = minimum_rows(p)

    def covered(rows: int) -> bool:
        return 1 - float(p) ** rows - (1 - float(p)) ** rows >= 0.95

    assert covered(n) or covered(n + 1)  # doubles may be one off at the edge
    assert not covered(n - 2)


def test_the_rows_that_quantiles_far_out_need() -> None:
    needs = {order.name: minimum_rows(order.value) for order in tails.orders(tails.DEFAULT)}
    assert needs == {"p50": 6, "p90": 29, "p95": 59, "p99": 299, "p99.9": 2995, "p99.99": 29956}


def test_quantiles_are_read_as_they_are_written() -> None:
    assert [(order.name, order.value) for order in tails.orders("99.90, p50,05,50")] == [
        ("p5", Fraction(5, 100)),
        ("p50", Fraction(1, 2)),
        ("p99.9", Fraction(999, 1000)),
    ]
    for wrong in ("", "0", "100", "fifty", "99.9999999", "50;90", "nan", "-1"):
        with pytest.raises(UnciaError, match="is not a percent"):
            tails.orders(wrong)


def test_a_quantile_without_enough_rows_has_no_value() -> None:
    few, enough = (tails.estimates(np.arange(n), tails.orders("99"))[0] for n in (298, 299))
    assert (few.value, few.interval) == (None, None)
    assert few.sentence() == "p99: 298 rows are too few, it needs 299"
    assert enough.value == 296
    assert enough.interval is not None


def test_counts_of_processes_add_up_and_the_worst_latency_stands() -> None:
    other = {**PROGRESS, "failed": {"timeout": 1, "throttled": 2}, "p99_ms": 300.0, "p50_ms": None}
    both = tally.total([PROGRESS, other])
    assert (both["sent"], both["in_flight"], both["rate"]) == (120, 20, 119.2)
    assert both["failed"] == {"timeout": 6, "throttled": 2}
    assert (both["p50_ms"], both["p99_ms"], both["processes"]) == (1.5, 300.0, 2)
    assert tally.total([PROGRESS]) == PROGRESS
    assert tally.total([PROGRESS, {**PROGRESS, "scheduled": None}])["scheduled"] is None


def test_a_line_of_progress_has_everything_that_matters() -> None:
    assert progress.status(PROGRESS) == (
        "60/s of 60/s, 10 in flight, p50 1.50 ms, p99 250 ms, lag p99 0.04 ms, errors 5 timeout"
    )
    quiet = {**PROGRESS, "failed": {}, "processes": 3, "target_rate": None}
    assert progress.status(quiet) == (
        "60/s, 10 in flight, p50 1.50 ms, p99 250 ms (worst of 3 processes),"
        " lag p99 0.04 ms (worst of 3 processes), no errors"
    )


def test_the_live_view_shows_the_same() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    live = progress.Live(console)
    live.begin("http://[x]/", "Poisson at 60/s for 10s", 100)
    live.event(PROGRESS)
    live.event({"event": "warning", "message": "be [careful]"})
    shown = io.StringIO()
    Console(file=shown, width=100).print(live._view())
    live.end("http://[x]/", {"rows": 50, "ok": 45, "failed": {"timeout": 5}})
    live.close()
    text = shown.getvalue()
    for part in ("http://[x]/", "50/100", "60/s of 60/s", "p99 250 ms", "5 timeout", "in flight"):
        assert part in text, text
    assert "be [careful]" in screen.getvalue()
    assert "50 requests: 45 ok, 5 timeout" in screen.getvalue()


def test_too_few_rows_are_said_so_and_no_p99_is_printed(uncia: Uncia) -> None:
    with Server() as server:
        ended = finish(uncia("load", server.url, "--rate", "200/s", "--duration", "200ms"))
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "40 requests: 40 ok"
    assert "Not printed, because 40 rows are too few: p95 (needs 59), p99 (needs 299)" in ended.out
    assert [line.split()[0] for line in lines if line.startswith(("p", "max"))] == [
        "p50",
        "p90",
        "max",
    ]
    assert "Generator lag: p50 " in ended.out


def test_json_has_the_keys_of_an_experiment_and_its_own(inside: Inside, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server() as server:
        shape = ("--rate", "400/s", "--duration", "1s", "--seed", "3")
        ended = inside(
            "load", server.url, *shape, "--quantiles", "50,99,99.9", "--out", out, "--json"
        )
    assert ended.code == 0, ended.err
    result = ended.json()
    rows = record.read(out)
    of_experiment = json.loads(json.dumps(summary.summarise(rows, {})))
    assert {key: result[key] for key in of_experiment} == of_experiment
    assert (result["seed"], result["processes"], result["open_loop"]) == (3, 1, True)
    assert (result["stopped"], result["interrupted"], result["share"]) == (None, False, "1/1")
    assert abs(result["offered_rate"] - 400) < 1e-6
    assert list(result["quantiles"]) == ["p50", "p99", "p99.9"]
    assert result["quantiles"]["p99.9"] == {"value": None, "ci95": None, "rows_needed": 2995}
    latency = np.sort(rows.column("received").to_numpy() - rows.column("scheduled").to_numpy())
    p99 = result["quantiles"]["p99"]
    assert p99["value"] == latency[395] / 1e6
    assert p99["ci95"][0] <= p99["value"] <= p99["ci95"][1]


def test_errors_are_told_by_class_with_an_example(inside: Inside) -> None:
    answers = iter([OK, ERROR, OK, b"HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n"] * 10)
    with Server(lambda request: next(answers)) as server:
        ended = inside("load", server.url, "--rate", "100/s", "--duration", "400ms", "--json")
    assert ended.code == 1
    errors = ended.json()["errors"]
    assert {word: entry["count"] for word, entry in errors.items()} == {
        "function_error": 10,
        "throttled": 10,
    }
    assert "503" in errors["function_error"]["example"]
    assert "20 of 40 requests failed: 10 " in ended.err


def test_round_trips_are_reported_and_subtracted_only_when_asked(
    inside: Inside, tmp_path: Path
) -> None:
    less = tmp_path / "less.parquet"
    with Server() as server:
        arguments = ("load", server.url, "--rate", "50/s", "--duration", "400ms")
        first = inside(*arguments, "--rtt-probes", "7", "--json")
        second = inside(*arguments, "--subtract-rtt")
        third = inside(*arguments, "--subtract-rtt", "--out", less, "--json")
    result = first.json()
    (both,) = result["rtt"].values()
    assert both["before"]["probes"] == both["after"]["probes"] == 7
    assert 0 < both["before"]["min_ms"] <= both["before"]["median_ms"]
    assert "subtracted_rtt_ms" not in result
    assert "the median round trip, as asked for" in second.out
    rows = record.read(less)
    latency = rows.column("received").to_numpy() - rows.column("scheduled").to_numpy()
    result = third.json()
    measured = np.sort(latency)[9] / 1e6
    assert result["quantiles"]["p50"]["value"] == measured
    shorter = result["quantiles_less_rtt"]["p50"]["value"]
    assert 0 < result["subtracted_rtt_ms"] == pytest.approx(measured - shorter)


def test_round_trips_of_several_endpoints_are_not_subtracted(
    inside: Inside, tmp_path: Path
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        "name: two\nfunctions:\n  f: {urls: ['http://127.0.0.1:1/', 'http://127.0.0.1:2/']}\n"
        "streams:\n  - {function: f, arrivals: {kind: constant, rate: 1/s, duration: 1s}}\n"
    )
    ended = inside("load", file, "--subtract-rtt")
    assert ended.code == 2
    assert "several endpoints" in ended.err
