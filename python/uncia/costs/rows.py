"""The rows of an analysis, the counts of rows that it leaves out, and the fit of its tariffs.

They mean the same as `uncia.tariffs.comparable` and `uncia.tariffs.left_out`. Here they use columns
that `uncia.tariffs.rows` has checked already, each value once: over hundreds of millions of rows,
checking takes most of the time.
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
from uncia.text import plural

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend
    from uncia.tariffs import FitRule

Group: TypeAlias = tuple[str | None, ...]
Tariffs: TypeAlias = Sequence[str | Path | Tariff]
"""Ids, files or tariffs."""

NOT_COMPARABLE: Final = "not comparable"
"""Why a row of a group is left out; reasons are counted for whole tables only."""

NOTHING_MEASURED: Final = (
    "No row has its usage (CPU time above zero, and memory_avg), so nothing can be compared with"
    " it. What these rows would cost: uncia bill TABLE."
)


def resolve(tariffs: Tariffs | None) -> list[Tariff]:
    """Look up the tariffs of an analysis of requests.

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


def count_left_out(
    table: ir.Table, fit: FitRule, by: Sequence[str], backend: Backend, facts: Facts | None = None
) -> Mapping[Group, Mapping[str, int]]:
    """Count the rows that are left out, by reason, as `uncia.tariffs.left_out`.

    Args:
        table: invocations.
        fit: chooses the rows.
        by: columns to group by; with groups the only reason is `NOT_COMPARABLE`.
        backend: computes it.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Returns:
        Group to reason to count; without `by` there is one group, ``()``.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**billing_columns(table, by, facts))
    rows_by_code = rows.select(
        code=first_reason(rows, fit), **{name: rows[f"g_{name}"] for name in by}
    )
    omitted = rows_by_code.filter(rows_by_code["code"] != COMPARABLE)
    groups = [omitted[name].cast("string").name(name) for name in by]
    query = omitted.aggregate(n=omitted.count().cast("int64"), by=[*groups, "code"])
    counts: dict[Group, dict[str, int]] = {}
    for row in sorted(backend.collect(query).to_pylist(), key=lambda row: int(row["code"])):
        reason = NOT_COMPARABLE if by else REASONS[row["code"]]
        reasons = counts.setdefault(tuple(row[name] for name in by), {})
        reasons[reason] = reasons.get(reason, 0) + int(row["n"])
    return counts


def comparable_rows(table: ir.Table, fit: FitRule, facts: Facts | None = None) -> ir.Table:
    """Select the comparable rows, with the columns of `uncia.tariffs.rows.prepare`.

    Args:
        table: invocations.
        fit: chooses the rows.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**billing_columns(table, (), facts))
    return rows.filter(first_reason(rows, fit) == COMPARABLE)


def rows_with_usage(table: ir.Table, fit: FitRule, facts: Facts | None = None) -> ir.Table:
    """Select the rows whose usage is known; a bill prices exactly the comparable ones of them.

    The rest of them (not billable, without execution, absurd) no tariff prices.

    Args:
        table: invocations.
        fit: chooses the rows.
        facts: what is known of the columns; see `uncia.tariffs.allocation.known_facts`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    check(fit)
    values = billing_columns(table, (), facts)
    keep_mask = ((values["v_cpu_user"] > 0) | (values["v_cpu_system"] > 0)).fill_null(False)
    keep_mask = keep_mask & values["v_memory_avg"].notnull()
    size = values["v_allocated_memory"]
    if fit == "allocated":
        keep_mask = keep_mask & size.notnull()
    if fit == "paper":
        keep_mask = keep_mask & values["v_allocated_cpu"].notnull()
        keep_mask = keep_mask & (size <= integer(MAX_MEMORY)).fill_null(False)
    return table.filter(keep_mask)


def fit_comparable(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    fit: FitRule,
    backend: Backend,
    facts: Facts | None = None,
) -> tuple[ir.Table, list[Tariff], list[str]]:
    """Apply a fit over the comparable rows, as `uncia.tariffs.allocation.apply_fit`.

    The peaks of a function are those of its comparable rows, too.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    base = rows_with_usage(table, fit) if fit == "used-peak" else table
    return allocation.apply_fit(base, tariffs, fit, backend, facts)


def describe_reasons(reasons: Mapping[str, int]) -> str:
    """Describe reasons and counts in words: ``5 rows (CPU time is zero)``."""
    return ", ".join(f"{plural(count, 'row')} ({reason})" for reason, count in reasons.items())
