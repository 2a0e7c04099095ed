"""The client's rows and the platform's log, joined by invocation.

Both describe the same attempts. What the client saw (its clock, its connection, the outcome it got)
is the client's to say; what happened inside (queueing, start, CPU, memory, billed time) is the
platform's, and where the platform's log is silent, what it said in response headers stands.

A request that was preempted runs again as the next attempt. The client has sent it once and has the
last attempt's answer, so that the platform's rows of those before are rows of their own.

A platform that names invocations itself may accept a request before its invocation has ended (HTTP
202). How that ended is the platform's to say, and when it was answered nobody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from uncia import record
from uncia.stats import columns

pc: Any = compute

# Columns that the platform knows better than the client; the rest are the client's alone.
PLATFORM_COLUMNS: Final = (
    "request_id",
    "error",
    "start",
    "instance",
    "shared",
    "started",
    "ended",
    "queued",
    "initialization",
    "execution",
    "billed",
    "allocated_cpu",
    "allocated_memory",
    "cpu_user",
    "cpu_system",
    "memory_avg",
    "memory_peak",
    "throttled_count",
    "throttled_time",
    "reserved_cpu",
    "spot_cpu",
    "preemptible",
    "qos",
    "reserved_cpu_time",
    "borrowed_cpu_time",
    "lent_cpu_time",
    "lent_memory_avg",
    "worker",
    "services",
    "cpu_wait",
    "page_faults",
    "context_switches",
    "cycles",
    "instructions",
    "branch_misses",
    "llc_misses",
)
_ACCEPTED: Final = 202
# What the client has of an answer; a preempted attempt has none.
_TIMES_OF_ANSWER: Final = ("first_byte", "received")
_ANSWER: Final = (*_TIMES_OF_ANSWER, "status", "response_bytes")
# Of a row of the log: whether the platform had named it itself.
_IDENTIFIED: Final = "identified"
_TIMES: Final = {
    "invocations": ("scheduled", "sent", "connected", "first_byte", "received", "started", "ended"),
    "spans": ("start", "end"),
    "instances": ("started", "initialized", "ended"),
}


@dataclass(frozen=True)
class Joined:
    """The joined rows, and what did not fit together.

    Attributes:
        rows: the client's rows in their order, every one once.
        matched: how many of them have a row in the platform's log.
        strangers: platform rows that no client row asked for.
        repeated: invocations that the platform's log holds more than once, preempted attempts
            aside; `counting` says which row counts.
        accepted: how many of the client's rows were accepted, and not answered.
        preempted: attempts of the client's rows that were preempted.
    """

    rows: pa.Table
    matched: int
    strangers: int
    repeated: int
    accepted: int
    preempted: pa.Table


def identified(client: pa.Table, platform: pa.Table) -> pa.Table:
    """The platform's rows by the client's names of invocations.

    A platform that does not learn these has its own ``request_id`` for them, which the client has
    of its answer.
    """
    name, request = _text(platform, "invocation"), _text(platform, "request_id")
    is_its_own = pc.fill_null(pc.equal(name, request), False)
    if not pc.any(is_its_own).as_py():
        return platform
    answered = _text(client, "request_id").combine_chunks()
    position = pc.index_in(request, value_set=answered, skip_nulls=True)
    asked = _text(client, "invocation").take(position)
    is_known = pc.and_(is_its_own, pc.is_valid(asked))
    return _replace(platform, "invocation", pc.if_else(is_known, asked, name))


def counting(log: pa.Table) -> pa.Table:
    """Of each invocation in a platform's log the row that counts.

    An event that failed is tried again, with a row for each attempt: that which went well counts,
    else the last attempt, and of several rows of an attempt the first.
    """
    invocation = _text(log, "invocation")
    if len(pc.unique(invocation)) == log.num_rows:
        return log
    ranks = pa.table(
        {"fails": pc.invert(columns.is_word(log, "outcome", "ok")), "attempt": log["attempt"]}
    )
    order = pc.sort_indices(ranks, sort_keys=[("fails", "ascending"), ("attempt", "descending")])
    invocation = invocation.take(order).combine_chunks()
    # index_in gives the first occurrence.
    return log.take(order.take(pc.index_in(pc.unique(invocation), value_set=invocation)))


def join(client: pa.Table, platform: pa.Table) -> Joined:
    """Fill the platform's columns into the client's rows.

    Args:
        client: the run's rows, times since the run's epoch.
        platform: the platform's log, times since the same epoch (see :func:`shift`), with the
            platform's names of invocations or, by `identified`, the client's.
    """
    named_itself = _text(platform, "invocation")
    platform = identified(client, platform)
    is_identified = pc.not_equal(named_itself, _text(platform, "invocation"))
    platform = _replace(platform, _IDENTIFIED, is_identified)
    asked = _text(client, "invocation")
    preempted = pc.and_(
        columns.is_word(platform, "outcome", "preempted"),
        pc.is_in(_text(platform, "invocation"), value_set=asked.combine_chunks()),
    )
    earlier, platform = platform.filter(preempted), platform.filter(pc.invert(preempted))
    logged = _text(platform, "invocation")
    log = counting(platform)
    # Null for an invocation that is not in the log.
    position = pc.index_in(asked, value_set=_text(log, "invocation").combine_chunks())
    rows = client
    for name in (*PLATFORM_COLUMNS, "attempt"):
        theirs = _plain(log.column(name)).take(position)
        ours = _plain(client.column(name))
        rows = _replace(rows, name, pc.coalesce(theirs, ours))
    # A function may answer with this status, too, where requests are answered by functions.
    is_accepted = pc.and_(
        pc.equal(client.column("status"), _ACCEPTED), log.column(_IDENTIFIED).take(position)
    )
    is_accepted = pc.fill_null(is_accepted, False)
    theirs = _plain(log.column("outcome")).take(position)
    outcome = pc.if_else(is_accepted, theirs, _plain(client.column("outcome")))
    rows = _replace(rows, "outcome", outcome)
    for name in _TIMES_OF_ANSWER:
        times = rows.column(name)
        rows = _replace(rows, name, pc.if_else(is_accepted, pa.scalar(None, times.type), times))
    matched = len(position) - position.null_count
    known = pc.is_in(logged, value_set=asked.combine_chunks())
    return Joined(
        rows=record.conform(rows, "invocations"),
        matched=matched,
        strangers=platform.num_rows - int(pc.sum(known).as_py() or 0),
        repeated=platform.num_rows - log.num_rows,
        accepted=int(pc.sum(is_accepted).as_py() or 0),
        preempted=_preempted(client, earlier),
    )


def _preempted(client: pa.Table, earlier: pa.Table) -> pa.Table:
    """Rows of attempts that were preempted: what the client asked, and what the platform did."""
    value_set = _text(client, "invocation").combine_chunks()
    rows = client.take(pc.index_in(_text(earlier, "invocation"), value_set=value_set))
    for name in (*PLATFORM_COLUMNS, "attempt", "outcome"):
        rows = _replace(rows, name, _plain(earlier.column(name)))
    for name in _ANSWER:
        rows = _replace(rows, name, pa.nulls(rows.num_rows, rows.schema.field(name).type))
    return record.conform(rows, "invocations")


def unmatched(client: pa.Table, platform: pa.Table, *, names_invocations: bool = False) -> int:
    """Client rows that the platform answered (it gave a request id) but did not log.

    Hops are not the client's: what functions report of them need not be true.

    Args:
        client: the rows of an experiment.
        platform: the log.
        names_invocations: whether the platform names each invocation in its answer, so that a
            function's answer without a name, an error as well, is one that cannot be found.
    """
    is_answered = pc.is_valid(client.column("request_id"))
    if names_invocations:
        is_answered = pc.or_(is_answered, columns.is_answer(client))
    answered = client.filter(pc.and_(is_answered, pc.invert(columns.is_hop(client))))
    if answered.num_rows == 0:
        return 0
    logged = _text(identified(answered, platform), "invocation").combine_chunks()
    known = pc.is_in(_text(answered, "invocation"), value_set=logged)
    missing: int = answered.num_rows - int(pc.sum(known).as_py() or 0)
    return missing


def shift(table: pa.Table, name: str, epoch_unix_ns: int, run: str) -> pa.Table:
    """A platform's table (Unix nanoseconds, no run) as a table of this run."""
    shifted = table
    for column in _TIMES[name]:
        if column in shifted.column_names:
            moved = pc.subtract(shifted.column(column), pa.scalar(epoch_unix_ns, pa.int64()))
            shifted = _replace(shifted, column, moved)
    if name == "instances" and "idle" in shifted.column_names:
        shifted = _replace(shifted, "idle", _shift_idle(shifted.column("idle"), epoch_unix_ns))
    runs = pa.array([run] * table.num_rows, pa.utf8())
    shifted = _replace(shifted, "run", runs)
    return record.conform(shifted.replace_schema_metadata(None), name, epoch_unix_ns)


def rename(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The table with its functions called as the experiment calls them, not as deployed."""
    called = [names.get(name, name) for name in _text(table, "function").to_pylist()]
    return _replace(table, "function", pa.array(called, pa.utf8()))


def _shift_idle(column: Any, epoch_unix_ns: int) -> Any:
    """Idle intervals moved to the run's epoch."""
    intervals = [
        None
        if row is None
        else [
            {"start": interval["start"] - epoch_unix_ns, "end": interval["end"] - epoch_unix_ns}
            for interval in row
        ]
        for row in column.to_pylist()
    ]
    return pa.array(intervals, record.schema("instances").field("idle").type)


def _replace(table: pa.Table, name: str, values: Any) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)


def _plain(column: Any) -> Any:
    return column.cast(pa.utf8()) if pa.types.is_dictionary(column.type) else column


def _text(table: pa.Table, name: str) -> Any:
    return table.column(name).cast(pa.utf8())
