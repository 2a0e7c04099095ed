"""Requests that overlap on an instance, and how long a platform takes to scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.stats import columns
from uncia.stats.comparison import Figure
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6


def _shared(subject: SubjectRows, tariff: str) -> Figure:
    """The share of requests during which another ran on the same instance."""
    del tariff
    shared = columns.column(subject.invocations, "shared", "bool").drop_null().to_pylist()
    if not shared:
        return Figure(None, why="the platform does not say whether requests overlapped")
    hits = sum(shared)
    return Figure(100.0 * hits / len(shared), rows=len(shared), count=hits)


def _scaling_lag(subject: SubjectRows, tariff: str) -> Figure:
    """From the first request to the start of the first instance after the one that served it.

    A single event: it has no interval.
    """
    del tariff
    sent = columns.ordered(columns.integers(subject.invocations, "sent"))
    if sent.size == 0:
        return Figure(None, why="no request was sent")
    begun = columns.ordered(columns.integers(subject.instances, "started"))
    later = begun[begun > sent[0]]
    if later.size == 0:
        return Figure(None, rows=int(sent.size), why="no further instance was started")
    return Figure(float(later[0] - sent[0]) / _NS_PER_MS, rows=1)


METRICS: Final = (
    Metric(
        "shared",
        "share",
        "%",
        "Share of requests that overlapped others on their instance.",
        _shared,
    ),
    Metric(
        "scaling_lag",
        "time",
        "ms",
        "From the first request to the start of a further instance.",
        _scaling_lag,
    ),
)
