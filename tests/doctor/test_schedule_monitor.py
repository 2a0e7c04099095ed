"""The monitor ``schedule``: against what the kernel says of each thread, and what is left of it."""

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia import engine, record
from uncia.doctor import programs
from uncia.doctor.host import Host

_PROGRAM = programs.bpf()
_SPIN_S = 1.5
_SPINNERS = 4

# Joins a group, and says what the kernel knows of it while it spins: ns of wall time, ns that it
# waited for a CPU and ran, and how often it lost the CPU.
_SPIN = """
import os, resource, sys, time
def known():
    with open("/proc/self/schedstat") as file: ran, waited, _ = map(int, file.read().split())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return [time.monotonic_ns(), waited, ran, usage.ru_nivcsw]
os.sched_setaffinity(0, {int(sys.argv[2])})
with open(sys.argv[1] + "/cgroup.procs", "w") as file: file.write("0")
time.sleep(0.05)
before = known()
end = before[0] + int(float(sys.argv[3]) * 1e9)
while time.monotonic_ns() < end: pass
grown = (b - a for a, b in zip(before, known()))
os.write(1, " ".join(map(str, grown)).encode())
# An interpreter's own end would wait for the CPU several times more.
os._exit(0)
"""


def _why_not() -> str | None:
    """Return why it cannot be tested here."""
    if _PROGRAM is None:
        return "uncia-bpf is not built (make bpf)"
    check = next(check for check in programs.program_checks() if check.id == "bpf")
    if check.status != "ok":
        return check.finding
    if os.geteuid() != 0 or _tree() is None:
        return "groups take root and a mounted tree of version 2"
    return None


def _tree() -> Path | None:
    mounts = (mount for mount in Host().cgroup_mounts() if mount.version == 2)
    return next((Path(mount.path) for mount in mounts), None)


_needs_bpf = pytest.mark.skipif((_reason := _why_not()) is not None, reason=str(_reason))


@pytest.fixture
def group() -> Iterator[str]:
    """Return the path of a group in the tree of version 2; removed afterwards."""
    tree = _tree()
    assert tree is not None
    path = f"/uncia-schedule-test-{os.getpid()}"
    (tree / path[1:]).mkdir()
    yield path
    deadline = time.monotonic() + scaled(20)
    while True:
        try:
            return (tree / path[1:]).rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _command(out: Path, *arguments: str) -> list[str]:
    start = [sys.executable, "-m", "uncia", "monitor", "-m", "schedule"]
    return [*start, "--out", str(out), *arguments]


