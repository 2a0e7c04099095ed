"""System calls that another process is made to make, as by a debugger.

It stands still meanwhile, and goes on afterwards as if nothing had been. That takes root's rights,
because instances cannot be looked into, and an x86-64 processor, whose registers these are.
"""

import ctypes
import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, Final

from patience import scaled

CAN_INJECT: Final = platform.machine() == "x86_64" and os.geteuid() == 0

# linux/ptrace.h and sys/wait.h
_PEEKTEXT, _SINGLESTEP, _GETREGS, _SETREGS, _DETACH = 1, 9, 12, 13, 17
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_ALL_CHILDREN: Final = 0x40000000
# `syscall`, by its two bytes in memory.
_SYSCALL: Final = 0x050F
_NO_CALL: Final = 2**64 - 1
# Errors are answered as small negative numbers.
_GREATEST_ERROR: Final = 4095


class _Registers(ctypes.Structure):
    """``struct user_regs_struct``."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx"),
            *("rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base"),
            *("gs_base", "ds", "es", "fs", "gs"),
        )
    ]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, address: Any = None, data: Any = None) -> int:
    pointer = ctypes.c_void_p
    ctypes.set_errno(0)
    result: int = _libc.ptrace(
        ctypes.c_long(request), ctypes.c_long(pid), pointer(address), data or pointer()
    )
    if ctypes.get_errno() != 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x} of {pid}")
    return result


class Stopped:
    """A process that stands still at a system call, the one that it waits in."""

    def __init__(self, pid: int, registers: _Registers) -> None:
        self.pid = pid
        self._before = registers

    def call(self, number: int, *arguments: int) -> int:
        """Have it make a system call; arguments that are not given are 0.

        Returns:
            What the kernel answers: an error as a negative number.
        """
        registers = _Registers.from_buffer_copy(self._before)
        # The instruction before the next one, again. The call in which it waits is not repeated.
        registers.rip -= 2
        registers.orig_rax = _NO_CALL
        registers.rax = number
        names = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
        for name, value in zip_longest(names, arguments, fillvalue=0):
            setattr(registers, name, value % 2**64)
        _ptrace(_SETREGS, self.pid, data=ctypes.byref(registers))
        _ptrace(_SINGLESTEP, self.pid)
        stop = _wait(self.pid)
        assert stop == signal.SIGTRAP, f"call {number} has ended in signal {stop}"
        _ptrace(_GETREGS, self.pid, data=ctypes.byref(registers))
        _ptrace(_SETREGS, self.pid, data=ctypes.byref(self._before))
        answer: int = registers.rax
        return answer - 2**64 if answer >= 2**64 - _GREATEST_ERROR else answer


@contextmanager
def stopped(pid: int) -> Iterator[Stopped]:
    """Have a process stand still that waits in a system call, and go on afterwards."""
    _ptrace(_SEIZE, pid)
    try:
        _ptrace(_INTERRUPT, pid)
        _wait(pid)
        registers = _Registers()
        _ptrace(_GETREGS, pid, data=ctypes.byref(registers))
        instruction = _ptrace(_PEEKTEXT, pid, registers.rip - 2) & 0xFFFF
        assert instruction == _SYSCALL, f"{pid} waits in no system call"
        yield Stopped(pid, registers)
    finally:
        _ptrace(_DETACH, pid)


def _wait(pid: int) -> int:
    """Wait until it stands still; the signal for which it does.

    A call that gets through and waits would keep it for ever: it is killed then.
    """
    deadline = time.monotonic() + scaled(30)
    while True:
        waited, status = os.waitpid(pid, os.WNOHANG | _ALL_CHILDREN)
        if waited == pid:
            assert os.WIFSTOPPED(status), f"{pid} has ended: {os.waitstatus_to_exitcode(status)}"
            return os.WSTOPSIG(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"{pid} does not return from its call")
