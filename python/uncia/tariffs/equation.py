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

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.tariffs import charges
from uncia.tariffs.cells import Cells
from uncia.tariffs.charges import Total, micro_vcpu
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import cases, decimal, integer
from uncia.tariffs.facts import Facts
from uncia.tariffs.fit import Fit, fit, fitted
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.refusals import refusals
from uncia.tariffs.rows import COMMON_UNPRICED, NOT_BILLABLE, PRICED
from uncia.tariffs.rules import Level
from uncia.tariffs.state import Flag

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

    @cached_property
    def unit_prices(self) -> tuple[Fraction | None, ...]:
        """Of each charge."""
        return tuple(charge.unit_price for charge in self.tariff.charges)

    @cached_property
    def rounds(self) -> bool:
        """Whether rounding can add to the bill."""
        return self.tariff.rounds

    def renamed(self, words: Mapping[str, str]) -> Plan:
        """The same plan with other words for some of the reasons."""
        return replace(
            self, reasons={code: words.get(reason, reason) for code, reason in self.reasons.items()}
        )


@dataclass(frozen=True)
class _Amounts:
    """A tariff's columns of the cells: why not priced, and each charge's quantities."""

    status: Col
    billed: tuple[Col, ...]
    unrounded: tuple[Col, ...]
    beyond: Col | None