def _start(out: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start `uncia monitor`; returns when it watches."""
    process = subprocess.Popen(
        _command(out, *arguments),
        env={**os.environ, "UNCIA_BPF": str(_PROGRAM)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait(lambda: _rows_began(out) or process.poll() is not None)
    return process


def _rows_began(out: Path) -> bool:
    stream = out / "machine.arrows"
    return stream.exists() and stream.stat().st_size > 4_000


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scaled(60)
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _stop(process: "subprocess.Popen[str]") -> str:
    """End a monitor; returns its sentences."""
    process.send_signal(signal.SIGINT)
    _, sentences = process.communicate(timeout=scaled(60))
    assert process.returncode == 0, sentences
    return sentences


def _children(pid: int) -> list[int]:
    """Return the processes that one has started, and those that these have."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [each for child in map(int, text.split()) for each in (child, *_children(child))]


def _watcher(pid: int) -> int:
    """Return the process of uncia-bpf below one."""
    names = {child: Path(f"/proc/{child}/comm").read_text().strip() for child in _children(pid)}
    (watcher,) = (child for child, name in names.items() if name == "uncia-bpf")
    return watcher


def _sums(out: Path, group: str | None) -> dict[str, float]:
    rows = record.read(out / "machine.parquet", "machine").to_pylist()
    sums: dict[str, float] = {}
    for row in rows:
        if row["cgroup"] == group:
            sums[row["counter"]] = sums.get(row["counter"], 0.0) + row["value"]
    return sums


@_needs_bpf
def test_waits_and_parallelism_of_spinning_threads_are_the_kernels(
    tmp_path: Path, group: str
) -> None:
    tree = _tree()
    assert tree is not None
    cpu = str(max(os.sched_getaffinity(0)))
    monitor = _start(tmp_path, "--group", group, "--group", "/")
    command = [sys.executable, "-S", "-E", "-c", _SPIN, str(tree / group[1:]), cpu, str(_SPIN_S)]
    spinners = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(_SPINNERS)
    ]
    known = [list(map(int, spinner.communicate()[0].split())) for spinner in spinners]
    _stop(monitor)
    wall, waited, ran, lost_cpu = map(sum, zip(*known, strict=True))
    counted, machine, top = (_sums(tmp_path, of) for of in (group, None, "/"))
    # Beside what they tell, they start to spin and end: milliseconds, or a few waits of each where
    # the machine is busy.
    assert counted["schedule.wait_ns"] == pytest.approx(waited, rel=0.03, abs=300e6)
    assert counted["schedule.cpu_ns"] == pytest.approx(ran, rel=0.03, abs=30e6)
    # Whoever spins runs or waits: in theory as many as there are, whatever else runs here.
    runnable = counted["schedule.cpu_ns"] + counted["schedule.wait_ns"]
    assert runnable == pytest.approx(wall, rel=0.03, abs=300e6)
    assert 0 <= counted["schedule.involuntary_switches_count"] - lost_cpu <= 0.1 * lost_cpu + 40
    bins = {
        int(counter.removeprefix("schedule.wait_within_").removesuffix("ns_count")): count
        for counter, count in counted.items()
        if counter.startswith("schedule.wait_within_")
    }
    assert sum(bins.values()) == counted["schedule.wait_count"] > 0
    longest = sum(upper * count for upper, count in bins.items())
    assert longest * 8 / 9 <= counted["schedule.wait_ns"] <= longest
    # All groups are within the tree, and so is whatever runs on the machine.
    assert counted["schedule.cpu_ns"] < top["schedule.cpu_ns"] <= machine["schedule.cpu_ns"]
    # A kernel may hide what some processes do.
    assert machine["monitor.lost_count"] < machine["schedule.events_count"] / 50
    assert machine["monitor.cpu_ns"] > 0
    assert machine["schedule.events_count"] > 0


