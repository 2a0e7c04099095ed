"""The summary of a load that ``uncia load`` prints, as plain JSON values.

It has the keys of an experiment in ``summary.json`` (`uncia.stats.summary`), computed in the same
way, and some that only a single load has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from uncia import record
from uncia.errors import UnciaError
from uncia.record import parquet
from uncia.stats import columns, errors, round_trips, summary, tails
from uncia.stats.columns import pc
from uncia.workload import sizes
from uncia.workload.client import Load
from uncia.workload.collect import PARQUET
from uncia.workload.fleet import Ended
from uncia.workload.resolve import Prepared
from uncia.workload.send import SendSettings

_NS_PER_MS: Final = 1e6
_NS_PER_US: Final = 1e3

# Addresses of functions, by what their handlers get; the embedded platform's URLs end in an id.
_EVENTS: Final = {
    "http": re.compile(r"^https?://[^/]*(\.lambda-url\.|/url/[a-z0-9]{8,}(/|$))"),
    "body": re.compile(r"/2015-03-31/functions/[^/]+/invocations"),
}

# One request in so many is among the slowest.
_SLOWEST_OF: Final = 100

_LAG_ORDERS: Final = tails.orders("50,99,99.9")

# The columns that the summary needs; a table has many more, and a long load many rows.
_COLUMNS: Final = (
    "platform",
    "function",
    "instance",
    "start",
    "burst",
    "scheduled",
    "sent",
    "received",
    "outcome",
    "error",
    "invocation",
    "experiment",
    "allocated_memory",
    "allocated_cpu",
)


def one_endpoint(prepared: Prepared) -> None:
    """Check that there is one network path, whose round-trip time all latencies contain.

    Raises:
        UnciaError: requests go to several hosts or ports, or no round trips are measured.
    """
    addresses = {
        (urlsplit(url).scheme, urlsplit(url).netloc, stream.unix_socket)
        for stream in prepared.load.streams
        for _, url in stream.targets
    }
    if len(addresses) > 1:
        raise UnciaError(
            "subtract-rtt: requests go to several endpoints, and rows do not say which one's"
            " round trip is in their latency",
            hint="Drive one endpoint, or subtract it yourself from the round trips reported.",
        )
    if not prepared.load.rtt_probes:
        raise UnciaError("subtract-rtt: no round trips are measured with rtt-probes 0")


def read(out: Path) -> pa.Table:
    """Read the columns of a load's rows that its summary needs."""
    if out.suffix == PARQUET:
        return parquet.read_table(out, columns=list(_COLUMNS))
    return record.read(out).select(list(_COLUMNS))


def summarise(
    rows: pa.Table,
    prepared: Prepared,
    how: SendSettings,
    ended: Ended,
    *,
    quantiles: Sequence[tails.Order],
    subtract_rtt: bool = False,
) -> dict[str, Any]:
    """Summarise a load.

    Args:
        rows: the invocations, at least the columns that :func:`read` reads.
        prepared: the load.
        how: the number of processes, and the share.
        ended: how it ended.
        quantiles: the quantiles of latency to compute.
        subtract_rtt: add the quantiles less the median round trip; nothing else changes.

    Returns:
        Plain JSON values. What was not measured is None.
    """
    load = prepared.load
    ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
    latency = columns.ordered(columns.difference(ok, "received", "scheduled"))
    lag = columns.ordered(columns.difference(rows, "sent", "scheduled"))
    figures = summary.summarise(rows, {})
    rtt = round_trips.summarise(ended.rtt)
    estimates = tails.estimates(latency, quantiles)
    lags = tails.estimates(lag, _LAG_ORDERS)
    result: dict[str, Any] = {
        "name": load.run,
        "sends": prepared.sentences,
        "open_loop": not prepared.closed,
        "seed": load.seed,
        "processes": how.processes,
        "share": f"{how.share.index + 1}/{how.share.of}",
        "scheduled": ended.done.get("scheduled"),
        "unsent": ended.done.get("unsent"),
        "elapsed_s": ended.done.get("elapsed_s"),
        "interrupted": ended.interrupted,
        "stopped": ended.stopped,
        "failure": None if ended.failure is None else ended.failure.message,
        "warnings": ended.warnings,
        **figures,
        "lag_quantiles": {estimate.name: estimate.plain(_NS_PER_US) for estimate in lags},
        "sent_rate": _rate(rows),
        "quantiles": {estimate.name: estimate.plain(_NS_PER_MS) for estimate in estimates},
        "handler_event": handler_event(load),
        "start_latency_ms": by_start(rows),
        "slowest": slowest(rows),
        "errors": examples(rows),
        "distinct_errors": errors.distinct(rows, ended.explained),
        "contradictions": sizes.contradictions(
            rows,
            [
                sizes.Declared(stream.function, stream.allocated_memory, stream.allocated_cpu)
                for stream in load.streams
            ],
        ),
        "rtt": rtt,
    }
    if subtract_rtt:
        median = round_trips.median_ns(ended.rtt)
        result["subtracted_rtt_ms"] = None if median is None else median / _NS_PER_MS
        if median is not None:
            shorter = tails.estimates(latency - median, quantiles)
            result["quantiles_less_rtt"] = {
                estimate.name: estimate.plain(_NS_PER_MS) for estimate in shorter
            }
    return result


