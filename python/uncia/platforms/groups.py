"""Control groups of programs that a platform starts itself, in every tree that is mounted."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError

PREFIX: Final = "uncia-"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_CONTROLLERS: Final = frozenset({"cpu", "cpuacct", "memory", "pids", "blkio"})
_REMOVE_TIMEOUT_S: Final = 5.0
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MEMBER: Final = "processes"
"""Below the group, as instances are below a platform's, so that monitors find both alike."""


def _trees(*, every: bool = False) -> Iterator[Path]:
    """Where trees are mounted in which programs are counted; or every tree."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    seen = set()
    for line in lines:
        mount, _, kind = line.partition(" - ")
        fields = kind.split(" ")
        folder = Path(mount.split(" ")[4])
        counts = every or not _CONTROLLERS.isdisjoint(fields[2].split(","))
        # With controllers passed on, only leaves may have processes; a group below the root is one.
        device = mount.split(" ")[2]
        is_tree = fields[0] == "cgroup2" or (fields[0] == "cgroup" and counts)
        if is_tree and device not in seen:
            # One that is mounted again is the same tree.
            seen.add(device)
            yield folder


def make(name: str) -> list[Path]:
    """Make a group in each tree in which this user may; returns the folders that programs join.

    Args:
        name: what stands behind `PREFIX`, without special characters.

    Raises:
        UnciaError: it exists already.
    """
    folders = []
    for tree in _trees():
        folder = tree / f"{PREFIX}{name}" / _MEMBER
        try:
            folder.parent.mkdir()
            folder.mkdir()
        except FileExistsError as error:
            raise UnciaError(f"there is a control group {folder} already") from error
        except OSError:
            continue  # without rights there are none, and less is counted
        folders.append(folder)
    return folders


def folders(name: str, *, every: bool = False) -> list[Path]:
    """The folders of the groups of `make` that exist, each with what is in it.

    Args:
        name: as `make` has it.
        every: in all trees, for groups that other programs have made.
    """
    return at(f"{PREFIX}{name}", every=every)


def at(path: str, *, every: bool = False) -> list[Path]:
    """The folders of a group that exist, by its path in the trees; `every` as in `folders`."""
    paths = [tree / path for tree in _trees(every=every)]
    return [path for path in paths if path.exists()]


def is_empty(folder: Path) -> bool:
    """Whether no process is in a group or below it, as far as this user sees."""
    try:
        files = folder.rglob("cgroup.procs")
        return not any(file.read_text(encoding="ascii").strip() for file in files)
    except FileNotFoundError:
        return not folder.exists()
    except OSError:
        return False


def remove(folder: Path) -> bool:
    """Kill what is in a group and below it, and remove it; returns whether it is gone.

    Where this user may not, at once.
    """
    for below in (each for each in folder.glob("*") if each.is_dir()):
        remove(below)
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while folder.exists():
        try:
            pids = (folder / "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            pids = []
        # 0 stands for a process of another PID namespace; to kill, it is this process' own group.
        for pid in (int(it) for it in pids if it != "0"):
            # It may have ended, or be somebody else's: then the group stays, which is said.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno in _FORBIDDEN or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
    return True
