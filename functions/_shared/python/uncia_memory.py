"""Memory that a process holds on purpose, for functions that are to have a given amount of it.

Copied into packages with `uncia_envelope`; what does not import it pays nothing at a cold start.
"""

import mmap

MB = 1 << 20

# <linux/mman.h>; Python has no name for it yet.
MADV_POPULATE_WRITE = 23

# What the process holds on purpose, in pieces, so that little is taken anew when it is to hold
# less. It stays between invocations, as a program's memory does: to take it each time would be work
# of its own, and no small part of a short request.
PIECE = 8 * MB
held = []


def resident():
    """The bytes of this process that are in memory now; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def hold(size):
    """Brings the process to `size` bytes of memory, as far as what it holds on purpose allows.

    Raises MemoryError when the kernel refuses a piece.
    """
    while held and resident() > size:
        held.pop().close()
    missing = max(0, size - resident()) // mmap.PAGESIZE * mmap.PAGESIZE
    for offset in range(0, missing, PIECE):
        held.append(take(min(PIECE, missing - offset)))


def take(size):
    """A region of `size` bytes, every page of it in use. Raises MemoryError when it is refused."""
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
