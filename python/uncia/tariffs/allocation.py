"""The fits: rules by which rows get the allocations that they are billed at."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import ibis
from ibis.expr import types as ir

from uncia.backends.integers import signed
from uncia.errors import UnciaError
from uncia.tariffs import published
from uncia.tariffs.compare import COMPARABLE, FitRule, check, first_reason
from uncia.tariffs.exact import integer, share_up
from uncia.tariffs.facts import Facts, read_facts
from uncia.tariffs.model import Tariff
from uncia.tariffs.rows import MAX_CPU, PRICED, billing_columns

if TYPE_CHECKING:
    from uncia.backends import Backend, Source

__all__ = ["FitRule", "apply_fit", "known_facts", "mean_ratio", "used_peak"]

USED_PEAK: Final = (
    "used-peak: the allocation is taken to be what the most demanding row of the function on its"
    " platform used (memory: the highest memory_peak, or memory_avg where that is null; vCPU: the"
    " highest CPU time over execution, raised to a whole micro-vCPU, of each row at most the vCPU"
    " allocated to it), then"
)

ALLOCATIONS: Final = ("allocated_cpu", "allocated_memory")
"""The columns that ``used-peak`` replaces."""

PEAK_REASONS: Final = {
    "allocated_cpu is null": "CPU time over execution is not known in any row of the function",
    "allocated_memory is null": "memory_peak and memory_avg are null in every row of the function",
}
"""What a missing allocation means under ``used-peak``."""


def known_facts(source: Source, fit: str) -> Facts:
    """Read the facts of a source's columns, without those of columns that a fit replaces."""
    return without_replaced(read_facts(source), fit)


def without_replaced(facts: Facts, fit: str) -> Facts:
    """Drop the facts of columns that a fit replaces."""
    replaced = ALLOCATIONS if fit == "used-peak" else ()
    return {name: fact for name, fact in facts.items() if name not in replaced}


def apply_fit(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    fit: str,
    backend: Backend,
    facts: Facts | None = None,
) -> tuple[ir.Table, list[Tariff], list[str]]:
    """Change a table and tariffs by a fit, so that allocations are then billed unchanged.

    Args:
        table: invocations.
        tariffs: each bills by request.
        fit: one of `FitRule`.
        backend: computes the publication's mean ratio.
        facts: what is known of the table's columns; see `known_facts`.

    Returns:
        The table, the tariffs in their order, and for each the rule in words.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    check(fit)
    chosen = list(tariffs)
    if fit == "paper":
        by_ratio = any(tariff.id in published.BY_RATIO for tariff in chosen)
        ratio = mean_ratio(table, backend, facts) if by_ratio else None
        pairs = [published.published(tariff, ratio) for tariff in chosen]
        return table, [tariff for tariff, _ in pairs], [words for _, words in pairs]
    if fit == "used-peak":
        rules = [f"{USED_PEAK} {tariff.sizes.rule}" for tariff in chosen]
        return used_peak(table), chosen, rules
    return table, chosen, [tariff.sizes.rule for tariff in chosen]


def mean_ratio(table: ir.Table, backend: Backend, facts: Facts | None = None) -> Fraction | None:
    """The publication's ratio of vCPU to memory, over the distinct allocations of comparable rows.

    Returns:
        Micro-vCPU per byte, exactly; None if no comparable row has an allocation.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    if not set(ALLOCATIONS) <= set(table.columns):
        return None
    rows = table.select(**billing_columns(table, (), facts))
    rows = rows.filter(first_reason(rows, "paper") == COMPARABLE)
    pairs = rows.select(cpu=rows["v_allocated_cpu"], memory=rows["v_allocated_memory"]).distinct()
    allocations = backend.collect(pairs).to_pylist()
    return published.mean_ratio([(int(pair["cpu"]), int(pair["memory"])) for pair in allocations])


def used_peak(table: ir.Table) -> ir.Table:
    """Replace each row's allocation by what the peak of its function needs.

    `allocated_memory` becomes the highest `memory_peak` (where null: `memory_avg`), `allocated_cpu`
    the highest CPU time over execution, rounded up to a micro-vCPU; a row's share is at most the
    vCPU allocated to it, if known, and 1000 vCPU. Both are over the rows of the same platform and
    function that ran and are not absurd, and null if none of them has a value. An absurd allocation
    is kept, so that its row remains absurd.

    Raises:
        UnciaError: the table has no column `function`, or a column is not of whole numbers.
    """
    schema = table.schema()
    keys = [name for name in ("platform", "function") if name in schema]
    if "function" not in keys:
        raise UnciaError(
            "the table has no column function, so the fit used-peak has no functions to size"
        )
    needs = table.mutate(**{f"need_{name}": need for name, need in _needs(table).items()})
    peaks = needs.aggregate(
        {f"peak_{name}": needs[f"need_{name}"].max() for name in ("cpu", "memory")},
        by=[needs[name].cast("string").name(f"of_{name}") for name in keys],
    )
    rows = table.view()
    joined = rows.left_join(
        peaks, [rows[name].cast("string").identical_to(peaks[f"of_{name}"]) for name in keys]
    )
    columns = billing_columns(rows)
    replaced: dict[str, Any] = {}
    for name in ("cpu", "memory"):
        full, peak = f"allocated_{name}", joined[f"peak_{name}"]
        if full in schema and schema[full].is_integer():
            absurd = rows[full].notnull() & columns[f"v_{full}"].isnull()
            peak = ibis.ifelse(absurd, signed(rows[full]), peak)
        replaced[full] = peak
    kept = [rows[name] for name in schema if name not in replaced]
    return joined.select(*kept, **replaced)


def _needs(table: ir.Table) -> dict[str, Any]:
    """What each row needed: micro-vCPU and bytes; null where unknown, or where it did not run."""
    columns = billing_columns(table)
    ran = columns["common"] == PRICED
    time, execution = columns["v_cpu_time"], columns["v_execution"]
    # SQL's LEAST ignores nulls, so it is used only where both are known.
    limit = columns["v_allocated_cpu"].fill_null(integer(MAX_CPU)).cast("decimal(38, 0)")
    share = ibis.least(share_up(time, execution), limit).cast("int64")
    known = ran & time.notnull() & (execution > integer(0))
    memory = columns["v_memory_peak"].coalesce(columns["v_memory_avg"])
    nothing = ibis.null("int64")
    return {"cpu": ibis.ifelse(known, share, nothing), "memory": ibis.ifelse(ran, memory, nothing)}
