"""Processes identified by number and start time.

A process number is used again after a while; together with the start time (field 22 of
``/proc/PID/stat``, in clock ticks since boot) and the id of the boot, it is unique.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uncia.platforms.journal import Resource

_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """A process: its number, its start in clock ticks since boot, and the boot's id."""

    pid: int
    start_ticks: int
    boot: str

    def detail(self) -> dict[str, int | str]:
        """As it is written into a journal."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot": self.boot}


def identify(pid: int) -> Identity | None:
    """Return the identity of the process that has this number; None for none or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name is in parentheses and may hold anything; the fields follow the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in ("Z", "X"):
        return None
    return Identity(pid, int(fields[19]), boot_id())


def named(resource: Resource) -> Identity | None:
    """Return the process that a journal's resource names; None if it names none."""
    detail = resource.detail
    if "pid" not in detail:
        return None
    return Identity(detail["pid"], detail["start_ticks"], detail["boot"])


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where the kernel has none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def alive(identity: Identity) -> bool:
    """Return whether the process still runs."""
    return identify(identity.pid) == identity


def end(identity: Identity, grace_s: float = 10.0) -> bool:
    """Ask a process to end, and kill it after ``grace_s``; returns whether it ended."""
    for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if not alive(identity):
            return True
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not alive(identity):
                return True
            time.sleep(0.02)
    return not alive(identity)


def with_argument(argument: str, program: str | None = None) -> Iterator[Identity]:
    """Yield the processes that have exactly this argument on their command line.

    Args:
        argument: one behind the program's name.
        program: only those whose program has this name: others may name the same file, such as an
            editor that shows it.
    """
    encoded = os.fsencode(argument)
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        name = Path(os.fsdecode(arguments[0])).name
        # Of a program that is kept in several versions, the version follows its name.
        if program is not None and name != program and not name.startswith(f"{program}-"):
            continue
        if encoded in arguments[1:] and (identity := identify(int(entry.name))) is not None:
            yield identity
