"""The columns that bills read: which rows are billable, and which of their values are plausible.

A value that cannot be true (negative, or above every platform's bounds) becomes null, and its row
counts as absurd; a row that never ran counts under its reason. Columns are ``v_<name>``, int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.backends.dtypes import is_untyped, type_name
from uncia.backends.integers import signed
from uncia.errors import UnciaError
from uncia.record import INSTANCE_STARTS
from uncia.tariffs.billable_time import lacks_initialization
from uncia.tariffs.exact import cases, integer
from uncia.tariffs.facts import UNKNOWN, Facts
from uncia.text import in_other_letters
from uncia.units import MAX_TIME, MICRO_PER_VCPU

MAX_CPU: Final = 1000 * MICRO_PER_VCPU
"""Largest plausible vCPU allocation, micro-vCPU."""

MAX_MEMORY: Final = 1 << 42
"""Largest plausible memory, bytes: 4 TiB. The fit multiplies it by 10^6 within 64 bits."""

MAX_VALUES: Final[dict[str, int]] = {
    "execution": MAX_TIME,
    "initialization": MAX_TIME,
    "allocated_cpu": MAX_CPU,
    "allocated_memory": MAX_MEMORY,
    "cpu_user": MAX_TIME,
    "cpu_system": MAX_TIME,
    "memory_avg": MAX_MEMORY,
    "memory_peak": MAX_MEMORY,
    "reserved_cpu": MAX_CPU,
    "borrowed_cpu_time": MAX_TIME,
    "lent_cpu_time": MAX_TIME,
    "lent_memory_avg": MAX_MEMORY,
}
"""The columns that bills are made from, with their largest plausible values."""

NOT_BILLABLE: Final[dict[int, str]] = {
    1: "throttled",
    2: "preempted",
    3: "timeout before it ran",
    4: "transport error before it ran",
}
"""Why no tariff charges for a row, by code of the column `common`."""

NO_EXECUTION: Final = 5
ABSURD: Final = 6
COMMON_UNPRICED: Final[dict[int, str]] = {
    NO_EXECUTION: "execution is null",
    ABSURD: "a value is negative or absurd",
}
PRICED: Final = 0


def prepare(table: ir.Table, group_by: Sequence[str]) -> ir.Table:
    """Select the columns that bills read; an implausible value is null, and its row is marked.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    return table.select(**billing_columns(table, group_by))


def billing_columns(
    table: ir.Table, group_by: Sequence[str] = (), facts: Facts | None = None
) -> dict[str, Any]:
    """The columns of `prepare` by name, as expressions over the table.

    Args:
        table: the rows.
        group_by: columns to keep, as ``g_<name>``.
        facts: what is known of the table's columns, whose checks are then omitted.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    schema = table.schema()
    known = facts or {}
    for required in ("execution", *group_by):
        if required not in schema:
            raise UnciaError(
                f"the table has no column {required}, so it cannot be billed",
                in_other_letters(required, schema),
            )
    columns: dict[str, Any] = {f"g_{name}": table[name] for name in group_by}
    absurd_row: Any = ibis.literal(False)
    for name, maximum in MAX_VALUES.items():
        value, fact = integers(table, name), known.get(name, UNKNOWN)
        if value is None or fact.empty:
            columns[f"v_{name}"] = ibis.null("int64")
            continue
        if fact.within(0, maximum):
            columns[f"v_{name}"] = value
            continue
        absurd = ((value < integer(0)) | (value > integer(maximum))).fill_null(False)
        absurd_row = absurd_row | absurd
        columns[f"v_{name}"] = ibis.ifelse(absurd, ibis.null("int64"), value)
    start = table["start"].cast("string") if "start" in schema else ibis.null("string")
    start_fact = known.get("start", UNKNOWN)
    if start_fact.low == start_fact.high and start_fact.low in INSTANCE_STARTS:
        cold = start.notnull()
    else:
        cold = start.isin(INSTANCE_STARTS).fill_null(False)
    columns["preemptible"] = (
        table["preemptible"].cast("boolean") if "preemptible" in schema else ibis.null("boolean")
    )
    columns["unknown_start"] = lacks_initialization(cold, columns["v_initialization"])
    execution = integers(table, "execution")
    ran = ibis.literal(False) if execution is None else execution.notnull()
    outcome: Any = ibis.literal("ok")
    if "outcome" in schema and not known.get("outcome", UNKNOWN).always("ok"):
        outcome = table["outcome"].cast("string")
    columns["common"] = common_code(outcome, ~ran, absurd_row).cast("int16")
    columns["v_cpu_time"] = _cpu_time(columns["v_cpu_user"], columns["v_cpu_system"], known)
    return columns


def common_code(outcome: Any, never_ran: Any, absurd: Any) -> Any:
    """Why no tariff prices a row, the first reason that holds; `PRICED`: one may.

    Args:
        outcome: as text; columns, or single values.
        never_ran: whether its execution is not known.
        absurd: whether a value is negative or above every platform's bounds.
    """
    return cases(
        (outcome == "throttled", 1),
        (outcome == "preempted", 2),
        (never_ran & (outcome == "timeout"), 3),
        (never_ran & (outcome == "transport_error"), 4),
        (never_ran, NO_EXECUTION),
        (absurd, ABSURD),
        otherwise=PRICED,
    )


def _cpu_time(user: Any, system: Any, facts: Facts) -> Any:
    """Their sum; a platform that reports only total CPU time has it in one of the two."""
    if facts.get("cpu_system", UNKNOWN).empty:
        return user
    if facts.get("cpu_user", UNKNOWN).empty:
        return system
    return ibis.ifelse(
        user.isnull() & system.isnull(), ibis.null("int64"), user.fill_null(0) + system.fill_null(0)
    )


def integers(table: ir.Table, name: str, kind: str | None = None) -> Any:
    """A column as int64, or None if it is missing or has no type.

    Args:
        table: the rows.
        name: of the column.
        kind: which table it is, for messages where several are read.

    Raises:
        UnciaError: it holds other values than whole numbers.
    """
    dtype = table.schema().get(name)
    if dtype is None or is_untyped(dtype):
        return None
    if not dtype.is_integer():
        where = "" if kind is None else f" of the {kind} table"
        raise UnciaError(
            f"the column {name}{where} is {type_name(dtype)}, but bills are exact: it must hold"
            " whole numbers (ns, bytes, micro-vCPU)"
        )
    return signed(table[name])
