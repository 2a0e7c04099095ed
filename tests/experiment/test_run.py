"""Whole runs on the real platform with the real load generator, as a person starts them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_helpers import (
    LONG,
    TINY,
    Ended,
    Uncia,
    description,
    experiment,
    finish,
    function,
    left_behind,
    rows,
    sending,
    status,
    traces,
    wait_until,
)

from uncia import record
from uncia.platforms import journal, processes
from uncia.report.checks import CHECK

SUMMARY_KEYS = {"invocations", "sent", "failed", "cold", "latency_ms", "tmr", "lag_us"}
TARIFF_KEYS = {
    "billable_vcpu_s",
    "billable_gb_s",
    "cost_usd_per_million",
    "inflation_vcpu",
    "inflation_memory",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


Inside = Callable[..., Ended]


@pytest.fixture
def inside(
    command: Callable[..., tuple[int, str, str]], state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Inside:
    """Runs the command ``uncia`` in this process, where neither signals nor its end matter.

    Importing is most of the work of a short run, and is done here already.
    """
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv(CHECK, "1")
    return lambda *arguments: Ended(*command(*arguments))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def test_a_run_without_a_folder_of_its_own_is_kept_under_its_id(
    uncia: Uncia, tmp_path: Path
) -> None:
    # Nothing listens there: that every request fails does not matter here.
    path = tmp_path / "short.yaml"
    path.write_text(
        "name: short\nseed: 1\nplatform: {kind: http}\n"
        "functions: {f: {url: 'http://127.0.0.1:9/'}}\n"
        "experiments: {only: {function: f, arrivals: {kind: burst, sizes: [1]}}}\n"
    )
    ended = finish(uncia("run", path, "--allow-failures", cwd=tmp_path))
    assert ended.code == 0, ended.err
    (kept,) = (tmp_path / "results").iterdir()
    assert description(kept)["run"] == kept.name
    assert {row["run"] for row in rows(kept)} == {kept.name}


def test_a_run_from_beginning_to_end(
    uncia: Uncia, tiny: Path, folder: Path, state_home: Path
) -> None:
    ended = finish(uncia("run", tiny, "--out", folder))
    assert ended.code == 0, ended.err
    assert str(folder / "report.html") in ended.out
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "bill.parquet",
        "instances.parquet",
        "invocations.parquet",
        "machine.parquet",
        "report.html",
        "run.yaml",
        "spans.parquet",
        "summary.json",
    ]
    summary = json.loads((folder / "summary.json").read_text())
    table = rows(folder)

    # Every request that was scheduled was sent and is one row, under its experiment.
    assert list(summary["experiments"]) == ["warm.warmup", "warm", "cold"]
    assert [item["sent"] for item in summary["experiments"].values()] == [2, 50, 4]
    for name, item in summary["experiments"].items():
        assert set(item) >= SUMMARY_KEYS
        selected = [row for row in table if row["experiment"] == name]
        assert item["invocations"] == item["sent"] == len(selected)
        assert item["failed"] == 0
        # Measured, and subtracted from nothing that nobody asked it of.
        (both,) = item["round_trips"].values()
        assert both["before"]["probes"] == both["after"]["probes"] == 5
        assert 0 < both["before"]["min_ms"] <= both["before"]["median_ms"]
        assert "latency_less_rtt_ms" not in item
    assert len({row["invocation"] for row in table}) == len(table) == 56
    assert summary["experiments"]["cold"]["cold"] == 4
    assert summary["experiments"]["warm"]["latency_ms"]["p50"] > 0

    # The platform's log says of every row what the client cannot know.
    for row in table:
        for column in (
            "request_id",
            "start",
            "instance",
            "started",
            "ended",
            "queued",
            "execution",
            "billed",
            "allocated_cpu",
            "allocated_memory",
            "cpu_user",
            "cpu_system",
            "memory_peak",
        ):
            assert row[column] is not None, (column, row)
        assert row["allocated_memory"] == 512 << 20
        assert row["function"] == "hello"
        assert 0 < row["scheduled"] <= row["sent"] <= row["first_byte"] <= row["received"]
        assert row["scheduled"] < row["started"] < row["ended"] < row["received"]
        assert (row["initialization"] is not None) == (row["start"] == "cold")

    instances = rows(folder, "instances")
    assert {row["instance"] for row in table} == {row["instance"] for row in instances}
    assert all(row["ended"] is not None and row["end_reason"] for row in instances)
    known = {row["invocation"] for row in table}
    spans = rows(folder, "spans")
    assert {row["name"] for row in spans if row["clock"] == "function"} == {"handler"}
    assert any(row["clock"] == "platform" for row in spans)
    assert {row["invocation"] for row in spans if row["invocation"] is not None} <= known
    assert any(row["counter"].startswith("cpu.") for row in rows(folder, "machine"))

    # Bills: the results as a whole, and by experiment and function; warm-ups are no results.
    assert "aws-lambda-x86" in summary["tariffs"]
    assert all(set(item) >= TARIFF_KEYS for item in summary["tariffs"].values())
    assert summary["tariffs"]["aws-lambda-x86"]["rows"] == 54
    bills = [row for row in rows(folder, "bill") if row["tariff"] == "aws-lambda-x86"]
    whole = [row for row in bills if row["experiment"] is None]
    assert [row["rows"] for row in whole] == [54]
    parts = [row for row in bills if row not in whole]
    warmups = [row for row in parts if row["experiment"].endswith(".warmup")]
    assert sum(row["rows"] for row in warmups) == 2
    results = [row for row in parts if row not in warmups]
    assert sum(row["cost_usd"] for row in results) == whole[0]["cost_usd"]

    answer = description(folder)
    assert answer["status"] == "complete"
    assert answer["failures"] == []
    assert not [line for line in summary["warnings"] if "log" in line], "the join is complete"
    assert left_behind(state_home) == []
    assert traces(folder, state_home) == set()


def test_the_resolved_file_runs_again_with_the_same_schedule(
    inside: Inside, tiny: Path, folder: Path, tmp_path: Path
) -> None:
    import yaml

    assert inside("run", tiny, "--out", folder, "--only", "warm", "-q").code == 0
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(description(folder)["file"], sort_keys=False))
    second = tmp_path / "second"
    assert inside("run", again, "--out", second, "--only", "warm", "-q").code == 0

    def schedule(run: Path) -> list[int]:
        times = sorted(
            int(str(row["scheduled"])) for row in rows(run) if row["experiment"] == "warm"
        )
        return [time - times[0] for time in times]

    assert schedule(folder) == schedule(second)


def test_an_undeclared_failure_ends_with_1_and_says_which(
    uncia: Uncia, inside: Inside, tmp_path: Path, folder: Path
) -> None:
    function(tmp_path / "raises", "def handler(event, context):\n    raise ValueError('no')\n")
    arrivals = "{kind: constant, rate: 10/s, duration: 500ms}"
    path = experiment(tmp_path, "./raises", arrivals)
    ended = finish(uncia("run", path, "--out", folder))
    assert ended.code == 1
    assert "only: 5 of 5 function_error (declared: none)" in ended.err
    table = rows(folder)
    assert [row["outcome"] for row in table] == ["function_error"] * 5
    assert all("ValueError" in str(row["error"]) for row in table)
    assert status(folder) == "failed"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["experiments"]["only"]["failed"] == 5
    assert (folder / "report.html").exists()
    # The same, allowed on the command line, and declared in the file.
    ended = inside("run", path, "--out", folder, "--overwrite", "--allow-failures", "-q")
    assert ended.code == 0
    declared = experiment(tmp_path, "./raises", arrivals, expect="{function_error: all}")
    ended = inside("run", declared, "--out", folder, "--overwrite", "-q")
    assert ended.code == 0, ended.err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["experiments"]["only"]["failed"] == 0


LONG_ANSWER = """\
import time

