"""The cost of instances under tariffs that bill them for as long as they exist.

The billable time of each instance is ``ended - started``, rounded up and at least the tariff's
minimum; an instance that still runs ends at the last time in the tables of its run. Its allocation
is fitted to the tariff's sizes like that of a request. Where the minimum is for all instances
together, a shortfall is billed at the cheapest of their sizes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.backends import Backend, Source, use
from uncia.costs.sizes import Size, billed_amount
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, find, get, ids
from uncia.tariffs.catalogue import how_to_price
from uncia.tariffs.fit import fit_size
from uncia.tariffs.money import money
from uncia.units import MAX_TIME, NS_PER_H

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

    from uncia.tariffs.model import Charge
    from uncia.tariffs.rules import Level

COLUMNS: Final = (
    "tariff",
    "fit",
    "instances",
    "priced",
    "unpriced",
    "running",
    "beyond_size",
    "instance_ns",
    "billed_ns",
    "billable_micro_vcpu_ns",
    "billable_byte_ns",
    "storage_byte_ns",
    "rounding_usd",
    "cost_usd",
    "usd_per_instance_hour",
    "note",
)

_OF_INVOCATIONS: Final = ("execution", "invocation", "outcome")
"""Columns that tables of instances never have, by which a table of invocations is told."""

_PRICED: Final = 0
_REASONS: Final = {
    1: "its start or its end is not known",
    2: "it ended before it started",
    3: "its life is absurd: longer than a year",
    4: "its allocation is negative or absurd",
}


def by_instance() -> tuple[str, ...]:
    """The ids of the tariffs that bill the time of instances."""
    return tuple(name for name in ids() if get(name).by_instance)


def resolve(tariffs: Sequence[str | Path | Tariff] | None) -> list[Tariff]:
    """Look up tariffs that bill instance time, with or without a price; by default all.

    Raises:
        UnciaError: a tariff is unknown or wrong, is named twice, or bills by request.
    """
    if tariffs is None:
        return [get(name) for name in by_instance()]
    chosen = [find(name) for name in tariffs]
    for index, tariff in enumerate(chosen):
        if not tariff.by_instance:
            raise UnciaError(
                f"the tariff {tariff.id} bills requests, not the time of instances",
                f"Price requests with uncia bill; by instance bill: {', '.join(by_instance())}.",
            )
        if tariff.id in {earlier.id for earlier in chosen[:index]}:
            raise UnciaError(f"the tariff {tariff.id} is named twice")
    return chosen


def instances(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    *,
    invocations: Source | None = None,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Price an instances table under tariffs that bill instance time.

    Args:
        source: the instances table, in memory, as an expression, or as paths of it or its folder.
        tariffs: ids, files or tariffs; by default all that bill instance time.
        invocations: whose last times are when running instances end; by default the table in the
            same folder.
        backend: computes the sums; by default a DuckDB that is opened for it.

    Returns:
        A row for each tariff: ``fit`` (how allocations become sizes), ``instances``, ``priced``,
        ``unpriced`` (count by reason), ``running`` (priced while they still run), ``beyond_size``
        (priced although larger than the tariff's only size), ``instance_ns`` (how long the priced
        ones existed), ``billed_ns``, ``billable_micro_vcpu_ns``, ``billable_byte_ns`` and
        ``storage_byte_ns`` (None where the tariff has no such charge), ``rounding_usd`` (what
        granularities and minimums add), ``cost_usd`` and ``usd_per_instance_hour`` (over
        ``instance_ns``). Quantities and amounts are Decimal. For a tariff without a public price,
        amounts are None and ``note`` says why.

    Raises:
        UnciaError: a table or tariff cannot be read, a folder has no table of instances, or the
            table lacks its times, is of invocations, or has other values than whole numbers.
    """
    import pandas as pd

    with use(backend) as backend:
        chosen = resolve(tariffs)
        _check_there(source)
        table = backend.table(source, "instances")
        if invocations is None and backend.has(source, "invocations"):
            invocations = source
        invocation_table = None if invocations is None else backend.table(invocations)
        cells = backend.collect(_cells(_lifetimes(table, invocation_table), chosen)).to_pylist()
        records = [
            dict.fromkeys(COLUMNS) | _record(tariff, f"t{index}_", cells)
            for index, tariff in enumerate(chosen)
        ]
        return pd.DataFrame(records, columns=list(COLUMNS), dtype=object)


def _check_there(source: Source) -> None:
    """Refuse folders of runs and imports that have no table of instances: it would cost nothing.

    Raises:
        UnciaError: with the first such folder.
    """
    from uncia.backends.paths import is_address
    from uncia.record import TABLES, is_there

    if not isinstance(source, (str, Path, list, tuple)):
        return
    for path in [source] if isinstance(source, (str, Path)) else source:
        folder = Path(path)
        if is_address(path) or not folder.is_dir() or is_there(folder, "instances"):
            continue
        if any(is_there(folder, name) for name in TABLES):
            raise UnciaError(
                f"{path} has no table of instances, so they cannot be billed",
                "Name the folder of a run or import with instances.parquet, or such a file.",
            )


