"""Round trips to endpoints, as the load generator measures them: by connecting, which takes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import columns
from uncia.stats.quantiles import quantile

_NS_PER_MS: Final = 1e6
_SHOWN: Final = {"p50": Fraction(1, 2), "p99": Fraction(99, 100)}


def summarise(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Summarise each endpoint's round trips before and after: number, minimum and median, ms.

    Times are None if no probe succeeded; ``error`` says why.

    Args:
        events: the load generator's events ``rtt``.
    """
    result: dict[str, dict[str, Any]] = {}
    for event in events:
        samples = np.array(event["samples_ns"], dtype=np.int64)
        result.setdefault(str(event["endpoint"]), {})[str(event["when"])] = {
            "probes": int(samples.size),
            "min_ms": int(samples.min()) / _NS_PER_MS if samples.size else None,
            "median_ms": float(np.median(samples)) / _NS_PER_MS if samples.size else None,
            "error": event.get("error"),
        }
    return result


def median_ns(events: Sequence[Mapping[str, Any]]) -> int | None:
    """The median round trip of all probes, ns; None if none succeeded."""
    trips = [trip for event in events for trip in event["samples_ns"]]
    return int(np.median(trips)) if trips else None


def subtracted(rows: pa.Table, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the latencies of an experiment are less the median round trip.

    The rows, and all other figures, stay as measured.

    Args:
        rows: of the experiment; hops, which no client sent, have no such latency.
        events: the experiment's events ``rtt``.

    Returns:
        ``subtracted_rtt_ms``; and ``latency_less_rtt_ms`` of the ok rows, with p50 and p99. Both
        are None where nothing was measured, or where there are several endpoints: rows do not say
        which one's round trip is in theirs.
    """
    median = median_ns(events)
    if median is None or len({event["endpoint"] for event in events}) != 1:
        return {"subtracted_rtt_ms": None, "latency_less_rtt_ms": None}
    ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
    latency = columns.ordered(columns.latency(ok))
    shorter = {
        name: (value - median) / _NS_PER_MS
        for name, order in _SHOWN.items()
        if (value := quantile(latency, order)) is not None
    }
    return {"subtracted_rtt_ms": median / _NS_PER_MS, "latency_less_rtt_ms": shorter or None}