def handler_event(load: Load) -> str | None:
    """What Lambda-like addresses make of a request for the handler, judged by their form.

    Returns:
        ``http``: an HTTP event, with what was sent as text under ``body`` (function URLs);
        ``body``: what was sent is the event (Invoke); None: the addresses are of another form, or
        of both.
    """
    forms = {
        next((form for form, pattern in _EVENTS.items() if pattern.search(url)), None)
        for stream in load.streams
        for _, url in stream.targets
    }
    return forms.pop() if len(forms) == 1 else None


def by_start(rows: pa.Table) -> dict[str, dict[str, float | None]]:
    """Compute the quantiles of latency of each kind of start, of rows with outcome ok."""
    ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
    return {
        kind: summary.quantiles(
            columns.ordered(
                columns.difference(
                    ok.filter(columns.is_word(ok, "start", kind)), "received", "scheduled"
                )
            ),
            _NS_PER_MS,
        )
        for kind in columns.count_words(rows, "start")
    }


def slowest(rows: pa.Table) -> dict[str, Any] | None:
    """Compute how late the slowest hundredth of the answered requests were sent.

    Returns:
        ``rows``; ``latency_ms``, the least of theirs; ``lag_us``, the quantiles of their lag. None
        if no request was answered.
    """
    latency = columns.difference(rows, "received", "scheduled")
    answered = rows.filter(pc.is_valid(latency))
    if answered.num_rows == 0:
        return None
    latencies = columns.measured(latency)
    lags = columns.measured(columns.difference(answered, "sent", "scheduled"))
    count = -(-latencies.size // _SLOWEST_OF)
    chosen = np.argpartition(latencies, latencies.size - count)[latencies.size - count :]
    return {
        "rows": int(count),
        "latency_ms": int(latencies[chosen].min()) / _NS_PER_MS,
        "lag_us": summary.quantiles(np.sort(lags[chosen]), _NS_PER_US, ("p50",)),
    }


def examples(rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Count the rows of each outcome but ``ok``, with the error of the first of them."""
    result: dict[str, dict[str, Any]] = {}
    for word, count in columns.count_words(rows, "outcome").items():
        if word == "ok":
            continue
        errors = columns.words(rows.filter(columns.is_word(rows, "outcome", word)), "error")
        texts = errors.drop_null()
        result[word] = {"count": count, "example": texts[0].as_py() if len(texts) else None}
    return result


def _rate(rows: pa.Table) -> float | None:
    """Compute the rate of sending per second: (n - 1) / (last - first sent)."""
    sent = columns.measured(columns.integers(rows, "sent"))
    if sent.size < 2 or (span := int(sent.max() - sent.min())) == 0:
        return None
    return float(sent.size - 1) * 1e9 / span
