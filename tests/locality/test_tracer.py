"""The plugin of QEMU, on programs whose branches are known to the last."""

import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from branch_oracle import gshare, read

from uncia.locality import tools

LOOPS = r"""
#include <stdint.h>
#include <unistd.h>

extern char loop[], jump[];
static char bytes[5000];

int main(void)
{
    char line[64];
    write(1, "{}\n", 3);
    for (int part = 0; part < 2; part++) {
        if (read(0, line, sizeof line) <= 0)
            return 3;
        if (part == 1)
            break;
        uint64_t count = 1000;
        __asm__ volatile("loop: dec %0\n jne loop\n" : "+r"(count) : : "cc");
        char *to = bytes;
        count = sizeof bytes;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
        count = 70000;
        /* No branch for more instructions than a word counts. */
        __asm__ volatile(".rept 70000\n nop\n .endr\n jrcxz jump\n nop\n jump: nop" : : "c"(count));
        write(1, "1\n", 2);
    }
    return 0;
}
"""


def run(qemu: str, program: list[str], events: bytes = b"1\n2\n") -> tuple[bytes, int]:
    """The trace of a program, and its exit code."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [qemu, "-plugin", f"{tools.tracer()},trace={writing}", *program],
        pass_fds=[writing],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    os.close(writing)
    assert process.stdin is not None
    # One line for each read: a pipe hands out what is there.
    for line in events.splitlines(keepends=True):
        process.stdin.write(line.ljust(64))
    process.stdin.close()
    with os.fdopen(reading, "rb") as file:
        trace = file.read()
    return trace, process.wait(60)


@pytest.fixture(scope="module")
def program(cc: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    del cc
    folder = tmp_path_factory.mktemp("loops")
    (folder / "loops.c").write_text(LOOPS)
    path = folder / "loops"
    subprocess.run(["cc", "-O1", "-o", path, folder / "loops.c"], check=True)
    return path


def test_a_loop_has_its_branches_and_a_repeated_instruction_none(qemu: str, program: Path) -> None:
    trace, code = run(qemu, [str(program)])
    assert code == 0
    rows = read(trace)
    marks = [at for at, (_, address, _) in enumerate(rows) if address == 1]
    assert len(marks) == 2, "the end of the start, and of the invocation"
    invocation = rows[marks[0] + 1 : marks[1] + 1]
    branches = Counter((address, taken) for _, address, taken in invocation if address >= 4096)
    looping = [key for key, count in branches.items() if count == 999]
    assert looping == [(looping[0][0], True)], "a thousand turns, of which the last goes on"
    assert branches[looping[0][0], False] == 1
    repeated = sum(count for count, address, _ in invocation if address == 2)
    assert repeated in (4_999, 5_000), "after the first time, and once to find that it is over"
    instructions = sum(count for count, address, _ in invocation if address != 2)
    assert 72_000 < instructions < 74_000, "2,000 of the loop, 70,000 that do nothing, and a few"


def test_the_same_program_has_the_same_trace(qemu: str, program: Path) -> None:
    assert run(qemu, [str(program)])[0] == run(qemu, [str(program)])[0]


def test_gshare_is_another_on_a_real_trace(qemu: str, program: Path) -> None:
    trace, _ = run(qemu, [str(program)])
    branches = [(address, taken) for _, address, taken in read(trace) if address >= 4096][:30_000]
    process = subprocess.run(
        [tools.predict(), "predictions", "gshare-32KB"],
        input=b"".join(struct.pack("<Q", address << 1 | taken) for address, taken in branches),
        capture_output=True,
        check=True,
    )
    assert [mark == "1" for mark in process.stdout.decode().strip()] == gshare(branches, 32)


def test_threads_are_traced_and_forks_are_not(qemu: str) -> None:
    text = (
        "import os, threading\n"
        "t = threading.Thread(target=lambda: sum(range(20000))); t.start(); t.join()\n"
        "pid = os.fork()\n"
        "if pid == 0: sum(range(10**6)); os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    base = os.path.realpath(sys.executable)
    trace, code = run(qemu, [base, "-S", "-E", "-c", text], b"")
    assert code == 0
    assert len(trace) % 8 == 0
    instructions = sum(count for count, address, _ in read(trace) if address != 2)
    alone, _ = run(qemu, [base, "-S", "-E", "-c", ""], b"")
    start = sum(count for count, address, _ in read(alone) if address != 2)
    assert start < instructions < start + 30_000_000, "without the million turns of the fork"


@pytest.mark.long
def test_counts_are_those_of_cachegrind(qemu: str, tmp_path: Path) -> None:
    """Within half a percent, once repetitions are counted as cachegrind counts them."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("there is no valgrind")
    text = "import json\nfor _ in range(5): json.loads(json.dumps(list(range(9999))))"
    program = [os.path.realpath(sys.executable), "-S", "-E", "-c", text]
    rows = read(run(qemu, program, b"")[0])
    repeated = sum(count for count, address, _ in rows if address == 2)
    instructions = sum(count for count, address, _ in rows if address != 2)
    branches = sum(address >= 4096 for _, address, _ in rows)
    file = tmp_path / "counts"
    options = [
        *("--tool=cachegrind", "--cache-sim=no", "--branch-sim=yes", "--quiet"),
        # Else valgrind makes a single condition of two in a row.
        *("--vex-guest-chase=no", f"--cachegrind-out-file={file}"),
    ]
    subprocess.run(
        [valgrind, *options, *program],
        check=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ": " in line)
    values = map(int, lines["summary"].split())
    counted = dict(zip(lines["events"].split(), values, strict=True))
    assert instructions + repeated == pytest.approx(counted["Ir"], rel=0.005)
    assert branches + repeated == pytest.approx(counted["Bc"], rel=0.005)


def test_without_a_descriptor_it_says_what_it_takes(qemu: str, program: Path) -> None:
    process = subprocess.run(
        [qemu, "-plugin", str(tools.tracer()), program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode != 0
    assert "trace=FD" in process.stderr
