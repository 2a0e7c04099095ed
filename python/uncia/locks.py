"""Advisory locks on open files; a lock ends when its file is closed or its process ends.

Only Unix has them; what only reads and writes tables does without.
"""

import contextlib
import errno
from typing import IO, Any, Final

_fcntl: Any = None
with contextlib.suppress(ImportError):
    import fcntl as _fcntl

AVAILABLE: Final = _fcntl is not None
"""Whether this system has such locks."""


def lock(file: IO[Any] | int, *, wait: bool = False) -> None:
    """Lock an open file, or a descriptor, against all others.

    Args:
        file: what to lock.
        wait: wait for whoever holds the lock.

    Raises:
        BlockingIOError: another holds the lock, and is not waited for.
        OSError: the system, or the file system, has no locks.
    """
    if _fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no file locks")
    _fcntl.flock(file, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
