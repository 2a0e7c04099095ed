"""Tries whether the kernel counts performance events for this process."""

from __future__ import annotations

import os
from dataclasses import dataclass

from uncia.perf_events import Event, open_counter, read_counter


@dataclass(frozen=True)
class Counted:
    """The outcome of counting an event: its count, or else why there is none."""

    count: int | None
    reason: str = ""


def count(event: Event) -> Counted:
    """Count an event over a short busy loop."""
    try:
        descriptor = open_counter(event)
    except OSError as error:
        return Counted(None, error.strerror or str(error))
    try:
        sum(range(100_000))
        counted = read_counter(descriptor)
    except OSError as error:
        return Counted(None, error.strerror or str(error))
    finally:
        os.close(descriptor)
    return Counted(counted) if counted > 0 else Counted(None, "it counts, but stays at zero")
