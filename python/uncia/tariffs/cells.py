"""From rows to cells: all rows of a group that every tariff treats alike, with their sums.

A cell holds the rows of one group that have the same allocation and the same gaps (columns that
are null). Times and used amounts are rounded row by row, then summed over the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.errors import UnciaError
from uncia.record import INSTANCE_STARTS
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import at_least, at_most, integer, product, round_up
from uncia.tariffs.facts import UNKNOWN, Facts
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.state import COMMON_CODES, Flag, state_of
from uncia.units import MICRO_PER_VCPU

MAX_TIME: Final = 366 * 24 * 3600 * 10**9
"""Longest duration that is believed, ns: a year. No platform runs an invocation for that long."""

MAX_CPU: Final = 1000 * MICRO_PER_VCPU
"""Largest vCPU allocation that is believed, micro-vCPU."""

MAX_MEMORY: Final = 1 << 42
"""Largest memory that is believed, bytes: 4 TiB. The fit multiplies it by 10^6 within 64 bits."""

SUM_LIMIT: Final = 10**18
"""Values of a sum over rows stay below it, in 64 bits; what may not is summed in 128."""

BELIEVED: Final[dict[str, int]] = {
    "execution": MAX_TIME,
    "initialization": MAX_TIME,
    "allocated_cpu": MAX_CPU,
    "allocated_memory": MAX_MEMORY,
    "cpu_user": MAX_TIME,
    "cpu_system": MAX_TIME,
    "memory_avg": MAX_MEMORY,
    "memory_peak": MAX_MEMORY,
    "reserved_cpu": MAX_CPU,
    "borrowed_cpu_time": MAX_TIME,
    "lent_cpu_time": MAX_TIME,
    "lent_memory_avg": MAX_MEMORY,
}
"""The columns that bills are made from, with the largest value that is believed."""

NOT_BILLABLE: Final[dict[int, str]] = {
    1: "throttled",
    2: "preempted",
    3: "timeout before it ran",
    4: "transport error before it ran",
}
"""What no tariff charges for, by code of the column `common`."""

NO_EXECUTION: Final = 5
ABSURD: Final = 6
COMMON_UNPRICED: Final[dict[int, str]] = {
    NO_EXECUTION: "execution is null",
    ABSURD: "a value is negative or absurd",
}
PRICED: Final = 0

# The column where each basis finds its amount; allocations come from the fit.
_MEASURED: Final[dict[tuple[str, str], str]] = {
    ("cpu", "used"): "cpu_time",
    ("cpu", "reserved"): "reserved_cpu",
    ("cpu", "borrowed"): "borrowed_cpu_time",
    ("cpu", "lent"): "lent_cpu_time",
    ("memory", "used"): "memory_avg",
    ("memory", "lent"): "lent_memory_avg",
}


class Cells:
    """Collects what the cells must hold: sums over rows, and the flags that tell cells apart."""

    def __init__(
        self,
        table: ir.Table,
        group_by: Sequence[str],
        facts: Facts | None = None,
        wide_sums: bool = False,
    ) -> None:
        self._wide_sums = wide_sums
        self._table = table
        self._group_by = tuple(group_by)
        self._facts = facts or {}
        self._rows = Columns()
        self._flags: dict[str, Flag] = {}
        self._used: set[str] = set()
        self._sums: dict[str, Col] = {}
        self._derived: dict[str, Callable[[ir.Table], Any]] = {}

    def is_empty(self, name: str) -> bool:
        """Whether a column of the table is known to hold nothing."""
        return self._facts.get(name, UNKNOWN).empty

    def row(self, name: str) -> Col:
        """A column of the rows."""
        self._used.add(name)
        return self._rows.base(name)

    def add(self, label: str, build: Callable[..., Any], *inputs: Col) -> Col:
        """A column of the rows computed from others; see `Columns.add`."""
        return self._rows.add(label, build, *inputs)

    def sum(self, column: Col) -> str:
        """The sum of a row column over each cell, DECIMAL(38, 0); the name of the cells' column."""
        name = f"sum_{column.name}"
        self._sums[name] = column
        return name

    def derive(self, name: str, build: Callable[[ir.Table], Any]) -> str:
        """A column of the cells made of other sums, DECIMAL(38, 0); its name."""
        self._derived[name] = build
        return name

    def flag(self, name: str, flag: Flag) -> str:
        """Keep rows apart by a flag; the name of the cells' column, a boolean."""
        self._flags[name] = flag
        return name

    def gap(self, name: str) -> str:
        """Keep rows apart by whether a column is null; the name of the cells' column."""
        return self.flag(f"no_{name}", Flag("gap", name))

    def above(self, name: str, bound: int) -> str:
        """Keep rows apart by whether a column is known and above a bound; likewise."""
        return self.flag(f"{name}_above_{bound}", Flag("above", name, bound))

    def _sum(self, value: Any) -> Any:
        # A sum of int64 is 64 bits wide on some engines; one of decimals has 38 digits on all.
        if not (self._wide_sums or value.type().is_decimal()):
            value = value.cast("decimal(18, 0)")
        return value.sum().cast("decimal(38, 0)")

    def table(self) -> ir.Table:
        """The cells: `g_*`, allocation, `common`, flags, sums, and ``n``, the number of rows."""
        columns = believed(self._table, self._group_by, self._facts)
        groups = [f"g_{name}" for name in self._group_by]
        kept = [*groups, "v_allocated_cpu", "v_allocated_memory"]
        used = [name for name in columns if name in self._used and name not in kept]
        values = {name: _integers(self._table, name) for name in BELIEVED}
        values = {name: value for name, value in values.items() if value is not None}
        state, flags = state_of(self._table, values, columns, self._flags, BELIEVED, self._facts)
        base = self._table.select(**{name: columns[name] for name in (*kept, *used)}, state=state)
        rows = self._rows.table(base)
        cells = rows.aggregate(
            {"n": rows.count().cast("int64")}
            | {name: self._sum(rows[column.name]) for name, column in self._sums.items()},
            by=[*kept, "state"],
        )
        return cells.mutate(
            common=(cells["state"] % integer(COMMON_CODES)).cast("int16"),
            **{name: read(cells["state"]) for name, read in flags.items()},
            **{name: build(cells) for name, build in self._derived.items()},
        )


