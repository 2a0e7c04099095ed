"""Whether gaps may be other tasks' turns on the CPU, not throttles.

A task that has had its turn is preempted at a tick, and so is the one after it: gaps begin *and*
end at ticks (``task_tick_fair``). Throttles do so only where refills are at ticks, too. What then
tells them apart is that refills keep to one grid for as long as a run lasts, while a turn that is
a tick longer than others moves all that follow it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import Period, grid
from uncia.bandwidth.infer.trace import Run, Trace

_ALIGNED: Final = 0.7  # resultant length of gaps' lengths on the circle of a tick
# Two tasks that take turns of a tick keep to one grid of two ticks, and may for long: of such a
# period more is asked.
_MOVED_TWO: Final = 0.97
_MIN_ENDS: Final = 150  # ends


def possible(trace: Trace, period: Period, tick: ticks.Tick) -> bool:
    """Whether what keeps gaps on the period's grid may be ticks alone."""
    length = _tick_of_gaps(trace, tick)
    if length is None:
        return False
    count = period.nominal / length
    if count < 2 - limits.WHOLE_TICKS:
        whole = 1 / count
        return abs(whole - round(whole)) < limits.WHOLE_TICKS  # each tick is at a refill
    if abs(count - round(count)) > limits.WHOLE_TICKS:
        return False
    runs = [run for run in trace.runs if len(run.end) > 2]
    two = round(count) == 2
    if not runs or (two and sum(len(run.end) for run in runs) < _MIN_ENDS):
        return True
    return _kept(runs, period, length) < (_MOVED_TWO if two else 1 - limits.MAX_MISFIT)


def _kept(runs: list[Run], period: Period, length: float) -> float:
    """The share of ends on one grid, from the first to the last of every run.

    The period is what was measured, where clocks differ, or what was set, which is exact where they
    do not.
    """
    room = min(max(period.tolerance, length / 4), period.ns / 4)
    return max(
        float(np.concatenate([grid(run, ns, room).on for run in runs]).mean())
        for ns in (period.ns, period.nominal)
    )


def _tick_of_gaps(trace: Trace, tick: ticks.Tick) -> float | None:
    """The longest tick of which gaps are whole multiples, ns, or None."""
    gaps = np.concatenate([run.gap for run in trace.runs])
    rates = [hz for hz in ticks.TICKS if hz != min(ticks.TICKS)]  # few ticks of the longest fit
    known = [hz for hz in tick.possible if hz in rates] or tick.possible or rates
    for hz in sorted(known):
        length = ticks.TICKS[hz]
        mean = complex(np.exp(2j * np.pi * gaps / length).mean())
        apart = abs(float(np.angle(mean))) / (2 * np.pi) * length
        if abs(mean) >= _ALIGNED and apart <= min(limits.WAKE_DELAY_NS, length / 8):
            return length
    return None
