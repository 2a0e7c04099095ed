"""What a task in bursts saves and adds, against fractions worked out by hand."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_rows import MB, MS, request, tasks
from record_rows import table

from uncia import record
from uncia.bandwidth import intermittent
from uncia.bandwidth.intermittent import (
    BURSTS,
    LONG,
    TASKS,
    break_even_fee,
    compare,
    costs,
    pairs,
    saved,
)
from uncia.errors import UnciaError
from uncia.report.cpu.intermittent import page
from uncia.report.table import Table
from uncia.suites.intermittent import Cut, Settings, cut, document, whole_document
from uncia.suites.study import planned

AWS = "aws-lambda-x86"
# Lambda's published prices: USD per GB-second, and per request.
GB_S = Fraction("0.0000166667")
FEE = Fraction("0.0000002")

amounts = st.fractions(min_value=0, max_value=10**6, max_denominator=10**12)


def test_both_ways_as_worked_out_by_hand() -> None:
    # As one invocation 100 ms and 120 ms; in bursts 3 and 4 requests of 10 ms.
    rows = table(tasks([(100 * MS, [10 * MS] * 3), (120 * MS, [10 * MS] * 4)]))
    result = intermittent.tasks(rows)
    assert [task.name for task in result] == ["long 0", "long 1", "bursts 0", "bursts 1"]
    both = pairs(result)
    comparison = compare(costs(rows, result, [AWS])[AWS], both, AWS)

    size = Fraction(128, 1024)
    long_gb_s = size * Fraction(110, 1000)
    burst_gb_s = size * Fraction(35, 1000)
    assert comparison.long.gb_s == long_gb_s
    assert comparison.bursts.gb_s == burst_gb_s
    assert comparison.gb_s_saved == 1 - Fraction(35, 110)
    assert comparison.long.resources_usd == long_gb_s * GB_S
    assert comparison.bursts.resources_usd == burst_gb_s * GB_S
    assert comparison.long.fees_usd == FEE
    assert comparison.bursts.fees_usd == FEE * Fraction(7, 2)
    assert (
        comparison.bill_added
        == (burst_gb_s * GB_S + FEE * Fraction(7, 2)) / (long_gb_s * GB_S + FEE) - 1
    )
    assert comparison.pays_below_usd == (long_gb_s - burst_gb_s) * GB_S / Fraction(5, 2)
    assert comparison.fee_usd == FEE
    assert comparison.tasks == 2
    assert comparison.pays_below_interval is not None
    low, high = comparison.pays_below_interval
    assert low <= float(comparison.pays_below_usd) <= high


def test_each_request_is_rounded_up_as_the_tariff_says() -> None:
    # Lambda bills whole milliseconds, so 3 bursts of 1.1 ms are 6 ms.
    rows = table(tasks([(9 * MS, [1_100_000] * 3)]))
    result = intermittent.tasks(rows)
    comparison = compare(costs(rows, result, [AWS])[AWS], pairs(result), AWS)
    assert comparison.bursts.gb_s == Fraction(128, 1024) * Fraction(6, 1000)
    assert comparison.pays_below_interval is None, "one pair has no spread"


def test_a_task_that_a_tariff_cannot_price_is_refused_with_the_reason() -> None:
    rows = tasks([(50 * MS, [9 * MS] * 2)])
    rows[2]["allocated_memory"] = None
    result = intermittent.tasks(table(rows))
    with pytest.raises(UnciaError, match=f"{AWS} cannot price every request: .*memory"):
        costs(table(rows), result, [AWS])


@settings(max_examples=50)
@given(long=amounts, bursts=amounts, count=st.integers(2, 10_000))
def test_at_the_break_even_fee_both_bills_are_equal(
    long: Fraction, bursts: Fraction, count: int
) -> None:
    fee = break_even_fee(long, bursts, Fraction(count))
    assert long + fee == bursts + count * fee
    # Below it bursts are cheaper, above it one invocation is.
    assert bursts + count * (fee - 1) < long + (fee - 1)
    assert bursts + count * (fee + 1) > long + (fee + 1)


@settings(max_examples=50)
@given(long=amounts, bursts=amounts, factor=st.fractions(min_value=Fraction(1, 1000), max_value=9))
def test_savings_do_not_depend_on_the_unit(
    long: Fraction, bursts: Fraction, factor: Fraction
) -> None:
    share = saved(long, bursts)
    assert share == saved(long * factor, bursts * factor)
    if share is None:
        assert long == 0
    else:
        assert share <= 1
        assert (share > 0) == (bursts < long)
        assert long * (1 - share) == bursts


@pytest.mark.parametrize("count", [0, 1])
def test_one_burst_has_no_break_even_fee(count: int) -> None:
    with pytest.raises(ValueError, match="more than one"):
        break_even_fee(Fraction(1), Fraction(1), Fraction(count))
    rows = table(tasks([(10 * MS, [10 * MS])]))
    result = intermittent.tasks(rows)
    with pytest.raises(UnciaError, match="fits into one burst"):
        compare(costs(rows, result, [AWS])[AWS], pairs(result), AWS)


def test_a_task_that_broke_off_or_failed_counts_for_nothing() -> None:
    rows = tasks([(50 * MS, [9 * MS] * 3)] * 4)
    rows[3]["outcome"], rows[3]["error"] = "timeout", "no answer in time"
    rows[8]["outcome"], rows[8]["error"] = "function_error", "no"
    # Of the second task's bursts only the first was sent, and none after the third, which failed.
    del rows[9:12]
    del rows[6:8]
    result = intermittent.tasks(table(rows))
    assert [task.name for task in result] == [
        *("long 0", "long 1", "long 2", "long 3"),
        *("bursts 0", "bursts 1", "bursts 3"),
    ]
    problems = {task.name: task.problem for task in result if task.problem is not None}
    assert list(problems) == ["long 2", "bursts 0", "bursts 1"]
    assert "timeout (no answer in time)" in str(problems["bursts 0"])
    assert "after 1 of 3 bursts" in str(problems["bursts 1"])
    assert [(long.number, bursts.number) for long, bursts in pairs(result)] == [(3, 3)]


def test_cold_starts_and_unknown_executions_are_no_measurements() -> None:
    rows = tasks([(50 * MS, [9 * MS] * 2), (50 * MS, [9 * MS] * 2)])
    rows[0]["start"] = "cold"
    rows[3]["execution"] = None
    assert pairs(intermittent.tasks(table(rows))) == []


def test_rows_of_another_experiment_are_refused() -> None:
    with pytest.raises(UnciaError, match="no rows of the stage long of the experiment tasks"):
        intermittent.tasks(table([request(1), request(2, experiment=TASKS, stage="1-of-2")]))


def test_a_run_without_a_whole_task_says_why(tmp_path: Path) -> None:
    rows = tasks([(50 * MS, [9 * MS] * 2)])
    rows[1]["outcome"], rows[1]["error"] = "throttled", "HTTP 429"
    record.write(table(rows), tmp_path / "invocations.parquet")
    with pytest.raises(UnciaError, match=r"no task .*throttled \(HTTP 429\)") as refused:
        intermittent.read(tmp_path)
    assert refused.value.exit_code == 1


def test_the_result_holds_what_was_measured_and_nulls_for_what_was_not(tmp_path: Path) -> None:
    rows = tasks([(50 * MS, [9 * MS] * 2)])
    for row in rows[1:]:
        row["throttled_time"] = row["throttled_count"] = None
    record.write(table(rows), tmp_path / "invocations.parquet")
    data = intermittent.as_data(intermittent.read(tmp_path, [AWS]))
    assert data["bursts"] == 2
    assert data["memory_mb"] == 128
    assert data["measured"][LONG]["execution_s"] == 0.05
    assert data["measured"][LONG]["throttled_s"] == 0
    assert data["measured"][BURSTS]["throttled_s"] is None
    assert data["measured"][BURSTS]["throttled_share"] is None
    assert data["measured"][BURSTS]["cpu_s"] == 0.004
    (entry,) = data["tariffs"]
    assert Fraction(entry["pays_below_fee_exact"]) == Fraction(128, 1024) * GB_S * Fraction(
        32, 1000
    )
    assert entry["pays"] is False


@settings(max_examples=50)
@given(
    cpu_ms=st.integers(1, 2000),
    frame_us=st.integers(1, 500),
    request_us=st.integers(0, 800),
    megabytes=st.integers(128, 1768),
    margin=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_every_burst_fits_the_quota(
    cpu_ms: int, frame_us: int, request_us: int, megabytes: int, margin: float
) -> None:
    chosen = Settings(memory=megabytes * MB, cpu_ns=cpu_ms * MS, margin=margin)
    room = chosen.quota_ns * (1 - margin) - request_us * 1000
    if room < frame_us * 1000:
        with pytest.raises(UnciaError, match="do not fit the quota"):
            cut(chosen, frame_us * 1000, request_us * 1000)
        return
    made = cut(chosen, frame_us * 1000, request_us * 1000)
    assert sum(made.bursts) == made.frames
    assert max(made.bursts) - min(made.bursts) <= 1
    assert max(made.bursts) * frame_us * 1000 <= room
    # One burst less, and one would not fit.
    fewer = len(made.bursts) - 1
    assert fewer == 0 or -(-made.frames // fewer) * frame_us * 1000 > room


def test_a_number_of_bursts_is_kept_and_checked() -> None:
    made = cut(Settings(cpu_ns=10 * MS, bursts=7), 100_000, 400_000)
    assert made.frames == 100
    assert made.bursts == (15, 15, 14, 14, 14, 14, 14)
    with pytest.raises(UnciaError, match="cannot be cut into 101 bursts"):
        cut(Settings(cpu_ns=10 * MS, bursts=101), 100_000, 400_000)


def test_the_quota_is_the_platforms() -> None:
    assert Settings(memory=128 * MB).quota_ns == 1_447_000
    assert Settings(memory=512 * MB).quota_ns == 5_788_000
    with pytest.raises(UnciaError, match="a whole vCPU"):
        _ = Settings(memory=1769 * MB).quota_ns
    with pytest.raises(UnciaError, match="smallest quota is 1ms"):
        _ = Settings(memory=128 * MB, period_ns=10 * MS).quota_ns


def test_the_tasks_are_a_chain_that_goes_on_from_answers_and_checks_its_end() -> None:
    chosen = Settings(memory=512 * MB, repeat=7)
    first, _ = planned(document(chosen))
    whole, _ = planned(whole_document(chosen, Cut(25, (9, 8, 8)), "As measured."))
    # What was carried out before the task was cut stays as it was.
    assert list(whole.experiments[:3]) == list(first.experiments)
    assert list(whole.deployments) == ["intermittent"], "all requests go to the same instance"
    tasks = whole.experiments[3]
    assert (tasks.name, tasks.expected_requests()) == (TASKS, 28)
    assert [stream.stage for stream in tasks.streams] == [LONG, "1-of-3", "2-of-3", "3-of-3"]
    assert [stream.after for stream in tasks.streams] == [(), (0,), (1,), (2,)]
    assert {(stream.think.min, stream.think.max) for stream in tasks.streams[1:]} == {
        (20 * MS, 40 * MS)
    }
    long, begin, middle, end = tasks.streams
    assert long.event == {"first": 0, "frames": 25, "digest": 0, "expected": -1}
    assert begin.event == {"first": 0, "frames": 9, "digest": 0, "expected": -1}
    assert middle.event["frames"] == end.event["frames"] == 8
    state = '{"first": {{json answer.next}}, "frames": 8, "digest": {{json answer.digest}}, '
    assert middle.template == state + '"expected": -1}'
    assert end.template == state + '"expected": {{json answers.long.digest}}}'


def test_the_page_calls_a_change_what_is_one(tmp_path: Path) -> None:
    # In bursts 4 ms are billed instead of 50, and one fee more.
    record.write(table(tasks([(50 * MS, [2 * MS] * 2)])), tmp_path / "invocations.parquet")
    parts = page(intermittent.read(tmp_path, [AWS])).sections
    tables = [block for part in parts for block in part.blocks if isinstance(block, Table)]
    heads = [[column.heading for column in table.columns] for table in tables]
    row = dict(zip(heads[0], (cell.text for cell in tables[0].cells[0]), strict=True))
    assert row["change of GB-s"] == "-92.0 %"
    assert not any("saved" in name for name in row)
    assert heads[1][1] == "execution, ms"
    assert tables[1].cells[0][1].text == "50.00"
