"""Bills: one exact aggregation gives quantities, and money is computed once from their sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from uncia.backends import Backend, Source, connect, use
from uncia.backends.dtypes import type_name
from uncia.errors import UnciaError
from uncia.tariffs import catalogue, idle
from uncia.tariffs.line import Line
from uncia.tariffs.model import Tariff
from uncia.tariffs.money import money

if TYPE_CHECKING:
    from uncia.tariffs.allocation import FitRule
    from uncia.tariffs.equation import Plan, Query
    from uncia.tariffs.facts import Facts

_MAX_CELLS: Final = 300
"""Cells of a bill that are added up without the engine: each takes under a millisecond, and a
query under all tariffs a third of a second to plan."""


def bill(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    backend: Backend | None = None,
    *,
    fit: FitRule = "allocated",
    free_tier: bool = False,
    facts: Facts | None = None,
    instances: Source | None = None,
) -> list[Line]:
    """Price an invocation table.

    Args:
        table: rows with the columns of the invocation table, in memory, as an Ibis expression on
            any backend, or as paths: a run folder, Parquet files, an Arrow IPC stream.
        tariffs: ids, paths of tariff files, or tariffs; by default every one that bills by request.
        group_by: text columns; each combination of their values is a group with its own lines.
        backend: computes it; by default a DuckDB that is opened for it.
        fit: how rows get their sizes. ``allocated``: the smallest that covers what was allocated.
            ``used-peak``: the smallest that covers the most demanding row of the function.
            ``paper``: as the cost paper's artifact did; see `uncia.tariffs.published`.
        free_tier: whether each tariff's free tier is taken off once, as if the table were all that
            an account did in a month.
        facts: what is known of the columns; by default the footers' facts, and none of an
            expression. Facts of columns that `fit` replaces are ignored.
        instances: the table of the instances that served, or a folder with it: what they idled on
            the account of hints is billed under tariffs with an idle price. By default that is not
            in the bill.

    Returns:
        One line for each tariff and group, tariffs in the order given, groups sorted. A group
        without rows has one where its instances cost something, so that groups add up to the whole.

    Raises:
        UnciaError: a table or tariff cannot be read, a column is missing or not of whole numbers,
            there is no such fit, or `free_tier` is combined with groups.
    """
    if free_tier and group_by:
        raise UnciaError(
            "a free tier is for all that an account does in a month, not for each group",
            "Leave the groups or the free tier out.",
        )
    with use(backend) as backend:
        result = _run(table, tariffs, group_by, backend, fit, facts)
        kept: Mapping[tuple[str | None, ...], idle.Kept] = {}
        if instances is not None and any(tariff.idle is not None for tariff in result.tariffs):
            kept = idle.quantities(instances, group_by, backend)
    if not group_by and not result.rows:
        raise UnciaError("the aggregation returned nothing")
    lines = result.lines(_with_idle_groups(result.rows, kept, group_by), group_by)
    if instances is not None:
        lines = idle.with_idle(lines, result.tariffs, kept, group_by)
    if not free_tier:
        return lines
    from uncia.tariffs.free import apply_free_tier

    return apply_free_tier(lines, result.tariffs)


def _with_idle_groups(
    rows: Sequence[Mapping[str, Any]],
    kept: Mapping[tuple[str | None, ...], idle.Kept],
    group_by: Sequence[str],
) -> Sequence[Mapping[str, Any]]:
    """The rows of a bill, with one of zeros for each group of which only instances are there."""
    known = {tuple(row[f"g_{name}"] for name in group_by) for row in rows}
    zeros: Callable[[], Any] = int
    added = [
        defaultdict(zeros, {f"g_{n}": value for n, value in zip(group_by, group, strict=True)})
        for group, amounts in kept.items()
        if any(amounts) and group not in known
    ]
    return sorted([*rows, *added], key=_order(group_by)) if added else rows


def _order(group_by: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: [(row[f"g_{n}"] is None, str(row[f"g_{n}"])) for n in group_by]


def bill_with_total(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    *,
    fit: FitRule = "allocated",
    in_total: Callable[[Mapping[str, str | None]], bool] = lambda group: True,
) -> tuple[list[Line], list[Line]]:
    """Price an invocation table as a whole and each of its groups, in one query.

    Args:
        table: as in `bill`, like the other arguments.
        in_total: whether a group, by the values of `group_by`, is part of the whole.

    Returns:
        The lines of the whole table, and those of its groups.

    Raises:
        UnciaError: as `bill`.
    """
    with connect() as backend:
        result = _run(table, tariffs, group_by, backend, fit, None)
    if not result.rows:  # no group has rows
        return bill(table, tariffs, fit=fit), []
    # Every column is an exact sum over rows, so the sum over groups is that of the table.
    names = [name for name in result.rows[0] if not name.startswith("g_")]
    chosen = [row for row in result.rows if in_total({it: row[f"g_{it}"] for it in group_by})]
    total = {name: sum(row[name] or 0 for row in chosen) for name in names}
    return result.lines([total], ()), result.lines(result.rows, group_by)


@dataclass(frozen=True)
class _Result:
    """The rows of the aggregation, and for each tariff what their columns mean."""

    tariffs: Sequence[Tariff]
    plans: Sequence[Plan]
    rules: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def lines(self, rows: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> list[Line]:
        return [
            line_of(plan, rule, row, group_by)
            for plan, rule in zip(self.plans, self.rules, strict=True)
            for row in rows
        ]


def _run(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None,
    group_by: Sequence[str],
    backend: Backend,
    fit: FitRule,
    facts: Facts | None,
) -> _Result:
    from uncia.tariffs.allocation import PEAK_REASONS, apply_fit, known_facts, without_replaced
    from uncia.tariffs.equation import query

    chosen = catalogue.resolve(tariffs)
    if not chosen:
        raise UnciaError("no tariff was named")
    facts = known_facts(table, fit) if facts is None else without_replaced(facts, fit)
    invocations, chosen, rules = apply_fit(backend.table(table), chosen, fit, backend)
    _check_groups(invocations, group_by, table)
    # The table may be of another engine than the backend.
    wide = invocations.get_backend().name == "duckdb"
    planned = query(invocations, chosen, group_by, facts, wide=wide)
    # Groups, and the peak of each function, make many cells.
    has_few_cells = wide and not group_by and fit != "used-peak"
    rows = _rows(planned, backend, has_few_cells=has_few_cells)
    rows.sort(key=_order(group_by))
    words = PEAK_REASONS if fit == "used-peak" else {}
    return _Result(chosen, [plan.renamed(words) for plan in planned.plans], rules, rows)


def _check_groups(invocations: Any, group_by: Sequence[str], source: Source) -> None:
    """Refuse to group by lists, structures and bytes, which name nothing.

    Raises:
        UnciaError: with the files, where the rows are from any.
    """
    schema = invocations.schema()
    for name in group_by:
        dtype = schema.get(name)
        if dtype is None or not (dtype.is_nested() or dtype.is_binary()):
            continue
        paths = [source] if isinstance(source, (str, Path)) else source
        is_stored = isinstance(paths, (list, tuple))
        where = f"{', '.join(map(str, paths))}: " if is_stored else ""
        raise UnciaError(
            f"{where}the column {name} is {type_name(dtype)}, and rows can only be billed by text"
        )


def _rows(planned: Query, backend: Backend, *, has_few_cells: bool) -> list[dict[str, Any]]:
    """The rows of a bill; few cells are added up here, as to plan a query takes longer."""
    if has_few_cells:
        cells = backend.collect(planned.cells.limit(_MAX_CELLS + 1))
        if cells.num_rows <= _MAX_CELLS:
            return planned.add_up(cells.to_pylist())
    rows: list[dict[str, Any]] = backend.collect(planned.aggregation()).to_pylist()
    return rows


def summary_entry(line: Line) -> dict[str, Any]:
    """Convert a line to its entry in ``summary.json``: plain numbers, null where unknown."""
    kept: dict[str, Any] = {}
    if line.hint_byte_ns is not None:
        kept = {"hint_gb_s": _number(line.hint_gb_s), "hint_unknown": line.hint_unknown}
    return {
        "rows": line.rows,
        "unpriced_rows": line.unpriced_rows,
        "unpriced": dict(line.unpriced),
        "not_billable": dict(line.not_billable),
        "beyond_limits": line.beyond_limits,
        "fit": line.fit,
        "billable_vcpu_s": _number(line.billable_vcpu_s),
        "billable_gb_s": _number(line.billable_gb_s),
        "used_vcpu_s": _number(line.used_vcpu_s),
        "used_gb_s": _number(line.used_gb_s),
        "used_vcpu_rows": line.used_vcpu_rows,
        "used_memory_rows": line.used_memory_rows,
        "inflation_vcpu": _number(line.inflation_vcpu),
        "inflation_memory": _number(line.inflation_memory),
        "fee_share": _number(line.fee_share),
        "rounding_share": _number(line.rounding_share),
        **kept,
        "cost_usd": _number(line.exact_cost),
        "cost_usd_per_million": _number(line.cost_usd_per_million),
    }


def summary(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """The ``tariffs`` part of ``summary.json``, by id; `lines` are not grouped."""
    return {line.tariff: summary_entry(line) for line in lines}


_GROUPS: Final = ("run", "experiment", "function", "invocation")
_FIGURES: Final = (
    "tariff",
    "rows",
    "billable_micro_vcpu_ns",
    "billable_byte_ns",
    "used_micro_vcpu_ns",
    "used_byte_ns",
    "fee_usd",
    "rounding_usd",
    "cost_usd",
)


def bill_table(lines: Sequence[Line]) -> pa.Table:
    """Convert lines to the bill table of the record; grouping columns that they lack are null."""
    from uncia.record import schema

    rows = [
        {name: line.group.get(name) for name in _GROUPS}
        | {name: getattr(line, name) for name in _FIGURES}
        for line in lines
    ]
    return pa.Table.from_pylist(rows, schema=schema("bill"))


def line_of(plan: Plan, rule: str, row: Mapping[str, Any], group_by: Sequence[str]) -> Line:
    """The line of a tariff, from a row of the query's answer.

    Args:
        plan: what the row's columns mean for the tariff.
        rule: how allocations became sizes, in words.
        row: sums over the rows of a group.
        group_by: the grouping columns.
    """
    from uncia.tariffs.rows import NOT_BILLABLE

    tariff, prefix = plan.tariff, plan.prefix
    rows = int(row[f"{prefix}rows"] or 0)
    billed: dict[str, Fraction | int | None] = {"cpu": 0, "memory": 0}
    same: dict[str, Fraction | int] = {"cpu": 0, "memory": 0}
    charges = {"cpu": Fraction(0), "memory": Fraction(0)}
    unrounded = Fraction(0)
    for index, (charge, scale) in enumerate(zip(tariff.charges, plan.scales, strict=True)):

        def amount_of(name: str, index: int = index, scale: int = scale) -> Fraction | int:
            units = int(row[f"{prefix}{name}_{index}"] or 0)
            return units if scale == 1 else Fraction(units, scale)  # integers add up faster

        sign = -1 if charge.is_credit else 1
        amount = amount_of("billed")
        known = int(row[f"{prefix}known_{index}"] or 0)
        total = billed[charge.resource]
        if known < rows or total is None:
            billed[charge.resource] = None
        else:
            billed[charge.resource] = total + sign * amount
        same[charge.resource] += sign * amount_of("same")
        price = plan.unit_prices[index]
        if price:
            charges[charge.resource] += sign * price * amount
            unrounded += sign * price * (amount_of("unrounded") if plan.rounds else amount)
    fee = Fraction(tariff.fee.price or 0) * rows
    charged = sum(charges.values(), Fraction(0))
    cost = charged + fee
    used_rows = {name: int(row[f"{prefix}used_{name}_rows"] or 0) for name in same}
    used = {
        name: int(row[f"{prefix}used_{name}"] or 0) if used_rows[name] else None for name in same
    }
    priced = rows > 0
    return Line(
        tariff=tariff.id,
        group={name: row[f"g_{name}"] for name in group_by},
        fit=rule,
        total_rows=int(row["rows"] or 0),
        rows=rows,
        not_billable=_counts(row, "none_", NOT_BILLABLE),
        unpriced=_counts(row, f"{prefix}no_", plan.reasons),
        beyond_limits=int(row.get(f"{prefix}beyond") or 0),
        billable_micro_vcpu_ns=_whole(billed["cpu"]) if priced else None,
        billable_byte_ns=_whole(billed["memory"]) if priced else None,
        used_micro_vcpu_ns=used["cpu"],
        used_byte_ns=used["memory"],
        used_vcpu_rows=used_rows["cpu"],
        used_memory_rows=used_rows["memory"],
        inflation_vcpu=_ratio(same["cpu"], used["cpu"]),
        inflation_memory=_ratio(same["memory"], used["memory"]),
        fee_usd=money(fee) if priced else None,
        rounding_usd=money(charged - unrounded) if priced else None,
        cost_usd=money(cost) if priced else None,
        exact_cost=cost if priced else None,
        exact_parts=charges if priced else None,
    )


def _counts(row: Mapping[str, Any], prefix: str, reasons: Mapping[int, str]) -> dict[str, int]:
    counts = {reason: int(row[f"{prefix}{code}"] or 0) for code, reason in reasons.items()}
    return {reason: count for reason, count in counts.items() if count}


def _ratio(billed: Fraction | int, used: int | None) -> Fraction | None:
    return Fraction(billed) / used if used else None


def _whole(value: Fraction | int | None) -> int | None:
    return None if value is None else round(value)


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
