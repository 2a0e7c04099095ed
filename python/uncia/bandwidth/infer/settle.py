"""The settings that simulation leaves of those that the grids allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer import period as periods
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer.match import Match, Matcher
from uncia.bandwidth.infer.period import SHORTEST, Period
from uncia.bandwidth.infer.trace import MS, Trace

_MULTIPLES: Final = (1 / 2, 1 / 4, 1 / 5)
_MAX_SHARE_FOR_MULTIPLES: Final = 0.6
_RIVAL_RATIO: Final = 1.5  # of the best distance, and this beside it
_RIVAL_DISTANCE_NS: Final = 0.06 * MS
_CONFIDENCE_BY_MATCH: Final = 0.85
_CONFIDENCE_WITH_RIVALS: Final = 0.6


@dataclass(frozen=True)
class Settled:
    """The result.

    Attributes:
        period: with its confidence.
        tick: with its confidence.
        quota: ns a period.
        quota_range: the quotas that would obtain the same share, ns; the same twice if only one.
        match: how the setting lies over the profile, None if there is nothing to simulate.
        notes: sentences.
    """

    period: Period
    tick: ticks.Tick
    quota: float
    quota_range: tuple[float, float]
    match: Match | None
    notes: list[str] = field(default_factory=list)


def settle(trace: Trace, period: Period, tick: ticks.Tick, share: float) -> Settled:
    """Decide between parts of the period and between tick rates, and correct the quota."""
    plain = share * period.nominal
    if not tick.possible:
        return Settled(period, tick, plain, (plain, plain), None)
    matcher = Matcher(trace, period, tick, share, periods.from_zero(trace, period) == 1)
    whole = matcher.matches([1], tick.possible)
    if not whole:
        return Settled(period, tick, plain, (plain, plain), None)
    notes: list[str] = []
    best = min(whole, key=lambda match: match.distance)
    parts = [part for part in range(2, limits.MAX_PARTS + 1) if period.nominal / part >= SHORTEST]
    # Near a whole CPU the model depends on what it does not know: whether tick or refill is first.
    multiples = _MULTIPLES if share < _MAX_SHARE_FOR_MULTIPLES else ()
    candidates = whole + matcher.matches([*parts, *multiples], tick.possible)
    chosen = _part(trace, period, best, candidates, notes)
    if chosen.parts != 1:
        period = periods.part_of(period, chosen.parts)
        same = [match for match in candidates if match.parts == chosen.parts]
    else:
        same = whole
    # A multiple as good is no rival: it would show more on its own grid, and was not found.
    rivals = [
        match for match in candidates if match.parts > chosen.parts and _is_rival(match, chosen)
    ]
    if rivals:
        others = sorted(
            {period.nominal * chosen.parts / match.parts for match in rivals}, reverse=True
        )
        names = " or ".join(f"{ns / MS:.4g}" for ns in others)
        notes.append(f"A period of {names} ms would show nearly the same.")
        period = replace(period, confidence=min(period.confidence, _CONFIDENCE_WITH_RIVALS))
    tick, chosen = _rate(tick, same, chosen, notes)
    low, high = matcher.quotas(chosen)
    quota = chosen.plain
    if (
        chosen.distance < limits.MAX_MISFIT * ticks.TICKS[chosen.hz]
        and high / chosen.plain - 1 > limits.NOISE_SHARE
    ):
        quota = (low + high) / 2
        notes.append(
            "Some quota expires, left in the pool when the next is added: with"
            f" {low / 1e3:,.0f} to {high / 1e3:,.0f} us a period this share is obtained."
        )
    else:
        low = high = quota
    return Settled(period, tick, quota, (low, high), chosen, notes)


def _is_rival(match: Match, best: Match) -> bool:
    return match.distance <= max(best.distance * _RIVAL_RATIO, best.distance + _RIVAL_DISTANCE_NS)


def _part(
    trace: Trace, period: Period, best: Match, candidates: Sequence[Match], notes: list[str]
) -> Match:
    """The setting whose period is a part of the one found, if there is evidence for it."""
    parts = periods.from_zero(trace, period)
    lattice = [match for match in candidates if match.parts == parts and parts > 1]
    if lattice:
        nearest = min(lattice, key=lambda match: match.distance)
        if nearest.distance < best.distance + limits.MAX_MISFIT * ticks.TICKS[nearest.hz]:
            notes.append(
                f"Throttles end multiples of {period.nominal / MS:.4g} ms from each other, but at"
                f" multiples of {period.nominal / parts / MS:.4g} ms from the clock's zero."
            )
            return nearest
    nearest = min(candidates, key=lambda match: match.distance)
    tick = ticks.TICKS[nearest.hz]
    if (
        nearest.parts < 1
        and not _is_rival(best, nearest)
        and best.distance > limits.MAX_MISFIT * tick
        and nearest.distance < limits.MAX_MISFIT * tick
    ):
        notes.append(
            f"Some gaps end at parts of {period.nominal / nearest.parts / MS:.4g} ms, but throttles"
            " with a shorter period would be of other lengths."
        )
        return nearest
    return best


def _rate(
    tick: ticks.Tick, same: Sequence[Match], chosen: Match, notes: list[str]
) -> tuple[ticks.Tick, Match]:
    """The rate whose simulated throttles are clearly nearer than those of the others."""
    ordered = sorted(same, key=lambda match: match.distance)
    if tick.hz is not None or len(ordered) < 2:
        return tick, chosen
    first, second = ordered[0], ordered[1]
    apart = second.distance - first.distance
    longer = max(ticks.TICKS[first.hz], ticks.TICKS[second.hz])
    if second.distance < first.distance * _RIVAL_RATIO**2 or apart < limits.MAX_MISFIT * longer:
        return tick, first
    if first.distance > limits.MAX_MISFIT * ticks.TICKS[first.hz]:
        return tick, first
    # With a whole number of ticks a few microseconds decide whether another tick is run: the model
    # does not know these.
    if any(
        _is_whole_ticks(first.plain, ticks.TICKS[hz])
        for hz in tick.possible
        if hz != max(ticks.TICKS)
    ):
        return tick, first
    notes.append(f"With {second.hz} Hz throttles would be of other lengths.")
    decided = replace(
        tick, hz=first.hz, possible=[first.hz], confidence=_CONFIDENCE_BY_MATCH, notes=[]
    )
    return decided, first


def _is_whole_ticks(quota: float, tick: float) -> bool:
    return abs(quota - round(quota / tick) * tick) < limits.WHOLE_TICKS * tick
