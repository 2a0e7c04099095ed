"""The rows of a bill: results without warm-ups, those that all tariffs can price, or by memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.backends.paths import is_local
from uncia.costs.outcomes import outcome_note
from uncia.costs.repeated import INVOCATIONS, MAX_ROWS, repeated_note
from uncia.costs.warmups import warmup_note, without_warmups
from uncia.errors import UnciaError
from uncia.tariffs import Line, Tariff, catalogue
from uncia.tariffs.facts import UNKNOWN, Facts, read_facts
from uncia.units import MIB

if TYPE_CHECKING:
    from uncia.backends import Backend, Source
    from uncia.tariffs import FitRule

MEMORY: Final = "memory"
"""The group of rows with the same allocated memory."""


@dataclass(frozen=True)
class BilledRows:
    """The rows of a bill.

    Attributes:
        rows: the source itself, if every row is billed.
        facts: of the columns; None if they are to be read from the source.
        notes: what was left out.
        warnings: what is wrong with the rows, though they are billed.
    """

    rows: Source
    facts: Facts | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def select_rows(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None,
    groups: Sequence[str],
    backend: Backend,
    *,
    fit: FitRule = "allocated",
    common: bool = False,
) -> BilledRows:
    """Select the rows of a bill, and add the column `MEMORY` if it is a group.

    Warm-ups are left out unless each experiment is billed separately.

    Args:
        source: invocations.
        tariffs: of the bill, as in `uncia.tariffs.bill`.
        groups: columns that rows are billed by.
        backend: where the table is.
        fit: how allocations become sizes.
        common: whether to keep only the rows that every tariff can price.

    Raises:
        UnciaError: the table has no `allocated_memory` to group by, or the fit replaces the
            allocations that decide what a tariff can price.
    """
    facts = read_facts(source)
    notes: list[str] = []
    warnings = _warnings(source, facts, backend)
    table: Any = None
    if "experiment" not in groups and not facts.get("experiment", UNKNOWN).empty:
        opened = backend.table(source)
        rows, warmups = without_warmups(backend, opened)
        if warmups:
            table = rows
            notes.append(warmup_note(warmups))
    if "outcome" not in groups:
        opened = backend.table(source) if table is None else table
        note = outcome_note(backend, opened, facts)
        notes += [] if note is None else [note]
    if not common and MEMORY not in groups:
        if table is None:
            return BilledRows(source, notes=notes, warnings=warnings)
        return BilledRows(table, facts, notes, warnings)
    table = backend.table(source) if table is None else table
    if common:
        table, note = _common(table, tariffs, backend, fit)
        notes.append(note)
    if MEMORY in groups:
        dtype = table.schema().get("allocated_memory")
        if dtype is None or not dtype.is_integer():
            raise UnciaError(
                "the table has no column allocated_memory of whole bytes, so it cannot be billed"
                " by memory"
            )
        table = table.mutate(**{MEMORY: table["allocated_memory"].cast("string")})
    return BilledRows(table, facts, notes, warnings)


def _warnings(source: Source, facts: Facts, backend: Backend) -> list[str]:
    """Say which rows are there more than once, without a look at tables that are too large."""
    rows = facts.get("invocation", UNKNOWN).rows
    if not is_local(source) or (rows is not None and rows > MAX_ROWS):
        return []
    note = repeated_note(source, backend.table(source), INVOCATIONS, backend)
    return [] if note is None else [note]


def _common(
    table: Any, tariffs: Sequence[str | Path | Tariff] | None, backend: Backend, fit: FitRule
) -> tuple[Any, str]:
    from uncia.tariffs.allocation import apply_fit
    from uncia.tariffs.common_rows import common_rows

    if fit == "used-peak":
        raise UnciaError(
            "rows that all tariffs can price are not known under the fit used-peak, which replaces"
            " their allocations",
            "Leave --common out, or use --fit allocated.",
        )
    _, fitted, _ = apply_fit(table, catalogue.resolve(tariffs), fit, backend)
    kept = common_rows(table, fitted)
    counts = [backend.collect(rows.aggregate(n=rows.count())) for rows in (kept, table)]
    n, total = (int(count.column("n")[0].as_py()) for count in counts)
    if not n:
        raise UnciaError(
            f"no row can be priced by all {len(fitted)} tariffs",
            "Name fewer tariffs (--tariff), or leave --common out.",
        )
    return kept, f"Billed: the {n:,} of {total:,} rows that all {len(fitted)} tariffs can price."


def with_memory_names(lines: Sequence[Line]) -> list[Line]:
    """Write the memory of groups as a size, ``512 MB``, and sort by it as a number."""
    if not lines or MEMORY not in lines[0].group:
        return list(lines)

    def order(line: Line) -> tuple[bool, int]:
        memory = line.group[MEMORY]
        return memory is None, int(memory or 0)

    named = []
    for line in sorted(lines, key=order):
        memory = line.group[MEMORY]
        # 16 digits tell every two sizes apart, so that no two groups have one name.
        name = None if memory is None else f"{int(memory) / MIB:,.16g} MB"
        named.append(replace(line, group={**line.group, MEMORY: name}))
    return named
