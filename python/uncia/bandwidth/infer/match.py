"""Simulations of the settings that a profile alone leaves open, compared with the profile.

Three things cannot be read off directly: that a period is really a part of what is seen, because
ticks lock the queue to every second refill; a tick rate, if throttles begin where several rates
have ticks; and a quota of which some expires, because a queue that runs across a refill leaves some
in the pool. Each is a setting whose throttles can be simulated and laid over the measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import LONGEST, SHORTEST, Period
from uncia.bandwidth.infer.trace import MS, Floats, Trace
from uncia.bandwidth.simulate import Probe, Setting, throttles

if TYPE_CHECKING:
    from uncia.bandwidth.simulate import Ints

Simulated: TypeAlias = tuple[Floats, Floats, Floats]  # intervals, throttles, CPU times

_RUNS: Final = 5
_PERIODS: Final = 200
_STEPS: Final = 5  # of the search for a quota
_CLOSE: Final = 0.002
_STEP: Final = 0.01  # of the period, between quotas that are tried
_AT_ONCE: Final = 8
_MAX_QUOTA: Final = 0.999  # of the period
_QUANTILES: Final = np.linspace(0.0025, 0.9975, 200)
_MAX_VALUES: Final = 5000  # values whose quantiles are taken
_RESUMED: Final = 30_000  # ns from a refill until the probe sees the clock again, on an idle CPU
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True)
class Match:
    """A simulated setting, compared with the profile.

    Attributes:
        parts: its periods per inferred period; below one, its period is a multiple.
        offset: time from a tick to a refill, ns.
        hz: its tick rate.
        quota: the quota with which it obtains the measured share, ns in its own period.
        plain: share times period, ns.
        distance: Wasserstein-1 of intervals, throttles and CPU times, the mean of the three, ns.
    """

    parts: float
    hz: int
    quota: float
    plain: float
    distance: float
    offset: float


@dataclass(frozen=True)
class _Frame:
    """A run's grids: the phases of refills and, by tick rate, of ticks, ns."""

    start: float
    refills: float
    ticks: dict[int, float]


class Matcher:
    """Simulates settings and compares them with one profile.

    Args:
        trace: the profile.
        period: the inferred period.
        tick: the inferred tick rate; with a comb.
        share: CPU time obtained over wall-clock time.
        absolute: whether refills are at whole periods of the clock.
    """

    def __init__(
        self, trace: Trace, period: Period, tick: ticks.Tick, share: float, absolute: bool
    ) -> None:
        self._period = period
        self._share = share
        begins = ticks.Begins.of(trace, period)
        self._measured = [_quantiles(values) for values in _measured(begins)]
        times = begins.times[tick.by]
        combs = {hz: ticks.comb_of(times, hz) for hz in tick.possible}
        # The last instant seen before a tick is a little early: what counts is which of a tick and
        # a refill is first.
        exact = absolute and tick.by == "begin"
        phases = {
            hz: np.zeros(len(comb.phase)) if exact and ticks.is_absolute(comb) else comb.phase
            for hz, comb in combs.items()
        }
        self._frames = []
        chosen = np.unique(np.linspace(0, len(begins.runs) - 1, _RUNS).round().astype(int))
        for index in chosen if begins.runs else ():
            run, _on, _, origin = begins.runs[index]
            refills = 0.0 if tick.by == "gap" else origin - _RESUMED
            self._frames.append(
                _Frame(
                    float(run.end[0]),
                    0.0 if absolute else refills,
                    {hz: float(phase[index]) for hz, phase in phases.items()},
                )
            )

    def matches(self, parts: Sequence[float], rates: Sequence[int]) -> list[Match]:
        """Match settings with the profile, each with the quota that obtains the measured share.

        Args:
            parts: a setting's periods per inferred period.
            rates: ticks a second.

        Raises:
            UnciaError: the engine is not installed.
        """
        periods = [(part, self._period.nominal / part) for part in parts]
        searches = [
            _Search(part, hz, self._share * period, period * _MAX_QUOTA)
            for part, period in periods
            for hz in rates
            if self._frames and SHORTEST <= period <= LONGEST
        ]
        for _ in range(_STEPS):
            open_searches = [search for search in searches if not search.ended]
            simulated = self._simulated(
                [(search.parts, search.hz, search.quota) for search in open_searches]
            )
            for search, result in zip(open_searches, simulated, strict=True):
                search.step(result, self._share)
        return [self._laid(search, search.best) for search in searches if search.best is not None]

    def _laid(self, search: _Search, simulated: Simulated) -> Match:
        distance = np.mean(
            [
                np.abs(result - _quantiles(values)).mean()
                for result, values in zip(self._measured, simulated, strict=True)
            ]
        )
        frame = self._frames[0]
        offset = (frame.refills - frame.ticks[search.hz]) % (self._period.nominal / search.parts)
        return Match(
            search.parts, search.hz, search.best_quota, search.plain, float(distance), offset
        )

    def quotas(self, match: Match) -> tuple[float, float]:
        """Find the smallest and the largest quota that obtain the measured share, ns."""
        high = match.quota
        max_quota = self._period.nominal / match.parts
        step = _STEP * max_quota
        candidates = [
            match.quota + index * step for index in range(1, math.ceil(max_quota / step) + 1)
        ]
        candidates = [quota for quota in candidates if quota < max_quota]
        while candidates:
            batch, candidates = candidates[:_AT_ONCE], candidates[_AT_ONCE:]
            simulated = self._simulated([(match.parts, match.hz, quota) for quota in batch])
            for quota, result in zip(batch, simulated, strict=True):
                if result is None or abs(_share(result) - self._share) > 2 * _CLOSE * self._share:
                    return match.quota, high
                high = quota
        return match.quota, high

    def _simulated(self, cases: Sequence[tuple[float, int, float]]) -> list[Simulated | None]:
        """Simulate a probe under settings (parts, tick rate, quota), on each of the grids."""
        if not cases:
            return []
        seen = iter(
            throttles(
                [self._setting(*case, index) for case in cases for index in self._frame_indexes]
            )
        )
        return [_pooled([next(seen)[0] for _ in self._frame_indexes]) for _ in cases]

    @property
    def _frame_indexes(self) -> range:
        return range(len(self._frames))

    def _setting(self, parts: float, hz: int, quota: float, index: int) -> Setting:
        frame, period = self._frames[index], round(self._period.nominal / parts)
        # Runs begin at times that are spread evenly over a few periods, and as after a throttle,
        # with nothing left of a slice. The clock of the simulation begins when it wakes, so
        # much earlier than it runs.
        runs = frame.start + (index * _GOLDEN % 1.0) * 12 * self._period.nominal
        start = round(runs) - _RESUMED
        duration = min(max(_PERIODS * self._period.nominal, 1000 * MS), 10_000 * MS)
        return Setting(
            period_ns=period,
            quota_ns=max(1, round(quota)),
            hz=hz,
            tick_offset_ns=(round(frame.ticks[hz]) - start) % round(ticks.TICKS[hz]),
            timer={"offset": (round(frame.refills) - start) % period},
            remaining_ns=1,
            wake_delay_ns=_RESUMED,
            starts_ns=[0],
            work=Probe(duration_ns=int(duration)),
        )


