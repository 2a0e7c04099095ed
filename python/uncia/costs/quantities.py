"""The sums that bills are decomposed from, over cells of rows, in one aggregation.

The rows of a cell are of one group and have the same allocation, the same gaps (columns that are
null), and all or none of them were busy for the whole execution. Within a cell, busy time is
therefore either the execution or the CPU time times one constant, and its sum is an exact fraction:
no row is divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.backends.integers import signed
from uncia.tariffs import charges
from uncia.tariffs.billable_time import measured
from uncia.tariffs.cells import Cells
from uncia.tariffs.charges import Total
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.equation import fit_cells, status
from uncia.tariffs.exact import integer, product
from uncia.tariffs.facts import Facts
from uncia.tariffs.fit import fitted
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.rows import NOT_BILLABLE
from uncia.tariffs.rules import Level
from uncia.tariffs.state import Flag
from uncia.units import MICRO_PER_VCPU

LEVELS: Final[tuple[Level, ...]] = ("plain", "stepped", "billed")
"""An amount or time without rules, with its granularity, and with all its rules."""

_OBSERVED: Final = "observed_allocated_cpu"


@dataclass(frozen=True)
class ChargeSums:
    """The names of the cells' columns from which a charge is computed.

    Attributes:
        charge: the charge; its price is known and not zero.
        size: the fitted amount of an allocated charge; else None.
        scale: how many units of the fitted amount make a micro-vCPU or a byte.
        levels: the sum at each level: of the billable time for an allocated charge; of amount x
            time, or of the amount itself, for others.
        over_execution: the sum at ``plain``, over the execution alone.
        over_cpu_time: amount x CPU time, of a reserved charge.
        over_times: the sum at ``plain`` over each column of times; empty for what bills use.
    """

    charge: Charge
    size: str | None
    scale: int
    levels: Mapping[Level, str]
    over_execution: str
    over_cpu_time: str | None
    over_times: Mapping[str, str]


@dataclass(frozen=True)
class TariffSums:
    """A tariff, and the sums of each charge that costs something.

    Attributes:
        tariff: the tariff.
        charges: their sums.
        status: the cells' column with the code of why their rows are not in the bill.
        reasons: code to reason.
    """

    tariff: Tariff
    charges: tuple[ChargeSums, ...]
    status: str
    reasons: Mapping[int, str]


def size_of(sums: ChargeSums, cell: Mapping[str, Any], level: Level = "plain") -> Fraction | int:
    """The fitted amount of a cell by its charge's rules: micro-vCPU or bytes."""
    value = sums.charge.rules.at(level).scaled(sums.scale)(int(cell[sums.size or ""]))
    return value if sums.scale == 1 else Fraction(value, sums.scale)


def busy_factor(cell: Mapping[str, Any]) -> Fraction:
    """Busy time over CPU time in a cell, where busy time is less than the execution.

    A function with 0.3 vCPU is busy for 1/0.3 of its CPU time. From one vCPU on, and where the
    allocation is null or 0, the factor is 1.
    """
    return Fraction(MICRO_PER_VCPU, cell["share"])


def with_observed_cpu(table: ir.Table) -> ir.Table:
    """Copy the observed allocated vCPU to a column that fits do not replace."""
    is_integer = "allocated_cpu" in table.columns and table.schema()["allocated_cpu"].is_integer()
    observed = signed(table["allocated_cpu"]) if is_integer else ibis.null("int64")
    return table.mutate(**{_OBSERVED: observed})


@dataclass(frozen=True)
class _Planned:
    """The sums over rows that a charge needs; see `ChargeSums`."""

    charge: Charge
    totals: Mapping[Level, Total]
    over_execution: str
    over_cpu_time: str | None
    over_times: Mapping[str, str]


