"""Which rows an analysis is over, how many it leaves out and why, and their tariffs' sizes.

The meaning is that of `uncia.tariffs.comparable` and `uncia.tariffs.left_out`. Here it is told from
the columns that `uncia.tariffs.rows.prepare` has judged already, each value once: over hundreds
of millions of rows, judging is what takes the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from uncia.errors import UnciaError
from uncia.tariffs import Tariff, allocation, catalogue
from uncia.tariffs.compare import COMPARABLE, REASONS, check, first_reason
from uncia.tariffs.exact import integer
from uncia.tariffs.facts import Facts
from uncia.tariffs.published import MAX_MEMORY
from uncia.tariffs.rows import billing_columns

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend
    from uncia.tariffs import FitRule

Group: TypeAlias = tuple[str | None, ...]
Tariffs: TypeAlias = Sequence[str | Path | Tariff]
"""Ids, files or tariffs."""

NOT_COMPARABLE: Final = "not comparable"
"""Why a row of a group is left out; the reasons are told for the whole table."""

NOTHING_MEASURED: Final = (
    "No row tells what was used (CPU time above zero, and memory_avg), so nothing can be compared"
    " with it. What these rows would cost: uncia bill TABLE."
)


def resolve(tariffs: Tariffs | None) -> list[Tariff]:
    """The tariffs of an analysis of requests.

    Raises:
        UnciaError: one does not exist or cannot price requests.
    """
    for name in tariffs or ():
        tariff = catalogue.find(name)
        if tariff.by_instance:
            raise UnciaError(
                f"the tariff {tariff.id} bills the time that instances exist, whatever they do",
                f"What it costs is in: uncia cost instances TABLE --tariff {tariff.id}.",
            )
    return catalogue.resolve(tariffs)


def counts(
    table: ir.Table, fit: FitRule, by: Sequence[str], backend: Backend, facts: Facts | None = None
) -> Mapping[Group, Mapping[str, int]]:
    """How many rows are left out, by reason: those of `uncia.tariffs.left_out`.

    Args:
        table: invocations.
        fit: chooses the rows.
        by: columns whose values are told apart; then there is one reason, `NOT_COMPARABLE`.
        backend: where it is computed.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Returns:
        Group to reason to count; without `by` there is one group, ``()``.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**billing_columns(table, by, facts))
    coded = rows.select(code=first_reason(rows, fit), **{name: rows[f"g_{name}"] for name in by})
    gone = coded.filter(coded["code"] != COMPARABLE)
    groups = [gone[name].cast("string").name(name) for name in by]
    asked = gone.aggregate(n=gone.count().cast("int64"), by=[*groups, "code"])
    found: dict[Group, dict[str, int]] = {}
    for row in sorted(backend.collect(asked).to_pylist(), key=lambda row: int(row["code"])):
        reason = NOT_COMPARABLE if by else REASONS[row["code"]]
        own = found.setdefault(tuple(row[name] for name in by), {})
        own[reason] = own.get(reason, 0) + int(row["n"])
    return found


def prepared(table: ir.Table, fit: FitRule, facts: Facts | None = None) -> ir.Table:
    """The comparable rows as `uncia.tariffs.rows.prepare` has them.

    Args:
        table: invocations.
        fit: chooses the rows.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**billing_columns(table, (), facts))
    return rows.filter(first_reason(rows, fit) == COMPARABLE)


def measured(table: ir.Table, fit: FitRule, facts: Facts | None = None) -> ir.Table:
    """The rows whose use is known; of these a bill prices exactly the comparable ones.

    What is left of the others (not billable, without execution, absurd) no tariff prices.

    Args:
        table: invocations.
        fit: chooses the rows.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    check(fit)
    values = billing_columns(table, (), facts)
    kept = ((values["v_cpu_user"] > 0) | (values["v_cpu_system"] > 0)).fill_null(False)
    kept = kept & values["v_memory_avg"].notnull()
    size = values["v_allocated_memory"]
    if fit == "allocated":
        kept = kept & size.notnull()
    if fit == "paper":
        kept = kept & values["v_allocated_cpu"].notnull()
        kept = kept & (size <= integer(MAX_MEMORY)).fill_null(False)
    return table.filter(kept)


def fit_comparable(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    fit: FitRule,
    backend: Backend,
    facts: Facts | None = None,
) -> tuple[ir.Table, list[Tariff], list[str]]:
    """A table and tariffs as a fit would have them, and each rule in words.

    As `uncia.tariffs.allocation.apply_fit`, over the comparable rows: the peaks of a function are
    theirs, too. Then allocations are billed as they stand.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    base = measured(table, fit) if fit == "used-peak" else table
    return allocation.apply_fit(base, tariffs, fit, backend, facts)


def said(reasons: Mapping[str, int]) -> str:
    """Reasons and counts in words: ``5 rows (CPU time is zero)``."""
    return ", ".join(
        f"{count:,} row{'' if count == 1 else 's'} ({reason})" for reason, count in reasons.items()
    )
