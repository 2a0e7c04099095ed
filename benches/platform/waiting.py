"""Where requests of a function wait while something else goes on beside it.

Of each request: the time until the platform gave it to the instance, in the instance, and from
there to the client. And how long threads that could run waited for a CPU meanwhile, by the kernel's
own account (``/proc/<pid>/task/<tid>/schedstat``): the platform's thread that reads requests and
answers them, and those of the function's instances.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from density import descendants

SEGMENTS = {
    "in": ("scheduled", "started"),
    "function": ("started", "ended"),
    "out": ("ended", "received"),
}
PARTIES = ("worker", "calm")


def segments_ms(rows: pa.Table) -> dict[str, np.ndarray]:
    """Three times of each request, in ms, which are its latency together."""
    return {
        name: pc.subtract(rows[until], rows[since]).to_numpy() / 1e6
        for name, (since, until) in SEGMENTS.items()
    }


def waits_of(worker: int, function: str) -> Callable[[], dict[str, float]]:
    """Returns a function that says how long threads have waited for a CPU so far, in ms.

    They are the worker's first, and all of the function's instances that are there now.
    """
    marker = f"AWS_LAMBDA_FUNCTION_NAME={function}\0".encode()
    instances = [pid for pid in descendants(worker) if marker in _read(f"/proc/{pid}/environ")]

    def waited() -> dict[str, float]:
        threads = [(pid, tid) for pid in instances for tid in _threads(pid)]
        by_party = dict(zip(PARTIES, ([(worker, worker)], threads), strict=True))
        return {party: sum(_wait_ms(*it) for it in ids) for party, ids in by_party.items()}

    return waited


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # the process has ended
        return b""


def _threads(pid: int) -> list[int]:
    try:
        return [int(it.name) for it in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def _wait_ms(pid: int, tid: int) -> float:
    fields = _read(f"/proc/{pid}/task/{tid}/schedstat").split()
    return int(fields[1]) / 1e6 if fields else 0.0
