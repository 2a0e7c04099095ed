"""The sums over rows that each charge of a tariff needs of a cell: Equation (1)'s T and USG(r).

Every amount is rounded row by row, then summed exactly. A charge for an allocation sums the
billable time, as all rows of a cell have the same size; other charges sum amount x time, or CPU
time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import ibis

from uncia.tariffs.billable_time import actual_time, measured
from uncia.tariffs.cells import Cells
from uncia.tariffs.columns import Col, Columns, Step
from uncia.tariffs.exact import cases, decimal, product
from uncia.tariffs.model import BillableTime, Charge, Tariff
from uncia.tariffs.rules import Granularity, Level, Maximum, Minimum, Rules
from uncia.tariffs.state import Flag
from uncia.units import MAX_TIME, MICRO_PER_VCPU

SUM_LIMIT: Final = 10**18
"""Bound of 64-bit integers that are cast to DECIMAL(18, 0) before they are summed."""

INT64_LIMIT: Final = 1 << 63
"""Bound of 64-bit integers, which a wide engine sums as they are."""


def micro_vcpu(cpu_time: Any) -> Any:
    """CPU time in ns as micro-vCPU x ns."""
    return (cpu_time * decimal(MICRO_PER_VCPU, cpu_time)).cast("decimal(38, 0)")


@dataclass(frozen=True)
class Total:
    """A sum over the rows of each cell, computed from columns of the cells.

    Attributes:
        names: the columns of the cells.
        step: computes the sum from them; None: it is the only one.
        constants: of the step.
    """

    names: tuple[str, ...]
    step: Step | None = None
    constants: tuple[tuple[str, Hashable], ...] = ()

    def column(self, cells: Columns) -> Col:
        """The sum as a column of the cells."""
        columns = [cells.base(name) for name in self.names]
        if self.step is None:
            return columns[0]
        return cells.add(self.step, *columns, **dict(self.constants))


def flags(cells: Cells, tariff: Tariff) -> None:
    """Separate cells by what decides whether a tariff can price their rows."""
    for charge in tariff.charges:
        if charge.basis != "allocated":
            cells.flag(Flag("gap", measured(charge)))
        if charge.when != "always":
            cells.flag(Flag("preemptible"))
            cells.flag(Flag("no_preemptible"))
    if tariff.time.kind == "turnaround":
        cells.flag(Flag("unknown_start"))


def beyond(cells: Cells, tariff: Tariff) -> tuple[str, ...]:
    """Add flags of rows that exceed the platform's limits; null exceeds nothing."""
    limits = tariff.limits
    if limits is None:
        return ()
    known = (
        ("execution", limits.execution),
        ("cpu_time", limits.cpu_time),
        ("memory_peak", limits.memory),
    )
    return tuple(
        cells.flag(Flag("above", name, bound)) for name, bound in known if bound is not None
    )


def total(cells: Cells, tariff: Tariff, charge: Charge, level: Level) -> Total:
    """The sum of a charge over rows; rules of an allocated amount are left to the cells.

    Raises:
        UnciaError: the tariff bills instance time.
    """
    if charge.basis == "allocated":
        return _time_total(cells, tariff.time, level)
    if not charge.is_rate and tariff.time.kind == "cpu":  # CPU time is the billable time
        return _time_total(cells, tariff.time, level)
    amount, rules = cells.row(measured(charge)), charge.rules.at(level)
    if charge.is_rate:
        return _product_total(cells, amount, rules, _time(cells, tariff.time, level))
    return Total((cells.sum(rules.apply(cells, amount)),))


def _time(cells: Cells, time: BillableTime, level: Level) -> Col:
    """The billable time T of each row, ns."""
    known = time
    if time.kind == "turnaround" and cells.is_empty("initialization"):
        known = time.model_copy(update={"kind": "execution"})
    return time.rules.at(level).apply(cells, actual_time(known, cells, cells.row))


def _time_total(cells: Cells, time: BillableTime, level: Level) -> Total:
    waits = time.kind == "turnaround" and not cells.is_empty("initialization")
    rules = time.rules.at(level)
    if waits and rules and cells.is_rare("initialization"):
        # Most rows did not wait: what they sum, tariffs that bill the execution may sum as well.
        execution, initialization = cells.row("execution"), cells.row("initialization")
        added = cells.add(_added_by_wait, execution, initialization, rules=rules)
        return Total((cells.sum(rules.apply(cells, execution)), cells.sum(added)), _plus)
    if rules or not waits:
        return Total((cells.sum(_time(cells, time, level)),))
    # The sum of turnarounds is the sum of their parts, which other tariffs sum as well.
    parts = (cells.sum(cells.row("execution")), cells.sum(cells.row("initialization")))
    return Total(parts, _plus)


def _added_by_wait(execution: Any, initialization: Any, *, rules: Rules) -> Any:
    """What a known initialization adds to the billed time of its row; else null."""
    added = rules(execution + initialization) - rules(execution)
    return cases((initialization.notnull(), added), otherwise=ibis.null("int64"))


def _plus(first: Any, second: Any) -> Any:
    return (first + _or_zero(second)).cast("decimal(38, 0)")


def _minus(first: Any, second: Any) -> Any:
    return (first - _or_zero(second)).cast("decimal(38, 0)")


def _or_zero(total: Any) -> Any:
    return total.fill_null(decimal(0, total, 38))


def _product_total(cells: Cells, amount: Col, rules: Rules, time: Col) -> Total:
    """The sum of amount x time, the amount by its rules."""
    if {type(rule) for rule in rules.rules} == {Maximum}:
        # The whole less what exceeds the maximum, which is null for most rows.
        maximum = rules.bound(Maximum)
        whole = cells.sum(cells.product(amount, time))
        above = cells.sum(cells.add(_product_above, amount, time, bound=maximum, wide=cells.wide))
        return Total((whole, above), _minus)
    billed = rules.apply(cells, amount)
    step = _power_of_two(rules, INT64_LIMIT if cells.wide else SUM_LIMIT)
    if step is None:
        return Total((cells.sum(cells.product(billed, time)),))
    # Billed amounts are multiples of a power of two: in units of it, the product fits in 64 bits.
    steps = cells.sum(cells.add(_steps_x_time, billed, time, bits=step.bit_length() - 1))
    return Total((steps,), _scaled, (("step", step),))


def _power_of_two(rules: Rules, limit: int) -> int | None:
    """The power of two of which billed amounts are multiples, if amount / it x time fits."""
    step, maximum = rules.bound(Granularity), rules.bound(Maximum)
    minimum = rules.bound(Minimum) or 0
    understood = all(type(rule) in (Granularity, Minimum, Maximum) for rule in rules.rules)
    if not understood or step is None or maximum is None:
        return None
    if step & (step - 1) or maximum % step or minimum % step:
        return None
    return step if maximum // step * 3 * MAX_TIME < limit else None


def _product_above(amount: Any, time: Any, *, bound: int, wide: bool) -> Any:
    above = product(amount - bound, time, wide=wide)
    return cases((amount > bound, above), otherwise=ibis.null(above.type()))


def _steps_x_time(amount: Any, time: Any, *, bits: int) -> Any:
    return (amount >> bits) * time


def _scaled(steps: Any, *, step: int) -> Any:
    return (steps * decimal(step, steps)).cast("decimal(38, 0)")
