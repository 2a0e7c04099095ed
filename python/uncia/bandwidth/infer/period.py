"""The period: a throttle ends when the period timer refills the quota, so all ends lie on one grid.

The kernel's timer (``sched_cfs_period_timer``) fires at multiples of the period from some offset,
and only a refill lets a throttled queue run again (``distribute_cfs_runtime``). With debts a queue
may sit out several refills: intervals between ends are then multiples of the period. Gaps of
another cause (preemption, steal) end anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer.trace import MS, Floats, Mask, Run, Trace

# What the kernel accepts: min_cfs_quota_period and max_cfs_quota_period of kernel/sched/core.c.
SHORTEST: Final = 1 * MS
LONGEST: Final = 1000 * MS

TOLERANCES: Final = tuple(MS * ms for ms in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0))
_ROOM: Final = 6  # a grid's tolerance is at most this part of it
_PEAKS: Final = 14  # how many frequent intervals are taken for multiples of the period
_BY_CHANCE: Final = 0.04
_ROUND: Final = 3e-4  # clocks of guests differ from the host's by at most this


@dataclass(frozen=True)
class Grid:
    """The grid of one run's ends.

    Attributes:
        phase: where it stands, ns in [0, period).
        origin: the slot of the first end that lies on it, ns.
        slot: the number of each end's slot, from that one.
        residual: of each end from its slot, ns.
        on: which ends lie on it.
    """

    phase: float
    origin: float
    slot: Floats
    residual: Floats
    on: Mask


@dataclass(frozen=True)
class Period:
    """What was found.

    Attributes:
        ns: the period.
        nominal: the same as a whole number of milliseconds or microseconds, ns, where it is one as
            far as clocks can tell.
        tolerance: how far ends lie from the grid at most, ns.
        on_grid: share of intervals that are multiples of the period.
        intervals: how many intervals there are.
        confidence: that it is right to 2 %.
    """

    ns: float
    nominal: float
    tolerance: float
    on_grid: float
    intervals: int
    confidence: float


def find(trace: Trace) -> Period | None:
    """The period, or None where ends lie on no grid."""
    intervals = _sample(trace)
    if len(intervals) < limits.MIN_EVENTS:
        return None
    best = _search(intervals)
    if best is None:
        return None
    ns, tolerance, on_grid, gain = best
    for parts_of in (_parts_of_intervals, _parts_of_runs):
        parts = parts_of(trace, intervals, ns, tolerance)
        if parts > 1:
            ns /= parts
            tolerance = min(tolerance, ns / _ROOM)
            on_grid = _on_grid(intervals, ns, tolerance)
    ns = _refined(trace, ns, tolerance)
    confidence = _confidence(on_grid, len(intervals), gain)
    return Period(ns, nominal(ns), tolerance, on_grid, len(intervals), confidence)


def part_of(period: Period, parts: float) -> Period:
    """A whole part of a period that was found; with parts below one, a multiple."""
    ns = period.ns / parts
    tolerance = min(period.tolerance, ns / _ROOM)
    return replace(period, ns=ns, nominal=nominal(ns), tolerance=tolerance)


def nominal(ns: float) -> float:
    """A period as it was set: whole milliseconds if clocks may differ so much, or microseconds."""
    whole = round(ns / MS) * MS
    if whole > 0 and abs(ns - whole) <= _ROUND * whole:
        return whole
    return round(ns / 1e3) * 1e3


def grid(run: Run, period: float, tolerance: float) -> Grid:
    """The grid of a run's ends: its phase is where most of them stand."""
    phase = _mode(run.end % period, period, 2 * tolerance)
    slot = np.round((run.end - phase) / period)
    residual = run.end - phase - slot * period
    on = np.abs(residual) <= tolerance
    first = float(slot[int(np.argmax(on))])
    return Grid(phase, phase + first * period, slot - first, residual, on)


def _sample(trace: Trace) -> Floats:
    pieces = [run.interval for run in trace.runs if len(run.end) > 1]
    if not pieces:
        return np.empty(0)
    total = sum(len(piece) for piece in pieces)
    if total > limits.MAX_SAMPLE:  # every run gives its share, in one piece
        pieces = [
            piece[: max(3, math.ceil(len(piece) * limits.MAX_SAMPLE / total))] for piece in pieces
        ]
    intervals = np.concatenate(pieces)
    return intervals[intervals >= SHORTEST / 2]


