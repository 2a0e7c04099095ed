"""Which rows an analysis is over, how many it leaves out and why, and their tariffs' sizes.

The meaning is that of `uncia.tariffs.comparable` and `uncia.tariffs.left_out`. Here it is told from
the columns that `uncia.tariffs.cells.prepare` has judged already, each value once: over hundreds of
millions of rows, judging is what takes the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import ibis

from uncia.tariffs import Tariff, rules
from uncia.tariffs.cells import PRICED, believed
from uncia.tariffs.compare import REASONS, check, holds
from uncia.tariffs.exact import integer
from uncia.tariffs.facts import Facts, facts
from uncia.tariffs.published import MAX_MEMORY, mean_ratio, published

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend, Source
    from uncia.tariffs import FitRule

Group: TypeAlias = tuple[str | None, ...]

NOT_COMPARABLE: Final = "not comparable"
"""Why a row of a group is left out; the reasons are told for the whole table."""

NOTHING_MEASURED: Final = (
    "No row tells what was used (CPU time above zero, and memory_avg), so nothing can be compared"
    " with it. What these rows would cost: uncia bill TABLE."
)


def known(source: Source, fit: FitRule) -> Facts:
    """What the files of a source say of its columns, after a fit has replaced some of them."""
    replaced = rules.ALLOCATIONS if fit == "used-peak" else ()
    return {name: fact for name, fact in facts(source).items() if name not in replaced}


def counts(
    table: ir.Table, fit: FitRule, by: Sequence[str], backend: Backend, of: Facts | None = None
) -> Mapping[Group, Mapping[str, int]]:
    """How many rows are left out, by reason: those of `uncia.tariffs.left_out`.

    Args:
        table: invocations.
        fit: chooses the rows.
        by: columns whose values are told apart; then there is one reason, `NOT_COMPARABLE`.
        backend: where it is computed.
        of: what is known of the columns; see `known`.

    Returns:
        Group to reason to count; without `by` there is one group, ``()``.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**believed(table, by, of))
    coded = rows.select(code=_reason(rows, fit), **{name: rows[f"g_{name}"] for name in by})
    gone = coded.filter(coded["code"] >= 0)
    groups = [gone[name].cast("string").name(name) for name in by]
    asked = gone.aggregate(n=gone.count().cast("int64"), by=[*groups, "code"])
    found: dict[Group, dict[str, int]] = {}
    for row in sorted(backend.collect(asked).to_pylist(), key=lambda row: int(row["code"])):
        reason = NOT_COMPARABLE if by else REASONS[row["code"]]
        own = found.setdefault(tuple(row[name] for name in by), {})
        own[reason] = own.get(reason, 0) + int(row["n"])
    return found


def prepared(table: ir.Table, fit: FitRule, of: Facts | None = None) -> ir.Table:
    """The comparable rows as `uncia.tariffs.cells.prepare` has them.

    Args:
        table: invocations.
        fit: chooses the rows.
        of: what is known of the columns; see `known`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    rows = table.select(**believed(table, (), of))
    return rows.filter(_reason(rows, fit) == -1)


def measured(table: ir.Table, fit: FitRule, of: Facts | None = None) -> ir.Table:
    """The rows whose use is known; of these a bill prices exactly the comparable ones.

    What is left of the others (not billable, without execution, absurd) no tariff prices.

    Args:
        table: invocations.
        fit: chooses the rows.
        of: what is known of the columns; see `known`.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    check(fit)
    values = believed(table, (), of)
    kept = ((values["v_cpu_user"] > 0) | (values["v_cpu_system"] > 0)).fill_null(False)
    kept = kept & values["v_memory_avg"].notnull()
    size = values["v_allocated_memory"]
    if fit == "allocated":
        kept = kept & size.notnull()
    if fit == "paper":
        kept = kept & values["v_allocated_cpu"].notnull()
        kept = kept & (size <= integer(MAX_MEMORY)).fill_null(False)
    return table.filter(kept)


def applied(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    fit: FitRule,
    backend: Backend,
    of: Facts | None = None,
) -> tuple[ir.Table, list[Tariff], list[str]]:
    """A table and tariffs as a fit would have them, and each rule in words.

    As `uncia.tariffs.rules.fitted`, over the comparable rows: the peaks of a function and the
    publication's mean ratio are theirs. Then allocations are billed as they stand.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    if fit != "paper":
        base = measured(table, fit) if fit == "used-peak" else table
        return rules.fitted(base, tariffs, fit, backend)
    rows = prepared(table, fit, of)
    pairs = rows.select(cpu=rows["v_allocated_cpu"], memory=rows["v_allocated_memory"]).distinct()
    seen = [(int(one["cpu"]), int(one["memory"])) for one in backend.collect(pairs).to_pylist()]
    ratio = mean_ratio(seen)
    found = [published(tariff, ratio) for tariff in tariffs]
    return table, [tariff for tariff, _ in found], [words for _, words in found]


def said(reasons: Mapping[str, int]) -> str:
    """Reasons and counts in words: ``5 rows (CPU time is zero)``."""
    return ", ".join(
        f"{count:,} row{'' if count == 1 else 's'} ({reason})" for reason, count in reasons.items()
    )


def _reason(rows: ir.Table, fit: FitRule) -> Any:
    """The position in `REASONS` of the first that holds; -1 for a row that stays."""
    reasons = [(one, code) for code, one in enumerate(holds(rows, fit))]
    if fit == "paper":
        return ibis.cases(*reasons, else_=-1).cast("int16")
    good = (rows["common"] == PRICED) & (rows["v_cpu_time"] > 0) & rows["v_memory_avg"].notnull()
    if fit == "allocated":
        good = good & rows["v_allocated_memory"].notnull()
    # Most rows stay, so that is what is asked first where a few columns tell it.
    return ibis.cases((good, -1), *reasons, else_=-1).cast("int16")
