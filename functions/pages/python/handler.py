"""Reads pages of its package's filler at random."""

import os
import random
import time

from uncia_envelope import Parameter, enveloped

PAGE = 4096
FILLER = __file__.rpartition("/")[0] + "/uncia-filler.bin"  # without loading pathlib


@enveloped({"count": Parameter(0, 0, 1_000_000)})
def handler(count):
    if count == 0:
        return {"count": 0, "filler": 0, "read_ns": 0}, True
    begin = time.monotonic_ns()
    try:
        file = os.open(FILLER, os.O_RDONLY)
    except FileNotFoundError:
        raise ValueError("count: the package has no filler; give it one (filler: 10MB)") from None
    try:
        size = os.fstat(file).st_size
        pages = size // PAGE
        if pages == 0:
            raise ValueError(f"count: the filler has {size} bytes, less than a page of {PAGE}")
        read = sum(
            len(os.pread(file, PAGE, random.randrange(pages) * PAGE)) == PAGE for _ in range(count)
        )
    finally:
        os.close(file)
    return {"count": read, "filler": size, "read_ns": time.monotonic_ns() - begin}, read == count
