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
import time
import traceback

import _signal
import _socket

# What copies find loaded, as the client of the Runtime API may need it.
_LOADED = (json, traceback)

_MAX_PACKET = 256 * 1024
_MAX_DESCRIPTORS = 64
# A copy's socket to its first process; above it, a copy has nothing open.
_SOCKET = 3
_OPEN_FILES = 1024

# With the interpreter's lock kept: there is no other thread.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


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
        # A copy would not join all of its control groups.
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
    gc.freeze()
    while True:
        _, descriptors = _receive(connection)
        if len(descriptors) < 4:
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
        _become_runtime(rules, prepared_filter, descriptors, initial)
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


def _become_runtime(rules, prepared_filter, descriptors, initial):
    namespaces, socket, null, output, *groups = descriptors
    _end_if_abandoned(socket)
    _call(rules["setns"], namespaces, rules["namespaces"])
    for group in groups:
        # Whoever writes it: no process number to translate between namespaces.
        os.write(group, b"0")
    os.setsid()
    for descriptor, number in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, number)
    file, adjustment = rules["out_of_memory"]
    try:
        descriptor = os.open(file, os.O_WRONLY)
        os.write(descriptor, adjustment.encode())
    except OSError:
        # It keeps no function from running.
        pass
    os.chdir(rules["folder"])
    if socket != _SOCKET:
        os.dup2(socket, _SOCKET, False)
        descriptors[1] = _SOCKET
    os.closerange(_SOCKET + 1, _OPEN_FILES)
    order = json.loads(os.read(_SOCKET, _MAX_PACKET))
    _end_if_abandoned(_SOCKET)
    _carry_out(order["calls"])
    zone = os.environ.get("TZ")
    _libc.clearenv()
    os.environ._data.clear()
    os.environ.update(order["environment"])
    if os.environ.get("TZ") != zone:
        time.tzset()
    address, size = initial
    ctypes.memset(address, 0, size)
    if prepared_filter is not None:
        _filter(prepared_filter, *rules["seccomp"])
    _carry_out(order["last"])
    # What the zygote alone has use for.
    del sys.modules[__name__]
    _report(_SOCKET, runs=os.getpid())
    os.close(_SOCKET)
