"""What each charge of a tariff sums over the rows of a cell: Equation (1)'s T and USG(r).

Every amount is rounded row by row and exactly summed. Of an allocated resource that is the billable
time, as the size is the same in a whole cell; of others amount x time, or the amount of CPU time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import ibis

from uncia.tariffs.billable_time import actual_time, measured
from uncia.tariffs.cells import Cells
from uncia.tariffs.columns import Col, Columns, Step
from uncia.tariffs.exact import cases, integer, product
from uncia.tariffs.model import BillableTime, Charge, Tariff
from uncia.tariffs.rows import MAX_TIME
from uncia.tariffs.rules import Granularity, Level, Maximum, Minimum, Rules
from uncia.tariffs.state import Flag
from uncia.units import MICRO_PER_VCPU

SUM_LIMIT: Final = 10**18
"""Values of a sum over rows stay below it, in 64 bits; what may not is summed in 128."""


def micro_vcpu(cpu_time: Any) -> Any:
    """CPU time in ns as micro-vCPU x ns."""
    million = integer(MICRO_PER_VCPU).cast("decimal(18, 0)")
    return (cpu_time * million).cast("decimal(38, 0)")


@dataclass(frozen=True)
class Total:
    """A sum over the rows of each cell: a column of the cells, or computed from some.

    Attributes:
        names: the columns of the cells.
        step: computes it from them; None: it is the only one.
        constants: of the step.
    """

    names: tuple[str, ...]
    step: Step | None = None
    constants: tuple[tuple[str, Hashable], ...] = ()

    def column(self, cells: Columns) -> Col:
        """It as a column of the cells."""
        columns = [cells.base(name) for name in self.names]
        if self.step is None:
            return columns[0]
        return cells.add(self.step, *columns, **dict(self.constants))


def flags(cells: Cells, tariff: Tariff) -> None:
    """Keep rows apart by what decides whether a tariff can price them."""
    for charge in tariff.charges:
        if charge.basis != "allocated":
            cells.flag(Flag("gap", measured(charge)))
        if charge.when != "always":
            cells.flag(Flag("preemptible"))
            cells.flag(Flag("no_preemptible"))
    if tariff.time.kind == "turnaround":
        cells.flag(Flag("unknown_start"))


def beyond(cells: Cells, tariff: Tariff) -> tuple[str, ...]:
    """Flags that each tell that a row exceeds what the platform allows; null exceeds nothing."""
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
    """What a charge sums over rows; its rules of the amount are applied to what is measured only.

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
    if time.rules.at(level) or not waits:
        return Total((cells.sum(_time(cells, time, level)),))
    # The sum of turnarounds is the sum of their parts, and those are summed for others, too.
    parts = (cells.sum(cells.row("execution")), cells.sum(cells.row("initialization")))
    return Total(parts, _plus)


def _plus(first: Any, second: Any) -> Any:
    return (first + _or_zero(second)).cast("decimal(38, 0)")


def _minus(first: Any, second: Any) -> Any:
    return (first - _or_zero(second)).cast("decimal(38, 0)")


def _or_zero(total: Any) -> Any:
    return total.fill_null(integer(0).cast("decimal(38, 0)"))


def _product_total(cells: Cells, amount: Col, rules: Rules, time: Col) -> Total:
    """The sum of amount x time, the amount by its rules."""
    if {type(rule) for rule in rules.rules} == {Maximum}:
        # Less what lies above: of most rows nothing does, and nothing is multiplied.
        most = rules.bound(Maximum)
        whole = cells.sum(cells.add(product, amount, time))
        above = cells.sum(cells.add(_product_above, amount, time, bound=most))
        return Total((whole, above), _minus)
    billed = rules.apply(cells, amount)
    step = _power_of_two(rules)
    if step is None:
        return Total((cells.sum(cells.add(product, billed, time)),))
    # A whole number of steps, a power of two each: counted in steps the product fits in 64 bits.
    steps = cells.sum(cells.add(_steps_x_time, billed, time, bits=step.bit_length() - 1))
    return Total((steps,), _scaled, (("step", step),))


def _power_of_two(rules: Rules) -> int | None:
    """The steps that billed amounts are multiples of, where amount x time in them fits 64 bits."""
    step, most = rules.bound(Granularity), rules.bound(Maximum)
    least = rules.bound(Minimum) or 0
    known = all(type(rule) in (Granularity, Minimum, Maximum) for rule in rules.rules)
    if not known or step is None or most is None:
        return None
    if step & (step - 1) or most % step or least % step:
        return None
    return step if most // step * 3 * MAX_TIME < SUM_LIMIT else None


def _product_above(amount: Any, time: Any, *, bound: int) -> Any:
    return cases(
        (amount > bound, product(amount - bound, time)), otherwise=ibis.null("decimal(38, 0)")
    )


def _steps_x_time(amount: Any, time: Any, *, bits: int) -> Any:
    return (amount >> bits) * time


def _scaled(steps: Any, *, step: int) -> Any:
    return (steps * integer(step).cast("decimal(18, 0)")).cast("decimal(38, 0)")
