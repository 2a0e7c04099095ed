"""The events of several generator processes as those of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

Event = dict[str, Any]

_SUMS: Final = ("scheduled", "sent", "done", "in_flight", "ok", "rows", "unsent")
_RATES: Final = ("rate", "target_rate", "offered_rate", "achieved_rate", "cpu_s")
_WORST: Final = ("elapsed_s", "p50_ms", "p99_ms", "lag_p99_us", "span_ns")
_QUANTILES: Final = ("latency_ms", "lag_us")


def total(events: Sequence[Event]) -> Event:
    """One event of several of the same kind: counts and rates added, times the largest.

    In a closed loop only the answers decide how many requests there will be: ``scheduled`` is None.
    Quantiles cannot be added; the worst of the processes stands for all, and ``processes`` says of
    how many. What no process knows stays unknown (None, or left out).
    """
    if len(events) == 1:
        return dict(events[0])
    result = dict(events[0])
    result["processes"] = len(events)
    for keys, join in ((_SUMS, sum), (_RATES, sum), (_WORST, max)):
        for key in keys:
            values = [event[key] for event in events if event.get(key) is not None]
            if values:
                result[key] = join(values)
    if any("scheduled" in event and event["scheduled"] is None for event in events):
        result["scheduled"] = None
    if "failed" in result:
        failed: dict[str, int] = {}
        for event in events:
            for word, count in event["failed"].items():
                failed[word] = failed.get(word, 0) + count
        result["failed"] = failed
    for key in _QUANTILES:
        if key in result:
            result[key] = _worst(event[key] for event in events if event.get(key) is not None)
    for key in ("stopped", "interrupted"):
        found = [event[key] for event in events if event.get(key) is not None]
        if key in result or found:
            result[key] = found[0] if found else None
    return result


def _worst(quantiles: Iterable[dict[str, float | None]]) -> dict[str, float] | None:
    result: dict[str, float] = {}
    for found in quantiles:
        for name, value in found.items():
            if value is not None:
                result[name] = max(value, result.get(name, value))
    return result or None
