"""Makes instances of a started interpreter: the zygote of a Python runtime.

`bootstrap.py` calls `serve` in a process whose standard input is a socket. It waits there for
orders, each for one copy of the process in the sandbox of an instance. `serve` returns in the
copies only, each of which is then what a freshly started interpreter would be: in its sandbox,
without rights, and with its own environment. What a copy does, and with which numbers, comes from
the program that does the same for runtimes that it executes: with the first packet, and over a
socket that only the copy reads.

No function's code ever runs in the zygote, and nothing of a function is read by it: what was in its
memory once, every later copy could find.
"""

import ctypes
import gc
import json
import os
import select
import sys
import traceback

import _signal
import _socket
import successor
from __main__ import _set_environment, _warm

# What copies find loaded, as the client of the Runtime API may need it.
_LOADED = (json, traceback)

_MAX_PACKET = 256 * 1024
_MAX_DESCRIPTORS = 64
# A copy's socket to its first process; above it, a copy has nothing open.
_SOCKET = 3
_OPEN_FILES = 1024

_PAGE = 4096
# Pages without an object that is known, between two with one.
_MAX_GAP = 8
_MADV_POPULATE_WRITE = 23

_libc = successor.libc


def _call(number, *arguments):
    """Makes a system call: numbers are passed as such, and bytes by their address."""
    words = [value if isinstance(value, bytes) else ctypes.c_long(value) for value in arguments]
    words += [ctypes.c_long(0)] * (6 - len(words))
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _carry_out(calls):
    for call in calls:
        arguments = (bytes(it) if isinstance(it, list) else it for it in call["arguments"])
        try:
            _call(call["number"], *arguments)
        except OSError as error:
            if not call["optional"]:
                raise OSError("cannot %s: %s" % (call["step"], error)) from None


def _receive(connection):
    """Returns one packet, read as JSON, and its descriptors, none of them if some are missing.

    Ends the process once nobody can send any more.
    """
    space = _socket.CMSG_SPACE(4 * _MAX_DESCRIPTORS)
    data, beside, flags, _ = connection.recvmsg(_MAX_PACKET, space, _socket.MSG_CMSG_CLOEXEC)
    if not data:
        os._exit(0)
    descriptors = []
    for _, _, numbers in beside:
        whole = len(numbers) - len(numbers) % 4
        descriptors += memoryview(numbers)[:whole].cast("i").tolist()
    if flags & _socket.MSG_CTRUNC:
        _close(descriptors)
        descriptors = []
    return json.loads(data), descriptors