@dataclass(frozen=True)
class Sums:
    """Names of the cells' columns that a tariff's charges are made of; read by `equation`."""

    billed: tuple[str, ...]
    unrounded: tuple[str, ...]
    beyond: tuple[str, ...]


def tariff_sums(cells: Cells, tariff: Tariff) -> Sums:
    """Ask for the sums that a tariff needs: of time for allocations, of amounts for usage."""
    time, plain_time = _times(cells, tariff)
    billed: list[str] = []
    unrounded: list[str] = []
    for charge in tariff.charges:
        for column in measured_needs(charge):
            cells.gap(column)
        if charge.when != "always":
            cells.flag("preemptible", Flag("preemptible"))
            cells.flag("no_preemptible", Flag("no_preemptible"))
        if charge.basis == "allocated":
            plain = _plain_sum(cells, tariff, plain_time)
            billed.append(plain if time == plain_time else cells.sum(time))
            unrounded.append(plain)
        elif charge.is_rate:
            billed.append(_rounded_products(cells, charge, time))
            unrounded.append(_capped_products(cells, charge, plain_time))
        elif tariff.time.kind == "cpu":  # CPU time is the billable time, rounded already
            billed.append(cells.sum(time))
            unrounded.append(cells.sum(plain_time))
        else:
            amount = cells.row(f"v_{_measured(charge)}")
            billed.append(cells.sum(_bounded(cells, amount, charge)))
            unrounded.append(cells.sum(capped(cells, amount, charge)))
    if tariff.time.kind == "turnaround":
        cells.flag("unknown_start", Flag("unknown_start"))
    return Sums(tuple(billed), tuple(unrounded), _beyond(cells, tariff))


def _plain_sum(cells: Cells, tariff: Tariff, plain_time: Col) -> str:
    """The sum of a time as it was; that of a turnaround is the sum of its parts, which is less."""
    if tariff.time.kind != "turnaround" or cells.is_empty("initialization"):
        return cells.sum(plain_time)
    run, start = cells.sum(cells.row("v_execution")), cells.sum(cells.row("v_initialization"))
    return cells.derive(
        "sum_turnaround",
        lambda sums: (sums[run] + _or_zero(sums[start])).cast("decimal(38, 0)"),
    )


