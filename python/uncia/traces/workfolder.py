"""The hidden folder that an import works in, and those that killed imports left.

The folder is locked (``flock``) as long as its import lives, however that ends: one that can be
locked has none. A file system without such locks keeps its leftovers.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from uncia import locks

_PREFIX: Final = ".uncia-trace-"


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """A new folder in ``parent``, which is removed in the end; what killed imports left goes first.

    Raises:
        OSError: it cannot be made.
    """
    remove_left(parent)
    folder, lock = _locked(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_left(parent: Path) -> list[Path]:
    """Remove the folders in ``parent`` whose import is gone; returns those."""
    removed = []
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            lock = _lock(folder)
        except OSError:
            continue  # its import lives, it is gone, or nobody can tell
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
        if not folder.exists():
            removed.append(folder)
    return removed


def _locked(parent: Path) -> tuple[Path, int | None]:
    """A new folder and its lock; None where there are no locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            lock = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another import took it for a leftover before it was locked, and removes it
        except OSError:
            return folder, None
        if folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int:
    """Lock a folder; the lock ends with the file, or with this process."""
    if not locks.AVAILABLE:
        raise OSError(errno.ENOTSUP, "this system has no file locks")
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        locks.lock(file)
    except OSError:
        with suppress(OSError):
            os.close(file)
        raise
    return file
