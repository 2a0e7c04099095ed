"""Combines the events of several generator processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

Event = dict[str, Any]

_SUMS: Final = ("scheduled", "sent", "done", "in_flight", "ok", "rows", "unsent")
_RATES: Final = ("rate", "target_rate", "offered_rate", "achieved_rate", "cpu_s")
_WORST: Final = ("elapsed_s", "p50_ms", "p99_ms", "lag_p99_us", "span_ns")
_QUANTILES: Final = ("latency_ms", "lag_us")


def total(events: Sequence[Event]) -> Event:
    """Combine events of the same kind: the sum of counts and rates, the maximum of times.

    In a closed loop the number of requests depends on the answers: ``scheduled`` is None. Quantiles
    cannot be added; the result has the worst, and ``processes``, the number of processes. What no
    process knows stays unknown (None, or missing).
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
        values = [event[key] for event in events if event.get(key) is not None]
        if key in result or values:
            result[key] = values[0] if values else None
    return result


def _worst(quantiles: Iterable[dict[str, float | None]]) -> dict[str, float] | None:
    result: dict[str, float] = {}
    for values in quantiles:
        for name, value in values.items():
            if value is not None:
                result[name] = max(value, result.get(name, value))
    return result or None
