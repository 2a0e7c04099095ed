"""One CPU-bound thread under bandwidth control, for what-if questions during inference.

The special case of `uncia.bandwidth.simulate` that a profile's probe is: one thread, alone on one
CPU, charged at ticks only (``update_curr`` from ``task_tick_fair``). A queue takes up to a slice
from the group's pool when its own runtime is used up (``assign_cfs_rq_runtime``), is throttled if
the pool is empty, and is let go by the refill that makes its runtime positive
(``distribute_cfs_runtime``). A refill never lifts the pool above the quota: what is left in it by
then expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from uncia.bandwidth.infer.trace import MS

SLICE: Final = int(5 * MS)  # sched_cfs_bandwidth_slice_us
_LATE: Final = 10_000  # ns from a refill until the thread is charged again
_SEEN: Final = 500_000  # the probe's threshold, ns


@dataclass(frozen=True)
class Setting:
    """What is simulated, whole ns; `offset` and `ticks` are where refills and ticks stand."""

    period: int
    quota: int
    tick: int
    offset: int = 0
    ticks: int = 0


def simulate(
    setting: Setting, start: int, duration: int, late: int = _LATE
) -> tuple[list[float], list[float]]:
    """Ends and lengths of the throttles of one run, ns.

    Args:
        setting: the control.
        start: when the run begins, ns on the clock of `setting`'s offsets; the pool is full.
        duration: of the run, ns.
        late: from a refill until the thread runs again, ns.
    """
    period, quota, tick = setting.period, setting.quota, setting.tick
    pool, own = quota, 0
    end = start + duration
    refill = _after(start, period, setting.offset)
    at = _after(start, tick, setting.ticks)
    charged = start
    ends: list[float] = []
    gaps: list[float] = []
    while at <= end:
        if refill <= at:
            # All refills up to the tick: nothing is taken from the pool between ticks.
            pool = quota
            refill += ((at - refill) // period + 1) * period
        own -= at - charged
        charged = at
        if own <= 0:
            taken = min(SLICE - own, pool)
            pool -= taken
            own += taken
        if own <= 0:
            # Refills until the runtime is positive; each finds the pool empty, and pays debts
            # first.
            needed = 1 - own
            count = -(-needed // quota)
            pool = count * quota - needed
            own = 1
            begin, resumed = at, refill + (count - 1) * period
            refill = resumed + period
            back = resumed + late
            if back > end:
                break
            if back - begin >= _SEEN:
                ends.append(float(back))
                gaps.append(float(back - begin))
            charged = back
            at = _after(back, tick, setting.ticks)
            continue
        at += tick
    return ends, gaps


def _after(moment: int, step: int, offset: int) -> int:
    """The first instant of a grid after a moment."""
    return ((moment - offset) // step + 1) * step + offset
