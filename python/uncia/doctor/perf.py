"""Tries whether the kernel counts performance events for this process."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass
from typing import Final

_SYSCALL: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE_SIZE: Final = 112  # PERF_ATTR_SIZE_VER5, since Linux 4.1
# Unprivileged processes may count themselves in user mode only: exclude_kernel | exclude_hv.
_FLAGS: Final = 1 << 5 | 1 << 6
_CLOEXEC: Final = 8

HARDWARE_CYCLES: Final = (0, 0)
SOFTWARE_TASK_CLOCK: Final = (1, 1)


@dataclass(frozen=True)
class Counted:
    """The outcome of counting an event: its count, or else why there is none."""

    count: int | None
    reason: str = ""


def count(event: tuple[int, int]) -> Counted:
    """Count an event (type and config of ``perf_event_open(2)``) over a short busy loop."""
    number = _SYSCALL.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return Counted(None, "the system call is not known here")
    kind, config = event
    attribute = struct.pack("=IIQQQQQ", kind, _ATTRIBUTE_SIZE, config, 0, 0, 0, _FLAGS)
    buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    descriptor = libc.syscall(
        *(ctypes.c_long(number), buffer, ctypes.c_int(0), ctypes.c_int(-1)),
        *(ctypes.c_int(-1), ctypes.c_ulong(_CLOEXEC)),
    )
    if descriptor < 0:
        return Counted(None, os.strerror(ctypes.get_errno()))
    try:
        sum(range(100_000))
        counted = struct.unpack("=Q", os.read(descriptor, 8))[0]
    except OSError as error:
        return Counted(None, error.strerror or str(error))
    finally:
        os.close(descriptor)
    return Counted(counted) if counted > 0 else Counted(None, "it counts, but stays at zero")
