"""`Profile`: runs of the probe under CPU bandwidth control, and the gaps they saw."""

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
        start_ns: when it began, on the clock of the events; None if unknown.
        duration_ns: how long it took: in Uncia's runs by the probe itself; in published files by
            the caller, including the request. None if unknown.
        events: ``(time, gap)`` in ns, in order, ``time`` being the end of the gap.
    """

    start_ns: int | None
    duration_ns: int | None
    events: list[tuple[int, int]]


@dataclass(frozen=True)
class Profile:
    """Runs of the probe under one setting.

    Attributes:
        runs: those that succeeded, with or without throttles.
        source: where they were read.
        unit: unit of the file's times; None if no run has an event.
        notes: what a reader should know: how the unit was found, what failed.
        name: name of the profile, if its source has several.
        monotonic: its times count from the zero of the machine's monotonic clock, as the kernel's
            timers do.
        kernel_throttled: refills that found the group throttled, as the kernel counted them in all
            runs; None if unknown.
    """

    runs: list[ProbeRun]
    source: str
    unit: Unit | None
    notes: list[str] = field(default_factory=list)
    name: str | None = None
    monotonic: bool = True
    kernel_throttled: int | None = None

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Compute interval, throttle and CPU time of all events but the first of each run, in ns.

        Returns:
            Three arrays of the same length: the time since the event before; the gap; and their
            difference, which is the CPU time obtained before the throttle. All are empty if no run
            has two events.
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
        """Number of gaps in all runs."""
        return sum(len(run.events) for run in self.runs)
