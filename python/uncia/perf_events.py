"""The kernel's performance events: ``perf_event_open(2)``."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

Event = tuple[int, int]
"""Type and config."""

HARDWARE_CYCLES: Final = (0, 0)
HARDWARE_INSTRUCTIONS: Final = (0, 1)
HARDWARE_CACHE_REFERENCES: Final = (0, 2)
HARDWARE_CACHE_MISSES: Final = (0, 3)
HARDWARE_BRANCHES: Final = (0, 4)
HARDWARE_BRANCH_MISSES: Final = (0, 5)
SOFTWARE_TASK_CLOCK: Final = (1, 1)
SOFTWARE_PAGE_FAULTS: Final = (1, 2)

_SYSCALL: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE_SIZE: Final = 112  # PERF_ATTR_SIZE_VER5, since Linux 4.1
# Unprivileged processes may count themselves in user mode only: exclude_kernel | exclude_hv.
_USER_MODE: Final = 1 << 5 | 1 << 6
_FROM_EXEC: Final = 1 << 0 | 1 << 1 | 1 << 12  # disabled, inherit, enable_on_exec
_CLOEXEC: Final = 8


def open_counter(event: Event, pid: int = 0, *, from_exec: bool = False) -> int:
    """Open a counter of what a process does in user mode.

    Args:
        event: what is counted.
        pid: of the process; 0 is this one.
        from_exec: count from the process' next program on, with the threads and processes that it
            starts; otherwise at once, and this thread alone.

    Returns:
        A descriptor for `read_counter`, to be closed.

    Raises:
        OSError: the kernel does not count it.
    """
    number = _SYSCALL.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        raise OSError(0, "the system call is not known here")
    kind, config = event
    flags = _USER_MODE | (_FROM_EXEC if from_exec else 0)
    attribute = struct.pack("=IIQQQQQ", kind, _ATTRIBUTE_SIZE, config, 0, 0, 0, flags)
    buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    descriptor = libc.syscall(
        *(ctypes.c_long(number), buffer, ctypes.c_int(pid), ctypes.c_int(-1)),
        *(ctypes.c_int(-1), ctypes.c_ulong(_CLOEXEC)),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)


def read_counter(descriptor: int) -> int:
    """What a counter has counted.

    Raises:
        OSError: it cannot be read.
    """
    return int(struct.unpack("=Q", os.read(descriptor, 8))[0])
