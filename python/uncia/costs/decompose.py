"""Decomposition of bills into parts, such as use, idle time and rounding, that sum to the bill.

The *busy* time of a row is when its observed allocation ran: the smaller of the execution and
``cpu_time x 10^6 / min(10^6, allocated_cpu)``; a function with 0.3 vCPU is busy while it runs at
0.3. Where no vCPU was observed, it is the CPU time. It is not rounded. Let S be the size charged
for, E the execution and I the initialization that the tariff bills. A charge for an allocated
resource has these parts:

* ``use``: the CPU time, or the average memory x E;
* ``over_allocation``: unused allocation while busy, ``S x busy`` less the CPU time, or
  ``(S - memory_avg) x busy``; negative where more was used than allocated;
* ``idle``: allocation that was billed while nothing ran, ``S x (E - busy)``, or for memory
  ``(S - memory_avg) x (E - busy)``, as used memory remains in use;
* ``unmeasured``: S x E of rows whose usage is unknown; for memory of rows of which only the CPU
  time is unknown, ``(S - memory_avg) x E``, which may be over-allocation or idle;
* ``initialization``: S x I, where the tariff bills turnaround;
* ``rounding``: what granularities, of time and of the amount, then add;
* ``minimum``: what minimums add after that; a maximum or a free part of the amount counts here and
  is negative.

A charge for usage has ``use`` (over E), ``initialization``, ``rounding`` and ``minimum``. A
reserved amount R is decomposed like an allocation of CPU; its use is the CPU time that was not
borrowed. A borrowed amount is ``use``; a lent amount is ``credit``, which is negative. ``fee`` is
the invocation fee of every row. The amounts are those of Equation (1) of *Demystifying Serverless
Costs on Public Platforms* (EuroSys'26, section 2.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ibis

from uncia.backends import Backend, Source, use
from uncia.costs.amounts import usd_parts
from uncia.costs.quantities import (
    LEVELS,
    ChargeSums,
    Collector,
    TariffSums,
    busy_factor,
    size_of,
    with_observed_cpu,
)
from uncia.tariffs import Tariff, catalogue
from uncia.tariffs.exact import at_most, integer
from uncia.tariffs.rows import PRICED, integers
from uncia.tariffs.rules import Level
from uncia.units import MAX_TIME, MICRO_PER_VCPU

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

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

TIMES: Final = ("cpu", "throttled", "cpu_wait", "blocked", "unmeasured")
"""What an execution consists of; see `with_times`."""

TIME_PARTS: Final = (*TIMES, "rest")
"""The parts of a bill by what the execution did: what each of `TIMES` was billed, and all else."""


_TIME_COLUMNS: Final = ("cpu_user", "cpu_system", "throttled_time", "cpu_wait")


@dataclass(frozen=True)
class Decomposition:
    """The parts of one bill.

    Attributes:
        tariff: id of the tariff.
        group: values of the grouping columns.
        fit: how rows got their sizes, in words.
        rows: rows that were priced, as in `uncia.tariffs.bill`.
        left_out: rows that are not in the bill, by reason.
        parts: dollars by name of the part (`PARTS`, or `TIME_PARTS`), exactly.
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
    by_time: bool = False,
) -> pd.DataFrame:
    """Decompose each tariff's bill of an invocation table into parts.

    Args:
        source: as `uncia.tariffs.bill` takes it.
        tariffs: ids, files or tariffs; by default all that bill by request.
        group_by: text columns; each combination of their values is a group with its own bill.
        fit: how rows get their sizes, as in `uncia.tariffs.bill`.
        backend: computes the sums; by default a DuckDB that is opened for it.
        by_time: decompose into `TIME_PARTS` instead of `PARTS`.

    Returns:
        A row for each tariff and group: ``tariff``, the grouping columns, ``fit``, ``total_rows``,
        ``rows`` (priced), ``left_out`` (the others by reason, as `uncia.tariffs.bill` counts
        them), ``<part>_usd`` for each of `PARTS` and their sum ``cost_usd`` (Decimal, 18 decimals;
        the parts sum to it exactly, see `uncia.costs.amounts.usd_parts`), and ``<part>_share`` of
        the cost (float). Amounts are None where no row was priced.

    Raises:
        UnciaError: a table or tariff cannot be read, or a column is missing or not exact.
    """
    bills = decompositions(source, tariffs, group_by, fit=fit, backend=backend, by_time=by_time)
    return frame(bills, group_by, TIME_PARTS if by_time else PARTS)


