"""What simulation says of settings that a profile alone leaves open.

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

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import LONGEST, SHORTEST, Period
from uncia.bandwidth.infer.trace import MS, Floats, Trace
from uncia.bandwidth.simulate import Probe, Setting, throttles

if TYPE_CHECKING:
    from uncia.bandwidth.simulate import Ints

Simulated: TypeAlias = tuple[Floats, Floats, Floats]  # intervals, throttles, CPU times

_RUNS: Final = 5  # of the profile that are simulated, and steps towards the share obtained
_CLOSE: Final = 0.002
_GOLDEN: Final = (math.sqrt(5) - 1) / 2  # spreads runs evenly, however many
_RESUMED: Final = 30_000  # ns from a refill until the probe sees the clock again, on an idle CPU


@dataclass(frozen=True)
class Match:
    """A setting laid over the profile.

    Attributes:
        parts: how many of its periods there are in the one that was found; below one, multiples.
        offset: where refills stand after a tick, ns.
        hz: its tick rate.
        quota: with which it obtains the measured share, ns a period of its own.
        plain: the quota that the share itself says, ns.
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
    """A run's grids: where refills and, by tick rate, ticks stand, ns."""

    start: float
    refills: float
    ticks: dict[int, float]


class Matcher:
    """Lays settings over one profile.

    Args:
        trace: the profile.
        period: what was found.
        tick: what was found; with a comb.
        share: CPU time obtained over wall-clock time.
        absolute: whether refills are at whole periods of the clock.
    """

    def __init__(
        self, trace: Trace, period: Period, tick: ticks.Tick, share: float, absolute: bool
    ) -> None:
        self._period = period
        self._share = share
        begins = ticks.Begins.of(trace, period)
        self._measured = [_quantiles(sample) for sample in _measured(begins)]
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
                    {hz: float(phase_of_run[index]) for hz, phase_of_run in phases.items()},
                )
            )

    def matches(self, parts: Sequence[float], rates: Sequence[int]) -> list[Match]:
        """Settings over the profile, each with the quota that obtains the measured share.

        Args:
            parts: how many of a setting's periods there are in the one that was found.
            rates: ticks a second.

        Raises:
            UnciaError: the engine is not installed.
        """
        periods = [(part, self._period.nominal / part) for part in parts]
        searches = [
            _Search(part, hz, self._share * period, period * (1 - _CLOSE / 2))
            for part, period in periods
            for hz in rates
            if self._frames and SHORTEST <= period <= LONGEST
        ]
        for _ in range(_RUNS):
            going = [search for search in searches if not search.ended]
            simulated = self._simulated(
                [(search.parts, search.hz, search.quota) for search in going]
            )
            for search, seen in zip(going, simulated, strict=True):
                search.step(seen, self._share)
        return [self._laid(search, search.best) for search in searches if search.best is not None]

    def _laid(self, search: _Search, simulated: Simulated) -> Match:
        distance = np.mean(
            [
                np.abs(seen - _quantiles(sample)).mean()
                for seen, sample in zip(self._measured, simulated, strict=True)
            ]
        )
        frame = self._frames[0]
        offset = (frame.refills - frame.ticks[search.hz]) % (self._period.nominal / search.parts)
        return Match(
            search.parts, search.hz, search.best_quota, search.plain, float(distance), offset
        )

    def quotas(self, match: Match) -> tuple[float, float]:
        """The least and the greatest quota that obtain the measured share in a setting, ns."""
        high = match.quota
        whole_period = self._period.nominal / match.parts
        step = limits.NOISE_SHARE * whole_period
        tried = [
            match.quota + number * step for number in range(1, math.ceil(whole_period / step) + 1)
        ]
        tried = [quota for quota in tried if quota < whole_period]
        while tried:
            some, tried = tried[: limits.MIN_THROTTLES], tried[limits.MIN_THROTTLES :]
            simulated = self._simulated([(match.parts, match.hz, quota) for quota in some])
            for quota, seen in zip(some, simulated, strict=True):
                if seen is None or abs(_share(seen) - self._share) > 2 * _CLOSE * self._share:
                    return match.quota, high
                high = quota
        return match.quota, high

    def _simulated(self, cases: Sequence[tuple[float, int, float]]) -> list[Simulated | None]:
        """What a probe sees of settings (parts, tick rate, quota), on each of the grids."""
        if not cases:
            return []
        seen = iter(
            throttles([self._setting(*case, run) for case in cases for run in self._places])
        )
        return [_pooled([next(seen)[0] for _ in self._places]) for _ in cases]

    @property
    def _places(self) -> range:
        return range(len(self._frames))

    def _setting(self, parts: float, hz: int, quota: float, run: int) -> Setting:
        frame, period = self._frames[run], round(self._period.nominal / parts)
        # Runs begin anywhere in a few periods: they are spread evenly over them, and begin as after
        # a throttle, with nothing of a slice. The clock of the simulation begins when it wakes, so
        # much earlier than it runs.
        begin = frame.start + (run * _GOLDEN % 1.0) * 12 * self._period.nominal
        start = round(begin) - _RESUMED
        duration = min(max(limits.POINTS * self._period.nominal, 1000 * MS), 10_000 * MS)
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
    """For the quota of a setting that obtains the measured share.

    Attributes:
        plain: the quota that the share itself says, ns.
        quota: to be tried next.
        best, best_quota: what was simulated with the share that is nearest, and its quota.
        ended: it is near enough, or nothing more can be simulated.
    """

    def __init__(self, parts: float, hz: int, plain: float, maximum: float) -> None:
        self.parts, self.hz, self.plain, self._most = parts, hz, plain, maximum
        self.quota = self.best_quota = plain
        self.best: Simulated | None = None
        self.ended = False
        self._gap = math.inf

    def step(self, simulated: Simulated | None, share: float) -> None:
        """Take in what was simulated with `quota`, and choose the next."""
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
    """Intervals, throttles and CPU times of runs with three throttles or more; None without."""
    samples = []
    for start, end in runs:
        if len(end) > 2:
            interval, gap = np.diff(end).astype(np.float64), (end - start)[1:].astype(np.float64)
            samples.append((interval, gap, interval - gap))
    if not samples:
        return None
    interval, gap, cpu = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    return interval, gap, cpu


def _measured(begins: ticks.Begins) -> tuple[Floats, Floats, Floats]:
    """Intervals, throttles and CPU times between gaps on the grid; others are passed over."""
    samples = []
    for run, on, _, _ in begins.runs:
        used = np.concatenate(([0.0], np.cumsum(run.cpu)))[on]
        samples.append((np.diff(run.end[on]), run.gap[on][1:], np.diff(used)))
    interval, gap, cpu = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    return interval, gap, cpu


def _quantiles(values: Floats) -> Floats:
    """Quantiles, whose mean distance between two samples is their Wasserstein-1 distance."""
    if len(values) > limits.MAX_SAMPLE:
        values = values[:: math.ceil(len(values) / limits.MAX_SAMPLE)]
    quantiles: Floats = np.quantile(values, (np.arange(limits.POINTS) + 0.5) / limits.POINTS)
    return quantiles
