"""Control groups of programs that a platform starts itself, in every tree that is mounted."""

from __future__ import annotations

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
    paths = [tree / f"{PREFIX}{name}" for tree in _trees(every=every)]
    return [path for path in paths if path.exists()]


def remove(folder: Path) -> bool:
    """Kill what is in a group and below it, and remove it; returns whether it is gone."""
    for below in (each for each in folder.glob("*") if each.is_dir()):
        remove(below)
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while folder.exists():
        try:
            pids = (folder / "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            pids = []
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
    return True