def frame(
    bills: Sequence[Decomposition], group_by: Sequence[str] = (), parts: Sequence[str] = PARTS
) -> pd.DataFrame:
    """Convert decompositions to the frame that `decompose` returns."""
    import pandas as pd

    records = [_record(bill, group_by, parts) for bill in bills]
    return pd.DataFrame(records, columns=columns(group_by, parts), dtype=object)


def columns(group_by: Sequence[str] = (), parts: Sequence[str] = PARTS) -> list[str]:
    """The columns of `decompose`."""
    return [
        *("tariff", *group_by, "fit", "total_rows", "rows", "left_out"),
        *(f"{part}_usd" for part in parts),
        "cost_usd",
        *(f"{part}_share" for part in parts),
    ]


def decompositions(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    group_by: Sequence[str] = (),
    *,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
    by_time: bool = False,
) -> list[Decomposition]:
    """Decompose bills as `decompose`, with the parts as fractions.

    Raises:
        UnciaError: as `decompose`.
    """
    from uncia.tariffs.allocation import PEAK_REASONS, apply_fit, known_facts

    with use(backend) as backend:
        words = PEAK_REASONS if fit == "used-peak" else {}
        table, facts = backend.table(source), known_facts(source, fit)
        if fit == "used-peak":
            table = with_observed_cpu(table)
        if by_time:
            table = with_times(table)
        table, chosen, rules = apply_fit(table, catalogue.resolve(tariffs), fit, backend, facts)
        # The table may be of another engine than the backend.
        wide = table.get_backend().name == "duckdb"
        times = TIMES if by_time else ()
        collector = Collector(table, group_by, chosen, facts, wide=wide, times=times)
        cells = [_integers(cell) for cell in backend.collect(collector.cells()).to_pylist()]
        groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
        for cell in cells:
            groups.setdefault(tuple(cell[f"g_{name}"] for name in group_by), []).append(cell)
        if not group_by:
            groups.setdefault((), [])
        ordered = sorted(groups, key=lambda key: [(value is None, str(value)) for value in key])
        return [
            _decomposition(
                sums,
                rule,
                words,
                collector,
                dict(zip(group_by, key, strict=True)),
                groups[key],
                by_time=by_time,
            )
            for sums, rule in zip(collector.tariffs, rules, strict=True)
            for key in ordered
        ]


def _decomposition(
    sums: TariffSums,
    rule: str,
    words: Mapping[str, str],
    collector: Collector,
    group: Mapping[str, str | None],
    cells: Sequence[Mapping[str, Any]],
    *,
    by_time: bool,
) -> Decomposition:
    names = TIME_PARTS if by_time else PARTS
    priced = [cell for cell in cells if cell[sums.status] == PRICED]
    left_out: Counter[str] = Counter()
    for cell in cells:
        if cell[sums.status] != PRICED:
            reason = sums.reasons[cell[sums.status]]
            left_out[words.get(reason, reason)] += cell["n"]
    rows = sum(cell["n"] for cell in priced)
    parts = dict.fromkeys(names, Fraction(0))
    for charge in sums.charges:
        price = charge.charge.unit_price or Fraction(0)
        quantities: dict[str, Fraction | int] = dict.fromkeys(names, 0)
        for cell in priced:
            if _applies(charge, cell):
                split = (
                    _over_times(charge, cell) if by_time else _quantities(charge, collector, cell)
                )
                for part, quantity in split.items():
                    quantities[part] += quantity
        for part, quantity in quantities.items():
            parts[part] += price * quantity
    parts["rest" if by_time else "fee"] += Fraction(sums.tariff.fee.price or 0) * rows
    return Decomposition(sums.tariff.id, group, rule, rows, dict(sorted(left_out.items())), parts)


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
    over_execution: Fraction | int = cell[sums.over_execution] * unit
    if sums.size is not None:
        over_execution *= size_of(sums, cell)
    parts["initialization"] = level["plain"] - over_execution
    if charge.basis not in ("allocated", "reserved"):
        parts["use"] = over_execution
    elif charge.resource == "cpu":
        parts |= _cpu(sums, collector, cell, over_execution)
    else:
        parts |= _memory(sums, collector, cell, over_execution)
    return parts


