"""What a profile of CPU bandwidth control holds: runs of the probe and the gaps they saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from uncia.bandwidth.profiles.raw import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

THROTTLE: Final = "throttle"
PROBE: Final = "probe"


@dataclass(frozen=True)
class ProbeRun:
    """One run of the probe.

    Attributes:
        start_ns: when it began, on the clock of the events; None when not known.
        duration_ns: how long it took: by the probe itself in Uncia's runs; in the published files
            as the caller measured it, so with the request around it. None when not known.
        events: ``(time, gap)`` in ns, in order, ``time`` being the end of the gap.
    """

    start_ns: int | None
    duration_ns: int | None
    events: list[tuple[int, int]]


@dataclass(frozen=True)
class Profile:
    """Runs of the probe under one setting.

    Attributes:
        runs: those that succeeded; one without a throttle is as good as any.
        source: where they were read, for people.
        unit: what the file's times were in; None when no run has an event.
        notes: what a reader should know: how the unit was found, what failed.
        name: which profile of its source, if that holds several.
        monotonic: its times count from the zero of the machine's monotonic clock, as the kernel's
            timers do.
        kernel_throttled: refills that found the group throttled, as the kernel counted them in all
            runs; None when not known.
    """

    runs: list[ProbeRun]
    source: str
    unit: Unit | None
    notes: list[str] = field(default_factory=list)
    name: str | None = None
    monotonic: bool = True
    kernel_throttled: int | None = None

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Interval, throttle and CPU time of every event but the first of each run, in ns.

        Returns:
            Three arrays of the same length: from the event before to this one; the gap; and what
            lies between the gaps, which is the CPU time obtained before the throttle. All are
            empty when no run has two events.
        """
        import numpy as np

        intervals, throttles = [], []
        for run in self.runs:
            if len(run.events) > 1:
                events = np.asarray(run.events, dtype=np.int64)
                intervals.append(np.diff(events[:, 0]))
                throttles.append(events[1:, 1])
        if not intervals:
            none = np.zeros(0, dtype=np.int64)
            return none, none.copy(), none.copy()
        interval, throttle = np.concatenate(intervals), np.concatenate(throttles)
        return interval, throttle, interval - throttle

    @property
    def events(self) -> int:
        """Jumps in all runs together."""
        return sum(len(run.events) for run in self.runs)
