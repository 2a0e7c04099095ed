"""Advisory locks on open files; closing the file or ending the process releases a lock.

Only Unix has them. Code that reads and writes tables works without.
"""

import contextlib
import errno
from typing import IO, Any, Final

_fcntl: Any = None
with contextlib.suppress(ImportError):
    import fcntl as _fcntl

AVAILABLE: Final = _fcntl is not None
"""Whether this system has file locks."""


def lock(file: IO[Any] | int, *, wait: bool = False) -> None:
    """Lock an open file against other processes.

    Args:
        file: an open file, or its descriptor.
        wait: wait until the lock is free, instead of failing.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is false.
        OSError: the system, or the file system, has no locks.
    """
    if _fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no file locks")
    _fcntl.flock(file, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
