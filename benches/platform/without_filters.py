"""Run a command on a kernel that seems to have no filters of system calls.

    python3 benches/platform/without_filters.py COMMAND [ARGUMENT ...]

A filter refuses the call that installs further ones, in the command and all that it starts. With it
the embedded platform serves without its own filters, which is how their cost is measured.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Final

_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
"""The number of the system call ``seccomp``."""

_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_ALLOW: Final = 0x7FFF_0000
_ERROR: Final = 0x0005_0000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def refuse_filters() -> None:
    """Refuse ``seccomp`` to this process and its children, as a kernel without it does."""
    number = _SECCOMP[platform.machine()]
    steps = (
        _Instruction(_LOAD, 0, 0, 0),
        _Instruction(_JUMP_IF_EQUAL, 0, 1, number),
        _Instruction(_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    )
    instructions = (_Instruction * len(steps))(*steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), instructions)
    if (
        libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        or libc.syscall(number, _SET_MODE_FILTER, 0, ctypes.byref(program)) != 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


if __name__ == "__main__":
    refuse_filters()
    os.execvp(sys.argv[1], sys.argv[1:])