def no_price(tariff: Tariff) -> str | None:
    """Say that a tariff lacks public prices; None if it has all."""
    missing = tariff.unpriced_figures
    if not missing:
        return None
    how = how_to_price(tariff)
    return f"no public price is known for {' and '.join(missing)}: {how[0].lower()}{how[1:]}"


def _lifetimes(table: ir.Table, invocations: ir.Table | None) -> ir.Table:
    """Select ``life`` (ns), ``running``, ``cpu``, ``memory`` and ``reason`` (0: none)."""
    import ibis

    from uncia.tariffs.exact import integer
    from uncia.tariffs.rows import MAX_CPU, MAX_MEMORY

    if strange := [name for name in _OF_INVOCATIONS if name in table.columns]:
        raise UnciaError(
            f"the table has the column {strange[0]}, so its rows are invocations and no instances",
            "Name a table of instances, or price invocations with: uncia bill TABLE.",
        )
    for name in ("started", "ended"):
        if name not in table.columns:
            raise UnciaError(
                f"the instances table has no column {name}, so its instances cannot be billed"
            )
    # A row without a start is not billed, and its other times may be nonsense.
    begun = table.filter(table["started"].notnull())
    last_times = _last_times(begun, ("started", "initialized", "ended"), "instances")
    if invocations is not None:
        names = ("started", "ended", "sent", "received")
        others = _last_times(invocations, names, "invocations")
        last_times = ibis.union(last_times, others, distinct=False)
    last_times = last_times.group_by("of_run").aggregate(until=lambda t: t["until"].max())
    rows = table.mutate(of_run=_run(table))
    rows = rows.left_join(last_times, rows["of_run"] == last_times["of_run"])
    ended = _integers(rows, "ended")
    # In decimals, as the difference of two absurd times may exceed 64 bits.
    life = _wide(ended.coalesce(rows["until"])) - _wide(_integers(rows, "started"))
    absurd: Any = ibis.literal(False)
    sizes: dict[str, Any] = {}
    for name, maximum in (("cpu", MAX_CPU), ("memory", MAX_MEMORY)):
        sizes[name] = _integers(rows, f"allocated_{name}")
        outside = (sizes[name] < integer(0)) | (sizes[name] > integer(maximum))
        absurd = absurd | outside.fill_null(False)
    reason = ibis.cases(
        (life.isnull(), 1),
        (life < integer(0), 2),
        (life > integer(MAX_TIME), 3),
        (absurd, 4),
        else_=_PRICED,
    ).cast("int16")
    rows = rows.select(life=life, running=ended.isnull(), reason=reason, **sizes)
    # Values of unpriced instances become null: computing with them might overflow every type.
    priced = rows["reason"] == _PRICED
    kept = {
        name: ibis.ifelse(priced, rows[name], ibis.null(rows[name].type())).cast("int64")
        for name in ("life", *sizes)
    }
    return rows.mutate(**kept)


def _cells(lives: ir.Table, tariffs: Sequence[Tariff]) -> ir.Table:
    def total(value: Any) -> Any:
        return value.cast("decimal(18, 0)").sum().cast("decimal(38, 0)")

    sums = {"n": lives.count().cast("int64"), "life_sum": total(lives["life"])}
    for index, tariff in enumerate(tariffs):
        rules = tariff.time.rules
        sums[f"t{index}_time"] = total(rules(lives["life"]))
        sums[f"t{index}_unrounded"] = total(rules.at("unrounded")(lives["life"]))
    return lives.aggregate(sums, by=["cpu", "memory", "running", "reason"])


