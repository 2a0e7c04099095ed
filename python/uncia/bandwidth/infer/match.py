"""What simulation says of settings that a profile alone leaves open.

Three things cannot be read off directly: that a period is really a part of what is seen, because
ticks lock the queue to every second refill; a tick rate, if throttles begin where several rates
have ticks; and a quota of which some expires, because a queue that runs across a refill leaves some
in the pool. Each is a setting whose throttles can be simulated and laid over the measured ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from uncia.bandwidth.infer import model
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.period import SHORTEST, Period
from uncia.bandwidth.infer.trace import MS, Floats, Trace

_RUNS: Final = 5
_PERIODS: Final = 200
_STEPS: Final = 5  # towards the quota with the share that was obtained
_CLOSE: Final = 0.002
_STEP: Final = 0.01  # of the period, between quotas that are tried
_QUANTILES: Final = np.linspace(0.0025, 0.9975, 200)
_MOST: Final = 5000  # values whose quantiles are taken
_RESUMED: Final = 30_000  # ns from a refill until the probe sees the clock again, on an idle CPU
_GOLDEN: Final = 0.6180339887498949


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
        self._measured = [_quantiles(one) for one in _measured(begins)]
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
                    {hz: float(found[index]) for hz, found in phases.items()},
                )
            )

    def match(self, parts: float, hz: int) -> Match | None:
        """A setting over the profile, with the quota that obtains the measured share."""
        period = self._period.nominal / parts
        if not self._frames or period < SHORTEST:
            return None
        plain = self._share * period
        quota, best, best_gap = plain, plain, math.inf
        for _ in range(_STEPS):
            share = self._obtained(parts, hz, quota)
            if share is None:
                break
            if abs(share - self._share) < best_gap:
                best, best_gap = quota, abs(share - self._share)
            if best_gap < _CLOSE * self._share:
                break
            quota = min(period * 0.999, quota * self._share / share)
        simulated = self._simulated(parts, hz, best)
        if simulated is None:
            return None
        distance = float(
            np.mean(
                [
                    np.abs(seen - _quantiles(one)).mean()
                    for seen, one in zip(self._measured, simulated, strict=True)
                ]
            )
        )
        frame = self._frames[0]
        offset = (frame.refills - frame.ticks[hz]) % period
        return Match(parts, hz, best, plain, distance, offset)

    def quotas(self, match: Match) -> tuple[float, float]:
        """The least and the greatest quota that obtain the measured share in a setting, ns."""
        low = high = match.quota
        most = self._period.nominal / match.parts
        step = _STEP * most
        while high + step < most:
            share = self._obtained(match.parts, match.hz, high + step)
            if share is None or abs(share - self._share) > 2 * _CLOSE * self._share:
                break
            high += step
        return low, high

    def _obtained(self, parts: float, hz: int, quota: float) -> float | None:
        simulated = self._simulated(parts, hz, quota)
        if simulated is None:
            return None
        interval, _, cpu = simulated
        return float(cpu.sum() / interval.sum())

    def _simulated(
        self, parts: float, hz: int, quota: float
    ) -> tuple[Floats, Floats, Floats] | None:
        period = round(self._period.nominal / parts)
        duration = int(min(max(_PERIODS * self._period.nominal, 1000 * MS), 10_000 * MS))
        found: list[tuple[Floats, Floats, Floats]] = []
        for number, frame in enumerate(self._frames):
            setting = model.Setting(
                period,
                max(1, round(quota)),
                round(ticks.TICKS[hz]),
                round(frame.refills),
                round(frame.ticks[hz]),
            )
            # Runs begin anywhere in a few periods: they are spread evenly over them.
            start = frame.start + (number * _GOLDEN % 1.0) * 12 * self._period.nominal
            ends, gaps = model.simulate(setting, round(start), duration, _RESUMED)
            if len(ends) > 2:
                interval, gap = np.diff(np.array(ends)), np.array(gaps)[1:]
                found.append((interval, gap, interval - gap))
        if not found:
            return None
        interval, gap, cpu = (np.concatenate(one) for one in zip(*found, strict=True))
        return interval, gap, cpu


def _measured(begins: ticks.Begins) -> tuple[Floats, Floats, Floats]:
    """Intervals, throttles and CPU times between gaps on the grid; others are passed over."""
    found = []
    for run, on, _, _ in begins.runs:
        used = np.concatenate(([0.0], np.cumsum(run.cpu)))[on]
        found.append((np.diff(run.end[on]), run.gap[on][1:], np.diff(used)))
    interval, gap, cpu = (np.concatenate(one) for one in zip(*found, strict=True))
    return interval, gap, cpu


def _quantiles(values: Floats) -> Floats:
    """Quantiles, whose mean distance between two samples is their Wasserstein-1 distance."""
    if len(values) > _MOST:
        values = values[:: math.ceil(len(values) / _MOST)]
    found: Floats = np.quantile(values, _QUANTILES)
    return found
