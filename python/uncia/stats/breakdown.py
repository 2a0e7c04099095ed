"""Breakdown of the mean latency into parts that add up to it.

Means add up to the mean of the whole; medians would not. Every part is a duration measured by one
clock, so the platform's clock is never compared with the client's.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import Column, pc
from uncia.stats.quantiles import Floats

PARTS: Final = (
    "generator lag",
    "connect",
    "platform queue",
    "thaw",
    "initialization",
    "execution",
    "answer transfer",
    "network and platform",
    "waiting for the answer",
)
"""The parts in the order in which they happen. Where the platform reports its times, rows have all
but the last; otherwise (plain HTTP) they have lag, connect, transfer and "waiting for the answer",
which is everything between connection and first byte."""


@dataclass(frozen=True)
class Breakdown:
    """Mean parts of the latency of some rows.

    Attributes:
        rows: how many rows, all with outcome ok and a latency.
        mean_ns: mean latency, ns.
        parts_ns: part -> mean, ns; the values add up to `mean_ns`. A part that no row measured is
            left out.
        platform_times: whether the platform reported its durations.
    """

    rows: int
    mean_ns: float
    parts_ns: dict[str, float]
    platform_times: bool


def breakdown(table: pa.Table, spans: pa.Table | None = None) -> list[Breakdown]:
    """Break down the mean latency of the rows with outcome ok.

    Rows with and without an `execution` from the platform are different populations, and are never
    mixed: each that has rows gets its breakdown.

    Args:
        table: invocations, usually of one experiment.
        spans: of these and of others. Without them thawing stays in the queue.

    Returns:
        At most two breakdowns, the one with the platform's times first; empty without ok rows.
    """
    ok = table.filter(columns.is_word(table, "outcome", "ok"))
    ok = ok.filter(pc.is_valid(columns.latency(ok)))
    is_reported = pc.is_valid(columns.integers(ok, "execution"))
    thawing = thaws(ok, spans)
    parts = (
        _of(ok.filter(of), thawing.filter(of), is_platforms)
        for of, is_platforms in ((is_reported, True), (pc.invert(is_reported), False))
    )
    return [item for item in parts if item is not None]


def thaws(rows: pa.Table, spans: pa.Table | None) -> Column:
    """How much of each row's `queued` its instance took to go on after a pause, ns.

    Null of rows whose instance was not paused, and where no span tells.
    """
    queued = columns.integers(rows, "queued")
    if spans is None:
        return pc.if_else(True, None, queued)
    is_thaw = pc.and_(
        columns.is_word(spans, "name", "thaw"), columns.is_word(spans, "clock", "platform")
    )
    spans = spans.filter(is_thaw)
    lengths = pc.subtract(columns.integers(spans, "end"), columns.integers(spans, "start"))
    sums = (
        pa.table({"name": columns.words(spans, "invocation"), "length": lengths})
        .group_by("name", use_threads=False)
        .aggregate([("length", "sum")])
    )
    names = columns.words(rows, "invocation")
    at = pc.index_in(names, value_set=sums["name"].combine_chunks(), skip_nulls=True)
    lengths = pc.if_else(
        columns.is_word(rows, "start", "thawed"),
        sums["length_sum"].combine_chunks().take(at.combine_chunks()),
        None,
    )
    return pc.min_element_wise(lengths, queued, skip_nulls=False)


def _of(rows: pa.Table, thawing: Column, platform_times: bool) -> Breakdown | None:
    if rows.num_rows == 0:
        return None
    connect = columns.difference(rows, "connected", "sent")
    reused = pc.fill_null(columns.column(rows, "connection_reused", pa.bool_()), False)
    durations = {
        "generator lag": columns.difference(rows, "sent", "scheduled"),
        "connect": pc.if_else(reused, 0, connect),
        "answer transfer": columns.difference(rows, "received", "first_byte"),
    }
    if platform_times:
        durations |= {
            "platform queue": pc.subtract(
                columns.integers(rows, "queued"), pc.fill_null(thawing, 0)
            ),
            "thaw": thawing,
            "initialization": columns.integers(rows, "initialization"),
            "execution": columns.integers(rows, "execution"),
        }
    parts = {name: _filled(v) for name, v in durations.items() if v.null_count < len(v)}
    latency = _filled(columns.latency(rows))
    rest = latency - np.sum(list(parts.values()), axis=0)
    parts["network and platform" if platform_times else "waiting for the answer"] = rest
    means: dict[str, float] = {name: float(parts[name].mean()) for name in PARTS if name in parts}
    return Breakdown(rows.num_rows, float(latency.mean()), means, platform_times)


def _filled(values: Column) -> Floats:
    """The values as doubles, ns, with 0 for null: a phase that the row did not have (a reused
    connection, a warm start), or that was not measured and is then part of the rest."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(), dtype=np.float64)
