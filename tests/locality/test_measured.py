"""Counting by the kernel, with events that it counts without a PMU."""

from pathlib import Path

import pytest

from uncia import perf_events
from uncia.locality import Work, branch_lines, measure, prepare
from uncia.locality.measured import EVENTS, is_counted

SOFTWARE = {
    "instructions": perf_events.SOFTWARE_TASK_CLOCK,
    "accesses": perf_events.SOFTWARE_PAGE_FAULTS,
    "misses": perf_events.SOFTWARE_PAGE_FAULTS,
}


def test_the_start_and_each_invocation_are_counted_apart(tmp_path: Path) -> None:
    if not is_counted(SOFTWARE):
        pytest.skip("the kernel counts no events for this process")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/handler.py").write_text(
        "def handler(event, context): return sum(range(3_000_000))\n"
    )
    with Work(60) as work:
        targets = prepare([f"{tmp_path}/mine", "hello"], "test", None, work.folder)
        rows = measure(targets, work, "branch_predictor", invocations=2, events=SOFTWARE)
    assert rows["part"].to_pylist() == [0, 1, 2] * 2
    assert set(rows["simulated"].to_pylist()) == {False}
    faults = rows["misses"].to_pylist()
    assert faults[0] > 500, "an interpreter's start"
    assert faults[4] < 500, "hello takes little"
    executed = rows["instructions"].to_pylist()
    assert executed[1] > 10 * executed[4] > 0
    assert rows["until"].to_pylist()[2] == sum(executed[:3])
    line = branch_lines(rows)[0]
    assert line["predictor"] == "pmu"
    assert line["simulated"] is False
    assert line["cold_mpki"] is None


def test_without_a_pmu_there_are_no_rows() -> None:
    if is_counted(EVENTS["branch_predictor"]):
        pytest.skip("this machine has one")
    with Work(60) as work:
        assert measure([], work, "branch_predictor", invocations=1).num_rows == 0