def _rounded_products(cells: Cells, charge: Charge, time: Col) -> str:
    """The sum of amount x time, the amount rounded up and bounded."""
    amount = _bounded(cells, cells.row(f"v_{_measured(charge)}"), charge)
    step, most = charge.limit("granularity"), charge.limit("maximum")
    least = charge.limit("minimum") or 0
    if step is None or most is None or step & (step - 1) or most % step or least % step:
        return cells.sum(cells.add("product", product, amount, time))
    if most // step * 3 * MAX_TIME >= SUM_LIMIT:
        return cells.sum(cells.add("product", product, amount, time))
    # A whole number of steps, a power of two each: counted in steps the product fits in 64 bits.
    bits = step.bit_length() - 1
    steps = cells.sum(
        cells.add(
            f"steps of 2^{bits} x time",
            lambda size, lasts: (size >> integer(bits)) * lasts,
            *(amount, time),
        )
    )
    return cells.derive(
        f"{steps}_x_{step}",
        lambda sums: (sums[steps] * integer(step).cast("decimal(18, 0)")).cast("decimal(38, 0)"),
    )


def _capped_products(cells: Cells, charge: Charge, time: Col) -> str:
    """The sum of amount x time, the amount as it was, but at most the maximum."""
    amount, most = cells.row(f"v_{_measured(charge)}"), charge.limit("maximum")
    whole = cells.sum(cells.add("product", product, amount, time))
    if most is None:
        return whole
    # Less what lies above: of most rows nothing does, and nothing is multiplied.
    above = cells.sum(
        cells.add(
            f"product above {most}",
            lambda size, lasts: ibis.cases(
                (size > integer(most), product(size - integer(most), lasts)),
                else_=ibis.null("decimal(38, 0)"),
            ),
            *(amount, time),
        )
    )
    return cells.derive(
        f"{whole}_less_{above}",
        lambda sums: (sums[whole] - _or_zero(sums[above])).cast("decimal(38, 0)"),
    )


def _or_zero(total: Any) -> Any:
    return total.fill_null(integer(0).cast("decimal(38, 0)"))


def used_memory(cells: Cells) -> str:
    for column in ("cpu_time", "memory_avg"):
        cells.gap(column)
    return cells.sum(
        cells.add("product", product, cells.row("v_memory_avg"), cells.row("v_execution"))
    )


def _times(cells: Cells, tariff: Tariff) -> tuple[Col, Col]:
    """The billable time T of each row, ns: rounded up, and as it was."""
    execution = cells.row("v_execution")
    match tariff.time.kind:
        case "execution":
            plain = execution
        case "turnaround" if cells.is_empty("initialization"):
            plain = execution
        case "turnaround":
            plain = cells.add(
                "turnaround",
                lambda run, start: run + start.fill_null(0),
                execution,
                cells.row("v_initialization"),
            )
        case "cpu":
            plain = cells.row("v_cpu_time")
        case "instance":
            raise UnciaError(f"the tariff {tariff.id} bills instance time, not invocations")
    time = plain
    if (step := tariff.time.granularity) is not None:
        time = cells.add(f"round up to {step}", lambda value: round_up(value, step), time)
    if (least := tariff.time.minimum) is not None:
        time = cells.add(f"at least {least}", lambda value: at_least(value, least), time)
    return time, plain


def _bounded(cells: Cells, amount: Col, charge: Charge) -> Col:
    """The amount used of each row, with granularity, minimum and maximum applied."""
    if (step := charge.limit("granularity")) is not None:
        amount = cells.add(f"round up to {step}", lambda value: round_up(value, step), amount)
    if (least := charge.limit("minimum")) is not None:
        amount = cells.add(f"at least {least}", lambda value: at_least(value, least), amount)
    return capped(cells, amount, charge)


def capped(cells: Cells | Columns, amount: Col, charge: Charge) -> Col:
    most = charge.limit("maximum")
    if most is None:
        return amount
    return cells.add(f"at most {most}", lambda value: at_most(value, most), amount)


def _beyond(cells: Cells, tariff: Tariff) -> tuple[str, ...]:
    """Flags that each tell that a row exceeds what the platform allows; null exceeds nothing."""
    limits = tariff.limits
    if limits is None:
        return ()
    known = (
        ("execution", limits.execution),
        ("cpu_time", limits.cpu_time),
        ("memory_peak", limits.memory),
    )
    return tuple(cells.above(name, bound) for name, bound in known if bound is not None)


