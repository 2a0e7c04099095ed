"""Processes named so that they cannot be confused: by number and by the moment they started.

A process number is used again after a while; together with the start time (field 22 of
``/proc/PID/stat``, in clock ticks since boot) and the boot it counts from, it is not.
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
    """The identity of the process that has this number now; None if there is none, or a zombie."""
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
    """The process that a journal's resource is about; None when it names none."""
    detail = resource.detail
    if "pid" not in detail:
        return None
    return Identity(detail["pid"], detail["start_ticks"], detail["boot"])


def boot_id() -> str:
    """The kernel's id of this boot; empty where there is no such file."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def alive(identity: Identity) -> bool:
    """Whether that very process still runs."""
    return identify(identity.pid) == identity


def end(identity: Identity, grace_s: float = 10.0) -> bool:
    """Ask the process to end, after ``grace_s`` make it (SIGKILL); True once it is gone."""
    for number, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if not alive(identity):
            return True
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not alive(identity):
                return True
            time.sleep(0.02)
    return not alive(identity)


def with_argument(argument: str) -> Iterator[Identity]:
    """The processes that were started with exactly this argument on their command line."""
    wanted = os.fsencode(argument)
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in arguments and (identity := identify(int(entry.name))) is not None:
            yield identity