def with_times(table: ir.Table) -> ir.Table:
    """Add the columns of `TIMES`, ns, that sum to the execution of each row.

    Threads that wait while others of the invocation run hold nothing up: the CPU time counts
    first, then the throttled time, then the waiting, each up to what is left of the execution, and
    the rest is blocked. Rows whose CPU time or `cpu_wait` is unknown are unmeasured.
    """
    values = {name: integers(table, name) for name in ("execution", *_TIME_COLUMNS)}
    # Absurd times are of rows without a price, and are not to overflow where they are added up.
    known = {
        name: ibis.null("int64") if value is None else at_most(value, MAX_TIME)
        for name, value in values.items()
    }
    execution = known["execution"].fill_null(0)
    cpu = known["cpu_user"].fill_null(0) + known["cpu_system"].fill_null(0)
    no_cpu_time = known["cpu_user"].isnull() & known["cpu_system"].isnull()
    is_unmeasured = no_cpu_time | known["cpu_wait"].isnull()
    spent = {"cpu": cpu, "throttled": known["throttled_time"], "cpu_wait": known["cpu_wait"]}
    left = ibis.ifelse(is_unmeasured, integer(0), execution)
    columns = {"unmeasured": ibis.ifelse(is_unmeasured, execution, integer(0))}
    for name, time in spent.items():
        columns[name] = ibis.least(ibis.greatest(time.fill_null(0), integer(0)), left)
        left = left - columns[name]
    columns["blocked"] = left
    return table.mutate(**columns)


def _over_times(sums: ChargeSums, cell: Mapping[str, Any]) -> dict[str, Fraction | int]:
    """A charge's parts in one cell by what the execution did; a charge for use is for the CPU."""
    charge, billed = sums.charge, _levels(sums, cell)["billed"]
    if charge.is_credit:
        return {"rest": -billed}
    unit = 1 if charge.is_rate else MICRO_PER_VCPU
    size = 1 if sums.size is None else size_of(sums, cell)
    parts: dict[str, Fraction | int] = {
        name: cell[column] * unit * size for name, column in sums.over_times.items()
    }
    if not parts:
        parts = {"cpu": cell[sums.over_execution] * unit}
    return parts | {"rest": billed - sum(parts.values())}


def _levels(sums: ChargeSums, cell: Mapping[str, Any]) -> dict[Level, Fraction | int]:
    """The whole charge without rules, with granularities, and with all rules."""
    totals = {level: int(cell[sums.levels[level]]) for level in LEVELS}
    charge = sums.charge
    if sums.size is None:
        unit = 1 if charge.is_rate else MICRO_PER_VCPU
        return {level: total * unit for level, total in totals.items()}
    return {level: size_of(sums, cell, level) * totals[level] for level in LEVELS}


def _cpu(
    sums: ChargeSums, collector: Collector, cell: Mapping[str, Any], over_execution: Fraction | int
) -> dict[str, Fraction | int]:
    reserved = sums.charge.basis == "reserved"
    if cell["no_cpu_time"] or (reserved and cell["no_borrowed_cpu_time"]):
        return {"unmeasured": over_execution}
    use = cell[collector.cpu_time] * MICRO_PER_VCPU
    if reserved and collector.borrowed is not None:
        use -= cell[collector.borrowed] * MICRO_PER_VCPU
    running: Fraction | int = over_execution
    if cell["partly"] and sums.size is not None:
        running = size_of(sums, cell) * cell[collector.cpu_time] * busy_factor(cell)
    elif cell["partly"] and sums.over_cpu_time is not None:
        running = cell[sums.over_cpu_time] * busy_factor(cell)
    return {"use": use, "over_allocation": running - use, "idle": over_execution - running}


def _memory(
    sums: ChargeSums, collector: Collector, cell: Mapping[str, Any], over_execution: Fraction | int
) -> dict[str, Fraction | int]:
    if cell["no_memory_avg"]:
        return {"unmeasured": over_execution}
    use = cell[collector.memory_execution]
    if cell["no_cpu_time"]:
        return {"use": use, "unmeasured": over_execution - use}
    over: Fraction | int = over_execution - use
    if cell["partly"] and sums.size is not None:
        size, factor = size_of(sums, cell), busy_factor(cell)
        over = (size * cell[collector.cpu_time] - cell[collector.memory_cpu_time]) * factor
    return {"use": use, "over_allocation": over, "idle": over_execution - use - over}


def _integers(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a cell's sums to integers; engines return decimals."""
    return {
        name: int(value) if isinstance(value, Decimal) else value for name, value in cell.items()
    }


def _record(bill: Decomposition, group_by: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "tariff": bill.tariff,
        **{name: bill.group[name] for name in group_by},
        "fit": bill.fit,
        "total_rows": bill.total_rows,
        "rows": bill.rows,
        "left_out": dict(bill.left_out),
    }
    if bill.rows:
        parts, total = usd_parts(bill.parts)
        record |= {f"{part}_usd": parts[part] for part in names} | {"cost_usd": total}
    if bill.rows and bill.total:
        record |= {f"{part}_share": float(bill.parts[part] / bill.total) for part in names}
    return dict.fromkeys(columns(group_by, names)) | record
