"""What bills are decomposed from: sums over cells of rows, from one aggregation on any backend.

A cell holds the rows of a group that have the same allocation, the same gaps (columns that are
null) and the same answer to whether the CPU time filled the execution. Within a cell the time in
which the allocation ran is therefore either the execution, or the CPU time times one constant, and
its sum is an exact fraction: no row is divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import ibis
from ibis.expr import types as ir

from uncia.tariffs.cells import COMMON_UNPRICED, NOT_BILLABLE, PRICED, prepare
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import at_least, at_most, integer, product, round_up
from uncia.tariffs.fit import Fit, fit
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.sizes import Fixed, Observed
from uncia.units import MICRO_PER_VCPU

Level = Literal["plain", "stepped", "billed"]
"""An amount or time as it was, with its granularity, and with its minimum and maximum too."""

LEVELS: Final[tuple[Level, ...]] = ("plain", "stepped", "billed")

_MEASURED: Final[Mapping[tuple[str, str], str]] = {
    ("cpu", "used"): "cpu_time",
    ("cpu", "reserved"): "reserved_cpu",
    ("cpu", "borrowed"): "borrowed_cpu_time",
    ("cpu", "lent"): "lent_cpu_time",
    ("memory", "used"): "memory_avg",
    ("memory", "lent"): "lent_memory_avg",
}
_SAID: Final = {"cpu_time": "cpu_user and cpu_system"}
_OBSERVED: Final = "observed_allocated_cpu"
_ALWAYS_ASKED: Final = ("cpu_time", "memory_avg")


@dataclass(frozen=True)
class ChargeSums:
    """Names of the cells' columns that a charge is computed from.

    Attributes:
        charge: the charge; its price is known and not zero.
        size: the fitted amount, of an allocated charge; else None.
        scale: how many units of the fitted amount make a micro-vCPU or a byte.
        needs: observed columns that the fitted amount cannot be known without.
        levels: the sum at each level: of the billable time, for an allocated charge; of amount x
            time or of the amount itself, for others.
        over_execution: the same as ``plain``, over the execution alone.
        over_cpu_time: amount x CPU time, of a reserved charge.
    """

    charge: Charge
    size: str | None
    scale: int
    needs: tuple[str, ...]
    levels: Mapping[Level, str]
    over_execution: str
    over_cpu_time: str | None


@dataclass(frozen=True)
class TariffSums:
    """A tariff, and the sums of each charge that costs something."""

    tariff: Tariff
    charges: tuple[ChargeSums, ...]

    def why_not(self, cell: Mapping[str, Any]) -> str | None:
        """Why the rows of a cell are not in the bill, as `uncia.tariffs.bill` says; None: they are.

        The reasons are tried in its order.
        """
        if cell["common"] != PRICED:
            return (NOT_BILLABLE | COMMON_UNPRICED)[cell["common"]]
        if self.tariff.time.kind == "turnaround" and cell["unknown_start"]:
            return "initialization of a cold start is null"
        for sums in self.charges:
            charge = sums.charge
            for name in sums.needs:
                if cell[f"v_{name}"] is None:
                    return f"{name} is null"
            if charge.basis != "allocated" and cell[f"no_{measured(charge)}"]:
                name = measured(charge)
                return f"{_SAID[name]} are null" if name in _SAID else f"{name} is null"
            if charge.when != "always" and cell["preemptible"] is None:
                return "preemptible is null"
        if isinstance(self.tariff.sizes, Fixed | Observed):
            return None
        fitted = [sums.size for sums in self.charges if sums.size is not None]
        uncovered = any(cell[size] is None for size in fitted)
        return "larger than every size of the tariff" if uncovered else None


def measured(charge: Charge) -> str:
    """The column that holds the amount of a charge that is not of an allocation."""
    return _MEASURED[(charge.resource, charge.basis)]


def size_of(sums: ChargeSums, cell: Mapping[str, Any]) -> Fraction | int:
    """The fitted amount of a cell: micro-vCPU or bytes."""
    value = int(cell[sums.size or ""])
    return value if sums.scale == 1 else Fraction(value, sums.scale)


def busy_factor(cell: Mapping[str, Any]) -> Fraction:
    """How many ns the allocation runs for a ns of CPU time, where that is less than the execution.

    A function that is held to 0.3 vCPU runs for 1/0.3 of its CPU time. Above one vCPU, and where
    the allocation is null or 0, it is the CPU time as it is.
    """
    return Fraction(MICRO_PER_VCPU, cell["share"])


def observing(table: ir.Table) -> ir.Table:
    """The table with its allocated vCPU kept aside, as fits may put another in its place."""
    known = "allocated_cpu" in table.columns and table.schema()["allocated_cpu"].is_integer()
    seen = table["allocated_cpu"].cast("int64") if known else ibis.null("int64")
    return table.mutate(**{_OBSERVED: seen})


class Collector:
    """Collects the sums that tariffs ask for, and makes the expression of the cells.

    Args:
        table: of `observing`, perhaps with other allocations since.
        group_by: columns that keep rows apart.
    """

    def __init__(self, table: ir.Table, group_by: Sequence[str]) -> None:
        prepared = prepare(table, [*group_by, _OBSERVED])
        prepared = prepared.mutate(share=_share(prepared[f"g_{_OBSERVED}"]))
        prepared = prepared.mutate(partly=_partly(prepared))
        self._rows = Columns(prepared)
        self._sums: dict[str, Col] = {}
        self._gaps: dict[str, Col] = {}
        self._keys = [
            *(f"g_{name}" for name in group_by),
            *("v_allocated_cpu", "v_allocated_memory"),
            *("common", "unknown_start", "preemptible", "share", "partly"),
        ]
        for name in _ALWAYS_ASKED:
            self._gap(name)
        self.cpu_time = self._sum(self._row("cpu_time"))
        self.execution = self._sum(self._row("execution"))
        self.borrowed: str | None = None
        self.memory_execution = self._product_sum("memory_avg", "execution")
        self.memory_cpu_time = self._product_sum("memory_avg", "cpu_time")
        self._sizes: dict[str, tuple[Tariff, str]] = {}

    def tariff(self, tariff: Tariff, prefix: str) -> TariffSums:
        """Ask for what a tariff needs.

        Args:
            tariff: bills by request, all prices known.
            prefix: begins the names of the columns of its sizes.
        """
        times = self._times(tariff)
        charges = []
        for charge in tariff.charges:
            if charge.unit_price == 0:
                continue  # what costs nothing is no part of the bill, and needs no figure
            if charge.basis == "allocated":
                charges.append(self._allocated(tariff, charge, times, prefix))
            else:
                charges.append(self._measured(tariff, charge, times))
        return TariffSums(tariff, tuple(charges))

    def cells(self) -> ir.Table:
        """The cells: keys, gaps, sums, the number of rows ``n``, and the sizes of each tariff."""
        rows = self._rows.table()
        rows = rows.mutate(**{name: rows[column.name] for name, column in self._gaps.items()})
        cells = rows.aggregate(
            {"n": rows.count().cast("int64")}
            | {name: _sum(rows[column.name]) for name, column in self._sums.items()},
            by=[*self._keys, *self._gaps],
        )
        columns = Columns(cells)
        observed = columns.base("v_allocated_cpu"), columns.base("v_allocated_memory")
        sizes: dict[str, Col] = {}
        for name, (tariff, resource) in self._sizes.items():
            fitted = fit(tariff.sizes, columns, *observed)
            sizes[name] = fitted.cpu if resource == "cpu" else fitted.memory
        full = columns.table()
        names = [*self._keys, *self._gaps, "n", *self._sums]
        return full.select(*names, **{name: full[column.name] for name, column in sizes.items()})

    def _allocated(
        self, tariff: Tariff, charge: Charge, times: Mapping[Level, Col], prefix: str
    ) -> ChargeSums:
        name = f"{prefix}{charge.resource}"
        self._sizes[name] = (tariff, charge.resource)
        fitted = _fit(tariff)
        return ChargeSums(
            charge,
            name,
            fitted.scale,
            fitted.cpu_needs if charge.resource == "cpu" else fitted.memory_needs,
            {level: self._sum(times[level]) for level in LEVELS},
            self.execution,
            None,
        )

    def _measured(self, tariff: Tariff, charge: Charge, times: Mapping[Level, Col]) -> ChargeSums:
        name = measured(charge)
        self._gap(name)
        amount = self._row(name)
        amounts = {
            level: self._bounded(amount, charge.limit("granularity"), charge.limit("minimum"))[
                level
            ]
            for level in LEVELS
        }
        if (most := charge.limit("maximum")) is not None:
            amounts["billed"] = self._rows.add(
                f"at most {most}", lambda value: at_most(value, most), amounts["billed"]
            )
        over_cpu_time = None
        if charge.is_rate:
            levels = {level: self._product(amounts[level], times[level]) for level in LEVELS}
            over_execution = self._product(amount, self._row("execution"))
        else:
            levels = dict(times) if tariff.time.kind == "cpu" else amounts
            over_execution = levels["plain"]
        if charge.basis == "reserved":
            self._gap("borrowed_cpu_time")
            self.borrowed = self._sum(self._row("borrowed_cpu_time"))
            over_cpu_time = self._sum(self._product(amount, self._row("cpu_time")))
        return ChargeSums(
            charge,
            None,
            1,
            (),
            {level: self._sum(column) for level, column in levels.items()},
            self._sum(over_execution),
            over_cpu_time,
        )

    def _times(self, tariff: Tariff) -> dict[Level, Col]:
        """The billable time of a row at each level, ns."""
        match tariff.time.kind:
            case "turnaround":
                plain = self._rows.add(
                    "turnaround",
                    lambda run, start: run + start.fill_null(0),
                    self._row("execution"),
                    self._row("initialization"),
                )
            case "cpu":
                plain = self._row("cpu_time")
            case _:
                plain = self._row("execution")
        return self._bounded(plain, tariff.time.granularity, tariff.time.minimum)

    def _bounded(self, plain: Col, step: int | None, least: int | None) -> dict[Level, Col]:
        stepped = plain
        if step is not None:
            stepped = self._rows.add(
                f"round up to {step}", lambda value: round_up(value, step), plain
            )
        billed = stepped
        if least is not None:
            billed = self._rows.add(
                f"at least {least}", lambda value: at_least(value, least), stepped
            )
        return {"plain": plain, "stepped": stepped, "billed": billed}

    def _row(self, name: str) -> Col:
        return self._rows.base(f"v_{name}")

    def _product(self, first: Col, second: Col) -> Col:
        return self._rows.add("product", product, first, second)

    def _product_sum(self, first: str, second: str) -> str:
        return self._sum(self._product(self._row(first), self._row(second)))

    def _sum(self, column: Col) -> str:
        name = f"sum_{column.name}"
        self._sums[name] = column
        return name

    def _gap(self, name: str) -> None:
        if f"no_{name}" not in self._gaps:
            self._gaps[f"no_{name}"] = self._rows.add(
                "is null", lambda value: value.isnull(), self._row(name)
            )


def _fit(tariff: Tariff) -> Fit:
    """What a tariff's fit needs, whatever the table."""
    columns = Columns(ibis.table({"cpu": "int64", "memory": "int64"}, name="sizes"))
    return fit(tariff.sizes, columns, columns.base("cpu"), columns.base("memory"))


def _share(observed: Any) -> Any:
    """The part of a vCPU that a thread has, micro-vCPU."""
    one = integer(MICRO_PER_VCPU)
    part = (observed > integer(0)) & (observed < one)
    return ibis.ifelse(part.fill_null(False), observed, one)


def _partly(prepared: ir.Table) -> Any:
    """Whether the CPU time, at the allocation of the row, takes less than the execution."""
    used = product(prepared["v_cpu_time"], integer(MICRO_PER_VCPU))
    return (used < product(prepared["v_execution"], prepared["share"])).fill_null(False)


def _sum(value: Any) -> Any:
    narrow = value if value.type().is_decimal() else value.cast("decimal(18, 0)")
    return narrow.sum().cast("decimal(38, 0)")
