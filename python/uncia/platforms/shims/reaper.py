"""Processes that end with all that they have started, whichever group or session that went to.

Each is below a reaper: a process that waits for what loses its parent below it, and that ends what
is left there when the first process has ended, or when the reaper's parent has.
"""

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)
_TIMES = struct.Struct("=2q")  # user and system, ns


class Spent:
    """What a reaper used itself until it waited, in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _TIMES.size)

    def note(self) -> None:
        """Note what this process has used."""
        import resource  # Not on every system, where this module can be imported all the same.

        usage = resource.getrusage(resource.RUSAGE_SELF)
        _TIMES.pack_into(self._memory, 0, round(usage.ru_utime * 1e9), round(usage.ru_stime * 1e9))

    def times(self) -> tuple[int, int]:
        """User and system time in ns; 0 before it waits."""
        user, system = _TIMES.unpack_from(self._memory)
        return user, system


def adopt() -> None:
    """Become the parent of what loses its parent below this process."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def start(
    command: list[str], env: dict[str, str], spent: Spent | None = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a program below a reaper; what is returned is the reaper, which ends as it does.

    The caller's thread is to live for as long as the program, and the caller to `adopt`.

    Args:
        command: the program and its arguments.
        env: the program's environment.
        spent: is given what the reaper uses itself.
        options: of `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """
    program: str | None = command[0]
    if "/" not in command[0]:
        program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    reap = functools.partial(_reap, os.getpid(), spent, program, command, env)
    try:
        return subprocess.Popen(command, preexec_fn=reap, **options)
    except subprocess.SubprocessError as error:  # which says no more
        raise OSError(f"{command[0]} cannot be started") from error


def children(pid: int) -> list[int]:
    """The processes that a process has started, and those that came to it when theirs ended."""
    pids = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            pids += [int(each) for each in file.read_text(encoding="ascii").split()]
    return pids


def end_tree(pid: int) -> tuple[int, int]:
    """Kill a process and all that descends from it; what they used, user and system time in ns.

    What this process may not kill, of other users, stays. The others are waited for if they become
    children of this process: all, if it has called `adopt`.
    """
    pids = [pid]
    known = 0
    while known < len(pids):  # until nothing has come to one that had been looked at
        known = len(pids)
        for each in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGSTOP)  # so that it starts no other meanwhile
            pids += [child for child in children(each) if child not in pids]
    killed = []
    for each in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
            killed.append(each)
    user = system = 0.0
    for each in killed:  # each comes here when its parent, which is before it, has ended
        with contextlib.suppress(ChildProcessError):
            usage = os.wait4(each, 0)[2]
            user, system = user + usage.ru_utime, system + usage.ru_stime
    return round(user * 1e9), round(system * 1e9)


def end_children() -> None:
    """End all that descends from this process, but for what it may not kill."""
    tried: set[int] = set()
    while pids := [pid for pid in children(os.getpid()) if pid not in tried]:
        for pid in pids:
            end_tree(pid)
        tried.update(pids)


def leave() -> None:
    """End this process, and before it all that descends from it."""
    end_children()
    os._exit(0)


def _reap(
    parent: int, spent: Spent | None, program: str, command: list[str], env: dict[str, str]
) -> None:
    """Run a program below this process, and end as it did, after all that it left."""
    # It may not outlive its parent, however that ends, and has to end others first.
    signal.signal(signal.SIGTERM, lambda *_: leave())
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it ended before it could be said
    adopt()
    # In a session of its own, as what it signals is not this process; by no second fork, which
    # would take as long again.
    first = os.posix_spawn(program, command, env, setsid=True)
    try:
        _wait_for(first, spent)
    finally:
        os._exit(1)  # whatever happened, this process is no other program


def _wait_for(first: int, spent: Spent | None) -> None:
    """Wait for children until this one has ended, and end as it did."""
    for each in Path("/proc/self/fd").iterdir():  # else who reads from the program sees no end
        with contextlib.suppress(OSError):
            os.close(int(each.name))
    if spent is not None:
        spent.note()
    ended = status = 0
    while ended != first:
        ended, status = os.wait()
    end_children()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