def _search(intervals: Floats) -> tuple[float, float, float, float] | None:
    """The best period, its tolerance, the share on its grid, and the gain in all (nats)."""
    candidates = _candidates(intervals)
    if not len(candidates):
        return None
    rough = np.array([_score(intervals, finalist)[0] for finalist in candidates])
    finalists = candidates[np.argsort(rough)[::-1][: 3 * _PEAKS]]
    best: tuple[float, float, float, float] | None = None
    for finalist in finalists:
        period = finalist
        for _ in range(2):
            _, tolerance, _ = _score(intervals, period)
            count = np.round(intervals / period)
            on = (np.abs(intervals - count * period) <= tolerance) & (count > 0)
            if on.any():
                period = float((intervals[on] * count[on]).sum() / (count[on] ** 2).sum())
        gain, tolerance, on_grid = _score(intervals, period)
        if best is None or gain > best[3]:
            best = (period, tolerance, on_grid, gain)
    if best is None:
        return None
    period, tolerance, on_grid, gain = best
    total = gain * len(intervals)
    # What a search over so many candidates finds by chance alone.
    if total < math.log(len(candidates) * len(TOLERANCES)) + 2:
        return None
    if (
        on_grid * len(intervals) < limits.MIN_EVENTS
        or not SHORTEST * 0.9 <= period <= LONGEST * 1.1
    ):
        return None
    return period, tolerance, on_grid, total


def _candidates(intervals: Floats) -> Floats:
    """Frequent intervals, each divided by 1, 2, 3...: one of them is the period."""
    shown = intervals[intervals <= LONGEST * 1.05]
    if not len(shown):
        return np.empty(0)
    index = np.round(shown / TOLERANCES[1]).astype(np.int64)
    counts = np.bincount(index)
    smooth = np.convolve(counts, np.ones(7), mode="same")
    peaks: list[float] = []
    for _ in range(_PEAKS):
        peak = int(np.argmax(smooth))
        if smooth[peak] <= 0:
            break
        near = shown[np.abs(index - peak) <= 4]
        if len(near):
            peaks.append(float(np.median(near)))
        smooth[max(0, peak - 6) : peak + 7] = 0
    candidates = [
        value / k
        for value in peaks
        for k in range(1, int(value / (SHORTEST * 0.95)) + 1)
        if value / k <= LONGEST * 1.05
    ]
    candidates.sort()
    kept: list[float] = []
    for candidate in candidates:
        if not kept or candidate - kept[-1] > 2e-4 * candidate:
            kept.append(candidate)
    return np.array(kept)


def _score(intervals: Floats, period: float) -> tuple[float, float, float]:
    """How far beyond chance intervals are multiples of a period: gain (nats each), tolerance,
    share.

    The gain is the divergence of the share that lies within the tolerance from the share that would
    if ends stood anywhere. A divisor of the true period has the same share and a larger chance.
    """
    count = np.round(intervals / period)
    residual = np.where(count > 0, np.abs(intervals - count * period), period / 2)
    best = (0.0, TOLERANCES[0], 0.0)
    for tolerance in TOLERANCES:
        if tolerance > period / _ROOM:
            break
        chance = 2 * tolerance / period
        share = float((residual <= tolerance).mean())
        if share <= chance:
            continue
        gain = share * math.log(share / chance)
        if share < 1:
            gain += (1 - share) * math.log((1 - share) / (1 - chance))
        if gain > best[0]:
            best = (gain, tolerance, share)
    return best


def _on_grid(intervals: Floats, period: float, tolerance: float) -> float:
    count = np.round(intervals / period)
    return float(((np.abs(intervals - count * period) <= tolerance) & (count > 0)).mean())


def _parts_of_intervals(_trace: Trace, intervals: Floats, period: float, tolerance: float) -> int:
    """How many true periods there are in one, by the intervals that are no multiples of it.

    If the true period is a part of it, these lie at whole parts; gaps of another cause lie
    anywhere.
    """
    residual = intervals - np.round(intervals / period) * period
    near = np.abs(residual)[np.abs(residual) < 4 * tolerance]
    width = min(max(tolerance, 6 * float(np.median(near))) if len(near) else tolerance, period / 24)
    off = (residual / period)[(np.abs(residual) > width) & (intervals > SHORTEST)]
    if len(off) < limits.MIN_EVENTS:
        return 1
    best, best_hits = 1, 0.0
    for parts in range(2, limits.MAX_PARTS + 1):
        chance = 2 * width / period * parts
        if period / parts < SHORTEST * 0.95 or chance > limits.CHANCE:
            break
        if not _settable(period / parts):
            continue
        scaled = off * parts
        hits = int((np.abs(scaled - np.round(scaled)) <= width / period * parts).sum())
        expected = len(off) * chance
        excess = hits - expected - 5 * math.sqrt(expected * (1 - chance) + 1)
        enough = hits >= max(limits.MIN_EVENTS, limits.NOISE_SHARE * len(intervals), 0.6 * len(off))
        # More parts always hit as much: they must hit clearly more.
        if enough and excess > 0 and hits > best_hits * 1.2:
            best, best_hits = parts, hits
    return best


