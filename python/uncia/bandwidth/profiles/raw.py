"""`RawRun`: a run of the probe as its file has it, before the unit of its times is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["ns", "us", "ms", "s"]
NS: Final[dict[Unit, int]] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@dataclass(frozen=True)
class RawRun:
    """A run as its file has it.

    Attributes:
        index: its index in the file, from 0.
        events: ``(time, gap)`` in the unit of the file; finite, gaps above 0.
        t0: when it began: in ns, or in the unit of the events.
        duration_s: the caller's, in seconds.
        iterations: loops of the probe.
    """

    index: int
    events: list[tuple[float, float]]
    t0: float | None
    duration_s: float | None
    iterations: int | None

    def t0_ns(self, unit: Unit | None) -> int | None:
        """``t0`` in ns, if it fits before the first event in ns, or else in ``unit``."""
        if self.t0 is None or not self.events or unit is None:
            return None if self.t0 is None else round(self.t0)
        time, gap = self.events[0]
        begin = (time - gap) * NS[unit]
        fitting = [t0 for t0 in (self.t0, self.t0 * NS[unit]) if t0 <= begin]
        # The later of the two is the nearer to the first event.
        return round(max(fitting)) if fitting else None
