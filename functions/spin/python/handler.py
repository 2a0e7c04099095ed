"""Burns a given amount of CPU time, measured here, in the thread that burns it.

A loop count calibrated elsewhere would be wrong on another CPU, runtime or allocation. The
thread's own CPU clock stands still while the thread is descheduled or throttled.
"""

import mmap
import time

from uncia_envelope import Parameter, enveloped

# Reading the CPU clock is a system call of some 0.3 us. 400 additions between two reads take some
# 10 us: that is how far the spin overshoots, and system time stays a few per cent.
STEPS_PER_READ = 400

# The CPU clock itself may jump: on a virtual machine, time stolen by the host can be charged to us.
EXCESS_NS = 10_000_000
EXCESS_SHARE = 0.1

MB = 1 << 20

# <linux/mman.h>; Python has no name for it yet.
MADV_POPULATE_WRITE = 23


def burn(start_ns, target_ns):
    """Spins until this thread has used `target_ns` of CPU time since `start_ns` of its clock."""
    clock = time.thread_time_ns
    used = clock() - start_ns
    x = 1
    while used < target_ns:
        for _ in range(STEPS_PER_READ):
            x += 1
        used = clock() - start_ns
    return used


def resident():
    """The bytes of this process that are in memory now; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


# What the process holds on purpose, in pieces, so that little is taken anew when it is to hold
# less. It stays between invocations, as a program's memory does: to take it each time would be work
# of its own, and no small part of a short request.
PIECE = 8 * MB
held = []


def hold(size):
    """Brings the process to `size` bytes of memory, as far as what it holds on purpose allows."""
    while held and resident() > size:
        held.pop().close()
    wanted = max(0, size - resident()) // mmap.PAGESIZE * mmap.PAGESIZE
    for offset in range(0, wanted, PIECE):
        held.append(take(min(PIECE, wanted - offset)))


def take(size):
    """A region of memory, every page of it in use."""
    try:
        region = mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"the kernel refused {size} bytes: {error.strerror}") from None
    try:
        # Of Linux 5.14: all pages in one call.
        region.madvise(MADV_POPULATE_WRITE)
    except OSError:
        region[:: mmap.PAGESIZE] = b"\x01" * (size // mmap.PAGESIZE)
    return region


@enveloped(
    {
        "cpu": Parameter(100, 0, 600_000, "ms", whole=False),
        "duration": Parameter(0, 0, 900_000, "ms", whole=False),
        "memory": Parameter(0, 0, 10_240, "MB", whole=False),
    }
)
def handler(cpu, duration, memory):
    target = round(cpu * 1_000_000)
    begin = time.monotonic_ns()
    start = time.thread_time_ns()
    hold(round(memory * MB))
    filled = time.thread_time_ns() - start
    used = burn(start, target)
    wall = time.monotonic_ns() - begin
    rest = round(duration * 1_000_000) - wall
    if rest > 0:
        time.sleep(rest / 1e9)
    # What taking the memory takes is part of the CPU time, and may be more than was asked for.
    most = max(target, filled)
    valid = target <= used <= most + max(EXCESS_NS, most * EXCESS_SHARE)
    return {"cpu_ns": used, "wall_ns": wall}, valid
