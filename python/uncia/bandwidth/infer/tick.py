"""The tick rate: an empty quota is noticed at a scheduler tick, so throttles begin on the ticks'
grid.

``update_curr`` charges a running task at ticks and at context switches, and a CPU-bound task alone
on its CPU has only the former. ``tick_sched_timer`` fires at whole multiples of 1/HZ on every CPU.
What is asked is the coarsest grid on which throttles begin. It is also asked whether a finer one
could look the same: with ticks every f a throttle begins less than f after the quota was used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer.period import Period, grid
from uncia.bandwidth.infer.trace import MS, Floats, Mask, Run, Trace

# CONFIG_HZ of x86 and Arm kernels, and the nanoseconds of a tick (TICK_NSEC).
TICKS: Final = {100: 10 * MS, 250: 4 * MS, 300: 3_333_333.0, 1000: 1 * MS}

_SIGNIFICANT: Final = 12.0  # of the pooled power, over what chance gives, in its deviations
_FINER_SIGMA: Final = 4.0
_MIGRATION: Final = 0.6 * MS  # quota that stays behind on another CPU, and noise


@dataclass(frozen=True)
class Comb:
    """How throttle begins stand on the grid of one tick rate.

    Attributes:
        hz: the rate.
        length: pooled resultant length of the phases, 0 (spread) to 1 (one phase a run).
        excess: of the pooled power over chance, in standard deviations.
        phase: of each run's ticks, ns in [0, tick); of runs with throttles.
        residual: from the nearest tick, ns, all runs in a row.
    """

    hz: int
    length: float
    excess: float
    phase: Floats
    residual: Floats


@dataclass(frozen=True)
class Tick:
    """What was found.

    Attributes:
        hz: the tick rate, or None.
        possible: the rates that the data allow.
        confidence: that it is right, None without a rate.
        comb: of that rate, or of the coarsest possible.
        by: which times showed it best: ``begin``, ``gap`` or ``smoothed``.
        notes: sentences.
    """

    hz: int | None
    possible: list[int]
    confidence: float | None
    comb: Comb | None
    by: str
    notes: list[str] = field(default_factory=list)


def find(trace: Trace, period: Period, share: float) -> Tick:
    """The tick rate, or None with the reason."""
    begins = Begins.of(trace, period)
    if begins.count < limits.MIN_THROTTLES:
        return Tick(None, [], None, None, "", ["Too few throttles to tell the tick rate."])
    by, finest = _finest(begins)
    if finest is None:
        return Tick(
            None,
            [],
            None,
            None,
            by,
            ["Throttles begin on no grid of ticks: the tick rate is not known."],
        )
    every = [comb_of(begins.times[by], hz) for hz in TICKS]
    fitting = [comb for comb in every if comb.hz == finest.hz or _fits(comb, finest)]
    notes: list[str] = []
    bounds = _overruns(begins, period, share)
    kept = [comb for comb in fitting if not _excluded(bounds, TICKS[comb.hz])]
    if not kept:
        # Begins on a grid that is no part of a coarser one are ticks of it, whoever used the quota.
        kept = fitting
        notes.append(
            "Overruns are longer than a tick: other tasks may have used the quota as well."
        )
    elif len(kept) < len(fitting):
        out = ", ".join(str(comb.hz) for comb in fitting if comb not in kept)
        notes.append(f"Overruns are too long for ticks of {out} Hz.")
    if by == "begin" and trace.monotonic:
        kept = _of_the_clock(kept)
    possible = [comb.hz for comb in kept]
    if len(possible) > 1:
        names = " or ".join(str(hz) for hz in possible)
        notes.append(
            f"Throttles would begin at the same times with {names} Hz: the rate is not known."
        )
        return Tick(None, possible, None, kept[0], by, notes)
    confidence = _confidence(kept[0], finest, begins.count)
    return Tick(possible[0], possible, confidence, kept[0], by, notes)


def _of_the_clock(combs: list[Comb]) -> list[Comb]:
    """Without grids that do not stand at the zero of the kernel's own clock, if another one does.

    Ticks are whole multiples of 1/HZ of that clock, but for what shifts them (``skew_tick``, and
    all kernels before 6.4). A grid that has ticks in common with the other may be it, shifted by a
    few of the finer ticks, and stays.
    """
    absolute = [comb.hz for comb in combs if is_absolute(comb)]
    return [
        comb
        for comb in combs
        if all(comb.hz % hz == 0 or hz % comb.hz == 0 for hz in absolute) or comb.hz in absolute
    ]


def is_absolute(comb: Comb) -> bool:
    """Whether ticks stand at whole multiples of the tick, but for the time to notice one."""
    tick = TICKS[comb.hz]
    apart = np.minimum(comb.phase, tick - comb.phase)
    return bool((apart <= limits.WHOLE_TICKS * tick).mean() >= limits.AGREEMENT)


@dataclass(frozen=True)
class Begins:
    """Begins of throttles, in the three ways that clocks and delays leave their traces in.

    ``begin``: as seen; exact where the clock is the kernel's own.
    ``smoothed``: less what neighbouring ends are late by, where the clock wanders.
    ``gap``: the throttle's length counted back from the refill that ended it, without any clock.
    """

    times: dict[str, list[Floats]]
    runs: list[tuple[Run, Mask, Floats, float]]
    count: int

    @classmethod
    def of(cls, trace: Trace, period: Period) -> Begins:
        times: dict[str, list[Floats]] = {"begin": [], "gap": [], "smoothed": []}
        runs: list[tuple[Run, Mask, Floats, float]] = []
        count = 0
        for run in trace.runs:
            if len(run.end) < 3:
                continue
            lattice = grid(run, period.ns, max(period.tolerance, period.ns / 40))
            on = lattice.on
            if not on.any():
                continue
            late = _smooth(lattice.residual[on])
            times["begin"].append(run.begin[on])
            times["smoothed"].append(run.begin[on] - late)
            times["gap"].append(lattice.slot[on] * period.nominal - run.gap[on])
            runs.append((run, on, lattice.slot, lattice.origin))
            count += int(on.sum())
        return cls(times, runs, count)


def _smooth(values: Floats) -> Floats:
    """The running median over neighbours."""
    if len(values) <= (limits.MIN_THROTTLES + 1):
        return np.full(len(values), float(np.median(values)))
    half = limits.MIN_THROTTLES // 2
    padded = np.concatenate((np.full(half, values[0]), values, np.full(half, values[-1])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (limits.MIN_THROTTLES + 1))
    smoothed: Floats = np.partition(windows, half, axis=1)[:, half]
    return smoothed


def comb_of(times: list[Floats], hz: int, parts: int = 1) -> Comb:
    """The comb of a rate over runs, each with a phase of its own."""
    tick = TICKS[hz] / parts
    power, total, phases = 0.0, 0, []
    residuals = []
    for run in times:
        turns = run / tick
        angle = 2 * np.pi * (turns - np.floor(turns))
        across, up = float(np.cos(angle).sum()), float(np.sin(angle).sum())
        phase = math.atan2(up, across) / (2 * np.pi) * tick
        residual = (run - phase + tick / 2) % tick - tick / 2
        # The circular mean is pulled by what is off the grid; the median of what is near is not.
        near = np.abs(residual) <= tick / 8
        if near.any():
            shift = float(np.median(residual[near]))
            phase += shift
            residual = (residual - shift + tick / 2) % tick - tick / 2
        power += (across**2 + up**2) / len(run)
        total += len(run)
        phases.append(phase % tick)
        residuals.append(residual)
    runs = len(times)
    length = math.sqrt(max(0.0, (power - runs) / max(1, total - runs)))
    excess = (power - runs) / math.sqrt(runs)
    return Comb(hz, length, excess, np.array(phases), np.concatenate(residuals))


def _finest(begins: Begins) -> tuple[str, Comb | None]:
    """The finest grid with power, and the times that show it best.

    Power at 1 ms is of ticks of 1, 4 or 10 ms; at a third of 10/3 ms it is of 300 Hz. What only
    piles up because runs are of about equal length has no power so fine.
    """
    best: tuple[str, Comb, float] | None = None
    for by, times in begins.times.items():
        for hz, parts in ((1000, 1), (300, 3)):
            fine = comb_of(times, hz, parts)
            if fine.excess < _SIGNIFICANT:
                continue
            if best is None or fine.length > best[2] + 0.02:
                best = (by, comb_of(times, hz) if parts > 1 else fine, fine.length)
    if best is None:
        return "", None
    return best[0], best[1]


def _fits(comb: Comb, finest: Comb) -> bool:
    """Whether throttles begin on this grid as well as on the finest one.

    Those that are off it must not be on the finest one either: a few are, if that one is true and
    the quota is nearly a whole number of coarser ticks.
    """
    tick, fine = TICKS[comb.hz], TICKS[finest.hz]
    if comb.length < finest.length - 0.15:
        return False
    noise = float(np.median(np.abs(finest.residual))) * 1.48
    off = np.abs(comb.residual) > min(max(5 * noise, fine / 4), limits.CHANCE * tick)
    if off.mean() > limits.MAX_MISFIT:
        return False
    on_fine = float(np.cos(2 * np.pi * finest.residual[off] / fine).sum())
    count = int(off.sum())
    return not (count >= limits.MIN_EVENTS and on_fine > _FINER_SIGMA * math.sqrt(count / 2))


@dataclass(frozen=True)
class _Overruns:
    """What must not be longer than a tick, ns, from each throttle to the next."""

    change: Floats
    debt: Floats
    excess: Floats


def _overruns(begins: Begins, period: Period, share: float) -> _Overruns:
    """Three bounds on the tick.

    When a throttle begins, the quota's balance is between zero and minus one tick; when it ends,
    between zero and one quota. So from begin to begin the balance changes by less than a tick
    (``change``), a throttle sits out as many refills as a tick's debt needs (``debt``), and a run
    is no longer than a quota, what is refilled in it, and a tick (``excess``).
    """
    quota = share * period.ns
    change, debt, excess = [], [], []
    for run, on, slot, _ in begins.runs:
        used = np.concatenate(([0.0], np.cumsum(run.cpu)))[on]
        last = slot[on]
        cpu = np.diff(used)
        alone = np.diff(np.flatnonzero(on)) == 1  # no other gap, which may have used the quota
        missed = np.floor(
            run.gap[on] / period.ns - limits.NOISE_SHARE
        )  # refills in the throttle but the last
        first = last - missed  # the first refill in the throttle
        meanwhile = np.maximum(first[1:] - last[:-1] - 1, 0)  # refills while it ran
        change.append((cpu - quota * (first[1:] - first[:-1]))[alone])
        debt.append(missed * quota)
        excess.append((cpu - quota * (1 + meanwhile))[alone])
    return _Overruns(
        *(np.concatenate(values or [np.empty(0)]) for values in (change, debt, excess))
    )


def _excluded(bounds: _Overruns, tick: float) -> bool:
    """Whether the balance breaks one of the bounds of such a tick too often for noise."""
    most = tick + _MIGRATION
    for values in (np.abs(bounds.change), bounds.debt, bounds.excess):
        beyond = int((values > most).sum())
        if beyond >= max(limits.MIN_EVENTS, limits.NOISE_SHARE * len(values)):
            return True
    return False


def _confidence(comb: Comb, finest: Comb, count: int) -> float:
    """From how clearly begins stand on the grid and how many there are."""
    seen = 1 - math.exp(-count * min(comb.length, finest.length) ** 2 / 15)
    return round(min(limits.MAX_CONFIDENCE, 0.5 + 0.49 * seen), 3)
