"""Bills: quantities from one exact aggregation, money once from their sums."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from uncia.errors import UnciaError
from uncia.tariffs import catalogue
from uncia.tariffs.line import Line
from uncia.tariffs.model import Tariff
from uncia.tariffs.money import money

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend, Source
    from uncia.tariffs.allocation import FitRule
    from uncia.tariffs.equation import Plan
    from uncia.tariffs.facts import Facts


def bill(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    backend: Backend | None = None,
    *,
    fit: FitRule = "allocated",
    free_tier: bool = False,
    facts: Facts | None = None,
) -> list[Line]:
    """Price an invocation table.

    Args:
        table: rows with the columns of the invocation table, in memory, as an Ibis expression on
            any backend, or as paths: a run folder, Parquet files, an Arrow IPC stream.
        tariffs: ids, paths of tariff files, or tariffs; by default every one that bills by request.
        group_by: text columns; each combination of their values is billed apart.
        backend: where it is computed; by default a DuckDB of its own.
        fit: how rows get their sizes. ``allocated``: the smallest that covers what was allocated.
            ``used-peak``: the smallest that covers the most demanding row of the function.
            ``paper``: as the cost paper's artifact did; see `uncia.tariffs.published`.
        free_tier: whether each tariff's free tier is taken off, once: as if the table were all that
            an account did in a month.
        facts: what is known of the columns; by default what the footers of the files tell, and
            nothing of an expression. Of columns that `fit` replaces it does not count.

    Returns:
        One line for each tariff and group, tariffs in the order given, groups sorted.

    Raises:
        UnciaError: a table or tariff cannot be read, a column is missing or not exact, or there is
            no such fit, or a free tier is asked for of groups.
    """
    if free_tier and group_by:
        raise UnciaError(
            "a free tier is for all that an account does in a month, not for each group",
            "Leave the groups or the free tier out.",
        )
    if backend is None:
        from uncia.backends import connect

        with connect() as own:
            return bill(table, tariffs, group_by, own, fit=fit, free_tier=free_tier, facts=facts)
    answer = _answer(table, tariffs, group_by, backend, fit, facts)
    if not group_by and not answer.rows:
        raise UnciaError("the aggregation returned nothing")
    lines = answer.lines(answer.rows, group_by)
    if not free_tier:
        return lines
    from uncia.tariffs.free import apply_free_tier

    return apply_free_tier(lines, answer.tariffs)


def bill_with_total(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    *,
    fit: FitRule = "allocated",
) -> tuple[list[Line], list[Line]]:
    """Price an invocation table as a whole and each of its groups, in one query.

    Args:
        table: as of `bill`, as are the others.

    Returns:
        What `bill` returns without groups, and what it returns with them.

    Raises:
        UnciaError: as `bill`.
    """
    from uncia.backends import connect

    with connect() as backend:
        answer = _answer(table, tariffs, group_by, backend, fit, None)
    if not answer.rows:  # no group has rows
        return bill(table, tariffs, fit=fit), []
    # Every column is a sum over rows, exactly, so that its sum over groups is that of the table.
    names = [name for name in answer.rows[0] if not name.startswith("g_")]
    total = {name: sum(row[name] or 0 for row in answer.rows) for name in names}
    return answer.lines([total], ()), answer.lines(answer.rows, group_by)


@dataclass(frozen=True)
class _Answer:
    """What the query answered, and how it is read."""

    tariffs: Sequence[Tariff]
    plans: Sequence[Plan]
    rules: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def lines(self, rows: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> list[Line]:
        return [
            _line(plan, rule, row, group_by)
            for plan, rule in zip(self.plans, self.rules, strict=True)
            for row in rows
        ]


def _answer(
    table: Source,
    tariffs: Sequence[str | Path | Tariff] | None,
    group_by: Sequence[str],
    backend: Backend,
    fit: FitRule,
    facts: Facts | None,
) -> _Answer:
    from uncia.tariffs.allocation import PEAK_REASONS, apply_fit, known_facts, without_replaced
    from uncia.tariffs.equation import query

    chosen = catalogue.resolve(tariffs)
    if not chosen:
        raise UnciaError("no tariff was named")
    facts = known_facts(table, fit) if facts is None else without_replaced(facts, fit)
    rows_of, chosen, rules = apply_fit(backend.table(table), chosen, fit, backend)
    expression, plans = query(rows_of, chosen, group_by, facts, wide_sums=_is_wide(rows_of))
    rows = backend.collect(expression).to_pylist()
    rows.sort(key=lambda row: [(row[f"g_{n}"] is None, str(row[f"g_{n}"])) for n in group_by])
    said = PEAK_REASONS if fit == "used-peak" else {}
    return _Answer(chosen, [plan.renamed(said) for plan in plans], rules, rows)


def summary_entry(line: Line) -> dict[str, Any]:
    """A line as the entry of its tariff in ``summary.json``: plain numbers, null where unknown."""
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
        "cost_usd": _number(line.exact_cost),
        "cost_usd_per_million": _number(line.cost_usd_per_million),
    }


def summary(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """The ``tariffs`` part of ``summary.json``: id to entry, of lines that are not grouped."""
    return {line.tariff: summary_entry(line) for line in lines}


def bill_table(lines: Sequence[Line]) -> pa.Table:
    """Lines as the bill table of the record (one row each; grouping columns that are not there
    are null)."""
    from uncia.record import schema

    target = schema("bill")
    columns: dict[str, list[Any]] = {name: [] for name in target.names}
    for line in lines:
        for name in ("run", "experiment", "function", "invocation"):
            columns[name].append(line.group.get(name))
        columns["tariff"].append(line.tariff)
        columns["rows"].append(line.rows)
        for name in (
            "billable_micro_vcpu_ns",
            "billable_byte_ns",
            "used_micro_vcpu_ns",
            "used_byte_ns",
        ):
            value = getattr(line, name)
            columns[name].append(None if value is None else decimal.Decimal(value))
        for name in ("fee_usd", "rounding_usd", "cost_usd"):
            columns[name].append(getattr(line, name))
    arrays = []
    for column in target:
        if pa.types.is_dictionary(column.type):
            text = pa.array(columns[column.name], pa.utf8())
            arrays.append(text.dictionary_encode().cast(column.type))
        else:
            arrays.append(pa.array(columns[column.name], column.type))
    return pa.Table.from_arrays(arrays, schema=target)


def _line(plan: Plan, rule: str, row: Mapping[str, Any], group_by: Sequence[str]) -> Line:
    from uncia.tariffs.rows import NOT_BILLABLE

    tariff, prefix = plan.tariff, plan.prefix
    rows = int(row[f"{prefix}rows"] or 0)
    billed: dict[str, Fraction | None] = {"cpu": Fraction(0), "memory": Fraction(0)}
    same = {"cpu": Fraction(0), "memory": Fraction(0)}
    charges = Fraction(0)
    unrounded = Fraction(0)
    for position, (charge, scale) in enumerate(zip(tariff.charges, plan.scales, strict=True)):

        def amount_of(name: str, at: int = position, unit: int = scale) -> Fraction:
            return Fraction(int(row[f"{prefix}{name}_{at}"] or 0), unit)

        sign = -1 if charge.is_credit else 1
        amount = amount_of("billed")
        known = int(row[f"{prefix}known_{position}"] or 0)
        total = billed[charge.resource]
        if known < rows or total is None:
            billed[charge.resource] = None
        else:
            billed[charge.resource] = total + sign * amount
        same[charge.resource] += sign * amount_of("same")
        price = charge.unit_price
        if price:
            charges += sign * price * amount
            unrounded += sign * price * (amount_of("unrounded") if tariff.rounds else amount)
    fee = Fraction(tariff.fee.price or 0) * rows
    cost = charges + fee
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
        rounding_usd=money(charges - unrounded) if priced else None,
        cost_usd=money(cost) if priced else None,
        exact_cost=cost if priced else None,
    )


def _is_wide(table: ir.Table) -> bool:
    """Whether its engine adds up int64 in 128 bits; a table may be of another than the backend."""
    return bool(table.get_backend().name == "duckdb")


def _counts(row: Mapping[str, Any], prefix: str, reasons: Mapping[int, str]) -> dict[str, int]:
    found = {reason: int(row[f"{prefix}{code}"] or 0) for code, reason in reasons.items()}
    return {reason: count for reason, count in found.items() if count}


def _ratio(billed: Fraction, used: int | None) -> Fraction | None:
    return billed / used if used else None


def _whole(value: Fraction | None) -> int | None:
    return None if value is None else round(value)


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