class _Search:
    """The search for the quota of a setting that obtains the measured share.

    Attributes:
        plain: share times period, ns.
        quota: the next quota to simulate.
        best, best_quota: the simulation with the nearest share, and its quota.
        ended: the share is near enough, or the simulation shows too few throttles.
    """

    def __init__(self, parts: float, hz: int, plain: float, max_quota: float) -> None:
        self.parts, self.hz, self.plain, self._most = parts, hz, plain, max_quota
        self.quota = self.best_quota = plain
        self.best: Simulated | None = None
        self.ended = False
        self._gap = math.inf

    def step(self, simulated: Simulated | None, share: float) -> None:
        """Record the simulation of `quota`, and choose the next."""
        if simulated is None:
            self.ended = True
            return
        obtained = _share(simulated)
        if abs(obtained - share) < self._gap:
            self._gap = abs(obtained - share)
            self.best, self.best_quota = simulated, self.quota
        self.ended = self._gap < _CLOSE * share
        self.quota = min(self._most, self.quota * share / obtained)


def _share(simulated: Simulated) -> float:
    interval, _, cpu = simulated
    return float(cpu.sum() / interval.sum())


def _pooled(runs: Sequence[tuple[Ints, Ints]]) -> Simulated | None:
    """Combine intervals, throttles and CPU times of runs with at least three throttles."""
    pieces = []
    for start, end in runs:
        if len(end) > 2:
            interval, gap = np.diff(end).astype(np.float64), (end - start)[1:].astype(np.float64)
            pieces.append((interval, gap, interval - gap))
    if not pieces:
        return None
    interval, gap, cpu = (np.concatenate(parts_of) for parts_of in zip(*pieces, strict=True))
    return interval, gap, cpu


def _measured(begins: ticks.Begins) -> tuple[Floats, Floats, Floats]:
    """Compute intervals, throttles and CPU times between gaps on the grid; skip other gaps."""
    pieces = []
    for run, on, _, _ in begins.runs:
        used = np.concatenate(([0.0], np.cumsum(run.cpu)))[on]
        pieces.append((np.diff(run.end[on]), run.gap[on][1:], np.diff(used)))
    interval, gap, cpu = (np.concatenate(values) for values in zip(*pieces, strict=True))
    return interval, gap, cpu


def _quantiles(values: Floats) -> Floats:
    """Quantiles, whose mean distance between two samples is their Wasserstein-1 distance."""
    if len(values) > _MAX_VALUES:
        values = values[:: math.ceil(len(values) / _MAX_VALUES)]
    quantiles: Floats = np.quantile(values, _QUANTILES)
    return quantiles
