"""Instances that run, from outside: which rights they have left, and what the kernel answers them.

The tables that this compares with are on `docs/reference/system-calls.md`.
"""

import errno
import mmap
import signal
import time
from enum import IntEnum
from pathlib import Path
from typing import Final

import pytest
from patience import scaled

from .conftest import Platform, Serve, instances
from .injection import CAN_INJECT, Stopped, stopped

STARTS: Final = [
    *(("none", kind) for kind in ("fresh", "prepared", "zygote", "function_zygote", "pool")),
    ("platform", "prepared"),
    ("platform", "function_zygote"),
    ("host", "fresh"),
]
SOURCE: Final = """
import os

def handler(event, context):
    return event, context.log_stream_name
"""
ONLY_KILL: Final = f"{1 << 5:016x}"
NONE: Final = f"{0:016x}"


class Call(IntEnum):
    """What a first process may do, in part with some arguments only, by the numbers of x86-64."""

    READ = 0
    WRITE = 1
    CLOSE = 3
    POLL = 7
    MMAP = 9
    MPROTECT = 10
    MUNMAP = 11
    BRK = 12
    RT_SIGACTION = 13
    RT_SIGPROCMASK = 14
    RT_SIGRETURN = 15
    MREMAP = 25
    MADVISE = 28
    GETPID = 39
    SOCKET = 41
    SENDMSG = 46
    RECVMSG = 47
    EXIT = 60
    WAIT4 = 61
    KILL = 62
    FCNTL = 72
    SIGALTSTACK = 131
    PRCTL = 157
    GETTID = 186
    FUTEX = 202
    RESTART_SYSCALL = 219
    CLOCK_GETTIME = 228
    EXIT_GROUP = 231
    TGKILL = 234
    WAITID = 247
    PPOLL = 271


NUMBERS: Final = range(480)
"""All that kernels of today have, and some beyond."""
OF_PROBES: Final = {335, 336}
"""Which newer kernels show to no filter: only code that the kernel itself maps may make them."""
OF_X32: Final = 0x4000_0000

AF_UNIX, AF_INET, AF_NETLINK, AF_PACKET, AF_VSOCK = 1, 2, 16, 17, 40
SOCK_DGRAM: Final = 2
STREAM_CLOEXEC_NONBLOCK: Final = 0o2004001
F_DUPFD, F_GETFD = 0, 1
PR_GET_PDEATHSIG, PR_SET_DUMPABLE = 2, 4
EXECUTABLE: Final = mmap.PROT_READ | mmap.PROT_EXEC
ANONYMOUS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def run(platform: Platform, network: str, start_from: str) -> tuple[int, int]:
    """An instance that waits for its next request: its first process, and its runtime."""
    tags = {"uncia:network": network, "uncia:start-from": start_from}
    # Whoever is frozen does not stand still for anybody else.
    tags |= {"uncia:keep-alive-ms": "600000", "uncia:keep-alive-cpu": "run"}
    platform.create("f", SOURCE, Tags=tags)
    wanted = "restored" if start_from in ("zygote", "function_zygote", "pool") else "cold"
    deadline = time.monotonic() + scaled(60)
    while (started := platform.headers("f")["x-uncia-start"]) != wanted:
        # Nothing was there to be copied when it was called first.
        assert time.monotonic() < deadline, started
        turn = {"turn": str(time.monotonic_ns())}
        platform.client.update_function_configuration(
            FunctionName="f", Environment={"Variables": turn}
        )
        time.sleep(0.2)
    stream = call(platform)
    processes = instances(platform.state, made_ahead=False)
    (first,) = [it for it in processes if stream.endswith(label(it))]
    (runtime,) = children(first)
    return first, runtime


def call(platform: Platform) -> str:
    """Have the instance answer; the name of its log stream, which ends in its own."""
    answer, (event, stream) = platform.invoke("f", {"any": "event"})
    assert answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"] == "warm"
    assert event == {"any": "event"}
    return str(stream)


def label(first: int) -> str:
    """The name of an instance, as its first process shows it."""
    return Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0")[2].decode().partition("/")[2]


