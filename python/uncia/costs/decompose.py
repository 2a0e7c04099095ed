"""Each bill in parts that say what was paid for; they sum to the bill exactly.

*Busy* is the time of a row in which its observed allocation was running: the smaller of the
execution and ``cpu_time x 10^6 / min(10^6, allocated_cpu)``; a function that is held to 0.3 vCPU is
busy while it runs at 0.3. Where no vCPU was observed it is the CPU time. It is not rounded. With S
the size that is charged for, E the execution and I the initialization that the tariff bills, of a
charge for an allocated resource

* ``use`` is what was used: the CPU time, or the average memory x E;
* ``over_allocation`` is what the size held beyond that while busy: ``S x busy`` less the CPU time,
  or ``(S - memory_avg) x busy``; negative where more was used than the size holds;
* ``idle`` is wall-clock time that was billed while nothing ran: ``S x (E - busy)``, for memory
  ``(S - memory_avg) x (E - busy)``, as the memory in use stays in use;
* ``unmeasured`` is S x E of the rows whose use is not known; for memory of rows whose CPU time
  alone is not known, ``(S - memory_avg) x E``, which cannot be told into over-allocation and idle;
* ``initialization`` is S x I, where the tariff bills turnaround;
* ``rounding`` is what granularities, of time and of the amount, then add;
* ``minimum`` is what minimums add after that; a cap on the amount, or a part of it that is free,
  counts here, and takes off.

A charge for what was used has ``use`` (over E), ``initialization``, ``rounding`` and ``minimum``.
A reserved amount R is decomposed as an allocation of CPU; its use is the CPU time that was not
borrowed. What was borrowed is ``use``; what was lent is ``credit``, which is negative. ``fee`` is
the invocation fee of every row. Equation (1) of *Demystifying Serverless Costs on Public Platforms*
(EuroSys'26, section 2.1) has the amounts that are decomposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.costs.amounts import usd_parts
from uncia.costs.quantities import (
    LEVELS,
    ChargeSums,
    Collector,
    TariffSums,
    busy_factor,
    observing,
    size_of,
)
from uncia.tariffs import Tariff, catalogue
from uncia.tariffs.rules import Level
from uncia.units import MICRO_PER_VCPU

if TYPE_CHECKING:
    import pandas as pd

    from uncia.backends import Backend, Source
    from uncia.tariffs import FitRule

PARTS: Final = (
    "use",
    "over_allocation",
    "idle",
    "unmeasured",
    "initialization",
    "rounding",
    "minimum",
    "credit",
    "fee",
)
"""The parts of a bill, in the order in which they arise."""


@dataclass(frozen=True)
class Decomposition:
    """The parts of one bill.

    Attributes:
        tariff: id of the tariff.
        group: values of the grouping columns.
        fit: how rows got their sizes, in words.
        rows: rows that were priced, as in `uncia.tariffs.bill`.
        left_out: rows that are not in the bill, by reason.
        parts: dollars by name of the part (`PARTS`), exactly.
    """

    tariff: str
    group: Mapping[str, str | None]
    fit: str
    rows: int
    left_out: Mapping[str, int]
    parts: Mapping[str, Fraction]

    @property
    def total_rows(self) -> int:
        """All rows of the group."""
        return self.rows + sum(self.left_out.values())

    @property
    def total(self) -> Fraction:
        """The bill."""
        return sum(self.parts.values(), Fraction(0))


def decompose(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    *,
    group_by: Sequence[str] = (),
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Each tariff's bill of an invocation table, in parts.

    Args:
        source: as `uncia.tariffs.bill` takes it.
        tariffs: ids, files or tariffs; by default all that bill by request.
        group_by: text columns; each combination of their values is billed apart.
        fit: how rows get their sizes, as in `uncia.tariffs.bill`.
        backend: where the sums are computed; by default a DuckDB of its own.

    Returns:
        A row for each tariff and group: ``tariff``, the grouping columns, ``fit``, ``total_rows``,
        ``rows`` (priced), ``left_out`` (the others by reason, as `uncia.tariffs.bill` counts
        them), ``<part>_usd`` for each of `PARTS` and their sum ``cost_usd`` (Decimal, 18 decimals;
        the parts sum to it exactly, see `uncia.costs.amounts.usd_parts`), and ``<part>_share`` of
        the cost (float). Amounts are None where no row was priced.

    Raises:
        UnciaError: a table or tariff cannot be read, or a column is missing or not exact.
    """
    found = decompositions(source, tariffs, group_by, fit=fit, backend=backend)
    return frame(found, group_by)