def _settable(ns: float) -> bool:
    """Whether a part may have been set as a period: only tenths of a millisecond are thought to."""
    tenths = ns / MS * 10
    return abs(tenths - round(tenths)) <= _ROUND * tenths


def _run_phases(trace: Trace, period: float, tolerance: float) -> Floats:
    """Where each run's grid stands on its clock, as a part of the period as it was set.

    Over the time a clock has run, a period that is off by a millionth stands anywhere.
    """
    length = nominal(period)
    runs = [run for run in trace.runs if len(run.end) > 2]
    return np.array([grid(run, length, tolerance).phase / length for run in runs])


def _parts_of_runs(trace: Trace, _intervals: Floats, period: float, tolerance: float) -> int:
    """How many true periods there are in one, by runs on one clock whose grids are apart.

    Runs begin at random. If a run only ever shows every second refill, then of two runs on one
    clock about half show the even ones and half the odd ones.
    """
    phases = _run_phases(trace, period, tolerance)
    if len(phases) < 3:
        return 1
    apart = np.diff(phases) % 1.0
    width = max(2 * tolerance, 0.04 * MS) / period
    zero = np.minimum(apart, 1 - apart) <= width
    if (~zero).mean() < limits.MAX_MISFIT or (~zero).sum() < 2:
        return 1
    for parts in range(2, limits.MAX_PARTS + 1):
        chance = 2 * width * parts
        if period / parts < SHORTEST * 0.95 or chance > limits.CHANCE:
            break
        if not _settable(period / parts):
            continue
        scaled = apart * parts
        fits = np.abs(scaled - np.round(scaled)) <= width * parts
        if fits.mean() >= limits.AGREEMENT and (~zero).sum() * -math.log(chance) > -math.log(
            limits.NOISE_SHARE
        ):
            return parts
    return 1


def from_zero(trace: Trace, period: Period) -> int:
    """Into how many parts a period has to be cut for grids to stand at whole parts from zero.

    One: they stand at whole periods of the clock, or it is by chance that they stand at parts.
    Ticks may lock a queue to every fourth refill, in all runs alike. On a grid that begins at zero,
    as older kernels' does, it then stands at a whole part of the period; a grid with an offset
    would by chance. Zero: they stand elsewhere.
    """
    phases = _run_phases(trace, period.ns, period.tolerance)
    late = limits.WAKE_DELAY_NS / period.ns
    for parts in range(1, limits.MAX_PARTS + 1):
        if parts > 1 and (period.ns / parts < SHORTEST * 0.95 or late * parts > _BY_CHANCE):
            break
        if not _settable(period.ns / parts):
            continue
        apart = (phases * parts) % 1.0
        fits = (apart <= late * parts) | (apart >= 1 - late * parts / 5)
        if len(fits) and fits.mean() >= limits.AGREEMENT:
            return parts
    return 0


def _refined(trace: Trace, period: float, tolerance: float) -> float:
    """The period by the slope of ends over slots, the median of runs."""
    slopes: list[float] = []
    weights: list[float] = []
    for run in trace.runs:
        if len(run.end) < 4:
            continue
        interval = run.interval
        count = np.round(interval / period)
        good = (np.abs(interval - count * period) <= tolerance) & (count > 0)
        if good.sum() < 3:
            continue
        # Within stretches of good intervals ends telescope: the sum is exact but for two ends.
        slopes.append(float(interval[good].sum() / count[good].sum()))
        weights.append(float(count[good].sum()))
    if not slopes:
        return period
    order = np.argsort(slopes)
    heavy = np.cumsum(np.array(weights)[order])
    return float(np.array(slopes)[order][int(np.searchsorted(heavy, heavy[-1] / 2))])


def _confidence(on_grid: float, intervals: int, gain: float) -> float:
    """That the period is right to 2 %: from how many intervals lie on its grid, and by how much."""
    seen = 1 - math.exp(-on_grid * intervals / 12)
    clear = 1 - math.exp(-gain / 12)
    return round(min(limits.MAX_CONFIDENCE, seen * clear * (0.7 + 0.3 * on_grid)), 3)


def _mode(phases: Floats, period: float, width: float) -> float:
    """Where on a circle most phases stand: the middle of the fullest window."""
    ordered = np.sort(phases)
    wrapped = np.concatenate((ordered, ordered + period))
    last = np.searchsorted(wrapped, ordered + width, side="right")
    first = int(np.argmax(last - np.arange(len(ordered))))
    return float(np.median(wrapped[first : last[first]])) % period
