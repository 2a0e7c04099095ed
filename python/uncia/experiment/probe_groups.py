"""Groups that killed platforms, CPU profiles and monitors left, which the engine removes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from uncia import engine
from uncia.errors import UnciaError
from uncia.text import plural

# Removing a group waits up to 5 s for its processes to end.
_TIMEOUT_S: Final = 120


@dataclass
class Groups:
    """The groups of platforms and CPU profiles that nobody runs any more.

    Attributes:
        folders: those of the groups whose engine is gone.
        failed: those of them that could not be removed.
    """

    folders: list[str]
    failed: list[str]


def clean(*, dry_run: bool, log: Callable[[str], None]) -> Groups:
    """Remove the groups of platforms and CPU profiles whose engine is gone.

    Args:
        dry_run: only say which there are.
        log: takes a line for everything found, done or not done.

    Raises:
        UnciaError: they cannot be looked for: no engine, or it failed.
    """
    groups = Groups([], [])
    if sys.platform != "linux":
        return groups
    orphans = _ask(remove=not dry_run)
    if orphans:
        log(f"Killed platforms, CPU profiles and monitors left {_counted(len(orphans))}")
    for group in orphans:
        folder = str(group["folder"])
        groups.folders.append(folder)
        if dry_run:
            log(f"  {folder}")
        elif group["removed"]:
            log(f"  removed {folder}")
        else:
            groups.failed.append(folder)
            log(f"  still there: {group['error'] or folder}")
    return groups


def _ask(*, remove: bool) -> list[dict[str, Any]]:
    command = [str(engine.binary()), "cpu", "groups", *(["--remove"] if remove else [])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnciaError(f"control groups were not looked for: {error}") from error
    try:
        listed = json.loads(done.stdout)
    except ValueError:
        listed = None
    if done.returncode != 0 or not isinstance(listed, list):
        message = done.stderr.strip() or f"exit code {done.returncode}"
        raise UnciaError(f"control groups were not looked for: {message}")
    return listed


def _counted(number: int) -> str:
    return f"{plural(number, 'control group')}"