def frame(found: Sequence[Decomposition], group_by: Sequence[str] = ()) -> pd.DataFrame:
    """Decompositions as `decompose` returns them."""
    import pandas as pd

    records = [_record(one, group_by) for one in found]
    return pd.DataFrame(records, columns=columns(group_by), dtype=object)


def columns(group_by: Sequence[str] = ()) -> list[str]:
    """The columns of `decompose`."""
    return [
        *("tariff", *group_by, "fit", "total_rows", "rows", "left_out"),
        *(f"{part}_usd" for part in PARTS),
        "cost_usd",
        *(f"{part}_share" for part in PARTS),
    ]


def decompositions(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    *,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> list[Decomposition]:
    """As `decompose`, with the parts as fractions.

    Raises:
        UnciaError: as `decompose`.
    """
    if backend is None:
        from uncia.backends import connect

        with connect() as own:
            return decompositions(source, tariffs, group_by, fit=fit, backend=own)
    from uncia.tariffs.allocation import PEAK_REASONS, apply_fit

    words = PEAK_REASONS if fit == "used-peak" else {}
    table = observing(backend.table(source))
    table, chosen, rules = apply_fit(table, catalogue.resolve(tariffs), fit, backend)
    collector = Collector(table, group_by, chosen)
    cells = [_integers(cell) for cell in backend.collect(collector.cells()).to_pylist()]
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[f"g_{name}"] for name in group_by), []).append(cell)
    if not group_by:
        groups.setdefault((), [])
    ordered = sorted(groups, key=lambda key: [(value is None, str(value)) for value in key])
    return [
        _of(sums, rule, words, collector, dict(zip(group_by, key, strict=True)), groups[key])
        for sums, rule in zip(collector.tariffs, rules, strict=True)
        for key in ordered
    ]


def _of(
    sums: TariffSums,
    rule: str,
    words: Mapping[str, str],
    collector: Collector,
    group: Mapping[str, str | None],
    cells: Sequence[Mapping[str, Any]],
) -> Decomposition:
    priced: list[Mapping[str, Any]] = []
    left_out: dict[str, int] = {}
    for cell in cells:
        reason = sums.why_not(cell)
        if reason is None:
            priced.append(cell)
        else:
            reason = words.get(reason, reason)
            left_out[reason] = left_out.get(reason, 0) + cell["n"]
    rows = sum(cell["n"] for cell in priced)
    parts = dict.fromkeys(PARTS, Fraction(0))
    for charge in sums.charges:
        price = charge.charge.unit_price or Fraction(0)
        found: dict[str, Fraction | int] = dict.fromkeys(PARTS, 0)
        for cell in priced:
            if _applies(charge, cell):
                for part, quantity in _quantities(charge, collector, cell).items():
                    found[part] += quantity
        for part, quantity in found.items():
            parts[part] += price * quantity
    parts["fee"] += Fraction(sums.tariff.fee.price or 0) * rows
    return Decomposition(sums.tariff.id, group, rule, rows, left_out, parts)


def _applies(sums: ChargeSums, cell: Mapping[str, Any]) -> bool:
    when = sums.charge.when
    return when == "always" or cell["preemptible"] == (when == "preemptible")