def handler(event, context):
    now = time.time_ns()
    spans = [["part", now + i, now + i + 1] for i in range(1_000)]
    report = {"spans": spans, "handler_start_ns": now, "handler_end_ns": time.time_ns()}
    # Of 4 MiB, before the report and after it.
    data = [[i, "}, \\"uncia\\": 5"] for i in range(90_000)]
    return {"before": data, "uncia": report | {"valid": True}, "after": data}
"""


def test_of_a_long_answer_the_report_is_read(inside: Inside, tmp_path: Path, folder: Path) -> None:
    function(tmp_path / "long", LONG_ANSWER)
    form = tmp_path / "long" / "function.yaml"  # its time limit is for functions that say little
    form.write_text(form.read_text().replace("timeout: 2s", "timeout: 60s"))
    path = experiment(tmp_path, "./long", "{kind: burst, sizes: [2]}")
    ended = inside("run", path, "--out", folder, "-q")
    assert ended.code == 0, ended.err
    table = rows(folder)
    assert len(table) == 2
    assert all(int(str(row["response_bytes"])) > 4 << 20 for row in table)
    names = [span["name"] for span in rows(folder, "spans") if span["clock"] == "function"]
    assert (names.count("handler"), names.count("part")) == (2, 2_000)

    # What it says there counts: its answer is wrong.
    code = LONG_ANSWER.replace('"valid": True', '"valid": False')
    function(tmp_path / "wrong", code)
    path = experiment(
        tmp_path, "./wrong", "{kind: burst, sizes: [1]}", expect="{function_error: all}"
    )
    ended = inside("run", path, "--out", folder, "--overwrite", "-q")
    assert ended.code == 0, ended.err
    assert "own check" in str(rows(folder)[0]["error"])


def test_a_new_function_with_a_runtime_of_its_own_is_deployed_and_answers(
    inside: Inside, tmp_path: Path, folder: Path
) -> None:
    ended = inside("new", "function", "own", "--runtime", "provided", "--into", tmp_path)
    assert ended.code == 0, ended.err
    path = experiment(tmp_path, "./own", "{kind: burst, sizes: [1], bursts: 3, interval: 300ms}")
    ended = inside("run", path, "--out", folder, "-q")
    assert ended.code == 0, ended.err
    table = rows(folder)
    assert [row["outcome"] for row in table] == ["ok"] * 3
    assert "cold" in [row["start"] for row in table]
    assert all(int(str(row["execution"])) > 0 for row in table)
    names = [span["name"] for span in rows(folder, "spans") if span["clock"] == "function"]
    assert names == ["handler"] * 3


def test_throttling_is_a_row_and_may_be_declared(
    inside: Inside, tmp_path: Path, folder: Path
) -> None:
    arrivals = "{kind: burst, sizes: [6]}"
    limit = ", max_instances: 2"
    path = experiment(tmp_path, "wait", arrivals, platform=limit)
    ended = inside("run", path, "--out", folder, "-q")
    assert ended.code == 1
    assert "only: 4 of 6 throttled (declared: none)" in ended.err
    assert sorted(str(row["status"]) for row in rows(folder)) == ["200"] * 2 + ["429"] * 4
    declared = experiment(
        tmp_path, "wait", arrivals, platform=limit, expect="{throttled: at most 4}"
    )
    ended = inside("run", declared, "--out", folder, "--overwrite", "-q")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_its_rows_and_leaves_nothing(
    number: signal.Signals, uncia: Uncia, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    process = uncia("run", path, "--out", folder)
    wait_until(sending(folder, "second"), process)
    assert traces(folder, state_home)
    process.send_signal(number)
    ended = finish(process)
    assert ended.code == 128 + number, ended.err
    table = rows(folder)
    assert sum(row["experiment"] == "first" for row in table) == 10
    second = [row for row in table if row["experiment"] == "second"]
    assert len(second) > 10
    assert all(row["outcome"] == "ok" and row["cpu_user"] is not None for row in second)
    assert status(folder) == "interrupted"
    assert (folder / "report.html").exists()
    assert list(folder.glob("*.arrows")) == []
    assert left_behind(state_home) == []
    assert traces(folder, state_home) == set()


def test_a_signal_before_the_first_request_leaves_nothing(
    uncia: Uncia, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    process = uncia("run", path, "--out", folder)
    wait_until(lambda: (folder / "run.yaml").exists(), process)
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 143
    assert not folder.exists()
    assert left_behind(state_home) == []


def test_clean_removes_what_a_killed_run_left(
    uncia: Uncia, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    process = uncia("run", path, "--out", folder)
    wait_until(sending(folder, "second"), process)

    # A run that goes on is left alone.
    ended = finish(uncia("clean"))
    assert ended.code == 0
    assert "still goes on" in ended.out
    ended = finish(uncia("recover", folder))
    assert ended.code == 2
    assert "still going on" in ended.err
    assert process.poll() is None

    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert [line for line in left_behind(state_home) if "uncia-engine" in line]
    assert traces(folder, state_home)
    ended = finish(uncia("clean", "--dry-run"))
    assert ended.code == 0
    assert "embedded: engine" in ended.out
    assert [line for line in left_behind(state_home) if "uncia-engine" in line]
    assert status(folder) == "running"

    ended = finish(uncia("clean"))
    assert ended.code == 0, ended.out
    assert left_behind(state_home) == []
    assert traces(folder, state_home) == set()
    assert status(folder) == "crashed"
    table = rows(folder)
    assert sum(row["experiment"] == "first" for row in table) == 10
    assert sum(row["experiment"] == "second" for row in table) > 10
    assert list(folder.glob("*.arrows")) == []
    # The platform's log is gone with it, and what its answers said is enough for every bill.
    assert all(row["allocated_memory"] for row in table if row["outcome"] == "ok")
    bills = finish(uncia("bill", folder, "--strict"))
    assert bills.code == 0, bills.out
    assert "Nothing is left" in finish(uncia("clean")).out


def test_an_impatient_ctrl_c_changes_nothing(
    uncia: Uncia, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    process = uncia("run", path, "--out", folder)
    wait_until(sending(folder, "second"), process)
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert finish(process).code == 130
    assert len(rows(folder)) > 20
    assert status(folder) == "interrupted"
    assert left_behind(state_home) == []


def test_a_platform_that_dies_fails_the_run_and_is_swept(
    uncia: Uncia, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    # Long enough that some requests are left on a busy machine.
    path.write_text(LONG.replace("10min", "8s"))
    process = uncia("run", path, "--out", folder)
    wait_until(sending(folder, "second"), process)
    assert traces(folder, state_home)
    (engine,) = processes.with_argument(str(next((state_home / "embedded").iterdir())))
    os.kill(engine.pid, signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 1
    assert "error: the embedded platform ended by itself (signal 9)" in ended.err
    table = [row for row in rows(folder) if row["experiment"] == "second"]
    assert len(table) == 160, "requests that found no platform are rows like any other"
    assert {row["outcome"] for row in table} == {"ok", "transport_error"}
    assert status(folder) == "failed"
    assert left_behind(state_home) == []
    assert traces(folder, state_home) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_is_told_and_the_rows_so_far_stay(
    uncia: Uncia, tmp_path: Path, state_home: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", disk], check=True)
    try:
        path = tmp_path / "long.yaml"
        path.write_text(LONG.replace("20/s, duration: 10min", "400/s, duration: 10min"))
        ended = finish(uncia("run", path, "--out", disk / "run"))
        assert ended.code == 1
        assert "No space left on device" in ended.err
        assert "Traceback" not in ended.err
        assert status(disk / "run") == "failed"
        assert record.read(disk / "run").num_rows > 20
        assert left_behind(state_home) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_recover_waits_until_nothing_writes_any_more(
    uncia: Uncia, inside: Inside, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    process = uncia("run", path, "--out", folder)
    wait_until(sending(folder, "second"), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    ended = inside("recover", folder)
    assert ended.code == 2
    assert "what it had started still goes on" in ended.err
    assert "uncia clean" in ended.err
    (file,) = (state_home / "journal").iterdir()
    for item in map(processes.named, journal.read(file).outstanding):
        assert item is None or processes.end(item)
    ended = inside("recover", folder)
    assert ended.code == 0, ended.err
    assert "invocations.000-first.arrows: 10 rows" in ended.out
    assert len(rows(folder)) > 20
    assert status(folder) == "crashed"
    assert inside("clean").code == 0
    assert left_behind(state_home) == []


def test_bad_input_starts_nothing(uncia: Uncia, tiny: Path, folder: Path, state_home: Path) -> None:
    tiny.write_text(TINY.replace("rate: 50/s", "rate: 50"))
    ended = finish(uncia("run", tiny, "--out", folder))
    assert ended.code == 2
    assert f"{tiny}:9: experiments.warm.arrivals.rate: 50 has no unit" in ended.err
    assert "Traceback" not in ended.err
    assert not folder.exists()
    assert left_behind(state_home) == []


def test_a_function_that_cannot_be_deployed_leaves_nothing(
    inside: Inside, tmp_path: Path, folder: Path, state_home: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "handler.py").write_text("def handler(event, context): ...\n")
    (mine / "requirements.txt").write_text("six\n")
    # The version is real and the hash is not, so that the installer refuses what it gets.
    (mine / "requirements.lock").write_text("six==1.17.0 --hash=sha256:" + "0" * 64 + "\n")
    path = experiment(tmp_path, "./mine", "{kind: burst, sizes: [1]}")
    for _ in range(2):
        ended = inside("run", path, "--out", folder)
        assert ended.code == 1
        assert "requirements.lock for Python" in ended.err
        assert "Traceback" not in ended.err
        # Nothing was measured: no report says so, and nothing is in the way of the next run.
        assert not folder.exists()
    assert left_behind(state_home) == []


def test_a_dry_run_shows_the_plan_and_starts_nothing(
    uncia: Uncia, tiny: Path, tmp_path: Path, state_home: Path
) -> None:
    ended = finish(uncia("run", tiny, "--dry-run", cwd=tmp_path))
    assert ended.code == 0
    assert "cold" in ended.out
    assert not (tmp_path / "results").exists()
    assert left_behind(state_home) == []
