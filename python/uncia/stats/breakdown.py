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


def breakdown(table: pa.Table) -> list[Breakdown]:
    """Break down the mean latency of the rows with outcome ok.

    Rows with and without an `execution` from the platform are different populations, and are never
    mixed: each that has rows gets its breakdown.

    Args:
        table: invocations, usually of one experiment.

    Returns:
        At most two breakdowns, the one with the platform's times first; empty without ok rows.
    """
    ok = table.filter(columns.is_word(table, "outcome", "ok"))
    ok = ok.filter(pc.is_valid(columns.difference(ok, "received", "scheduled")))
    is_reported = pc.is_valid(columns.integers(ok, "execution"))
    parts = (_of(ok.filter(is_reported), True), _of(ok.filter(pc.invert(is_reported)), False))
    return [item for item in parts if item is not None]


def _of(rows: pa.Table, platform_times: bool) -> Breakdown | None:
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
            "platform queue": columns.integers(rows, "queued"),
            "initialization": columns.integers(rows, "initialization"),
            "execution": columns.integers(rows, "execution"),
        }
    parts = {name: _filled(v) for name, v in durations.items() if v.null_count < len(v)}
    latency = _filled(columns.difference(rows, "received", "scheduled"))
    rest = latency - np.sum(list(parts.values()), axis=0)
    parts["network and platform" if platform_times else "waiting for the answer"] = rest
    means: dict[str, float] = {name: float(parts[name].mean()) for name in PARTS if name in parts}
    return Breakdown(rows.num_rows, float(latency.mean()), means, platform_times)


def _filled(values: Column) -> Floats:
    """The values as doubles, ns, with 0 for null: a phase that the row did not have (a reused
    connection, a warm start), or that was not measured and is then part of the rest."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(), dtype=np.float64)