@pytest.mark.parametrize(("network", "start_from"), STARTS)
def test_an_instance_that_is_taken_over_can_do_no_more_than_its_filters_allow(
    serve: Serve, network: str, start_from: str
) -> None:
    platform = serve({"pool": 2})
    first, runtime = run(platform, network, start_from)
    shows(first, ONLY_KILL)
    shows(runtime, NONE)
    # The first process is of the platform's user, the runtime of its own.
    assert [status(pid)["Uid"].split()[0] == "0" for pid in (first, runtime)] == [True, False]
    if not CAN_INJECT:
        pytest.skip("only looked at: it is on x86-64 that calls can be injected")
    with stopped(first) as process:
        refuses_a_first_process(process)
    # It has not noticed.
    call(platform)
    with stopped(runtime) as process:
        assert str(process.call(Call.GETPID)) == status(runtime)["NSpid"].split()[-1]
        refuses_a_runtime(process)
    call(platform)


def shows(pid: int, rights: str) -> None:
    fields = status(pid)
    capabilities = [fields[key] for key in ("CapInh", "CapPrm", "CapEff", "CapAmb")]
    assert capabilities == [NONE, rights, rights, NONE]
    assert (fields["Seccomp"], fields["NoNewPrivs"]) == ("2", "1")
    # Kernels before 5.9 do not say how many there are.
    assert fields.get("Seccomp_filters", "1") == "1"


def refuses_a_first_process(process: Stopped) -> None:
    assert process.call(Call.GETPID) == 1
    for number in set(NUMBERS) - set(Call) - OF_PROBES:
        assert process.call(number, *[-1] * 6) == -errno.EPERM, number
    for number in (Call.GETPID, Call.SOCKET):
        answer = process.call(OF_X32 + number, AF_INET, STREAM_CLOEXEC_NONBLOCK)
        assert answer == -errno.EPERM, number
    # What depends on arguments: what they allow, and what lies next to that.
    refused = -errno.EPERM
    fine = process.call(Call.SOCKET, AF_INET, STREAM_CLOEXEC_NONBLOCK)
    assert fine >= 0
    assert process.call(Call.FCNTL, fine, F_GETFD) == 1
    assert process.call(Call.FCNTL, fine, F_DUPFD, 0) == refused
    assert process.call(Call.CLOSE, fine) == 0
    for family in (AF_UNIX, AF_NETLINK, AF_PACKET, AF_VSOCK):
        assert process.call(Call.SOCKET, family, STREAM_CLOEXEC_NONBLOCK) == refused, family
    assert process.call(Call.KILL, 999_999, signal.SIGTERM) == -errno.ESRCH
    for number in (0, signal.SIGKILL, signal.SIGSTOP):
        assert process.call(Call.KILL, 999_999, number) == refused, number
        assert process.call(Call.TGKILL, 1, 1, number) == refused, number
    assert process.call(Call.PRCTL, PR_SET_DUMPABLE, 1) == refused
    assert process.call(Call.PRCTL, PR_GET_PDEATHSIG, 0) == refused
    memory = process.call(Call.MMAP, 0, mmap.PAGESIZE, mmap.PROT_READ, ANONYMOUS, -1, 0)
    assert memory > 0
    assert process.call(Call.MPROTECT, memory, mmap.PAGESIZE, EXECUTABLE) == refused
    assert process.call(Call.MUNMAP, memory, mmap.PAGESIZE) == 0
    assert process.call(Call.MMAP, 0, mmap.PAGESIZE, EXECUTABLE, ANONYMOUS, -1, 0) == refused


# A few of each answer, of which Rust's tests have all.
WITHOUT_RIGHTS: Final = {
    "ptrace": 101,
    "pivot_root": 155,
    "chroot": 161,
    "mount": 165,
    "init_module": 175,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_writev": 311,
    "bpf": 321,
    "userfaultfd": 323,
    "fsopen": 430,
}
NOT_THERE: Final = {
    "io_setup": 206,
    "mbind": 237,
    "io_uring_setup": 425,
    "clone3": 435,
    "memfd_secret": 447,
    "getpid of x32": OF_X32 + Call.GETPID,
    "a call to come": 1000,
}


def refuses_a_runtime(process: Stopped) -> None:
    for calls, error in ((WITHOUT_RIGHTS, errno.EPERM), (NOT_THERE, errno.ENOSYS)):
        for name, number in calls.items():
            assert process.call(number, *[-1] * 6) == -error, name
    # Of families that there are in the kernel.
    for family in (AF_PACKET, AF_VSOCK):
        assert process.call(Call.SOCKET, family, SOCK_DGRAM) == -errno.EAFNOSUPPORT
    opened = process.call(Call.SOCKET, AF_INET, SOCK_DGRAM)
    assert opened > 0
    assert process.call(Call.CLOSE, opened) == 0
