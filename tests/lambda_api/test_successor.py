"""Going on as another process in a control group of version 2, with the same memory."""

import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "crates/worker/runtime"
# As `crates/worker/src/sandbox/init/zygote.rs` has them for this machine.
CODE = bytes.fromhex("b8b3010000 0f05 4885c0 7f01 c3 31ff b8e7000000 0f05 0f0b").hex()

# The process that goes on is a child of nobody but the reaper, and has two ways to say what it is.
PROGRAM = """
import ctypes, gc, json, os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
import successor
libc = ctypes.CDLL(None)
libc.prctl(36, 1, 0, 0, 0)
numbers = {"clone3": (435, 1 << 33), "set_tid_address": 218, "get_robust_list": 274,
           "set_robust_list": 273, "rseq": (334, 0x53053053), "code": bytes.fromhex(sys.argv[3])}
CASES = {
    "none": lambda: None,
    "garbage": lambda: gc.set_threshold(1),
    "code": lambda: numbers.update(code=None),
    "flag": lambda: numbers.update(clone3=(435, 1 << 40)),
    "ends": lambda: setattr(os, "kill", lambda *_: libc._exit(5)),
}
CASES[sys.argv[4]]()
first = os.fork()
if first == 0:
    middle = os.fork()
    if middle != 0:
        os._exit(0)
    memory = bytearray(b"x" * (8 << 20))
    before = os.getpid()
    it = successor.Successor(numbers)
    folder = os.open(sys.argv[2], os.O_RDONLY)
    process = it.begin_in(folder)
    if process is None:
        print(json.dumps({"went_on": False, "same": os.getpid() == before,
                          "number": ctypes.c_int.from_address(it._number_at).value == before}))
        sys.stdout.flush()
        os._exit(0)
    successor.wait_for_end(process)
    with open("/proc/self/stat") as file:
        faults = int(file.read().rpartition(")")[2].split()[7])
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    with open("/proc/self/stat") as file:
        more = int(file.read().rpartition(")")[2].split()[7]) - faults
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append("signal"))
    libc["raise"](signal.SIGUSR1)
    thread = threading.Thread(target=lambda: seen.append("thread"))
    thread.start()
    thread.join()
    try:
        with open(f"/proc/{before}/stat") as file:
            runs = file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        runs = False
    with open("/proc/self/maps") as file:
        executable = sum(1 for line in file if "xp 00000000 00:00 0 \\n" in line)
    child = os.fork()
    if child == 0:
        os._exit(7)
    print(json.dumps({
        "went_on": True, "same": os.getpid() == before, "before_runs": runs, "faults": more,
        "seen": seen,
        "number": ctypes.c_int.from_address(it._number_at).value == os.getpid(),
        "group": open("/proc/self/cgroup").read().split("0::")[1].split()[0],
        "leader": os.getsid(0) == os.getpid(), "executable": executable,
        "child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
        "cpu": libc.sched_getcpu() in os.sched_getaffinity(0), "collects": gc.isenabled(),
    }))
    sys.stdout.flush()
    os._exit(0)
ended = {}
try:
    while True:
        number, status = os.wait()
        if number != first:
            ended[number] = os.waitstatus_to_exitcode(status)
except ChildProcessError:
    print(json.dumps(sorted(ended.values())))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    trees = [folder for _, folder, kind, *_ in mounts if kind == "cgroup2"]
    if platform.machine() != "x86_64" or os.geteuid() != 0 or not trees:
        pytest.skip("needs root, an x86-64, and control groups of version 2")
    folder = Path(trees[0]) / f"uncia-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def run(group: Path, case: str) -> list[object]:
    command = [sys.executable, "-c", PROGRAM, str(RUNTIME), str(group), CODE, case]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert output.returncode == 0, output.stderr
    return [json.loads(line) for line in output.stdout.splitlines()]


@pytest.mark.parametrize("case", ["none", "garbage"])
def test_a_process_goes_on_as_another_with_its_memory(group: Path, case: str) -> None:
    answer, ended = run(group, case)
    assert isinstance(answer, dict)
    # 8 MiB are 2,048 pages, each of which would be a fault of a copy.
    assert answer.pop("faults") < 200
    assert answer == {
        "went_on": True,
        "same": False,
        "before_runs": False,
        "seen": ["signal", "thread"],
        "number": True,
        "group": f"/{group.name}",
        "leader": True,
        "executable": 0,
        "child": 7,
        "cpu": True,
        "collects": True,
    }
    # The one before was killed; the other one ended as it wanted to.
    assert ended == [-9, 0]


@pytest.mark.parametrize("case", ["code", "flag"])
def test_a_process_that_cannot_is_as_it_was(group: Path, case: str) -> None:
    answer, ended = run(group, case)
    assert answer == {"went_on": False, "same": True, "number": True}
    assert ended == [0]


def test_a_process_does_nothing_any_more_if_the_one_that_goes_on_ends_at_once(group: Path) -> None:
    assert run(group, "ends") == [[0, 5]]


def test_a_zygote_has_the_same_instructions() -> None:
    source = (ROOT / "crates/worker/src/sandbox/init/zygote.rs").read_text()
    body = source.partition("CLONE_CODE: Option<&[u8]> = Some(&[")[2].partition("]);")[0]
    lines = [line.partition("//")[0] for line in body.splitlines()]
    assert "".join(it.strip().removeprefix("0x") for it in ",".join(lines).split(",")) == CODE
