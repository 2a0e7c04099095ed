"""The scheduler, by what else changed with it: where the period's grid stands on the clock.

Up to kernel 6.3 ``start_cfs_bandwidth`` forwards the period timer from zero, so refills are at
whole multiples of the period on CLOCK_MONOTONIC. Since 6.4 ``init_cfs_bandwidth`` gives every group
a random offset ("sched: Interleave cfs bandwidth timers"). EEVDF came with 6.6. An absolute grid
thus means CFS; an offset means a kernel since 6.4, which is EEVDF but for the two versions between.
Only the clock that the timer itself runs on can tell: that its ticks stand at whole multiples shows
that it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import TOLERANCES, Period, from_zero, grid
from uncia.bandwidth.infer.trace import MS, Floats, Trace

Name: TypeAlias = Literal["cfs", "eevdf"]

_SPREADS: Final = 6
_OFFSET: Final = 0.93  # that an offset is EEVDF's, not of 6.4 or 6.5 or of a backport


@dataclass(frozen=True)
class Scheduler:
    """What was found: the name or None, how sure, and sentences."""

    name: Name | None
    confidence: float | None
    notes: list[str] = field(default_factory=list)


def find(trace: Trace, period: Period, tick: ticks.Tick) -> Scheduler:
    """The scheduler, or None with the reason."""
    if sum(len(run.end) for run in trace.runs) < limits.MIN_THROTTLES:
        return Scheduler(None, None, ["Too few throttles to tell the scheduler."])
    if not trace.monotonic:
        return Scheduler(
            None, None, ["Times do not count from the kernel's zero: the scheduler is not known."]
        )
    phases, spread = _phases(trace, period)
    # As late as ends are in a run, all may be: a small offset is no random one.
    late = min(max(limits.WAKE_DELAY_NS, _SPREADS * spread), period.ns / 12)
    at_zero = (phases > -TOLERANCES[0]) & (phases < late)
    if at_zero.mean() >= limits.AGREEMENT:
        # A random offset would be here by chance, once for all runs of one group.
        chance = (float(np.median(np.abs(phases))) * 2 + 0.05 * MS) / period.ns
        sure = round(min(limits.MAX_CONFIDENCE, 1 / (1 + chance)), 3)
        return Scheduler(
            "cfs",
            sure,
            ["Refills are at whole multiples of the period: a kernel up to 6.3, so CFS."],
        )
    comb = tick.comb
    if comb is None or tick.by == "":
        return Scheduler(None, None, ["Where the kernel's clock stands is not known."])
    if ticks.is_absolute(comb):
        if from_zero(trace, period) > 1:
            return Scheduler(None, None, ["Refills stand at whole parts of the period from zero."])
        if at_zero.mean() > 1 - limits.AGREEMENT and len(phases) > 1:
            return Scheduler(
                None, None, ["Some runs' refills are at whole multiples, others' are not."]
            )
        # A clock of another machine would have its ticks here by chance.
        sure = round(_OFFSET / (1 + 2 * limits.WHOLE_TICKS), 3)
        return Scheduler(
            "eevdf",
            sure,
            [
                "Ticks are at whole multiples of the tick, refills are not: a kernel since 6.4, so"
                " EEVDF (or CFS, in 6.4 and 6.5)."
            ],
        )
    # Where refills stand between ticks says nothing by itself: ticks have had an offset of their
    # own in some kernels before 6.4.
    return Scheduler(
        None,
        None,
        ["The clock is not that of the kernel that throttles: the scheduler is not known."],
    )


def _phases(trace: Trace, period: Period) -> tuple[Floats, float]:
    """Where each run's grid stands from the next whole multiple of the period, and how far ends
    are from it (their median), ns."""
    phases = []
    apart = []
    for run in trace.runs:
        length = period.nominal
        lattice = grid(run, length, period.tolerance)
        # Within a run the guest's clock may wander: what counts is where its ends stand in the
        # middle.
        if lattice.on.any():
            middle = float(np.median(lattice.residual[lattice.on]))
            phases.append((lattice.phase + middle + length / 2) % length - length / 2)
            apart.append(float(np.median(np.abs(lattice.residual[lattice.on] - middle))))
    return (np.array(phases), max(apart)) if phases else (np.array([np.inf]), 0.0)
