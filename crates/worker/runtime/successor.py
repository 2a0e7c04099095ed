"""Goes on as another process that has begun in a control group of version 2.

To join such a group, a process waits until no other of the machine forks or ends, for 10 ms and
more; to begin in one, it does not. A copy by `fork` has the tables of all pages copied, and takes a
fault for each page that it writes to. So the process that goes on has this one's memory itself
(`CLONE_VM`), and this one stands still until that has ended (`CLONE_VFORK`): it is killed before it
could do anything again. What the kernel keeps for each process, and the C library has told it of at
its start, is told again.

Where that cannot be done, a fork has to do.
"""

import ctypes
import gc
import os
import select
import sys

import _signal

# From linux/prctl.h, linux/sched.h and linux/rseq.h.
_PR_GET_TID_ADDRESS = 40
_CLONE_VM = 0x100
_CLONE_VFORK = 0x4000
_CLONE_PARENT = 0x8000
_CLONE_CHILD_SETTID = 0x1000000
_RSEQ_SIZE = 32
_CPU_OFFSET = 4
_REGISTRATION_FAILED = -2

# From sys/mman.h.
_PROT_WRITABLE, _PROT_EXECUTABLE = 1 | 2, 1 | 4
_MAP_PRIVATE_ANONYMOUS = 0x22
_PAGE = 4096

# How long, in ms, the process before may take to end: shorter than a first process waits for a copy
# before it executes the function instead.
_PATIENCE_MS = 2000

# With the interpreter's lock kept: there is no other thread.
libc = ctypes.PyDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def _call(number, *words):
    words = (ctypes.c_void_p(word) for word in words)
    return libc.syscall(ctypes.c_long(number), *words)


class Successor:
    """What is known of this process before there is a group; `numbers` are of system calls."""

    def __init__(self, numbers):
        self._numbers = numbers
        self._own = os.getpid()
        self._number_at = self._address_of_number()
        head, size = ctypes.c_void_p(), ctypes.c_size_t()
        places = ctypes.addressof(head), ctypes.addressof(size)
        is_known = _call(numbers["get_robust_list"], 0, *places) == 0
        self._locks = (head.value, size.value) if is_known and head.value else None
        self._rseq = self._address_of_rseq()

    def _address_of_number(self):
        """Returns where the C library has this thread's number, or None if that is not known."""
        address = ctypes.c_void_p()
        # Kernels without checkpoints do not say it.
        if libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) != 0:
            return None
        # Other libraries than glibc have something else there.
        if not address.value or ctypes.c_int.from_address(address.value).value != self._own:
            return None
        return address.value

    def _address_of_rseq(self):
        """Returns where the kernel writes which CPU this is, or None if it does not.

        On x86-64, for which alone there is code: elsewhere that is not beside `pthread_self`.
        """
        try:
            size = ctypes.c_uint.in_dll(libc, "__rseq_size").value
            offset = ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value
        except ValueError:
            return None
        libc.pthread_self.restype = ctypes.c_void_p
        return libc.pthread_self() + offset if size else None

    def begin_in(self, folder):
        """Goes on as it, in the folder's group, and returns a descriptor of the process before.

        Returns None where that cannot be done: this process is then as it was.
        """
        code = None if self._number_at is None else _executable(self._numbers["code"])
        if code is None:
            return None
        try:
            before = os.pidfd_open(self._own)
        except (AttributeError, OSError):
            _remove(code)
            return None
        _, into_group = self._numbers["clone3"]
        flags = into_group | _CLONE_VM | _CLONE_VFORK | _CLONE_PARENT | _CLONE_CHILD_SETTID
        arguments = _clone_arguments(flags, folder, number_at=self._number_at)
        clone = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.c_size_t)(code)
        set_tid_address = self._numbers["set_tid_address"]
        # At this process's end, the kernel would clear the number there, which is the other's then.
        _call(set_tid_address, 0)
        # Between the two, Python 3.14 has a lock that collecting garbage takes as well.
        collects = gc.isenabled()
        gc.disable()
        libc.PyOS_BeforeFork()
        child = clone(arguments, len(arguments))
        if child == 0:
            os.kill(self._own, _signal.SIGKILL)
        _call(set_tid_address, self._number_at)
        _remove(code)
        if child < 0:
            libc.PyOS_AfterFork_Parent()
            _set_collects(collects)
            os.close(before)
            return None
        if self._locks is not None:
            _call(self._numbers["set_robust_list"], *self._locks)
        self._register_rseq()
        libc.PyOS_AfterFork_Child()
        _set_collects(collects)
        os.setsid()
        return before

    def _register_rseq(self):
        if self._rseq is None:
            return
        number, signature = self._numbers["rseq"]
        if _call(number, self._rseq, _RSEQ_SIZE, 0, signature) != 0:
            # As the C library does: who reads it asks the kernel instead.
            ctypes.c_int.from_address(self._rseq + _CPU_OFFSET).value = _REGISTRATION_FAILED


def _executable(code):
    """Returns where the instructions are that clone this process; None if there are none.

    The other process goes on with the stack that this one has been cloned on. So this one must not
    come back to it: even if the other ends at once, it has nothing left to do but end.
    """
    if code is None:
        return None
    libc.mmap.restype = ctypes.c_void_p
    size = ctypes.c_size_t(_PAGE)
    place = (_PROT_WRITABLE, _MAP_PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
    address = libc.mmap(None, size, *place)
    if address == ctypes.c_void_p(-1).value:
        return None
    ctypes.memmove(address, bytes(code), len(code))
    if libc.mprotect(ctypes.c_void_p(address), size, _PROT_EXECUTABLE) != 0:
        _remove(address)
        return None
    return address


def _set_collects(wanted):
    if wanted:
        gc.enable()


def _remove(address):
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE))


def _clone_arguments(flags, folder, *, number_at=0, end_signal=0):
    """Returns a `struct clone_args`."""
    words = [flags, 0, number_at, 0, end_signal, 0, 0, 0, 0, 0, folder]
    return b"".join(word.to_bytes(8, sys.byteorder) for word in words)


def fork_in(folder, clone3):
    """Goes on as a copy of this process, in the folder's group; False if that cannot be done."""
    number, into_group = clone3
    arguments = _clone_arguments(into_group, folder, end_signal=_signal.SIGCHLD)
    size = ctypes.c_long(len(arguments))
    child = libc.syscall(ctypes.c_long(number), ctypes.c_char_p(arguments), size)
    if child < 0:
        return False
    # The C library does not know that this is another process. Of the next one it does.
    if child > 0 or os.fork() != 0:
        libc._exit(0)
    # Who looks for the group's process is to find this one.
    while os.getppid() != 1:
        os.sched_yield()
    os.setsid()
    return True


def wait_for_end(process):
    """Returns once a process has ended."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    if not poll.poll(_PATIENCE_MS):
        raise OSError("the process before does not end")
    os.close(process)