@_needs_bpf
def test_threads_that_run_and_that_could_are_means_of_the_interval(
    tmp_path: Path, group: str
) -> None:
    tree = _tree()
    assert tree is not None
    cpu = str(max(os.sched_getaffinity(0)))
    monitor = _start(tmp_path, "--group", group)
    command = [sys.executable, "-S", "-E", "-c", _SPIN, str(tree / group[1:]), cpu, str(_SPIN_S)]
    spinners = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    for spinner in spinners:
        assert spinner.wait() == 0
    _stop(monitor)
    rows = record.read(tmp_path / "machine.parquet", "machine").to_pylist()
    of_group = [row for row in rows if row["cgroup"] == group]
    by_time: dict[int, dict[str, Any]] = {}
    for row in of_group:
        by_time.setdefault(row["time"], {})[row["counter"]] = row
    running = []
    for counters in by_time.values():
        cpu_time, mean = counters["schedule.cpu_ns"], counters["schedule.running_threads"]["value"]
        assert mean == pytest.approx(cpu_time["value"] / cpu_time["interval"])
        assert counters["schedule.runnable_threads"]["value"] >= mean
        running.append((counters["schedule.runnable_threads"]["value"], mean))
    # While all three spin on the one CPU; the middle of the time, since they do not begin at once.
    runnable = sorted(each for each, _ in running)
    assert runnable[len(runnable) * 3 // 4] == pytest.approx(3, rel=0.03)
    assert max(mean for _, mean in running) <= 1.03


def _program_ids(pid: int) -> list[int]:
    """Return the programs in the kernel that a process holds."""
    ids = []
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        lines = file.read_text().splitlines()
        ids += [int(line.split()[1]) for line in lines if line.startswith("prog_id:")]
    return ids


def _is_in_kernel(program: int) -> bool:
    """Whether the kernel still has a program: bpf(BPF_PROG_GET_FD_BY_ID)."""
    attributes = (ctypes.c_uint32 * 3)(program, 0, 0)
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, 13, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


@_needs_bpf
@pytest.mark.parametrize("whom", ["uncia", "engine", "uncia-bpf"])
def test_a_kill_leaves_no_program_in_the_kernel(tmp_path: Path, whom: str) -> None:
    monitor = _start(tmp_path)
    watcher = _watcher(monitor.pid)
    ids = _program_ids(watcher)
    assert len(set(ids)) == 4
    assert all(map(_is_in_kernel, ids))
    victim = {
        "uncia": monitor.pid,
        "engine": int(Path(f"/proc/{watcher}/stat").read_text().rpartition(")")[2].split()[1]),
        "uncia-bpf": watcher,
    }[whom]
    os.kill(victim, signal.SIGKILL)
    _wait(lambda: not any(map(_is_in_kernel, ids)) and not Path(f"/proc/{watcher}").exists())
    if whom == "uncia-bpf":
        assert "has ended early; rows after that are missing" in _stop(monitor)
        assert _sums(tmp_path, None)["monitor.lost_count"] > 0
    else:
        monitor.wait(scaled(60))
    for stream in (monitor.stdout, monitor.stderr):
        assert stream is not None
        stream.close()


def _answer(*command: str) -> tuple[int, dict[str, str]]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


@_needs_bpf
def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    program = str(_PROGRAM)
    tree = ["--tree", str(_tree())]
    for arguments in (["schedule"], ["schedule", *tree]):
        code, answer = _answer(
            "setpriv", "--bounding-set=-all", "--inh-caps=-all", program, *arguments
        )
        assert (code, answer["event"]) == (3, "unsupported")
        assert answer["message"].startswith("the kernel lets this user load no programs: run as")
    hide = 'mount -t tmpfs none /sys/kernel/btf && exec "$0" schedule'
    code, answer = _answer("unshare", "--mount", "sh", "-c", hide, program)
    assert code == 3
    assert "built without BTF" in answer["message"]
    code, answer = _answer(program, "schedule", "--tree", "/no/such/tree")
    assert (code, answer["event"]) == (3, "unsupported")
    assert "/no/such/tree cannot be read" in answer["message"]


@_needs_bpf
def test_a_program_that_the_kernel_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "crates/bpf/kernel/schedule.bpf.o"
    elf = bytearray(committed.read_bytes())
    at = _section(elf, b"tp_btf/sched_switch")
    # The instruction exit, before anything has a result.
    elf[at : at + 8] = bytes([0x95, 0, 0, 0, 0, 0, 0, 0])
    (tmp_path / "broken.o").write_bytes(elf)
    code, answer = _answer(str(_PROGRAM), "schedule", "--object", str(tmp_path / "broken.o"))
    assert code == 3
    assert "the kernel refuses the program for sched_switch" in answer["message"]
    assert "\n" not in answer["message"]
    # The size of a structure of five fields, in the object's types, as of another version.
    elf = bytearray(committed.read_bytes())
    size = struct.pack("<II", 4 << 24 | 5, 40)
    assert elf.count(size) == 1
    elf[elf.index(size) + 4] = 48
    (tmp_path / "other.o").write_bytes(elf)
    code, answer = _answer(str(_PROGRAM), "schedule", "--object", str(tmp_path / "other.o"))
    assert (code, answer["event"]) == (3, "unsupported")
    assert "its map cpus has keys of 4 bytes and values of 48, not of 4 and 40" in answer["message"]
    (tmp_path / "none.o").write_bytes(b"nothing")
    code, answer = _answer(str(_PROGRAM), "schedule", "--object", str(tmp_path / "none.o"))
    assert (code, answer["event"]) == (3, "unsupported")


@contextmanager
def _asking(*command: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Run uncia-bpf; gives what asks it for what it has counted."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        assert json.loads(stdout.readline()) == {"event": "started"}

        def ask() -> dict[str, Any]:
            stdin.write("\n")
            stdin.flush()
            look: dict[str, Any] = json.loads(stdout.readline())
            return look

        yield ask
        stdin.close()


def _run_in(folder: Path) -> None:
    """Run something in a group, which sleeps and wakes."""
    join = 'echo 0 > "$0/cgroup.procs" && sleep 0.02 && sleep 0.02'
    subprocess.run(["sh", "-c", join, str(folder)], check=True)


@_needs_bpf
def test_a_group_that_came_and_went_unseen_may_have_been_any(group: str) -> None:
    tree = _tree()
    assert tree is not None
    with _asking(str(_PROGRAM), "schedule", "--tree", str(tree)) as ask:
        for _ in range(20):
            ask()
            child = tree / group[1:] / "child"
            child.mkdir()
            _run_in(child)
            _wait(lambda folder=child: _is_removed(folder))  # type: ignore[misc]
            # It looks by itself, too, if it is not asked for long.
            gone = [each for each in ask()["groups"] if each["is_gone"]]
            if gone:
                break
    assert {each["path"] for each in gone} == {None}
    assert sum(each["waits"] for each in gone) > 0


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@_needs_bpf
def test_groups_outside_of_what_is_mounted_are_not_gone(tmp_path: Path, group: str) -> None:
    tree = _tree()
    assert tree is not None
    bind = 'mount --bind "$1" "$2" && exec "$0" schedule --tree "$2"'
    start = ["unshare", "--mount", "sh", "-c", bind, str(_PROGRAM), str(tree / group[1:])]
    with _asking(*start, str(tmp_path)) as ask:
        _run_in(tree / group[1:])
        paths = [(each["path"], each["is_gone"]) for each in ask()["groups"]]
    assert ("/", False) in paths
    # This process is in another.
    assert (None, False) in paths


def _section(elf: bytes | bytearray, name: bytes) -> int:
    """Return where a section of a 64-bit object file begins."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(elf[at : at + size], "little")

    headers, size = number(0x28, 8), number(0x3A, 2)
    count, names = number(0x3C, 2), number(0x3E, 2)
    text = number(headers + names * size + 0x18, 8)
    for header in range(headers, headers + count * size, size):
        at = text + number(header, 4)
        if elf[at : elf.index(b"\0", at)] == name:
            return number(header + 0x18, 8)
    raise AssertionError(name)


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def _sentences(out: Path, **variables: str) -> str:
    done = subprocess.run(
        _command(out, "--for", "400ms"),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    if "nothing is watched: " in done.stderr:
        assert done.returncode == 1
        assert not out.exists()
        return done.stderr
    assert done.returncode == 0, done.stderr
    rows = record.read(out / "machine.parquet", "machine").to_pylist()
    assert not [row for row in rows if row["counter"].startswith("schedule.")]
    return done.stderr


def test_a_watcher_that_does_not_answer_as_it_should_is_told(tmp_path: Path) -> None:
    absent = _sentences(tmp_path / "a", UNCIA_BPF=str(tmp_path / "none"))
    assert "nothing is watched: " in absent
    assert "not supported on this machine: UNCIA_BPF names" in absent
    other = _script(tmp_path / "other", "echo hello")
    assert "other is another program" in _sentences(tmp_path / "b", UNCIA_BPF=other)
    begin = """echo '{"event": "started"}'"""
    ended = _script(tmp_path / "ended", f"{begin}; read line")
    assert "has ended early; rows after" in _sentences(tmp_path / "c", UNCIA_BPF=ended)
    garbage = _script(tmp_path / "garbage", f"{begin}; read line; echo '[]'; read line")
    assert "gave what is no look" in _sentences(tmp_path / "d", UNCIA_BPF=garbage)
    error = """echo '{"event": "error", "message": "counts cannot be read: why"}'"""
    failing = _script(tmp_path / "failing", f"{begin}; read line; {error}; read line")
    assert "counts cannot be read: why; rows" in _sentences(tmp_path / "e", UNCIA_BPF=failing)
    hanging = _script(tmp_path / "hanging", f"{begin}; exec sleep 600")
    assert "did not answer within" in _sentences(tmp_path / "f", UNCIA_BPF=hanging)


def test_without_the_program_there_is_what_to_do(tmp_path: Path) -> None:
    alone = tmp_path / "uncia-engine"
    shutil.copy(engine.binary(), alone)
    variables = {"UNCIA_ENGINE": str(alone), "PATH": str(tmp_path), "UNCIA_BPF": ""}
    environment = {**os.environ, **variables}
    del environment["UNCIA_BPF"]
    done = subprocess.run(
        _command(tmp_path / "out", "--for", "300ms"),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "not supported on this machine: there is no uncia-bpf: build it with" in done.stderr
    assert not (tmp_path / "out").exists()
