"""Monitors beside something: ``uncia monitor``, its rows, and what is left of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from patience import scaled
from pydantic import ValidationError

from uncia import record
from uncia.doctor.monitors import Asked, unseen
from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.experiment.model import ExperimentFile
from uncia.report.monitored import format_value, summarise

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")


def _monitor(*arguments: str, timeout: float = scaled(60)) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "uncia", "monitor", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_rows_of_a_time_are_kept_and_summarised(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = _monitor("--for", f"{scaled(0.7):g}s", "-m", "machine", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    summary = {row["counter"]: row for row in json.loads(done.stdout)["counters"]}
    rows = record.read(out / "machine.parquet", "machine")
    assert set(rows.column("monitor").to_pylist()) == {"machine"}
    assert set(rows.column("counter").to_pylist()) == set(summary)
    assert 0 <= summary["cpu.busy_percent"]["mean"] <= 100
    assert summary["cpu.busy_percent"]["per_s"] is None
    assert summary["machine.context_switches_count"]["per_s"] > 0
    assert summary["monitor.cpu_ns"]["mean"] > 0
    assert not list(out.glob("*.arrows"))
    again = _monitor("--for", "1s", "--out", str(out))
    assert again.returncode != 0
    assert "exists already" in again.stderr


def test_a_command_is_watched_until_it_ends_and_its_code_is_ours(tmp_path: Path) -> None:
    code = "import sys, time; time.sleep(0.3); sys.exit(7)"
    done = _monitor("--out", str(tmp_path), "-m", "machine", "--", sys.executable, "-c", code)
    assert done.returncode == 7, done.stderr
    absent = _monitor("--out", str(tmp_path / "b"), "--", "/no/such/program")
    assert absent.returncode != 0
    assert "cannot run /no/such/program" in absent.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "guess"], "no monitor 'guess'"),
        (["-m", "cgroup", "-g", "docker"], "--group: 'docker' names no control group"),
        (["--interval", "1us"], "--interval: 1us is too short: it is at least 1 ms"),
        (["--interval", "0s"], "--interval: 0s is too short"),
        (["--repeat", "4"], "--repeat is of --cost"),
        (
            ["--cost", "e.yaml"],
            "the file says what is watched and for how long, not --for",
        ),
        (["--interval", "100"], "--interval: '100' is not a duration"),
        (["--", "true"], "a command is watched until it ends"),
        (["--for", "0s"], "--for is 0"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    out = tmp_path / "out"
    done = _monitor("--for", "1s", "--out", str(out), *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_patterns_that_name_no_group_are_told(tmp_path: Path) -> None:
    arguments = ["-m", "cgroup", "-g", "/absent/*", "--for", "200ms", "--out", str(tmp_path)]
    done = _monitor(*arguments)
    assert done.returncode == 0
    assert "no control group is named /absent/*" in done.stderr


def test_a_monitor_that_saw_none_of_its_groups_says_so() -> None:
    rows = record.conform(
        pa.table(
            {
                "time": [1, 1],
                "counter": ["cgroup.cpu_ns", "pressure.io_some_us"],
                "cgroup": ["/a", None],
                "value": [1.0, 1.0],
                "monitor": ["cgroup", "pressure"],
            }
        ),
        "machine",
        0,
    )
    names = ("machine", "cgroup", "pressure", "perf")
    asked = [Asked(name, groups=["/a", "/b/*"]) for name in names]
    # perf does not work there, which is another sentence.
    assert unseen(rows, asked, ["machine", "cgroup", "pressure"]) == [
        "pressure: it has no rows of /a or /b/*: they are in trees of version 1, and the kernel has"
        " these counters for groups in that of version 2 alone"
    ]
    assert unseen(rows.slice(1), asked[1:2], ["cgroup"]) == [
        "cgroup: no control group is named /a or /b/*"
    ]
    assert unseen(rows, [Asked("pressure")], ["pressure"]) == []


@pytest.mark.parametrize(
    ("monitors", "message"),
    [
        ([{"monitor": "cgroup", "groups": ["docker"]}], "names no control group"),
        ([{"monitor": "perf"}, {"monitor": "perf"}], "perf is named twice"),
        ([{"monitor": "machine", "groups": ["/a"]}], "of the whole machine, and takes no groups"),
        ([{"monitor": "command"}], "runs nothing: give it command, start or after"),
        ([{"monitor": "perf", "command": ["a"]}], "command is of the monitor command, not of perf"),
        ([{"monitor": "perf", "format": "pqos"}], "format is of the monitor command, not of perf"),
        ([{"monitor": "perf", "budget": "0%"}], "a budget of 0% lets a monitor do nothing"),
        ([{"monitor": "perf", "budget": "2"}], "is not a percentage"),
        # The number alone would fill the memory.
        ([{"monitor": "perf", "budget": "1e999999999%"}], "is not a percentage"),
    ],
)
def test_monitors_of_files_are_checked_before_the_run(monitors: object, message: str) -> None:
    form = {
        "name": "x",
        "platform": {"kind": "embedded"},
        "functions": {"f": {"function": "hello"}},
        "experiments": {"e": {"arrivals": {"process": "burst"}}},
        "monitors": monitors,
    }
    with pytest.raises(ValidationError, match=message):
        ExperimentFile.model_validate(form)


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        ("{monitor: machine, interval: 10us}", "interval: must be at least 1ms, not 10us"),
        (
            '{monitor: cgroup, groups: "/docker/*"}',
            "groups: must be a list, not '/docker/*': write [\"/docker/*\"]",
        ),
    ],
)
def test_wrong_keys_of_monitors_are_reported_as_they_are_written(
    tmp_path: Path, monitor: str, message: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "name: x\nplatform: {kind: embedded}\nfunctions: {f: {source: hello}}\n"
        "experiments: {e: {function: f, arrivals: {kind: burst, sizes: [1]}}}\n"
        f"monitors:\n- {monitor}\n"
    )
    with pytest.raises(UnciaError) as error:
        files.load(path)
    assert f"run.yaml:6: monitors[0].{message}" in error.value.message


@pytest.mark.parametrize(
    ("counter", "value", "text"),
    [
        ("memory.available_bytes", 24.0e9, "22.4 GB"),
        ("cgroup.cpu_ns", 1.5e6, "1.50 ms"),
        ("pressure.cpu_some_us", 2500.0, "2.50 ms"),
        ("cpu.busy_percent", 12.34, "12.3 %"),
        ("cgroup.throttled_count", 24.0e9, "24,000,000,000"),
        ("cgroup.memory_bytes", 0.0, "0 B"),
        ("cgroup.memory_bytes", None, "–"),
    ],
)
def test_values_are_written_in_the_unit_of_their_counter(
    counter: str, value: float | None, text: str
) -> None:
    assert format_value(counter, value) == text


def test_names_of_counters_stand_on_one_line(tmp_path: Path) -> None:
    arguments = ["-m", "machine", "--for", "300ms", "--out", str(tmp_path)]
    lines = _monitor(*arguments).stdout.splitlines()
    (line,) = (line for line in lines if "memory.available_bytes" in line)
    assert " GB" in line or " MB" in line


def test_the_machine_is_sampled_no_more_often_than_ticks_allow(tmp_path: Path) -> None:
    _monitor("-m", "machine", "--for", "300ms", "--interval", "10ms", "--out", str(tmp_path))
    rows = record.read(tmp_path / "machine.parquet", "machine").to_pylist()
    intervals = {row["value"] for row in rows if row["counter"] == "monitor.interval_ns"}
    assert intervals == {200e6}


def test_a_kill_leaves_no_process_and_rows_that_can_be_recovered(tmp_path: Path) -> None:
    stream = tmp_path / "machine.arrows"
    process = subprocess.Popen(
        [sys.executable, "-m", "uncia", "monitor", "-m", "machine", "--out", str(tmp_path)]
    )
    deadline = time.monotonic() + scaled(30)
    while not (children := _children(process.pid)) or not stream.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert record.recover_folder(tmp_path)["machine.arrows"] > 0


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split() if int(word) != os.getpid()]


def test_growth_by_cpu_is_that_of_all_cpus_in_the_same_time() -> None:
    rows = [
        {
            "time": time_ns,
            "counter": "perf.page_faults_count",
            "value": 30.0 + cpu,
            "monitor": "perf",
            "cpu": cpu,
            "interval": 500_000_000,
        }
        for time_ns in (1, 2)
        for cpu in (0, 1)
    ]
    rows.append({**rows[0], "monitor": None})
    table = record.conform(pa.Table.from_pylist(rows), "machine", 0)
    (line,) = summarise(table)
    assert (line["samples"], line["mean"]) == (4, 61)
    assert line["per_s"] == pytest.approx(122)


@pytest.mark.parametrize("cgroup", [None, "/a"])
def test_bins_of_histograms_are_over_the_time_that_was_watched(cgroup: str | None) -> None:
    def row(counter: str, value: float, interval: int = 100_000_000) -> dict[str, object]:
        at = {"monitor": "block", "counter": counter, "cgroup": cgroup, "interval": interval}
        return {"time": 1, **at, "value": value}

    # Of ten samples; a bin has a row only where it grew.
    rows = [row("block.a.read_count", 2.0 * (index == 3)) for index in range(10)]
    rows += [row("block.a.read_within_8192ns_count", 2.0)]
    rows += [row("monitor.cpu_ns", 7.0, 1_100_000_000)]
    table = record.conform(pa.Table.from_pylist(rows), "machine", 0)
    reads, within, _ = summarise(table)
    assert reads["per_s"] == within["per_s"] == pytest.approx(2)
    assert reads["mean"] == within["mean"] == pytest.approx(0.2)
    assert reads["samples"] == within["samples"] == 10