def _close(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _prepare_filter(program):
    """Returns the structure for `seccomp(2)`, or None without a program."""
    if program is None:
        return None
    return _Filter(len(program) // 8, bytes(program))


def _filter(prepared, number, operation, all_flags):
    for flags in all_flags:
        words = (ctypes.c_long(it) for it in (number, operation, flags))
        if _libc.syscall(*words, ctypes.byref(prepared)) == 0:
            return
    raise OSError("cannot filter system calls: %s" % os.strerror(ctypes.get_errno()))


def _initial_environment():
    """Returns address and length of the variables that this process was started with.

    `/proc/PID/environ` shows them, and a copy's are not these.
    """
    strings = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
    size = sum(len(os.fsencode(name + value)) + 2 for name, value in os.environ.items())
    return strings[0], size


def serve():
    """Makes copies as ordered; returns in each."""
    connection = _socket.socket(fileno=0)
    rules, _ = _receive(connection)
    _carry_out(rules["own"])
    prepared_filter = _prepare_filter(rules["filter"])
    initial = _initial_environment()
    setns, process_namespace = rules["setns"], rules["process_namespace"]
    own = _call(rules["pidfd_open"], os.getpid())
    # A copy's parent ends at once, and nobody asks how.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    # What never changes stays shared between all copies.
    gc.collect()
    used = _used_memory()
    gc.freeze()
    while True:
        _, descriptors = _receive(connection)
        if len(descriptors) != 3:
            _close(descriptors)
            continue
        try:
            _call(setns, descriptors[0], process_namespace)
            child = _libc.fork()
            if child < 0:
                raise OSError("cannot start a process: %s" % os.strerror(ctypes.get_errno()))
        except OSError as error:
            try:
                _report(descriptors[1], failed=str(error))
            except OSError:
                # The first process is gone, and so is its namespace.
                pass
            child = -1
        if child == 0:
            break
        _close(descriptors)
        # An instance's namespace ends with it.
        _call(setns, own, process_namespace)
    try:
        # In the sandbox already; a child of its first process once this one has ended.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        if os.fork() != 0:
            _libc._exit(0)
        # The connection's number is 0, which is another file from here on.
        connection.detach()
        _become_runtime(rules, prepared_filter, descriptors, initial, used)
    except BaseException as error:
        try:
            _report(descriptors[1], failed=str(error))
        finally:
            os._exit(127)


def _report(descriptor, **what):
    os.write(descriptor, json.dumps(what).encode())


def _end_if_abandoned(socket):
    """Ends the process if its first process does not wait for it any more.

    The function may run already, executed in this sandbox: it must not meet a process with rights.
    """
    poll = select.poll()
    poll.register(socket, 0)
    if poll.poll(0):
        os._exit(127)


def _used_memory():
    """Returns address and size of where the interpreter's objects are."""
    used = []
    for page in sorted({id(it) // _PAGE for it in gc.get_objects()}):
        if used and page <= used[-1][1] + _MAX_GAP:
            used[-1][1] = page
        else:
            used.append([page, page])
    return [(first * _PAGE, (last - first + 1) * _PAGE) for first, last in used]


def _become_runtime(rules, prepared_filter, descriptors, initial, used):
    namespaces, socket, output = descriptors
    os.setsid()
    # The first one until there is a sandbox: no other file may get its number.
    for number in range(3):
        os.dup2(output, number)
    if socket != _SOCKET:
        os.dup2(socket, _SOCKET, False)
        descriptors[1] = _SOCKET
    # First, as it has these strings: else children of the function would inherit emptied ones.
    _libc.clearenv()
    address, size = initial
    ctypes.memset(address, 0, size)
    if not select.select([_SOCKET], [], [], 0)[0]:
        # There is time to make memory that loading a handler writes to this process's own.
        for address, size in used:
            # Old kernels cannot.
            _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)
        _warm()
    next_process = successor.Successor(rules["successor"])
    connection = _socket.socket(fileno=_SOCKET)
    _report(_SOCKET, waits=None)
    order, groups = _receive(connection)
    _end_if_abandoned(_SOCKET)
    begin_in = groups.pop() if order["begin_in"] and groups else None
    if len(groups) != order["groups"]:
        raise OSError("cannot join all control groups: a descriptor is missing")
    _call(rules["setns"], namespaces, rules["namespaces"])
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    before = None if begin_in is None else next_process.begin_in(begin_in)
    if before is not None or (
        begin_in is not None and successor.fork_in(begin_in, rules["successor"]["clone3"])
    ):
        # It has begun in the group of version 2, the last; those of version 1 beside it are left.
        groups = groups[:-1]
    for group in groups:
        # Whoever writes it: no process number to translate between namespaces.
        os.write(group, b"0")
    file, adjustment = rules["out_of_memory"]
    try:
        descriptor = os.open(file, os.O_WRONLY)
        os.write(descriptor, adjustment.encode())
    except OSError:
        # It keeps no function from running.
        pass
    os.chdir(rules["folder"])
    if before is not None:
        # It has rights, and the memory that the function will have.
        successor.wait_for_end(before)
    os.closerange(_SOCKET + 1, _OPEN_FILES)
    _end_if_abandoned(_SOCKET)
    _carry_out(order["calls"])
    _set_environment(order["environment"])
    if prepared_filter is not None:
        _filter(prepared_filter, *rules["seccomp"])
    _carry_out(order["last"])
    # What the zygote alone has use for.
    del sys.modules[__name__], sys.modules[successor.__name__]
    _report(_SOCKET, runs=os.getpid())
    connection.close()
