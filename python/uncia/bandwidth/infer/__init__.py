"""Period, quota, tick rate and scheduler of a CPU bandwidth control, from a profile of it alone.

A profile is what Algorithm 1 of the cost paper sees from within: when gaps in its own progress
ended and how long they were. See docs/reference/cpu-inference.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.infer import period as periods
from uncia.bandwidth.infer import quota as quotas
from uncia.bandwidth.infer import scheduler as schedulers
from uncia.bandwidth.infer import settle as settling
from uncia.bandwidth.infer import tick as ticks
from uncia.bandwidth.infer import trace as traces
from uncia.bandwidth.infer import turns

if TYPE_CHECKING:
    from uncia.bandwidth.profiles import Profile

_US: Final = 1e3
_UNSURE: Final = 0.5  # what is less sure than this is null
_TURNS: Final = (
    "Gaps begin and end at ticks, and keep to no other grid: so do other tasks' turns on the same"
    " CPU. The period is not known."
)


@dataclass(frozen=True)
class Inferred:
    """The settings inferred from a profile.

    Attributes:
        period_us: of the bandwidth control, or None.
        quota_us: CPU time obtained in the long run, a period, or None.
        hz: the tick rate of the kernel that throttles, or None.
        scheduler: ``cfs``, ``eevdf`` or None.
        confidence: of each of the four, 0 to 1, None for what is not known.
        share: CPU time obtained over wall-clock time; None without two gaps in a run.
        runs: of the profile.
        gaps: in all of them.
        on_grid: share of intervals between gaps that are multiples of the period, or None.
        notes: what was seen, and why something is not known.
        offset_us: where refills stand after a tick, as far as the profile shows it, or None.
    """

    period_us: float | None
    quota_us: float | None
    hz: int | None
    scheduler: schedulers.Name | None
    confidence: dict[str, float | None]
    share: float | None
    runs: int
    gaps: int
    on_grid: float | None
    notes: list[str] = field(default_factory=list)
    offset_us: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        return {
            "period_us": self.period_us,
            "quota_us": self.quota_us,
            "hz": self.hz,
            "scheduler": self.scheduler,
            "confidence": self.confidence,
            "share": self.share,
            "runs": self.runs,
            "gaps": self.gaps,
            "on_grid": self.on_grid,
            "offset_us": self.offset_us,
            "notes": self.notes,
        }


def infer(profile: Profile) -> Inferred:
    """Infer the settings of a bandwidth control from a profile."""
    return infer_trace(traces.from_profile(profile))


def infer_trace(trace: traces.Trace) -> Inferred:
    """Infer the settings from a trace."""
    share = quotas.find(trace)
    if share is None:
        return _nothing(trace, _why_none(trace))
    period = periods.find(trace)
    if period is None:
        nothing = _nothing(trace, ["Gaps end on no grid: the period is not known."])
        return replace(nothing, share=share.value)
    if period.confidence < _UNSURE:
        nothing = _nothing(
            trace, ["Too few throttles, or too few on one grid, to tell the period."]
        )
        return replace(nothing, share=share.value, on_grid=period.on_grid)
    tick = ticks.find(trace, period, share.value)
    settled = settling.settle(trace, period, tick, share.value)
    period, tick = settled.period, settled.tick
    if turns.possible(trace, period, tick):
        nothing = _nothing(trace, [_TURNS])
        return replace(nothing, share=share.value, on_grid=period.on_grid)
    scheduler = schedulers.find(trace, period, tick)
    notes = [*settled.notes, *tick.notes, *scheduler.notes]
    quota: float | None = round(settled.quota / _US, 3)
    sure: float | None = _sure_of_quota(settled, share)
    if sure is not None and sure < _UNSURE:
        quota = sure = None
        notes.append(
            "The quota is less than half sure: the share of a CPU obtained varies too much, or"
            " other settings would obtain it too."
        )
    return Inferred(
        period_us=period.nominal / _US,
        quota_us=quota,
        hz=tick.hz,
        scheduler=scheduler.name,
        confidence={
            "period_us": period.confidence,
            "quota_us": sure,
            # Both rest on gaps being throttles of that period.
            "hz": _at_most(tick.confidence, period.confidence),
            "scheduler": _at_most(scheduler.confidence, period.confidence),
        },
        share=share.value,
        runs=trace.given,
        gaps=trace.events,
        on_grid=period.on_grid,
        notes=notes,
        offset_us=None if settled.match is None else round(settled.match.offset / _US, 3),
    )


def _sure_of_quota(settled: settling.Settled, share: quotas.Share) -> float:
    """How surely the quota is right to 5 %: less if others would obtain the same share."""
    low, high = settled.quota_range
    width = math.hypot((high - low) / settled.quota / 2, quotas.WITHIN / 20)
    return round(settled.period.confidence * share.confidence * min(1.0, quotas.WITHIN / width), 3)


def _at_most(confidence: float | None, limit: float) -> float | None:
    return None if confidence is None else min(confidence, limit)


def _nothing(trace: traces.Trace, notes: list[str]) -> Inferred:
    empty: dict[str, float | None] = dict.fromkeys(("period_us", "quota_us", "hz", "scheduler"))
    return Inferred(None, None, None, None, empty, None, trace.given, trace.events, None, notes)


def _why_none(trace: traces.Trace) -> list[str]:
    if not trace.events:
        return [
            "The profile has no gap: CPU time is not limited, or the quota is at least the period."
        ]
    return ["No run has two gaps, so there is no interval."]
