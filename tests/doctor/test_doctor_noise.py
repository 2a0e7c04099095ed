"""Noise: shares of CPU time, whose it is, and the monitor that watches during a run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import scaled

from uncia import record
from uncia.doctor.host import Host
from uncia.doctor.monitor import ASKED, BACKGROUND, BUSY, NOISE, STEAL, warnings
from uncia.doctor.monitors import Monitors
from uncia.doctor.noise import Noise, Reading, measure, noise_checks, read, shares, tree_ticks

MakeHost = Callable[[Mapping[str, str]], Host]

needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")


def _reading(at: float = 0.0, **fields: int) -> Reading:
    base = {"busy": 0, "idle": 0, "iowait": 0, "steal": 0, "ours": 0}
    pressure = {key[3:]: value for key, value in fields.items() if key.startswith("ps_")}
    base.update({k: v for k, v in fields.items() if not k.startswith("ps_")})
    return Reading(time_s=at, pressure=pressure, **base)


def test_shares_are_of_all_cpu_time() -> None:
    before = _reading(10.0, busy=100, idle=1000, steal=5, iowait=7, ours=40, ps_cpu=1_000_000)
    after = _reading(12.0, busy=200, idle=1080, steal=15, iowait=17, ours=100, ps_cpu=1_500_000)
    result = shares(before, after)
    assert result.busy_percent == 50
    assert result.background_percent == 20
    assert result.steal_percent == 5
    assert result.iowait_percent == 5
    assert result.pressure_percent == {"cpu": 25}


def test_no_pressure_is_above_all_of_the_time() -> None:
    """What is read a moment after the clock was counted for a moment longer."""
    before, after = _reading(10.0, ps_cpu=0, ps_io=5), _reading(10.5, ps_cpu=590_000, ps_io=5)
    assert shares(before, after).pressure_percent == {"cpu": 100, "io": 0}


def test_no_time_at_all_is_no_share() -> None:
    same = _reading(1.0, busy=5, idle=5)
    result = shares(same, same)
    assert result.busy_percent is None
    assert result.background_percent is None
    assert result.pressure_percent == {}


@given(*[st.integers(0, 10_000)] * 5)
def test_shares_stay_between_0_and_100(
    busy: int, idle: int, iowait: int, steal: int, ours: int
) -> None:
    result = shares(
        _reading(0.0), _reading(1.0, busy=busy, idle=idle, iowait=iowait, steal=steal, ours=ours)
    )
    for value in (result.busy_percent, result.background_percent, result.steal_percent):
        assert value is None or 0 <= value <= 100


def test_counters_are_read_as_the_kernel_writes_them(machine: MakeHost) -> None:
    host = machine(
        {
            "/proc/stat": "cpu  100 20 30 4000 50 6 7 80 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n",
            "/proc/pressure/cpu": "some avg10=0.01 avg60=2.52 avg300=2.36 total=26377396\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
        }
    )
    result = read(host, set())
    assert result is not None
    # Guest time (90) is part of user time and must not count twice.
    assert (result.busy, result.idle, result.iowait, result.steal) == (163, 4000, 50, 80)
    assert result.pressure == {"cpu": 26377396}


def test_an_old_kernel_without_steal_is_read(machine: MakeHost) -> None:
    result = read(machine({"/proc/stat": "cpu  1 2 3 4\n"}), set())
    assert result is not None
    assert (result.busy, result.steal) == (6, 0)
    assert read(machine({"/proc/stat": "intr 1\n"}), set()) is None


def _stat(pid: int, parent: int, ticks: int, name: str = "x") -> str:
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", "0", "0", *["0"] * 30]
    return f"{pid} ({name}) {' '.join(fields)}"


def test_cpu_time_of_a_process_and_its_descendants(machine: MakeHost) -> None:
    tree = {1: (0, 1), 10: (1, 2), 11: (10, 4), 12: (11, 8), 20: (1, 16), 21: (20, 32)}
    host = machine(
        {
            f"/proc/{pid}/stat": _stat(pid, parent, ticks, "a) S 1 (b")
            for pid, (parent, ticks) in tree.items()
        }
    )
    assert tree_ticks(host, {10}) == 2 + 4 + 8
    assert tree_ticks(host, {10, 12}) == 2 + 4 + 8
    assert tree_ticks(host, {10, 20}) == 2 + 4 + 8 + 16 + 32
    assert tree_ticks(host, {1}) == 63
    assert tree_ticks(host, {99}) == 0
    assert tree_ticks(host, set()) == 0


@needs_proc
def test_the_time_of_children_that_ended_still_counts() -> None:
    before = tree_ticks(Host(), {os.getpid()})
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    spent = tree_ticks(Host(), {os.getpid()}) - before
    assert spent >= 0.25 * os.sysconf("SC_CLK_TCK")


@needs_proc
def test_our_own_work_is_not_background() -> None:
    host = Host()
    before = read(host, {os.getpid()})
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = read(host, {os.getpid()})
    assert before is not None
    assert after is not None
    assert after.ours - before.ours >= 0.25 * os.sysconf("SC_CLK_TCK")


def _noise(**fields: float | None) -> Noise:
    quiet: dict[str, float | None] = {
        "steal_percent": 0.0,
        "background_percent": 1.0,
        "iowait_percent": 0.0,
        "cpu_pressure_percent": 0.0,
        "memory_pressure_percent": 0.0,
        "io_pressure_percent": 0.0,
        "load_1m": 0.1,
        "timer_late_p50_us": 60.0,
        "timer_late_p99_us": 90.0,
    }
    return Noise(duration_s=1.0, **{**quiet, **fields})


def test_a_quiet_machine_is_no_reason_to_warn() -> None:
    checks = noise_checks(_noise())
    assert [check.id for check in checks] == ["steal", "background", "pressure", "timer"]
    assert {check.status for check in checks} == {"ok"}


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("steal_percent", 1.5, "steal"),
        ("background_percent", 20.0, "background"),
        ("cpu_pressure_percent", 11.0, "pressure"),
        ("memory_pressure_percent", 11.0, "pressure"),
        ("timer_late_p99_us", 1500.0, "timer"),
    ],
)
def test_each_kind_of_noise_is_told_on_its_own(field: str, value: float, name: str) -> None:
    checks = noise_checks(_noise(**{field: value}))
    assert [check.id for check in checks if check.status == "warn"] == [name]


def test_a_kernel_without_pressure_is_told_and_the_unknown_is_left_out() -> None:
    unknown = dict.fromkeys(
        [
            "steal_percent",
            "background_percent",
            "cpu_pressure_percent",
            "memory_pressure_percent",
            "io_pressure_percent",
            "timer_late_p99_us",
        ]
    )
    checks = noise_checks(_noise(**unknown))
    assert [(check.id, check.status) for check in checks] == [("pressure", "missing")]


def test_measuring_counts_late_sleeps() -> None:
    noise = measure(Host(), 0.05)
    assert noise.timer_late_p50_us is not None
    assert noise.timer_late_p99_us is not None
    assert 0 <= noise.timer_late_p50_us <= noise.timer_late_p99_us


@needs_proc
def test_the_monitor_beside_runs_writes_rows_of_the_machine_table(tmp_path: Path) -> None:
    epoch, out = time.time_ns(), tmp_path / "machine.arrows"
    monitors = Monitors.start([replace(ASKED, interval_ns=200_000_000)], out, epoch, run="r")
    time.sleep(scaled(0.7))
    assert monitors.stop() == []
    rows = record.read(out, "machine").to_pylist()
    times = [row["time"] for row in rows]
    assert times == sorted(times)
    assert 0 < times[0] <= times[-1] <= time.time_ns() - epoch
    counters = {row["counter"] for row in rows}
    assert {STEAL, BACKGROUND, BUSY, "load.1m", "memory.available_bytes"} <= counters
    assert {(row["run"], row["monitor"], row["cgroup"]) for row in rows} == {("r", NOISE, None)}


@needs_proc
def test_a_process_that_is_declared_ours_is_not_background() -> None:
    burn = "import time\nend = time.time() + 240\nwhile time.time() < end: pass"
    # A session of its own, and an intermediate parent that ends: no descendant of ours any more.
    spawn = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {burn!r}], start_new_session=True,\n"
        "                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(child.pid)"
    )
    done = subprocess.run([sys.executable, "-c", spawn], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    try:
        host = Host()
        deadline = time.monotonic() + 120
        while (its := tree_ticks(host, {pid})) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        selected = tree_ticks(host, {os.getpid()})
        reading = read(host, {os.getpid(), pid})
        assert reading is not None
        # Both go on meanwhile.
        assert reading.ours >= selected + its
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_noisy_run_is_told_in_sentences() -> None:
    values = [
        (STEAL, 1.0),
        (STEAL, 9.0),
        (BACKGROUND, 5.0),
        (BACKGROUND, 5.0),
        ("pressure.memory_percent", 30.0),
    ]
    rows = [
        {"time": index, "counter": counter, "monitor": NOISE, "value": value}
        for index, (counter, value) in enumerate(values)
    ]
    # Another monitor's are not the run's noise.
    rows.append({"time": 9, "counter": STEAL, "monitor": "machine", "value": 100.0})
    answer = warnings(record.conform(pa.Table.from_pylist(rows), "machine"))
    assert len(answer) == 2
    assert "5.0 %" in answer[0]
    assert "9 % in the worst second" in answer[0]
    assert "waited for memory 30.0 %" in answer[1]
    assert warnings(record.empty("machine")) == []
