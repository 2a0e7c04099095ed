"""The user's cache folder, and creating a file or folder in it once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from uncia import locks
from uncia.errors import UnciaError

UNUSED_DAYS: Final = 30
"""What was not used for this long is removed, so that padded packages do not fill the disk."""


def cache_folder(part: str) -> Path:
    """Return the folder ``$XDG_CACHE_HOME/uncia/part``, created if it is missing.

    Raises:
        UnciaError: it cannot be created.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    folder = root / "uncia" / part
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(
            f"the cache folder {folder} cannot be made: {error.strerror}",
            hint="Set XDG_CACHE_HOME to a folder that you can write to.",
        ) from error
    return folder


def create_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Return ``path`` in the cache, created by ``make(partial)`` if it is missing.

    It is created under another name and renamed to ``path``, under a lock: a failed or killed
    attempt never leaves an incomplete ``path``, and the next attempt removes what it left. Several
    processes that need the same ``path`` create it once.

    Raises:
        UnciaError: the cache cannot be written; or what ``make`` raises.
    """
    if path.exists():
        return _touch(path)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with _locked(path.with_name(f"{path.name}.lock")):
            if path.exists():
                return _touch(path)
            _remove(partial)
            try:
                make(partial)
                partial.rename(path)
            finally:
                _remove(partial)
            _remove_unused(path)
    except OSError as error:
        raise UnciaError(
            f"the cache {path.parent} cannot be written: {error.strerror or error}",
            hint="Free some space, or set XDG_CACHE_HOME to a folder that you can write to.",
        ) from error
    return path


def _touch(path: Path) -> Path:
    """Mark a path as used now, and return it."""
    try:
        os.utime(path)
    except PermissionError:
        return path  # a cache made by another user, shared for reading
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_unused(used: Path) -> None:
    """Remove what lies beside ``used`` and was not used for a long time."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for other in used.parent.iterdir():
        if (
            other != used
            and other.suffix not in (".lock", ".partial")
            and other.stat().st_mtime < oldest
        ):
            _remove(other)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on a file; the kernel releases it when the process ends."""
    with path.open("a") as file:
        # Where there are no such locks, two processes may both make it; the rename decides.
        if locks.AVAILABLE:
            locks.lock(file, wait=True)
        yield