class Collector:
    """Collects the sums that tariffs need, and builds the expression of the cells.

    Args:
        table: of `with_observed_cpu` where a fit may have replaced its allocations since.
        group_by: columns whose values separate cells.
        tariffs: each bills by request, with all prices known.
        facts: what is known of the table's columns.
        wide: whether the engine sums and multiplies int64 in 128 bits, as DuckDB does.
        times: columns of the table, in ns, over which charges are summed as over the execution.
    """

    def __init__(
        self,
        table: ir.Table,
        group_by: Sequence[str],
        tariffs: Sequence[Tariff],
        facts: Facts | None = None,
        *,
        wide: bool = False,
        times: Sequence[str] = (),
    ) -> None:
        carried = [_OBSERVED] if _OBSERVED in table.columns else []
        self._times = times
        self._cells = cells = Cells(table, group_by, facts, wide, [*carried, *times])
        execution, cpu_time = cells.row("execution"), cells.row("cpu_time")
        memory = cells.row("memory_avg")
        observed = cells.carried(_OBSERVED) if carried else cells.row("allocated_cpu")
        share = cells.add(_share, observed)
        if carried:
            cells.key("share", share)
        cells.key("partly", cells.add(_partly, cpu_time, execution, share, wide=wide))
        for name in ("cpu_time", "memory_avg"):
            cells.flag(Flag("gap", name))
        self.cpu_time = cells.sum(cpu_time)
        self.execution = cells.sum(execution)
        self.borrowed: str | None = None
        self.memory_execution = cells.sum(cells.product(memory, execution))
        self.memory_cpu_time = cells.sum(cells.product(memory, cpu_time))
        planned = [self._plan(tariff) for tariff in tariffs]
        table_of_cells = cells.table()
        if not carried:  # the cells' allocation is the observed one
            shares = _share(table_of_cells["v_allocated_cpu"])
            table_of_cells = table_of_cells.mutate(share=shares)
        self._kept = table_of_cells.columns
        self._columns = Columns(table_of_cells)
        self._named: dict[str, Col] = {}
        self.tariffs = [
            self._sums(tariff, charged, f"t{index}_")
            for index, (tariff, charged) in enumerate(zip(tariffs, planned, strict=True))
        ]

    def cells(self) -> ir.Table:
        """The cells: keys, flags, sums, the number of rows ``n``, and the tariffs' columns."""
        full = self._columns.table()
        named = {name: full[column.name] for name, column in self._named.items()}
        return full.select(*self._kept, **named)

    def _plan(self, tariff: Tariff) -> list[_Planned]:
        """Plan the sums of each charge that costs something."""
        charges.flags(self._cells, tariff)
        # A charge without a price is no part of the bill, and its columns may be null.
        return [self._charge(tariff, charge) for charge in tariff.charges if charge.unit_price != 0]

    def _charge(self, tariff: Tariff, charge: Charge) -> _Planned:
        cells = self._cells
        totals = {level: charges.total(cells, tariff, charge, level) for level in LEVELS}
        if charge.basis == "allocated":
            over_times = {name: cells.sum(cells.carried(name)) for name in self._times}
            return _Planned(charge, totals, self.execution, None, over_times)
        if tariff.time.kind == "cpu":
            return _Planned(charge, totals, self.cpu_time, None, {})
        amount, over_cpu_time = cells.row(measured(charge)), None
        over_execution, over_times = amount, {}
        if charge.is_rate:
            over_execution = cells.product(amount, cells.row("execution"))
            over_times = {
                name: cells.sum(cells.product(amount, cells.carried(name))) for name in self._times
            }
        if charge.basis == "reserved":
            cells.flag(Flag("gap", "borrowed_cpu_time"))
            self.borrowed = cells.sum(cells.row("borrowed_cpu_time"))
            over_cpu_time = cells.sum(cells.product(amount, cells.row("cpu_time")))
        return _Planned(charge, totals, cells.sum(over_execution), over_cpu_time, over_times)

    def _sums(self, tariff: Tariff, charged: Sequence[_Planned], prefix: str) -> TariffSums:
        size = fit_cells(self._columns, tariff)
        sums = []
        for index, planned in enumerate(charged):
            levels = {
                level: self._name(f"{prefix}{index}_{level}", total.column(self._columns))
                for level, total in planned.totals.items()
            }
            name, amount = None, fitted(planned.charge, size)
            if amount is not None:
                name = self._name(f"{prefix}{planned.charge.resource}", amount)
            scale = size.scale if name else 1
            sums.append(
                ChargeSums(
                    planned.charge,
                    name,
                    scale,
                    levels,
                    planned.over_execution,
                    planned.over_cpu_time,
                    planned.over_times,
                )
            )
        code, reasons = status(self._columns, tariff, size)
        status_name = self._name(f"{prefix}status", code)
        return TariffSums(tariff, tuple(sums), status_name, NOT_BILLABLE | reasons)

    def _name(self, name: str, column: Col) -> str:
        self._named[name] = column
        return name


def _share(observed: Any) -> Any:
    """The share of a vCPU that a thread gets, micro-vCPU."""
    whole = integer(MICRO_PER_VCPU)
    is_part = (observed > integer(0)) & (observed < whole)
    return ibis.ifelse(is_part.fill_null(False), observed, whole)


def _partly(cpu_time: Any, execution: Any, share: Any, *, wide: bool) -> Any:
    """Whether a row was busy for only a part of its execution."""
    used = product(cpu_time, integer(MICRO_PER_VCPU), wide=wide)
    return (used < product(execution, share, wide=wide)).fill_null(False)
