"""Histories of a suite: what is planted is found, what failed is no number, a kill is survived."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from history_rows import add, make, rows
from patience import scaled
from suite_rows import MS

from uncia import locks
from uncia.errors import UnciaError
from uncia.report import page as pages
from uncia.suites import catalogue
from uncia.suites.history import dashboard, folders, index, repeat
from uncia.suites.history.judging import Judged

TARIFFS = ("aws-lambda-x86",)
LEVEL = (12.0, 12.1, 11.9, 12.05, 11.95, 12.0)


def judged(history: Path) -> list[Judged]:
    return repeat.update(history, TARIFFS)


def test_a_planted_regression_is_found_and_does_not_become_the_norm(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    for latency in (*LEVEL, 15.0, 15.1, 12.0):
        add(history, rows(latency))
    result = judged(history)
    assert [bool(item.violated) for item in result] == [False] * 6 + [True, True, False]
    assert {finding.subject for finding in result[6].violated} >= {"fig1.slow.p50"}
    # Too few before them: that is said, and is no verdict.
    assert {finding.verdict for finding in result[3].findings} == {"not judged"}
    assert result[6].compared == {"fig1/only": [item.time.name for item in result[:6]]}
    # The regression is not among what later times are compared with.
    assert result[8].compared == {"fig1/only": [item.time.name for item in result[:6]]}


def test_a_change_that_stays_becomes_the_level(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    for latency in (*LEVEL, *(value + 3 for value in LEVEL), 18.9):
        add(history, rows(latency), conditions=["p50>10%"])
    result = judged(history)
    assert [bool(item.violated) for item in result[6:]] == [True] * 4 + [False, False, True]


def test_a_time_with_too_few_rows_neither_silences_nor_ends_violations(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    for latency in LEVEL:
        add(history, rows(latency), conditions=["p50>10%"])
    few = add(history, rows(12.0, count=3), conditions=["p50>10%"])
    for latency in (15.0, 15.1, 15.0):
        add(history, rows(latency), conditions=["p50>10%"])
    add(history, rows(15.0, count=3), conditions=["p50>10%"])
    for latency in (15.05, 15.0):
        add(history, rows(latency), conditions=["p50>10%"])
    result = judged(history)
    assert result[6].time.name == few.name
    assert [bool(item.violated) for item in result[7:]] == [True] * 3 + [False, True, False]
    assert {it.verdict for it in result[10].findings} == {"not judged"}
    # The fourth violation, beyond the time that was not judged, made it the level.
    assert {it.verdict for it in result[12].findings} == {"holds"}


def test_what_failed_is_never_a_number(tmp_path: Path) -> None:
    mine, history = make(tmp_path)
    for latency in LEVEL:
        add(history, rows(latency))
    add(history, rows(77.7), status="failed", failures=["slow: 9 of 320 timeout"])
    partial = add(history, rows(88.8))
    (partial / "fig1" / "only" / "invocations.parquet").unlink()
    damaged = add(history, rows(99.9))
    (damaged / "fig1" / "only" / "invocations.parquet").write_bytes(b"PAR1 not")
    killed = add(history, rows(66.6))
    shutil.rmtree(killed / "fig1")
    add(history, rows(12.0))
    result = judged(history)
    assert [item.time.status for item in result[6:]] == ["failed"] * 4 + ["whole"]
    assert "9 of 320 timeout" in result[6].time.reason
    assert "invocations.parquet is missing" in result[7].time.reason
    assert "invocations.parquet" in result[8].time.reason
    assert "it is damaged: its folder" in result[9].time.reason
    assert not any(item.time.entries or item.findings for item in result[6:10])
    assert result[10].compared == {"fig1/only": [item.time.name for item in result[:6]]}
    html = pages.html(dashboard.page(catalogue.find(str(mine)), result, "../history/"))
    assert "9 of 320 timeout" in html
    for number in ("77.", "88.", "99.9", "66."):
        assert f",{number}" not in html
    written = json.loads((history / index.INDEX).read_text())
    assert [item["status"] for item in written["times"]][6:10] == ["failed"] * 4


def test_a_foreign_folder_is_a_sentence_and_keeps_nothing_from_being_read(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    add(history, rows(12.0))
    shutil.copytree(history / judged(history)[0].time.name, history / "holiday")
    other = add(history, rows(12.0))
    text = (other / folders.REPEAT).read_text()
    (other / folders.REPEAT).write_text(text.replace(folders.suite_of(history), "cost-paper"))
    broken = add(history, rows(12.0))
    (broken / folders.REPEAT).write_text("{")
    result = judged(history)
    assert [item.time.status for item in result] == ["whole", "foreign", "foreign", "foreign"]
    assert "of the suite cost-paper, not of" in result[1].time.reason
    assert "repeat.json is damaged: it is not JSON" in result[2].time.reason
    assert "its name is not that of a time" in result[3].time.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conditions": "p50>10%"}, "conditions is not a list"),
        ({"conditions": ["p50"]}, "'p50' is not a gate"),
        ({"runs": None}, "runs is not a list"),
    ],
)
def test_a_damaged_time_keeps_no_other_from_being_read(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    _, history = make(tmp_path)
    broken = add(history, rows(12.0)) / folders.REPEAT
    broken.write_text(json.dumps({**json.loads(broken.read_text()), **change}))
    add(history, rows(12.0))
    result = judged(history)
    assert [item.time.status for item in result] == ["foreign", "whole"]
    assert words in result[0].time.reason


def a_run_in_another_encoding(time: Path) -> None:
    path = time / "fig1" / "only" / "run.yaml"
    path.write_bytes(path.read_bytes().replace(b"slow", b"sl\xe9w"))


def a_reason_that_is_a_number(time: Path) -> None:
    path = time / "suite.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "errors": {"fig1/only": 5}}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (a_run_in_another_encoding, "run.yaml is damaged: it is not UTF-8 text"),
        (a_reason_that_is_a_number, "suite.json is damaged: errors, fig1/only is not a text"),
    ],
)
def test_a_damaged_run_is_a_time_that_failed(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    _, history = make(tmp_path)
    damage(add(history, rows(12.0)))
    add(history, rows(12.0))
    result = judged(history)
    assert [item.time.status for item in result] == ["failed", "whole"]
    assert words in result[0].time.reason


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept["time"]["entries"][0].update(figures=[{}]),
        lambda kept: kept["time"].update(conditions=[7]),
        lambda kept: kept["time"]["entries"].clear(),
    ],
)
def test_damaged_figures_are_derived_anew(
    tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    _, history = make(tmp_path)
    for latency in (12.0, 12.1):
        add(history, rows(latency))
    first = judged(history)
    path = min((history / ".figures").glob("*.json"))
    kept = json.loads(path.read_text())
    damage(kept)
    path.write_text(json.dumps(kept))
    again = judged(history)
    assert [it.findings for it in again] == [it.findings for it in first]
    assert [it.compared for it in again] == [it.compared for it in first]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("fig1.slwo.p50>5%", "no experiment that is carried out is called fig1.slwo"),
        ("slow.p50>5%", "no experiment that is carried out is called slow"),
        ("fig1/only.p50>5%", "no experiment that is carried out is called fig1/only"),
        ("fig1/other.cost>5%", "no experiment that is carried out is called fig1/other"),
        ("cost:slim>5%", "there are no costs under slim"),
    ],
)
def test_a_condition_on_what_no_time_has_is_refused(
    tmp_path: Path, condition: str, words: str
) -> None:
    mine, history = make(tmp_path)
    with pytest.raises(UnciaError) as error:
        repeat.check(plan(mine, history, condition))
    assert words in error.value.message
    assert error.value.exit_code == 2
    assert error.value.hint


def test_conditions_on_what_is_carried_out_are_taken(tmp_path: Path) -> None:
    mine, history = make(tmp_path)
    taken = ("fig1.slow.p50>5%", "*.slow.p99>5%", "fig1/only.cost>5%", "cost:aws-*>5%", "p50>5%")
    repeat.check(plan(mine, history, *taken))
    # With --quick only the other one is carried out.
    with pytest.raises(UnciaError, match=r"is called fig1\.slow"):
        repeat.check(plan(mine, history, "fig1.slow.p50>5%", quick=True))
    repeat.check(plan(mine, history, "fig1.fast.p50>5%", quick=True))


def plan(mine: Path, history: Path, *conditions: str, quick: bool = False) -> repeat.Plan:
    """What is carried out of a suite, with these conditions."""
    found = catalogue.find(str(mine))
    entries = list(found.entries.values())
    return repeat.Plan(history, found, entries, quick, conditions, TARIFFS, None)


def test_the_index_is_derived_and_what_it_keeps_is_not_trusted(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    for latency in LEVEL:
        add(history, rows(latency))
    first = judged(history)
    text = (history / index.INDEX).read_text()
    (history / index.INDEX).unlink()
    kept = sorted((history / ".figures").glob("*.json"))
    kept[0].write_text("{")
    shutil.rmtree(history / ".figures") if len(kept) < 2 else kept[1].unlink()
    assert [item.findings for item in judged(history)] == [item.findings for item in first]
    assert (history / index.INDEX).read_text() == text
    # Rows that change are read again.
    last = add(history, rows(12.0))
    assert not judged(history)[-1].violated
    shutil.rmtree(last / "fig1")
    assert judged(history)[-1].time.status == "failed"


def test_another_experiment_file_is_not_compared(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    for latency in LEVEL:
        add(history, rows(latency))
    changed = add(history, rows(20.0))
    state = json.loads((changed / "suite.json").read_text())
    state["files"] = {"fig1/only": "another"}
    (changed / "suite.json").write_text(json.dumps(state))
    last = judged(history)[-1]
    assert (last.violated, last.compared) == ([], {"fig1/only": []})
    assert all("no time before it" in finding.reason for finding in last.findings)


def test_a_time_goes_on_only_while_its_process_does(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    moment = folders.utc_now()
    described = folders.Repeat(folders.suite_of(history), "x", False, ["fig1/only"], [])
    folders.begin(history, described, moment)
    with folders.locked(history):
        (going_on,) = repeat.look(history, TARIFFS)
    assert going_on.time.status == "running"
    # Its process was killed; the lock went with it.
    (killed,) = repeat.look(history, TARIFFS)
    assert (killed.time.status, killed.time.reason) == (
        "failed",
        "it was ended before anything was run",
    )


def test_what_a_reader_saw_of_a_time_that_was_ending_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, history = make(tmp_path)
    first = add(history, rows(12.0, count=20))
    ended = add(history, rows(12.0, count=20))
    content = (ended / folders.REPEAT).read_text()
    rows_of = ended / "fig1" / "only" / "invocations.parquet"
    aside = rows_of.rename(tmp_path / "aside")
    examine = index._examine

    def examine_then_end(path: Path, suite: str) -> object:
        seen = examine(path, suite)
        if path == ended and aside.exists():
            # As a repeat does it: the rows are there, then the end is written.
            aside.rename(rows_of)
            (ended / folders.REPEAT).write_text(content)
        return seen

    monkeypatch.setattr(index, "_examine", examine_then_end)
    assert index.read(history, TARIFFS)[-1].status == "failed"
    assert index.read(history, TARIFFS)[-1].status == "whole"
    # Without the lock, nothing of the last time is kept at all.
    shutil.rmtree(history / ".figures")
    index.read(history, TARIFFS, is_locked=False)
    assert [path.stem for path in (history / ".figures").iterdir()] == [first.name]


def test_drawing_a_history_keeps_nobody_from_adding_to_it(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    add(history, rows(12.0, count=20))
    with folders.indexing(history), folders.locked(history):
        assert folders.is_locked(history)
    # One that looks has the lock for a moment alone, which is waited for.
    with (history / ".lock").open("a+") as file:
        locks.lock(file)
        threading.Timer(0.2, file.close).start()
        with folders.locked(history):
            pass


def test_the_command_of_a_regression_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, history = make(tmp_path)
    add(history, rows(12.0, count=20))
    monkeypatch.setattr(repeat, "COMMAND_LIMIT_S", 1.0)
    note = tmp_path / "pid"
    answer: list[str] = []
    command = f"sleep 600 & echo $! > {note}.new; mv {note}.new {note}; wait"
    (only,) = judged(history)
    while not note.exists():
        # On a busy machine the shell may be ended before it begins.
        repeat._run_command(command, history, only, answer.append)
    assert "the command was ended" in answer[-1]
    child = Path(f"/proc/{note.read_text().strip()}/stat")

    def is_over() -> bool:
        try:
            return child.read_text().rpartition(")")[2].split()[0] in ("Z", "X")
        except (FileNotFoundError, ProcessLookupError):
            return True

    deadline = time.monotonic() + scaled(60)
    while not is_over():
        assert time.monotonic() < deadline, "the command's child goes on"
        time.sleep(0.05)


def test_clocks_that_jump_change_no_order(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    paths = []
    for jump in (0, 400, -900, 0):
        moment = folders.utc_now() + timedelta(days=jump)
        described = folders.Repeat(folders.suite_of(history), "x", False, [], [])
        paths.append(folders.begin(history, described, moment))
    assert folders.numbered(history) == paths
    week = 7 * 24 * 3600 * 10**9
    now = datetime(2026, 1, 8, tzinfo=UTC)
    assert repeat.remaining_ns(None, week, now) == 0
    assert repeat.remaining_ns(now - timedelta(days=3), week, now) == week * 4 // 7
    assert repeat.remaining_ns(now - timedelta(days=400), week, now) == 0
    # The last one is in the future, as the clock was set back: not longer than an interval.
    assert repeat.remaining_ns(now + timedelta(days=400), week, now) == week


def test_a_history_is_of_one_suite_and_of_one_process(tmp_path: Path) -> None:
    _, history = make(tmp_path)
    with pytest.raises(UnciaError, match="is the history of"):
        folders.open_history(history, "cost-paper")
    with pytest.raises(UnciaError, match="holds no history"):
        folders.open_history(tmp_path / "mine", "cost-paper")
    with (
        folders.locked(history),
        pytest.raises(UnciaError, match="another `uncia suite repeat` goes on"),
        folders.locked(history),
    ):
        pass
    (history / ".new-000001-x").mkdir()
    add(history, rows(12.0, count=20))
    assert not list(history.glob(".new-*"))


def test_what_was_not_judged_is_no_good_news(tmp_path: Path) -> None:
    mine, history = make(tmp_path)
    suite = catalogue.find(str(mine))
    add(history, rows(12.0))
    few = dashboard.page(suite, judged(history), "../history/")
    assert few.verdict.startswith("Of the last time nothing is judged, such as fig1.slow.p50: ")
    assert not few.good
    for latency in LEVEL[1:]:
        add(history, rows(latency), conditions=["p50>10%"])
    enough = dashboard.page(suite, judged(history), "../history/")
    assert enough.verdict == "The last time violates no condition."
    assert enough.good
    add(history, rows(12.0, count=9), conditions=["failed>0", "p99>10%"])
    part = dashboard.page(suite, judged(history), "../history/")
    assert "violates no condition, but 1 of 2 were not judged, such as fig1.slow.p99: " in (
        part.verdict
    )
    assert not part.good


def test_the_dashboard_marks_changes_and_links_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNCIA_CHECK_CHARTS", "1")
    mine, history = make(tmp_path)
    for latency in (*LEVEL, 15.0):
        last = add(history, rows(latency))
    path = dashboard.write(
        catalogue.find(str(mine)), history, judged(history), tmp_path / "site" / "deep"
    )
    html = path.read_text()
    assert f'href="../../history/{last.name}/report.html"' in html
    made = dashboard.page(catalogue.find(str(mine)), judged(history), "../history/")
    charts = {chart.name: chart.spec for chart in pages.charts(made)}
    assert set(charts) == {
        "fig1-p50",
        "fig1-p99",
        "fig1-tmr",
        "fig1-cold",
        "fig1-cost-aws-lambda-x86",
    }
    lines = charts["fig1-p50"]["data"]["values"].splitlines()
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == [""] * 6 + ["true"]
    number, _, _, value, low, high, _ = lines[-1].split(",")
    assert (number, round(float(value))) == ("7", 15)
    assert float(low) <= float(value) <= float(high)


@pytest.mark.parametrize("others", [[], ["fast"]])
def test_the_dashboard_marks_what_a_whole_run_costs(tmp_path: Path, others: list[str]) -> None:
    mine, history = make(tmp_path)
    for latency in (*LEVEL, 30.0):
        execution = round(latency * MS)
        slow = [{**row, "execution": execution} for row in rows(latency, count=40)]
        more = [
            {**row, "experiment": name, "invocation": f"{name}-{row['invocation']}"}
            for name in others
            for row in rows(12.0, count=40)
        ]
        add(history, [*slow, *more], conditions=["cost>5%"])
    result = judged(history)
    assert [finding.subject for finding in result[-1].violated] == ["fig1/only.cost:aws-lambda-x86"]
    made = dashboard.page(catalogue.find(str(mine)), result, "../history/")
    charts = {chart.name: chart.spec for chart in pages.charts(made)}
    lines = charts["fig1-cost-aws-lambda-x86"]["data"]["values"].splitlines()[1:]
    # One experiment alone is what the run costs; of several the sum has a line of its own.
    marked = '"all of only"' if others else '"slow"'
    assert len(lines) == 7 * (len(others) + 1 + bool(others))
    assert [
        (line.split(",")[0], line.split(",")[2]) for line in lines if line.endswith("true")
    ] == [("7", marked)]