def _record(tariff: Tariff, prefix: str, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    unpriced: dict[str, int] = {}
    priced: list[tuple[Size, Mapping[str, Any]]] = []
    for cell in cells:
        needed = Size(cell["cpu"], cell["memory"])
        size = fit_size(tariff.sizes, needed)
        reason = _REASONS.get(cell["reason"]) or missing(tariff, needed, size)
        if reason is None:
            priced.append((size, cell))
        else:
            unpriced[reason] = unpriced.get(reason, 0) + cell["n"]
    record: dict[str, Any] = {
        "tariff": tariff.id,
        "fit": tariff.sizes.rule,
        "instances": sum(cell["n"] for cell in cells),
        "priced": sum(cell["n"] for _, cell in priced),
        "unpriced": unpriced,
        "running": sum(cell["n"] for _, cell in priced if cell["running"]),
        "beyond_size": sum(
            cell["n"] for size, cell in priced if exceeds(Size(cell["cpu"], cell["memory"]), size)
        ),
        "note": no_price(tariff),
    }
    if not priced or record["note"] is not None:
        return record
    spans = [
        (size, int(cell[f"{prefix}unrounded"]), int(cell[f"{prefix}time"])) for size, cell in priced
    ]
    shortfall = (tariff.time.minimum_all or 0) - sum(billed for _, _, billed in spans)
    if shortfall > 0:
        cheapest = min((size for size, _, _ in spans), key=lambda size: price(tariff, size))
        spans.append((cheapest, 0, shortfall))
    cost = unrounded = Fraction(0)
    quantities: dict[str, int] = {}
    for size, unrounded_ns, billed_ns in spans:
        for charge in tariff.charges:
            amount = amount_of(charge, size)
            unit = charge.unit_price or Fraction(0)
            cost += unit * amount * billed_ns
            unrounded += unit * amount_of(charge, size, "unrounded") * unrounded_ns
            quantities[charge.resource] = quantities.get(charge.resource, 0) + amount * billed_ns
    lived_ns = sum(int(cell["life_sum"]) for _, cell in priced)
    record |= {
        "instance_ns": Decimal(lived_ns),
        "billed_ns": Decimal(sum(billed_ns for _, _, billed_ns in spans)),
        "rounding_usd": money(cost - unrounded),
        "cost_usd": money(cost),
        "usd_per_instance_hour": money(cost * NS_PER_H / lived_ns) if lived_ns else None,
    }
    names = (
        ("cpu", "billable_micro_vcpu_ns"),
        ("memory", "billable_byte_ns"),
        ("storage", "storage_byte_ns"),
    )
    for resource, name in names:
        if resource in quantities:
            record[name] = Decimal(quantities[resource])
    return record


def price(tariff: Tariff, size: Size) -> Fraction:
    """Dollars for a nanosecond of an instance of that size."""
    return sum(
        ((charge.unit_price or Fraction(0)) * amount_of(charge, size) for charge in tariff.charges),
        Fraction(0),
    )


def amount_of(charge: Charge, size: Size, level: Level = "billed") -> int:
    """The amount that a charge multiplies the time with: micro-vCPU, bytes, or one instance."""
    return billed_amount(charge, size, level) or 0


def exceeds(needed: Size, size: Size) -> bool:
    """Whether an allocation is larger than the size; only a tariff with a fixed size allows it."""
    return any(
        amount is not None and limit is not None and amount > limit
        for amount, limit in zip(needed, size, strict=True)
    )


def missing(tariff: Tariff, needed: Size, size: Size) -> str | None:
    """Say why a tariff has no size for an allocation; None if it has one."""
    amounts = {"cpu": size.cpu, "memory": size.memory}
    for charge in tariff.charges:
        if charge.unit_price != 0 and amounts.get(charge.resource, 0) is None:
            if needed.memory is None:
                return "allocated_memory is null"
            if needed.cpu is None:
                return "allocated_cpu is null"
            return "larger than every size of the tariff"
    return None


def _last_times(table: ir.Table, names: Sequence[str], kind: str) -> ir.Table:
    """The last time in the rows of each run.

    Rows whose times are absurdly far apart are ignored, as are rows with a single time that is not
    the first: every running instance would end at that time.

    Args:
        table: its rows.
        names: of the columns of times.
        kind: which table it is, for messages.
    """
    import ibis

    from uncia.tariffs.exact import integer

    times = {name: _integers(table, name, kind) for name in names}
    # SQL's GREATEST and LEAST ignore nulls, on DuckDB and on Spark.
    span = _wide(ibis.greatest(*times.values())) - _wide(ibis.least(*times.values()))
    absurd = (span > integer(MAX_TIME)).fill_null(False)
    count = functools.reduce(operator.add, (time.notnull().cast("int8") for time in times.values()))
    rows = table.filter(~absurd & ((count > 1) | times[names[0]].notnull()))
    rows = rows.select(of_run=_run(rows), **{name: _integers(rows, name, kind) for name in names})
    by_run = rows.aggregate({f"last_{name}": rows[name].max() for name in names}, by="of_run")
    last = ibis.greatest(*(by_run[f"last_{name}"] for name in names))
    return by_run.select("of_run", until=last)


def _run(table: ir.Table) -> Any:
    import ibis

    if "run" not in table.columns:
        return ibis.literal("").cast("string")
    return table["run"].cast("string").fill_null("")


def _wide(value: Any) -> Any:
    """An integer with room for differences."""
    return value.cast("decimal(20, 0)")


def _integers(table: ir.Table, name: str, kind: str = "instances") -> Any:
    """A column as int64; null where the table lacks it.

    Raises:
        UnciaError: it holds other values than whole numbers.
    """
    import ibis

    from uncia.tariffs.rows import integers

    value = integers(table, name, kind)
    return ibis.null("int64") if value is None else value