@dataclass(frozen=True)
class Query:
    """The aggregation that bills a table under all tariffs in one scan.

    Beside the tariffs' own columns (`Plan`) its rows have ``g_<column>`` for each grouping column,
    ``rows`` (all rows) and ``none_<code>`` for each code of `NOT_BILLABLE`.

    Attributes:
        cells: the rows of the table, aggregated to cells.
        plans: the meaning of the columns, for each tariff.
    """

    cells: ir.Table
    plans: Sequence[Plan]
    _group_by: tuple[str, ...]
    _columns: Columns
    _amounts: Sequence[_Amounts]
    _used: Mapping[str, Col]

    def aggregation(self) -> ir.Table:
        """Add up the cells, as an expression."""
        full = self._columns.table(self.cells)
        metrics: dict[str, Any] = {}
        for name, metric in self._metrics().items():
            condition = metric.of_column(full)
            metrics[name] = (
                _count(full, condition)
                if metric.quantity is None
                else _total(full[metric.quantity], condition)
            )
        return full.aggregate(metrics, by=self.groups)

    def add_up(self, cells: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Add up the cells without the engine, which takes longer to plan than to add a few.

        Args:
            cells: rows of `cells`.

        Returns:
            The rows of `aggregation`, where a sum of no rows is 0.
        """
        metrics = self._metrics()
        zeros = dict.fromkeys(metrics, 0)
        sums: dict[tuple[Any, ...], dict[str, Any]] = {} if self.groups else {(): dict(zeros)}
        for cell in cells:
            group = {name: cell[name] for name in self.groups}
            total = sums.setdefault(tuple(group.values()), {**group, **zeros})
            values = self._columns.numbers(
                {name: value for name, value in cell.items() if name not in group}
            )
            for name, metric in metrics.items():
                if metric.holds(values):
                    total[name] += values[metric.quantity or "n"] or 0
        return list(sums.values())

    @property
    def groups(self) -> list[str]:
        """The grouping columns of the rows."""
        return [f"g_{name}" for name in self._group_by]

    def _metrics(self) -> dict[str, _Metric]:
        metrics = {"rows": _Metric()}
        for code in NOT_BILLABLE:
            metrics[f"none_{code}"] = _Metric("common", code)
        for plan, amounts in zip(self.plans, self._amounts, strict=True):
            metrics |= _tariff_metrics(plan, amounts, self._used)
        return metrics


@dataclass(frozen=True)
class _Metric:
    """A sum over cells.

    Attributes:
        status: the column with the code that selects the cells; all without one.
        code: the code.
        flag: a truth value that selects the cells besides.
        known: columns that are not null in the selected cells.
        quantity: the column that is added up; by default the rows of the cells are counted.
    """

    status: str | None = None
    code: int = PRICED
    flag: str | None = None
    known: tuple[str, ...] = ()
    quantity: str | None = None

    def of_column(self, cells: ir.Table) -> Any:
        """Whether a cell is selected, as an expression."""
        conditions = [cells[name].notnull() for name in self.known]
        if self.status is not None:
            conditions.insert(0, cells[self.status] == self.code)
        if self.flag is not None:
            conditions.append(cells[self.flag])
        return reduce(operator.and_, conditions) if conditions else None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether a cell with these values is selected."""
        return (
            (self.status is None or values[self.status] == self.code)
            and (self.flag is None or bool(values[self.flag]))
            and all(values[name] is not None for name in self.known)
        )


def query(
    table: ir.Table,
    tariffs: Sequence[Tariff],
    group_by: Sequence[str] = (),
    facts: Facts | None = None,
    *,
    wide: bool = False,
) -> Query:
    """Plan the aggregation that bills a table under all tariffs in one scan.

    Args:
        table: invocations; integer columns; one that is absent counts as null.
        tariffs: each billed by request.
        group_by: columns whose values get a row each; none: one row.
        facts: what is known of the table's columns (see `uncia.tariffs.facts`).
        wide: whether the engine adds up and multiplies int64 in 128 bits, as DuckDB does, so that
            values need no cast to decimals before.

    Raises:
        UnciaError: a needed column is missing or not of whole numbers.
    """
    cells = Cells(table, group_by, facts, wide)
    # Sums are collected from all tariffs before the cells can be made, and read after.
    sums = [_plan_sums(cells, tariff) for tariff in tariffs]
    for name in ("cpu_time", "memory_avg"):
        cells.flag(Flag("gap", name))
    cpu = cells.sum(cells.row("cpu_time"))
    memory = cells.sum(cells.product(cells.row("memory_avg"), cells.row("execution")))
    columns = Columns()
    billed = [
        _amounts(columns, tariff_sums, f"t{index}_") for index, tariff_sums in enumerate(sums)
    ]
    used = {"cpu": columns.add(micro_vcpu, columns.base(cpu)), "memory": columns.base(memory)}
    plans, amounts = [plan for plan, _ in billed], [amount for _, amount in billed]
    return Query(cells.table(), plans, tuple(group_by), columns, amounts, used)


@dataclass(frozen=True)
class _Sums:
    """What a tariff needs of the cells: sums for each charge, and flags of what exceeds limits."""

    tariff: Tariff
    billed: tuple[Total, ...]
    unrounded: tuple[Total, ...]
    beyond: tuple[str, ...]


def _plan_sums(cells: Cells, tariff: Tariff) -> _Sums:
    charges.flags(cells, tariff)
    return _Sums(
        tariff,
        tuple(charges.total(cells, tariff, charge, "billed") for charge in tariff.charges),
        tuple(charges.total(cells, tariff, charge, "unrounded") for charge in tariff.charges),
        charges.beyond(cells, tariff),
    )


def _amounts(columns: Columns, sums: _Sums, prefix: str) -> tuple[Plan, _Amounts]:
    """A tariff's columns of the cells: each charge's quantity, and why it may not be priced."""
    tariff = sums.tariff
    size = fit_cells(columns, tariff)
    billed = tuple(
        _quantity(columns, charge, size, total, "billed")
        for charge, total in zip(tariff.charges, sums.billed, strict=True)
    )
    unrounded = tuple(
        _quantity(columns, charge, size, total, "unrounded")
        for charge, total in zip(tariff.charges, sums.unrounded, strict=True)
    )
    reason, reasons = status(columns, tariff, size)
    scales = tuple(size.scale if charge.basis == "allocated" else 1 for charge in tariff.charges)
    plan = Plan(tariff, prefix, reasons, scales)
    exceeds = None
    if sums.beyond:
        exceeds = columns.add(_any, *(columns.base(name) for name in sums.beyond))
    return plan, _Amounts(reason, billed, unrounded, exceeds)


def fit_cells(columns: Columns, tariff: Tariff) -> Fit[Col]:
    """The size of each cell."""
    observed = columns.base("v_allocated_cpu"), columns.base("v_allocated_memory")
    return fit(tariff.sizes, columns, *observed)


def _quantity(columns: Columns, charge: Charge, size: Fit[Col], total: Total, level: Level) -> Col:
    """A charge's micro-vCPU x ns or bytes x ns in each cell; 0 where it does not apply."""
    value, amount = total.column(columns), fitted(charge, size)
    if amount is not None:
        amount = charge.rules.at(level).scaled(size.scale).apply(columns, amount)
        value = columns.add(_amount_x_time, amount, value)
    elif not charge.is_rate:
        value = columns.add(micro_vcpu, value)
    if charge.when == "always":
        return value
    conditions = columns.base("preemptible"), columns.base("no_preemptible")
    return columns.add(_if_preemptible, value, *conditions, wanted=charge.when == "preemptible")


def _amount_x_time(amount: Any, time: Any) -> Any:
    return (amount.cast("decimal(19, 0)") * time).cast("decimal(38, 0)")


def _if_preemptible(quantity: Any, preemptible: Any, unknown: Any, *, wanted: bool) -> Any:
    nothing, zero = decimal(None, quantity, 38), decimal(0, quantity, 38)
    applies = preemptible if wanted else ~preemptible
    return cases((unknown, nothing), (applies, quantity), otherwise=zero)


def status(columns: Columns, tariff: Tariff, size: Fit[Col]) -> tuple[Col, dict[int, str]]:
    """Why a tariff cannot price a cell, the first reason that holds; `PRICED`: it can.

    Returns:
        The code of each cell, and the reason that each code stands for; those of `NOT_BILLABLE`
        are not among them.
    """
    checks = refusals(tariff, columns, columns.base, size)
    codes = {_FIRST_OWN + index: reason for index, (reason, _) in enumerate(checks)}
    code = columns.add(
        _first_reason, columns.base("common"), *(flag for _, flag in checks), first=_FIRST_OWN
    )
    return code, COMMON_UNPRICED | codes


def _first_reason(common: Any, *flags: Any, first: int) -> Any:
    # The codes of reasons are above that of none.
    return cases(
        (common > PRICED, common),
        *((flag, first + index) for index, flag in enumerate(flags)),
        otherwise=PRICED,
    ).cast("int16")


def _any(*values: Any) -> Any:
    return reduce(operator.or_, values)


def _tariff_metrics(plan: Plan, amounts: _Amounts, used: Mapping[str, Col]) -> dict[str, _Metric]:
    prefix, status = plan.prefix, amounts.status.name
    billed = [column.name for column in amounts.billed]
    metrics = {f"{prefix}rows": _Metric(status)}
    for code in plan.reasons:
        metrics[f"{prefix}no_{code}"] = _Metric(status, code)
    if amounts.beyond is not None:
        metrics[f"{prefix}beyond"] = _Metric(status, flag=amounts.beyond.name)
    for index, quantity in enumerate(billed):
        metrics[f"{prefix}billed_{index}"] = _Metric(status, quantity=quantity)
        metrics[f"{prefix}known_{index}"] = _Metric(status, known=(quantity,))
        if plan.tariff.rounds:
            plain = amounts.unrounded[index].name
            metrics[f"{prefix}unrounded_{index}"] = _Metric(status, quantity=plain)
    for resource, column in used.items():
        # Inflation compares the same rows: those whose use and whose billed amounts are all known.
        indices = [
            index for index, charge in enumerate(plan.tariff.charges) if charge.resource == resource
        ]
        both = (column.name, *(billed[index] for index in indices))
        metrics[f"{prefix}used_{resource}"] = _Metric(status, known=both, quantity=column.name)
        metrics[f"{prefix}used_{resource}_rows"] = _Metric(status, known=both)
        for index in indices:
            metrics[f"{prefix}same_{index}"] = _Metric(status, known=both, quantity=billed[index])
    return metrics


def _count(cells: ir.Table, condition: Any) -> Any:
    if condition is None:
        return cells["n"].sum().cast("int64")
    return ibis.ifelse(condition, cells["n"], integer(0)).sum().cast("int64")


def _total(quantity: Any, condition: Any) -> Any:
    kept = ibis.ifelse(condition, quantity, ibis.null("decimal(38, 0)"))
    return kept.sum().cast("decimal(38, 0)")
