"""Equation (1) of the cost paper as one Ibis aggregation over the invocation table.

    cost = sum over allocated r of  ceil(ALLOC(r) / G_r) G_r x ceil(T / G_T) G_T x C_r
         + sum over used r      of  ceil(USG(r) / G_r) G_r x C_r
         + C_0

It is computed in two steps, both exact. *Rows* become *cells*: all rows of a group that have the
same allocation and the same gaps (columns that are null), with their rounded times summed. A cell
then has one size under each tariff, and ALLOC x (sum of T) is the sum of ALLOC x T; so sizes are
fitted, and tariffs told apart, a few hundred times instead of once a row.

Quantities (micro-vCPU x ns, bytes x ns) are exact integers, DECIMAL(38, 0); prices never enter the
query. Each charge is summed as billed and, where the tariff rounds, as it would be without
granularities and minimums. Every row is either priced or counted under a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.tariffs.cells import (
    COMMON_UNPRICED,
    NOT_BILLABLE,
    PRICED,
    Cells,
    Sums,
    capped,
    measured_needs,
    tariff_sums,
    used_memory,
)
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import at_least, integer, round_up
from uncia.tariffs.facts import Facts
from uncia.tariffs.fit import fit
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.sizes import Fixed, Observed
from uncia.units import MICRO_PER_VCPU

_FIRST_OWN: Final = 7  # codes from here on are the tariff's own


@dataclass(frozen=True)
class Plan:
    """What the columns of the query's answer mean for one tariff.

    Attributes:
        tariff: the tariff.
        prefix: begins the names of its columns: ``rows`` (priced), ``beyond``, ``no_<code>``,
            ``used_<resource>`` and ``used_<resource>_rows``; for each charge by position
            ``billed_<n>``, ``known_<n>``, ``same_<n>`` and, if it rounds, ``unrounded_<n>``.
        reasons: code to reason, of the rows that it cannot price.
        scales: for each charge, how many units of its sums make a micro-vCPU x ns or a byte x ns.
    """

    tariff: Tariff
    prefix: str
    reasons: Mapping[int, str]
    scales: tuple[int, ...]

    def renamed(self, words: Mapping[str, str]) -> Plan:
        """The same plan with other words for some of the reasons."""
        return replace(
            self, reasons={code: words.get(said, said) for code, said in self.reasons.items()}
        )


@dataclass(frozen=True)
class _Amounts:
    """A tariff's columns of the cells: why not priced, and each charge's quantities."""

    status: Col
    billed: tuple[Col, ...]
    unrounded: tuple[Col, ...]
    beyond: Col | None


def query(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    group_by: Sequence[str] = (),
    facts: Facts | None = None,
    *,
    wide_sums: bool = False,
) -> tuple[ir.Table, list[Plan]]:
    """The aggregation that bills a table under all tariffs in one scan.

    Args:
        table: invocations; integer columns; one that is absent counts as null.
        tariffs: each billed by request.
        group_by: columns whose values get a row each; none: one row.
        facts: what is known of the table's columns (see `uncia.tariffs.facts`).
        wide_sums: whether the engine adds up int64 in 128 bits, as DuckDB does, so that values
            need no cast before they are added up.

    Returns:
        The expression, and the meaning of its columns for each tariff. Beside the tariffs' own it
        has ``g_<column>`` for each grouping column, ``rows`` (all rows) and ``none_<code>`` for
        each code of `NOT_BILLABLE`.

    Raises:
        UnciaError: a needed column is missing or not of whole numbers.
    """
    cells = Cells(table, group_by, facts, wide_sums)
    # Sums are collected from all tariffs before the cells can be made, and read after.
    sums = [tariff_sums(cells, tariff) for tariff in tariffs]
    used = {"cpu": cells.sum(cells.row("v_cpu_time")), "memory": used_memory(cells)}
    columns = Columns(cells.table())
    billed = [
        _amounts(columns, cells, tariff, own, f"t{place}_")
        for place, (tariff, own) in enumerate(zip(tariffs, sums, strict=True))
    ]
    used_columns = {
        "cpu": _times_million(columns, columns.base(used["cpu"])),
        "memory": columns.base(used["memory"]),
    }
    full = columns.table()
    metrics: dict[str, Any] = {"rows": full["n"].sum().cast("int64")}
    for code in NOT_BILLABLE:
        metrics[f"none_{code}"] = _count(full, full["common"] == code)
    for plan, amounts in billed:
        metrics |= _metrics(full, plan, amounts, used_columns)
    return full.aggregate(metrics, by=[f"g_{name}" for name in group_by]), [
        plan for plan, _ in billed
    ]


def _times_million(cells: Columns, time: Col) -> Col:
    """CPU time in ns as micro-vCPU x ns."""
    return cells.add(
        "x 10^6",
        lambda value: (value * integer(MICRO_PER_VCPU).cast("decimal(18, 0)")).cast(
            "decimal(38, 0)"
        ),
        time,
    )


def _amounts(
    columns: Columns, cells: Cells, tariff: Tariff, sums: Sums, prefix: str
) -> tuple[Plan, _Amounts]:
    """A tariff's columns of the cells: each charge's quantity, and why it may not be priced."""
    observed = columns.base("v_allocated_cpu"), columns.base("v_allocated_memory")
    size = fit(tariff.sizes, columns, *observed)
    needs: dict[str, None] = {}
    fitted: dict[Col, None] = {}
    billed: list[Col] = []
    unrounded: list[Col] = []
    for charge, total, plain_total in zip(tariff.charges, sums.billed, sums.unrounded, strict=True):
        is_cpu = charge.resource == "cpu"
        if charge.basis == "allocated":
            amount = size.cpu if is_cpu else size.memory
            wanted = size.cpu_needs if is_cpu else size.memory_needs
        else:
            amount, wanted = None, measured_needs(charge)
        if charge.unit_price != 0:  # what costs nothing cannot make a row unpriceable
            needs |= dict.fromkeys(wanted)
            needs |= {} if charge.when == "always" else {"preemptible": None}
            if amount is not None and not isinstance(tariff.sizes, Fixed | Observed):
                fitted[amount] = None
        billed.append(_quantity(columns, charge, amount, columns.base(total), rounded=True))
        unrounded.append(
            _quantity(columns, charge, amount, columns.base(plain_total), rounded=False)
        )
    checks = _checks(columns, cells, tariff, list(needs), list(fitted))
    status = columns.add(
        "first reason",
        lambda common, *flags: ibis.cases(
            (common != PRICED, common),
            *((flag, _FIRST_OWN + place) for place, flag in enumerate(flags)),
            else_=PRICED,
        ).cast("int16"),
        columns.base("common"),
        *(flag for _, flag in checks),
    )
    own = {_FIRST_OWN + place: reason for place, (reason, _) in enumerate(checks)}
    scales = tuple(size.scale if one.basis == "allocated" else 1 for one in tariff.charges)
    plan = Plan(tariff, prefix, COMMON_UNPRICED | own, scales)
    beyond = None
    if sums.beyond:
        flags = [columns.base(name) for name in sums.beyond]
        beyond = columns.add("any", lambda *values: ibis.or_(*values), *flags)
    return plan, _Amounts(status, tuple(billed), tuple(unrounded), beyond)


def _quantity(
    columns: Columns, charge: Charge, amount: Col | None, total: Col, *, rounded: bool
) -> Col:
    """A charge's micro-vCPU x ns or bytes x ns in each cell; 0 where it does not apply."""
    if amount is not None:
        step, least = charge.limit("granularity"), charge.limit("minimum")
        if rounded and step is not None:
            amount = columns.add(f"round up to {step}", lambda value: round_up(value, step), amount)
        if rounded and least is not None:
            amount = columns.add(f"at least {least}", lambda value: at_least(value, least), amount)
        amount = capped(columns, amount, charge)
        value = columns.add(
            "amount x time",
            lambda size, time: (size.cast("decimal(19, 0)") * time).cast("decimal(38, 0)"),
            amount,
            total,
        )
    else:
        value = total if charge.is_rate else _times_million(columns, total)
    if charge.when == "always":
        return value

    def applies(quantity: Any, preemptible: Any, unknown: Any) -> Any:
        yes = preemptible if charge.when == "preemptible" else ~preemptible
        zero = integer(0).cast("decimal(38, 0)")
        return ibis.cases((unknown, ibis.null("decimal(38, 0)")), (yes, quantity), else_=zero)

    flags = columns.base("preemptible"), columns.base("no_preemptible")
    return columns.add(f"if {charge.when}", applies, value, *flags)


