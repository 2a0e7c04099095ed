"""The rows of a table as advice needs them: told apart by function, platform and allocation.

A *configuration* is what rows were measured at: platform, allocated memory, allocated vCPU. What is
not known is "" or -1 there, because the engines do not join on null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import ibis
import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends import Backend, Source
from uncia.backends.dtypes import is_untyped, type_name
from uncia.backends.integers import signed
from uncia.costs.outcomes import outcome_note
from uncia.costs.warmups import warmup_note, without_warmups
from uncia.errors import UnciaError
from uncia.tariffs.exact import integer
from uncia.tariffs.fit import share_of
from uncia.tariffs.rows import MAX_MEMORY, PRICED, prepare
from uncia.text import in_other_letters
from uncia.units import MAX_TIME, format_size

KEYS: Final = ("function", "platform", "memory", "cpu")
"""The columns that tell configurations apart, by their names here."""

UNKNOWN: Final = -1

_MAX_MOMENT: Final = 1 << 62
"""The latest and earliest plausible times, ns from the epoch: 146 years."""

_TEXTS: Final = ("platform", "invocation", "parent", "start")
_TIMES: Final = ("started", "ended", "throttled_time")


class Configuration(NamedTuple):
    """A function, and the platform and allocation that its rows were measured with.

    Attributes:
        function: its name.
        platform: its name; "" if unknown.
        memory: allocated, bytes; -1 if unknown.
        cpu: allocated, micro-vCPU; -1 if unknown.
    """

    function: str
    platform: str
    memory: int
    cpu: int


@dataclass(frozen=True)
class Facts:
    """Counts and sums over the rows of one configuration.

    Attributes:
        rows: those that ran and are billed.
        cold_unknown: of them, cold starts with unknown initialization.
        started_rows: rows with an initialization.
        cpu_rows: rows with a CPU time.
        peak_rows: rows with a peak of memory.
        average_rows: rows with an average of memory.
        start_rows: rows with start and end times.
        parent_rows: rows with a parent invocation.
        restored_rows: rows that began an instance from a process that had been started before.
        within: rows within the bound; 0 without a bound.
        execution: summed, ns.
        execution_max: the longest, ns.
        cpu_time: summed over the rows that have it, ns.
        cpu_execution: execution of those rows, summed, ns.
        peak: the largest, bytes; None if none is known.
        average: the largest, bytes; None likewise.
        first: the earliest start, ns; None likewise.
        last: the latest end, ns; None likewise.
    """

    rows: int
    cold_unknown: int
    started_rows: int
    cpu_rows: int
    peak_rows: int
    average_rows: int
    start_rows: int
    parent_rows: int
    restored_rows: int
    within: int
    execution: int
    execution_max: int
    cpu_time: int
    cpu_execution: int
    peak: int | None
    average: int | None
    first: int | None
    last: int | None

    @property
    def span(self) -> int | None:
        """From the first start to the last end, ns; None if a row lacks its times."""
        if self.first is None or self.last is None or self.start_rows < self.rows:
            return None
        return self.last - self.first or None


def source_table(
    backend: Backend,
    source: Source,
    functions: Sequence[str] | None,
    ratios: Callable[[str], int | None],
) -> tuple[ir.Table, list[str]]:
    """Read the rows of a source, of these functions if any are named, with `KEYS` for billing.

    Warm-ups are left out. The added columns are ``advice_platform``, ``advice_memory`` and
    ``advice_cpu``, of text.

    Returns:
        The rows, and notes on what was left out or filled in.

    Raises:
        UnciaError: the table has no column ``function``, holds none of these functions, or has
            times that are not whole ns.
    """
    table = backend.table(source)
    if "function" not in table.schema():
        raise UnciaError(
            "the table has no column function, so there is nothing to advise on",
            in_other_letters("function", table.schema()),
        )
    _check_times(table)
    table = _with_names(table)
    if functions:
        table = table.filter(table["function"].cast("string").isin(list(functions)))
        names = backend.collect(table.select(name=table["function"].cast("string")).distinct())
        missing = sorted(set(functions) - set(names.column("name").to_pylist()))
        if missing:
            raise UnciaError(f"the table holds no function {', '.join(missing)}")
    table, warmups = without_warmups(backend, table)
    table, notes = with_shares(backend, table, ratios)
    unknown = outcome_note(backend, table, {})
    notes[:0] = [warmup_note(warmups)] * bool(warmups) + ([] if unknown is None else [unknown])
    schema = table.schema()
    empty = ibis.null("string")
    platform = table["platform"].cast("string") if "platform" in schema else empty
    keyed = table.mutate(
        advice_platform=platform.fill_null(""),
        advice_memory=_text(table, "allocated_memory"),
        advice_cpu=_text(table, "allocated_cpu"),
    )
    return keyed, notes


def _check_times(table: ir.Table) -> None:
    """Refuse times that advice reads and that are not whole ns: it would differ without them.

    Raises:
        UnciaError: with the column and its type.
    """
    for name in _TIMES:
        dtype = table.schema().get(name)
        if dtype is not None and not (is_untyped(dtype) or dtype.is_integer()):
            raise UnciaError(
                f"the column {name} is {type_name(dtype)}, not whole ns, so no advice can be given",
                "Times of other types become whole ns by: uncia trace import uncia.",
            )


def _with_names(table: ir.Table) -> ir.Table:
    """The table with names of functions as text; whole numbers are names, too.

    Raises:
        UnciaError: they are neither.
    """
    dtype = table.schema()["function"]
    if dtype.is_integer():
        return table.mutate(function=table["function"].cast("string"))
    if dtype.is_string() or is_untyped(dtype):
        return table
    raise UnciaError(
        f"the column function is {type_name(dtype)}, but names of functions are text or whole"
        " numbers"
    )


def with_shares(
    backend: Backend, table: ir.Table, ratios: Callable[[str], int | None]
) -> tuple[ir.Table, list[str]]:
    """Fill in missing vCPU shares on platforms that derive them from the memory.

    Args:
        backend: where the table is.
        table: invocations.
        ratios: gives the bytes per vCPU of a platform, by its name; None if it has no ratio.

    Returns:
        The table, and notes on what was filled in.
    """
    schema = table.schema()
    if "platform" not in schema or not _whole(schema.get("allocated_memory")):
        return table, []
    platform, memory = table["platform"].cast("string"), signed(table["allocated_memory"])
    has_cpu = _whole(schema.get("allocated_cpu"))
    cpu = signed(table["allocated_cpu"]) if has_cpu else ibis.null("int64")
    is_plausible = (memory >= integer(0)) & (memory <= integer(MAX_MEMORY))
    gaps = table.filter(cpu.isnull() & is_plausible & platform.notnull())
    counts = backend.collect(
        gaps.aggregate(rows=gaps.count(), by=[gaps["platform"].cast("string").name("name")])
    )
    notes = []
    for row in sorted(counts.to_pylist(), key=lambda row: str(row["name"])):
        ratio = ratios(row["name"])
        if ratio is None:
            continue
        share = share_of(memory, ratio=ratio)
        cpu = ibis.ifelse(cpu.isnull() & is_plausible & (platform == row["name"]), share, cpu)
        notes.append(
            f"{row['rows']:,} rows on {row['name']} have no allocated_cpu; it is taken from their"
            f" memory, {format_size(ratio)} to the vCPU."
        )
    return (table.mutate(allocated_cpu=cpu) if notes else table), notes


def _text(table: ir.Table, name: str) -> Any:
    dtype = table.schema().get(name)
    if dtype is None or not dtype.is_integer():
        return ibis.literal(str(UNKNOWN))
    return signed(table[name]).fill_null(integer(UNKNOWN)).cast("string")


def billable_rows(table: ir.Table) -> ir.Table:
    """Select the rows that ran and are billed: `KEYS`, ``turnaround``, times, texts and ``v_*``.

    Args:
        table: of `source_table`.
    """
    schema = table.schema()
    table = table.mutate(
        **{name: ibis.null("string") for name in _TEXTS if name not in schema},
        **{name: ibis.null("int64") for name in _TIMES if not _whole(schema.get(name))},
    )
    groups = ("function", "advice_platform", *_TEXTS[1:], *_TIMES)
    rows = prepare(table, groups)
    rows = rows.filter(rows["common"] == PRICED)
    start = rows["v_initialization"].fill_null(integer(0))
    started, ended = _plausible_times(rows)
    throttled = signed(rows["g_throttled_time"])
    return rows.mutate(
        function=rows["g_function"].cast("string"),
        platform=rows["g_advice_platform"],
        memory=rows["v_allocated_memory"].fill_null(integer(UNKNOWN)),
        cpu=rows["v_allocated_cpu"].fill_null(integer(UNKNOWN)),
        turnaround=ibis.ifelse(
            rows["unknown_start"], ibis.null("int64"), rows["v_execution"] + start
        ),
        invocation=rows["g_invocation"].cast("string"),
        parent=rows["g_parent"].cast("string"),
        restored=rows["g_start"].cast("string") == "restored",
        started=started,
        ended=ended,
        throttled=_where(throttled.between(integer(0), integer(MAX_TIME)), throttled),
    ).drop(*(f"g_{name}" for name in groups))


def _plausible_times(rows: ir.Table) -> tuple[Any, Any]:
    """When rows started and ended, ns; null where no row can have lasted so long."""
    largest = integer(_MAX_MOMENT)
    # Each within the bound, so that their difference is within 64 bits.
    started, ended = (
        _where(time.between(-largest, largest), time)
        for time in (signed(rows["g_started"]), signed(rows["g_ended"]))
    )
    is_plausible = (ended - started).abs() <= integer(MAX_TIME)
    return _where(is_plausible, started), _where(is_plausible, ended)


def _where(condition: Any, value: Any) -> Any:
    """The value where a condition holds, else null."""
    return ibis.ifelse(condition.fill_null(False), value, ibis.null("int64"))


def _whole(dtype: Any) -> bool:
    return dtype is not None and dtype.is_integer()


_MAYBE: Final = ("peak", "average", "first", "last")
_NOT_WHOLE: Final = frozenset({*KEYS, *_MAYBE})


def collect_facts(
    backend: Backend, rows: ir.Table, column: str, bound: int | None
) -> dict[Configuration, Facts]:
    """Compute the facts of each configuration.

    Args:
        backend: computes them.
        rows: of `billable_rows`.
        column: the bounded time.
        bound: ns; None for none.
    """
    limit = ibis.null("int64") if bound is None else integer(bound)
    cpu_known = rows["v_cpu_time"].notnull()
    table = backend.collect(
        rows.aggregate(
            {
                "rows": rows.count(),
                "cold_unknown": rows["unknown_start"].sum(),
                "started_rows": rows["v_initialization"].count(),
                "cpu_rows": rows["v_cpu_time"].count(),
                "peak_rows": rows["v_memory_peak"].count(),
                "average_rows": rows["v_memory_avg"].count(),
                "start_rows": (rows["started"].notnull() & rows["ended"].notnull()).sum(),
                "parent_rows": rows["parent"].count(),
                "restored_rows": rows["restored"].sum(),
                "within": ibis.ifelse(rows[column] <= limit, integer(1), integer(0)).sum(),
                "execution": _total(rows["v_execution"]),
                "execution_max": rows["v_execution"].max(),
                "cpu_time": _total(rows["v_cpu_time"]),
                "cpu_execution": _total(
                    ibis.ifelse(cpu_known, rows["v_execution"], ibis.null("int64"))
                ),
                "peak": rows["v_memory_peak"].max(),
                "average": rows["v_memory_avg"].max(),
                "first": rows["started"].min(),
                "last": rows["ended"].max(),
            },
            by=list(KEYS),
        )
    )
    result = {}
    for row in table.to_pylist():
        key = configuration(row)
        whole = {name: int(value or 0) for name, value in row.items() if name not in _NOT_WHOLE}
        peak, average, first, last = (
            None if row[name] is None else int(row[name]) for name in _MAYBE
        )
        result[key] = Facts(**whole, peak=peak, average=average, first=first, last=last)
    return dict(sorted(result.items()))


def configuration(row: Mapping[str, Any]) -> Configuration:
    """The configuration of a row of a query's result."""
    return Configuration(row["function"], row["platform"], int(row["memory"]), int(row["cpu"]))


def _total(value: Any) -> Any:
    return value.cast("decimal(18, 0)").sum().cast("decimal(38, 0)")


def key_table(configurations: Sequence[Configuration], **more: Sequence[Any]) -> pa.Table:
    """Configurations as a table to join with, with more columns."""
    columns = {
        name: [getattr(config, name) for config in configurations]
        for name in ("function", "platform")
    }
    sizes = {
        name: pa.array([getattr(config, name) for config in configurations], pa.int64())
        for name in ("memory", "cpu")
    }
    return pa.table({**columns, **sizes, **more})
