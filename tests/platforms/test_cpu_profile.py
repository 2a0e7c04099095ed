"""Profiles on this machine: a real control group, a real kernel, and what is left of both.

Nothing here is asserted of how long something takes, only of what is seen and counted.
"""

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import control_groups
import pytest

from uncia import record
from uncia.bandwidth import profiles
from uncia.bandwidth.profiles.measure import Settings, measure
from uncia.errors import UnciaError
from uncia.runs.folder import read_run

MS = 1_000_000
CPU = Path("/sys/fs/cgroup/cpu")

Uncia = Callable[..., "subprocess.Popen[str]"]


def can_make_groups() -> bool:
    return os.geteuid() == 0 and (
        (CPU / "cpu.cfs_quota_us").exists() or Path("/sys/fs/cgroup/cgroup.controllers").exists()
    )


needs_groups = pytest.mark.skipif(not can_make_groups(), reason="needs root and the controller cpu")


def groups(pid: int | None = None) -> list[Path]:
    """The probe's groups that are there, of one engine or of all."""
    return control_groups.named(f"uncia-probe-{pid or ''}*")


def settings(**changes: Any) -> Settings:
    plain = {
        "period_ns": 20 * MS,
        "quota_ns": 2 * MS,
        "duration_ns": 400 * MS,
        "baseline_ns": 100 * MS,
    }
    return Settings(**{**plain, **changes})


@needs_groups
def test_a_profile_is_a_run(tmp_path: Path, uncia: Uncia) -> None:
    out = tmp_path / "run"
    command = ("cpu", "profile", "--quota", "2ms", "--duration", "400ms", "--repeat", "3")
    process = uncia(*command, "--baseline", "100ms", "--out", out, "--json")
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    summary = json.loads(stdout)
    assert json.loads((out / "summary.json").read_text()) == summary
    description = read_run(out)
    assert description["status"] == "complete"
    assert description["machine"]["kernel"] == os.uname().release
    assert (out / "report.html").stat().st_size > 0

    profile = profiles.read(out)
    assert len(profile.runs) == 3
    # By the kernel's monotonic clock, on which this is just past.
    since = time.monotonic_ns() - (profile.runs[-1].start_ns or 0)
    assert 0 < since < 600 * 10**9
    assert profile.events == summary["events"] > 0
    rows = record.read(out).to_pylist()
    selected = [row for row in rows if row["experiment"] == "profile"]
    assert [row["allocated_cpu"] for row in selected] == [100_000] * 3
    shares = []
    for run, row in zip(profile.runs, selected, strict=True):
        assert row["execution"] == run.duration_ns
        assert run.start_ns is not None
        assert run.duration_ns is not None
        throttled = sum(gap for _, gap in run.events if gap >= 10 * MS)
        assert row["throttled_count"] > 0
        shares.append((row["cpu_user"] + row["cpu_system"] + throttled) / row["execution"])
        assert all(run.start_ns <= end - gap for end, gap in run.events)
        assert all(end <= run.start_ns + run.duration_ns for end, _ in run.events)
    # What a host takes from a virtual machine is CPU time, and a gap or a part of one as well; it
    # does not take as much each time.
    assert min(shares) <= 1.05, shares
    counters = set(record.read(out, "machine").column("counter").to_pylist())
    assert {"cpu.nr_throttled", "cpu.throttled_ns", "cpu.usage_ns", "probe.loops"} <= counters
    assert summary["baseline"]["loop_p50_ns"] > 0
    assert not groups()


@needs_groups
def test_the_kernel_counts_a_refill_for_each_that_lies_in_a_gap(tmp_path: Path) -> None:
    # With a low threshold every throttle is seen, also those that end soon after they began.
    measured = measure(settings(threshold_ns=20_000, duration_ns=1_000 * MS), tmp_path / "run")
    counted = measured.summary["kernel"]["nr_throttled"]
    seen = measured.summary["noise"]["refills"]
    assert counted > 20
    # The same on a quiet machine; on a busy one a refill may fall into a pause of another cause.
    assert seen == pytest.approx(counted, rel=0.25)


