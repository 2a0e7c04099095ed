"""Whether gaps may be other tasks' turns on the CPU, not throttles.

A task that has had its turn is preempted at a tick, and so is the one after it: gaps begin *and*
end at ticks (``task_tick_fair``). Throttles do so only where refills are at ticks, too. Then the
difference is that refills stay on one grid for a whole run, while a turn that is a tick longer than
others shifts all that follow it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import Period, grid
from uncia.bandwidth.infer.trace import MS, Run, Trace

_RATES: Final = (250, 300, 1000)  # where no rate is known; with 100 Hz few would be left
_ALIGNED: Final = 0.7  # resultant length of gaps' lengths on the circle of a tick
_AT_TICK: Final = 0.2 * MS  # how far from whole ticks lengths are at most, on average
_WHOLE: Final = 0.02
# Share of ends on one grid below which that is none.
_MOVED: Final = 0.85
# Two tasks that take turns of a tick keep to one grid of two ticks, and may for long: of such a
# period more is asked.
_TWO: Final = 2
_MOVED_TWO: Final = 0.97
_MANY: Final = 150  # ends


def possible(trace: Trace, period: Period, tick: ticks.Tick) -> bool:
    """Whether ticks alone may keep gaps on the period's grid."""
    length = _tick_of_gaps(trace, tick)
    if length is None:
        return False
    count = period.nominal / length
    if count < _TWO - _WHOLE:
        whole = 1 / count
        return abs(whole - round(whole)) < _WHOLE  # each tick is at a refill
    if abs(count - round(count)) > _WHOLE:
        return False
    runs = [run for run in trace.runs if len(run.end) > _TWO]
    is_two = round(count) == _TWO
    if not runs or (is_two and sum(len(run.end) for run in runs) < _MANY):
        return True
    return _kept(runs, period, length) < (_MOVED_TWO if is_two else _MOVED)


def _kept(runs: list[Run], period: Period, length: float) -> float:
    """Compute the share of ends on one grid, from the first to the last of every run.

    The period is what was measured, where clocks differ, or what was set, which is exact where they
    do not.
    """
    room = min(max(period.tolerance, length / 4), period.ns / 4)
    return max(
        float(np.concatenate([grid(run, ns, room).on for run in runs]).mean())
        for ns in (period.ns, period.nominal)
    )


def _tick_of_gaps(trace: Trace, tick: ticks.Tick) -> float | None:
    """Find the longest tick of which gaps are whole multiples, ns, or None."""
    gaps = np.concatenate([run.gap for run in trace.runs])
    rates = [hz for hz in tick.possible if hz in _RATES] or tick.possible or _RATES
    for hz in sorted(rates):
        length = ticks.TICKS[hz]
        mean = complex(np.exp(2j * np.pi * gaps / length).mean())
        distance = abs(float(np.angle(mean))) / (2 * np.pi) * length
        if abs(mean) >= _ALIGNED and distance <= min(_AT_TICK, length / 8):
            return length
    return None
