"""Where the time of an invocation goes: the mean latency split into parts that add up to it.

Means, not medians: the mean of a sum is the sum of the means, so the parts of a bar add up to the
whole; medians do not. Only durations are used, each measured by one clock, so no clock of the
platform is ever compared with the client's.
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
"""The parts in the order in which they happen. A row of a platform that reports its own times
has all but the last; a row of one that does not (plain HTTP) has lag, connect, transfer and
"waiting for the answer", which is everything between connection and first byte."""


@dataclass(frozen=True)
class Breakdown:
    """Mean parts of the latency of some rows.

    Attributes:
        rows: how many rows, all with outcome ok and a latency.
        mean_ns: mean latency, ns.
        parts_ns: part -> mean, ns; the values add up to `mean_ns`. A part that was measured in
            none of the rows is not in it.
        platform_times: whether the platform reported its own durations.
    """

    rows: int
    mean_ns: float
    parts_ns: dict[str, float]
    platform_times: bool


def breakdown(table: pa.Table) -> list[Breakdown]:
    """The mean latency of the rows that went well, in parts.

    Rows whose `execution` the platform reported and rows where it did not are different
    populations and are never mixed: there is one result for each that has rows, at most two.

    Args:
        table: invocations, of one experiment as a rule.

    Returns:
        Breakdowns, the one with the platform's own times first; empty without good rows.
    """
    ok = table.filter(columns.is_word(table, "outcome", "ok"))
    ok = ok.filter(pc.is_valid(columns.difference(ok, "received", "scheduled")))
    told = pc.is_valid(columns.integers(ok, "execution"))
    found = (_of(ok.filter(told), True), _of(ok.filter(pc.invert(told)), False))
    return [item for item in found if item is not None]


def _of(rows: pa.Table, platform_times: bool) -> Breakdown | None:
    if rows.num_rows == 0:
        return None
    connect = columns.difference(rows, "connected", "sent")
    reused = pc.fill_null(columns.column(rows, "connection_reused", pa.bool_()), False)
    told = {
        "generator lag": columns.difference(rows, "sent", "scheduled"),
        "connect": pc.if_else(reused, 0, connect),
        "answer transfer": columns.difference(rows, "received", "first_byte"),
    }
    if platform_times:
        told |= {
            "platform queue": columns.integers(rows, "queued"),
            "initialization": columns.integers(rows, "initialization"),
            "execution": columns.integers(rows, "execution"),
        }
    parts = {name: _filled(v) for name, v in told.items() if v.null_count < len(v)}
    latency = _filled(columns.difference(rows, "received", "scheduled"))
    rest = latency - np.sum(list(parts.values()), axis=0)
    parts["network and platform" if platform_times else "waiting for the answer"] = rest
    means: dict[str, float] = {name: float(parts[name].mean()) for name in PARTS if name in parts}
    return Breakdown(rows.num_rows, float(latency.mean()), means, platform_times)


def _filled(values: Column) -> Floats:
    """The values as doubles, ns. A null (no such phase in this row: a reused connection, a warm
    start) adds nothing to the mean; what it really took, if it was not measured, is in the rest."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(), dtype=np.float64)