def _measured(charge: Charge) -> str:
    name = _MEASURED.get((charge.resource, charge.basis))
    if name is None:
        raise UnciaError(f"{charge.resource} {charge.basis} cannot be billed by request")
    return name


def measured_needs(charge: Charge) -> tuple[str, ...]:
    """The measured columns without which a charge's amount is not known."""
    return () if charge.basis == "allocated" else (_measured(charge),)


def prepare(table: ir.Table, group_by: Sequence[str]) -> ir.Table:
    """The needed columns only, as int64; a value that cannot be believed is null and marked.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    return table.select(**believed(table, group_by))


def believed(
    table: ir.Table, group_by: Sequence[str] = (), facts: Facts | None = None
) -> dict[str, Any]:
    """The columns of `prepare` by name, as expressions over the table.

    Args:
        table: the rows.
        group_by: columns to keep, as ``g_<name>``.
        facts: what is known of the table's columns, so that it need not be asked of each row.

    Raises:
        UnciaError: a column is missing or not of whole numbers.
    """
    schema = table.schema()
    known = facts or {}
    for required in ("execution", *group_by):
        if required not in schema:
            raise UnciaError(f"the table has no column {required}, so it cannot be billed")
    columns: dict[str, Any] = {f"g_{name}": table[name] for name in group_by}
    absurd_row: Any = ibis.literal(False)
    for name, most in BELIEVED.items():
        value, fact = _integers(table, name), known.get(name, UNKNOWN)
        if value is None or fact.empty:
            columns[f"v_{name}"] = ibis.null("int64")
            continue
        if fact.within(0, most):
            columns[f"v_{name}"] = value
            continue
        absurd = ((value < integer(0)) | (value > integer(most))).fill_null(False)
        absurd_row = absurd_row | absurd
        columns[f"v_{name}"] = ibis.ifelse(absurd, ibis.null("int64"), value)
    start = table["start"].cast("string") if "start" in schema else ibis.null("string")
    told = known.get("start", UNKNOWN)
    if told.low == told.high and told.low in INSTANCE_STARTS:
        cold = start.notnull()
    else:
        cold = start.isin(INSTANCE_STARTS).fill_null(False)
    columns["preemptible"] = (
        table["preemptible"].cast("boolean") if "preemptible" in schema else ibis.null("boolean")
    )
    columns["unknown_start"] = cold & columns["v_initialization"].isnull()
    execution = _integers(table, "execution")
    ran = ibis.literal(False) if execution is None else execution.notnull()
    outcome: Any = ibis.literal("ok")
    if "outcome" in schema and not known.get("outcome", UNKNOWN).always("ok"):
        outcome = table["outcome"].cast("string")
    columns["common"] = ibis.cases(
        (outcome == "throttled", 1),
        (outcome == "preempted", 2),
        (~ran & (outcome == "timeout"), 3),
        (~ran & (outcome == "transport_error"), 4),
        (~ran, NO_EXECUTION),
        (absurd_row, ABSURD),
        else_=PRICED,
    ).cast("int16")
    columns["v_cpu_time"] = _cpu_time(columns["v_cpu_user"], columns["v_cpu_system"], known)
    return columns


def _cpu_time(user: Any, system: Any, facts: Facts) -> Any:
    """Their sum; a platform that reports only the total of CPU time has it in one of the two."""
    if facts.get("cpu_system", UNKNOWN).empty:
        return user
    if facts.get("cpu_user", UNKNOWN).empty:
        return system
    return ibis.ifelse(
        user.isnull() & system.isnull(), ibis.null("int64"), user.fill_null(0) + system.fill_null(0)
    )


def _integers(table: ir.Table, name: str) -> Any:
    """A column as int64, or None if it is not there or holds nothing.

    Raises:
        UnciaError: it holds something else than whole numbers.
    """
    dtype = table.schema().get(name)
    # Parquet's null type comes through DuckDB as a type that Ibis does not know.
    if dtype is None or dtype.is_null() or (dtype.is_unknown() and "NULL" in str(dtype)):
        return None
    if not dtype.is_integer():
        raise UnciaError(
            f"the column {name} is {dtype}, but bills are exact: it must hold whole numbers"
            " (ns, bytes, micro-vCPU)"
        )
    return table[name].cast("int64")