def _quantities(
    sums: ChargeSums, collector: Collector, cell: Mapping[str, Any]
) -> dict[str, Fraction | int]:
    """A charge's parts in one cell, micro-vCPU x ns or bytes x ns."""
    charge = sums.charge
    level = _levels(sums, cell)
    parts: dict[str, Fraction | int] = {
        "rounding": level["stepped"] - level["plain"],
        "minimum": level["billed"] - level["stepped"],
    }
    if charge.is_credit:
        return {
            "credit": -level["plain"],
            "rounding": -parts["rounding"],
            "minimum": -parts["minimum"],
        }
    unit = 1 if charge.is_rate else MICRO_PER_VCPU
    held: Fraction | int = cell[sums.over_execution] * unit
    if sums.size is not None:
        held *= size_of(sums, cell)
    parts["initialization"] = level["plain"] - held
    if charge.basis not in ("allocated", "reserved"):
        parts["use"] = held
    elif charge.resource == "cpu":
        parts |= _cpu(sums, collector, cell, held)
    else:
        parts |= _memory(sums, collector, cell, held)
    return parts


def _levels(sums: ChargeSums, cell: Mapping[str, Any]) -> dict[Level, Fraction | int]:
    """The whole of a charge: as it was, with granularities, with minimums and caps too."""
    totals = {level: int(cell[sums.levels[level]]) for level in LEVELS}
    charge = sums.charge
    if sums.size is None:
        unit = 1 if charge.is_rate else MICRO_PER_VCPU
        return {level: total * unit for level, total in totals.items()}
    return {level: size_of(sums, cell, level) * totals[level] for level in LEVELS}


def _cpu(
    sums: ChargeSums, collector: Collector, cell: Mapping[str, Any], held: Fraction | int
) -> dict[str, Fraction | int]:
    reserved = sums.charge.basis == "reserved"
    if cell["no_cpu_time"] or (reserved and cell["no_borrowed_cpu_time"]):
        return {"unmeasured": held}
    use = cell[collector.cpu_time] * MICRO_PER_VCPU
    if reserved and collector.borrowed is not None:
        use -= cell[collector.borrowed] * MICRO_PER_VCPU
    running: Fraction | int = held
    if cell["partly"] and sums.size is not None:
        running = size_of(sums, cell) * cell[collector.cpu_time] * busy_factor(cell)
    elif cell["partly"] and sums.over_cpu_time is not None:
        running = cell[sums.over_cpu_time] * busy_factor(cell)
    return {"use": use, "over_allocation": running - use, "idle": held - running}


def _memory(
    sums: ChargeSums, collector: Collector, cell: Mapping[str, Any], held: Fraction | int
) -> dict[str, Fraction | int]:
    if cell["no_memory_avg"]:
        return {"unmeasured": held}
    use = cell[collector.memory_execution]
    if cell["no_cpu_time"]:
        return {"use": use, "unmeasured": held - use}
    over: Fraction | int = held - use
    if cell["partly"] and sums.size is not None:
        size, factor = size_of(sums, cell), busy_factor(cell)
        over = (size * cell[collector.cpu_time] - cell[collector.memory_cpu_time]) * factor
    return {"use": use, "over_allocation": over, "idle": held - use - over}


def _integers(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell with its sums as integers; the engine answers with decimals."""
    return {
        name: int(value) if isinstance(value, Decimal) else value for name, value in cell.items()
    }


def _record(one: Decomposition, group_by: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "tariff": one.tariff,
        **{name: one.group[name] for name in group_by},
        "fit": one.fit,
        "total_rows": one.total_rows,
        "rows": one.rows,
        "left_out": dict(one.left_out),
    }
    if one.rows:
        parts, total = usd_parts(one.parts)
        record |= {f"{part}_usd": parts[part] for part in PARTS} | {"cost_usd": total}
    if one.rows and one.total:
        record |= {f"{part}_share": float(one.parts[part] / one.total) for part in PARTS}
    return dict.fromkeys(columns(group_by)) | record
