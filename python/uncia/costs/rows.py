"""Which rows an analysis leaves out, and how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from uncia.tariffs import comparable, left_out
from uncia.tariffs.cells import prepare
from uncia.tariffs.compare import stays

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend
    from uncia.tariffs import FitRule

Group: TypeAlias = tuple[str | None, ...]

NOT_COMPARABLE: Final = "not comparable"
"""Why a row of a group is left out; the reasons are told for the whole table."""

NOTHING_MEASURED: Final = (
    "No row tells what was used (CPU time above zero, and memory_avg), so nothing can be compared"
    " with it. What these rows would cost: uncia bill TABLE."
)


def counts(
    table: ir.Table, fit: FitRule, by: Sequence[str], backend: Backend
) -> Mapping[Group, Mapping[str, int]]:
    """How many rows `uncia.tariffs.comparable` leaves out, by reason.

    Args:
        table: invocations.
        fit: chooses the rows.
        by: columns whose values are told apart; then there is one reason, `NOT_COMPARABLE`.
        backend: where it is computed.

    Returns:
        Group to reason to count; without `by` there is one group, ``()``.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    if not by:
        rows = backend.collect(left_out(table, fit)).to_pylist()
        return {(): {row["reason"]: int(row["rows"]) for row in rows}}
    every = _by_group(table, by, backend)
    kept = _by_group(comparable(table, fit), by, backend)
    gone = {group: count - kept.get(group, 0) for group, count in every.items()}
    return {group: {NOT_COMPARABLE: count} for group, count in gone.items() if count}


def _by_group(table: ir.Table, by: Sequence[str], backend: Backend) -> dict[Group, int]:
    groups = [table[name].cast("string").name(name) for name in by]
    found = backend.collect(table.aggregate(n=table.count().cast("int64"), by=groups))
    return {tuple(row[name] for name in by): int(row["n"]) for row in found.to_pylist()}


def said(reasons: Mapping[str, int]) -> str:
    """Reasons and counts in words: ``5 rows (CPU time is zero)``."""
    return ", ".join(
        f"{count:,} row{'' if count == 1 else 's'} ({reason})" for reason, count in reasons.items()
    )


def prepared(table: ir.Table, fit: FitRule) -> ir.Table:
    """The comparable rows as `uncia.tariffs.cells.prepare` has them, in one pass over the columns.

    The same rows as ``prepare(comparable(table, fit))``, which would judge each value twice.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    rows = prepare(table, ())
    return rows.filter(stays(rows, fit))