@needs_groups
def test_runs_are_spread_over_groups(tmp_path: Path) -> None:
    spread = settings(groups=2, repeat=3, duration_ns=100 * MS, baseline_ns=0)
    measured = measure(spread, tmp_path / "run")
    assert measured.summary["runs"] == 3
    machine = record.read(tmp_path / "run", "machine").to_pylist()
    turns = [row["cgroup"] for row in machine if row["counter"] == "probe.loops"]
    assert turns[0] != turns[1] == turns[2]
    assert measured.summary["baseline"] is None
    assert not groups()


@needs_groups
def test_tasks_use_the_cpu_time_that_they_were_given(tmp_path: Path) -> None:
    task = settings(duration_ns=None, task_cpu_ns=[1 * MS, 5 * MS], repeat=3)
    measured = measure(task, tmp_path / "run")
    result = measured.summary["tasks"]
    assert [(task["cpu_ns"], task["runs"]) for task in result] == [(1 * MS, 3), (5 * MS, 3)]
    for task_found in result:
        assert task_found["used_ns"] <= task_found["mean_ns"] + MS
        assert task_found["used_ns"] > task_found["cpu_ns"] / 2
    rows = [row for row in record.read(tmp_path / "run").to_pylist() if row["function"] == "task"]
    assert len([row for row in rows if row["experiment"] == "profile"]) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quota_ns": 999_000}, "below the 1000 us"),
        ({"period_ns": 999_000}, "1 ms to 1 s"),
        ({"period_ns": 1_001 * MS}, "1 ms to 1 s"),
        ({"burst_ns": 3 * MS}, "lower the burst"),
        ({"task_cpu_ns": [1]}, "exclude each other"),
        ({"threshold_ns": 10}, "threshold_ns"),
    ],
)
def test_what_the_kernel_refuses_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnciaError, match=message):
        measure(settings(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@needs_groups
def test_a_probe_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="cannot stay on CPU 1000"):
        measure(settings(cpu=1000), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not groups()


@needs_groups
@pytest.mark.skipif(not CPU.exists(), reason="the tree of version 1 is not mounted")
def test_a_quota_above_that_of_the_group_above_is_told(tmp_path: Path, engine_binary: Path) -> None:
    above = CPU / f"test-above-{os.getpid()}"
    above.mkdir()
    try:
        (above / "cpu.cfs_period_us").write_text("20000")
        (above / "cpu.cfs_quota_us").write_text("1500")
        with subprocess.Popen(
            [engine_binary, "cpu", "profile", "--config", "-"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            # It waits for its configuration until it is in the group.
            (above / "cgroup.procs").write_text(str(process.pid))
            _, stderr = process.communicate(
                json.dumps(settings().config(tmp_path, "run")), timeout=60
            )
    finally:
        above.rmdir()
    assert process.returncode == 2
    assert "above that of the group" in stderr
    assert "1500 us in 20000 us" in stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    not (CPU / "cpu.cfs_quota_us").exists() or not Path("/sys/fs/cgroup/unified").exists(),
    reason="needs version 2 beside a version 1 that has the controller",
)
def test_version_2_without_the_controller_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="passes no cpu on"):
        measure(settings(unified=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def long(uncia: Uncia, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A profile of many short runs that goes on; at least one run is over."""
    command = ("cpu", "profile", "--quota", "2ms", "--duration", "300ms", "--repeat", "1000")
    process = uncia(*command, "--baseline", "0ms", "--out", tmp_path / "run")
    try:
        file = tmp_path / "run" / "invocations.arrows"
        while not rows_so_far(file):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def rows_so_far(file: Path) -> int:
    """Of a stream that is being written; none before its schema is whole."""
    try:
        return record.read(file).num_rows
    except UnciaError:
        return 0


def engine_of(process: "subprocess.Popen[str]") -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@needs_groups
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_runs_made_so_far(
    long: "subprocess.Popen[str]", tmp_path: Path, number: signal.Signals
) -> None:
    pid = engine_of(long)
    long.send_signal(number)
    _, stderr = long.communicate(timeout=240)
    assert long.returncode == 128 + number, stderr
    out = tmp_path / "run"
    assert profiles.read(out).events > 0
    assert read_run(out)["status"] == "interrupted"
    assert (out / "report.html").exists()
    assert not groups(pid)


@needs_groups
def test_a_killed_engine_leaves_a_group_that_the_next_sweeps(
    long: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    pid = engine_of(long)
    probes = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    os.kill(pid, signal.SIGKILL)
    _, stderr = long.communicate(timeout=240)
    assert long.returncode == 1, stderr
    # What was measured is there all the same.
    assert profiles.read(tmp_path / "run").events > 0
    assert read_run(tmp_path / "run")["status"] == "failed"
    while any(Path(f"/proc/{probe}/exe").exists() for probe in probes):
        time.sleep(0.01)
    assert groups(pid)
    measured = measure(settings(duration_ns=50 * MS, baseline_ns=0), tmp_path / "next")
    assert read_run(measured.folder)["group"]["swept"] >= 1
    assert not groups(pid)


@needs_groups
def test_clean_removes_the_groups_of_a_killed_engine_and_no_others(
    long: "subprocess.Popen[str]", uncia: Uncia
) -> None:
    def clean(*options: str) -> str:
        process = uncia("clean", *options)
        stdout, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stdout + stderr
        return stdout

    pid = engine_of(long)
    assert groups(pid)
    assert str(pid) not in clean()
    assert groups(pid)
    assert long.poll() is None

    os.kill(pid, signal.SIGKILL)
    long.communicate(timeout=240)
    left = groups(pid)
    message = clean("--dry-run")
    assert f"left {len(left)} control group" in message
    assert all(str(group) in message for group in left)
    assert "dry run" in message
    assert groups(pid) == left
    message = clean()
    assert all(f"removed {group}" in message for group in left)
    assert not groups(pid)
    assert "Nothing is left" in clean()


@needs_groups
def test_an_engine_ends_with_the_command_that_started_it(long: "subprocess.Popen[str]") -> None:
    pid = engine_of(long)
    long.kill()
    long.wait()
    while Path(f"/proc/{pid}/exe").exists() or groups(pid):
        time.sleep(0.01)


def test_stops_of_half_a_millisecond_and_more_are_seen(engine_binary: Path) -> None:
    """The probe is stopped from outside; each stop that is confirmed must be a jump it saw."""
    wanted = seen = 0
    while wanted < 50:
        stops, gaps = stopped_probe(engine_binary)
        wanted += len(stops)
        seen += sum(any(gap[0] <= stop[0] and gap[1] >= stop[1] for gap in gaps) for stop in stops)
    assert seen >= 0.99 * wanted


Stretches = list[tuple[int, int]]


def stopped_probe(engine_binary: Path) -> tuple[Stretches, Stretches]:
    """From when to when a probe stood still for 0.5 ms or more, and the jumps that it saw."""
    probe = subprocess.Popen(
        [engine_binary, "cpu", "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert probe.stdin is not None
    assert probe.stdout is not None
    try:
        setup = {"parent": os.getpid(), "join": [], "stat": None, "cpu": None, "room": 100_000}
        probe.stdin.write(json.dumps(setup).encode() + b"\n")
        probe.stdin.flush()
        assert json.loads(probe.stdout.readline()) == "ready"
        probe.stdin.write(struct.pack("<3Q", 0, 1_500 * MS, MS // 2))
        probe.stdin.flush()
        stops = stop_again_and_again(probe.pid, until=time.monotonic_ns() + 1_200 * MS)
        head = struct.unpack("<16Q", probe.stdout.read(16 * 8))
        words = struct.unpack(f"<{2 * head[15]}Q", probe.stdout.read(head[15] * 16))
    finally:
        probe.kill()
        probe.communicate()
    gaps = [(end - gap, end) for end, gap in zip(words[::2], words[1::2], strict=True)]
    # Those while it watched: it may have been stopped before it began.
    watched = range(head[0], head[1] + 1)
    stops = [stop for stop in stops if stop[0] in watched and stop[1] in watched]
    return [stop for stop in stops if stop[1] - stop[0] >= MS // 2], gaps


def stop_again_and_again(pid: int, until: int) -> Stretches:
    """Stop a process for 0.5 to 4 ms each time; from when to when it surely stood still."""
    stops: Stretches = []
    stat = Path(f"/proc/{pid}/stat")
    while time.monotonic_ns() < until:
        os.kill(pid, signal.SIGSTOP)
        while stat.read_text().rsplit(")", 1)[1].split()[0] != "T":
            pass
        begin = time.monotonic_ns()
        length = MS // 2 + len(stops) % 8 * MS // 2
        while time.monotonic_ns() < begin + length:
            pass
        stops.append((begin, time.monotonic_ns()))
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    return stops