def _checks(
    columns: Columns, cells: Cells, tariff: Tariff, needs: Sequence[str], fitted: Sequence[Col]
) -> list[tuple[str, Col]]:
    """Why this tariff may be unable to price a cell, in order: reason, and whether it holds."""

    def null(name: str) -> Col:
        return columns.add("is null", lambda value: value.isnull(), columns.base(name))

    checks: list[tuple[str, Col]] = []
    if tariff.time.kind == "turnaround":
        reason = "initialization of a cold start is null"
        checks.append((reason, columns.base("unknown_start")))
    for name in needs:
        if name in ("allocated_cpu", "allocated_memory"):
            checks.append((f"{name} is null", null(f"v_{name}")))
        elif name == "preemptible":
            checks.append(("preemptible is null", columns.base("no_preemptible")))
        else:
            said = "cpu_user and cpu_system are null" if name == "cpu_time" else f"{name} is null"
            checks.append((said, columns.base(cells.gap(name))))
    if fitted:
        uncovered = columns.add(
            "any null", lambda *values: ibis.or_(*(value.isnull() for value in values)), *fitted
        )
        checks.append(("larger than every size of the tariff", uncovered))
    return checks


def _metrics(
    cells: ir.Table, plan: Plan, amounts: _Amounts, used: Mapping[str, Col]
) -> dict[str, Any]:
    prefix, charges = plan.prefix, plan.tariff.charges
    status = cells[amounts.status.name]
    priced = status == PRICED
    billed = [cells[column.name] for column in amounts.billed]
    metrics: dict[str, Any] = {f"{prefix}rows": _count(cells, priced)}
    for code in plan.reasons:
        metrics[f"{prefix}no_{code}"] = _count(cells, status == code)
    if amounts.beyond is not None:
        metrics[f"{prefix}beyond"] = _count(cells, priced & cells[amounts.beyond.name])
    for place, quantity in enumerate(billed):
        metrics[f"{prefix}billed_{place}"] = _total(quantity, priced)
        metrics[f"{prefix}known_{place}"] = _count(cells, priced & quantity.notnull())
        if plan.tariff.rounds:
            plain = cells[amounts.unrounded[place].name]
            metrics[f"{prefix}unrounded_{place}"] = _total(plain, priced)
    for resource, column in used.items():
        # Inflation compares the same rows: those whose use and whose billed amounts are all known.
        quantity = cells[column.name]
        places = [place for place, charge in enumerate(charges) if charge.resource == resource]
        both = priced & quantity.notnull()
        for place in places:
            both = both & billed[place].notnull()
        metrics[f"{prefix}used_{resource}"] = _total(quantity, both)
        metrics[f"{prefix}used_{resource}_rows"] = _count(cells, both)
        for place in places:
            metrics[f"{prefix}same_{place}"] = _total(billed[place], both)
    return metrics


def _count(cells: ir.Table, condition: Any) -> Any:
    return ibis.ifelse(condition, cells["n"], integer(0)).sum().cast("int64")


def _total(quantity: Any, condition: Any) -> Any:
    kept = ibis.ifelse(condition, quantity, ibis.null("decimal(38, 0)"))
    return kept.sum().cast("decimal(38, 0)")
