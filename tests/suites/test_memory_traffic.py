"""The memory's bandwidth and traffic by request, of samples that are made up."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from record_rows import table

from uncia.stats.comparison import Figure
from uncia.suites import catalogue, left_out
from uncia.suites import lacking as module
from uncia.suites.metrics import metric
from uncia.suites.rows import SubjectRows

MS = 1_000_000
S = 1_000 * MS
BEGIN = 1_700_000_000 * S
# The first sample begins before the first request, and none ends with a second.
EARLIER = 250 * MS
SAMPLE = 300 * MS


def sample(number: int, value: float, **more: Any) -> dict[str, Any]:
    end = BEGIN - EARLIER + (number + 1) * SAMPLE
    common = {"run": "r", "time": end, "interval": SAMPLE, "monitor": "resctrl", "value": value}
    return {"counter": "resctrl.mbm_total_bytes", **common, **more}


def subject(
    samples: list[dict[str, Any]],
    seconds: int = 8,
    rate: int = 4,
    outcome: str = "ok",
    when: str = "scheduled",
) -> SubjectRows:
    requests = [
        {
            "run": "r",
            "experiment": "e",
            "function": "f",
            "invocation": f"i{number}",
            "attempt": 1,
            "outcome": outcome,
            when: BEGIN + number * S // rate,
        }
        for number in range(seconds * rate + 1)
    ]
    run = SimpleNamespace(machine=table(samples, "machine"))
    made = table(requests)
    return cast(SubjectRows, SimpleNamespace(name="e", requests=made, run=run))


def figure(name: str, rows: SubjectRows) -> Figure:
    compute = metric(name, name).compute
    assert compute is not None
    return compute(rows, "")


def test_samples_count_for_the_seconds_that_they_lie_in() -> None:
    # 3 MB in each 300 ms are 10 MB a second, or 2.5 MB for each of four requests.
    rows = subject([sample(number, 3e6) for number in range(40)])
    bandwidth, traffic = figure("memory_bandwidth", rows), figure("memory_traffic", rows)
    assert bandwidth.value == pytest.approx(0.01)
    assert traffic.value == pytest.approx(2.5)
    assert bandwidth.rows == traffic.rows == 8
    for made in (bandwidth, traffic):
        assert made.draws is not None
        assert np.allclose(made.draws, made.value or 0)


def test_seconds_that_one_sample_tells_of_are_one_block() -> None:
    taken = [5 * S] * 20
    ends = np.cumsum(taken) + BEGIN - EARLIER
    samples = [
        sample(number, (1 + number % 3) * 5e9, time=int(end), interval=5 * S)
        for number, end in enumerate(ends)
    ]
    wide = figure("memory_bandwidth", subject(samples, seconds=60))
    assert wide.rows == 12
    assert wide.value == pytest.approx(2, rel=0.1)
    assert wide.draws is not None
    low, high = np.quantile(wide.draws, [0.025, 0.975])
    assert high - low > 0.5
    single = [sample(0, 61e9, time=BEGIN + 60 * S, interval=61 * S)]
    assert "took longer" in figure("memory_bandwidth", subject(single, seconds=60)).why


def test_a_sample_that_is_late_makes_no_wider_blocks() -> None:
    steady = [sample(n, 10e6, time=BEGIN + (n + 1) * S, interval=S + 300_000) for n in range(8)]
    assert figure("memory_bandwidth", subject(steady)).rows == 8
    quick = [sample(n, 3e6) for n in range(110) if n not in (10, 11, 12, 13)]
    late = sample(13, 12e6, interval=4 * SAMPLE)
    held_up = figure("memory_bandwidth", subject([*quick, late], seconds=30))
    assert held_up.rows == 30
    assert held_up.value == pytest.approx(0.01)


def test_what_was_not_watched_before_or_after_is_no_gap() -> None:
    watched = [sample(number, 3e6) for number in range(40)]
    later = [sample(number, 9e9) for number in range(400, 410)]
    assert figure("memory_bandwidth", subject(watched + later)).value == pytest.approx(0.01)


def test_intervals_are_as_wide_as_seconds_differ() -> None:
    rows = subject([sample(number, 6e6 if number % 7 < 3 else 1e6) for number in range(40)])
    draws = figure("memory_bandwidth", rows).draws
    assert draws is not None
    low, high = np.quantile(draws, [0.025, 0.975])
    assert low < (figure("memory_bandwidth", rows).value or 0) < high


def test_other_rows_are_of_something_else() -> None:
    whole = [sample(number, 3e6) for number in range(40)]
    others = [
        sample(3, 9e9, cgroup="/a"),
        sample(3, 9e9, host="node"),
        sample(3, 9e9, counter="resctrl.mbm_local_bytes"),
        sample(3, 9e9, counter="resctrl.l3_00.mbm_total_bytes"),
    ]
    value = figure("memory_bandwidth", subject([*whole, *others])).value
    assert value == pytest.approx(0.01)


@pytest.mark.parametrize("first", [0, 5])
def test_of_several_monitors_one_that_watched_all_the_time_counts(first: int) -> None:
    whole = [sample(number, 3e6) for number in range(40)]
    second = [
        sample(number, 3e6, monitor="again") | {"time": row["time"] - SAMPLE // 3}
        for number, row in enumerate(whole)
    ]
    # The other one began late, or is another that counts the same.
    value = figure("memory_bandwidth", subject(whole + second[first:])).value
    assert value == pytest.approx(0.01)
    value = figure("memory_bandwidth", subject(second + whole[first:])).value
    assert value == pytest.approx(0.01)
    without = [row | {"monitor": None} for row in whole]
    assert figure("memory_bandwidth", subject(without)).value == pytest.approx(0.01)


def test_a_lost_sample_is_in_the_next_ones_interval() -> None:
    samples = [sample(number, 3e6) for number in range(40)]
    samples[10:12] = [sample(11, 6e6, interval=2 * SAMPLE)]
    assert figure("memory_bandwidth", subject(samples)).value == pytest.approx(0.01)


@pytest.mark.parametrize("name", ["memory_bandwidth", "memory_traffic"])
@pytest.mark.parametrize("lost", [range(40), range(1), range(9, 11), range(20, 40)])
def test_what_was_not_watched_all_the_time_has_no_value(name: str, lost: range) -> None:
    made = figure(name, subject([sample(it, 3e6) for it in range(40) if it not in lost]))
    assert made.value is None
    assert "no monitor has counted resctrl.mbm_total_bytes all the time" in made.why


def test_few_seconds_have_no_interval() -> None:
    samples = [sample(number, 3e6) for number in range(40)]
    made = figure("memory_traffic", subject(samples, seconds=5))
    assert (made.draws, made.rows, made.needed) == (None, 5, 6)
    made = figure("memory_traffic", subject(samples, seconds=0))
    assert (made.value, made.why) == (None, "its requests were not due over a whole second")


def test_requests_of_closed_loops_count_when_they_were_sent() -> None:
    rows = subject([sample(number, 3e6) for number in range(40)], when="sent")
    assert figure("memory_traffic", rows).value == pytest.approx(2.5)


def test_requests_that_failed_count_as_well() -> None:
    rows = subject([sample(number, 3e6) for number in range(40)], outcome="timeout")
    assert figure("memory_traffic", rows).value == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("name", "runs", "lacking"),
    [
        ("branch-rates", ["only"], "the machine shows no PMU"),
        ("bandwidth", ["resize", "dumps", "small", "large", "native"], "resctrl"),
    ],
)
def test_entries_run_where_the_processor_has_their_counters(
    monkeypatch: pytest.MonkeyPatch, name: str, runs: list[str], lacking: str
) -> None:
    entry = catalogue.find("faasprofiler").entries[name]
    assert list(entry.form.runs) == runs
    for sentence in (f"{lacking} here", ""):
        hardware = dict.fromkeys(module._HARDWARE, lambda lacking=sentence: lacking)
        monkeypatch.setattr(module, "_HARDWARE", hardware)
        assert {left_out.lacks(entry, run) for run in runs} == {sentence}
