"""Distributions of billable resources per request under each tariff (Figure 2's curves).

A tariff that bills an allocation bills size x T, and rows of one allocation have one size; so rows
are counted by allocation and bin of T, once for all tariffs, and each tariff's distribution is
those bins times its few sizes, merged. What is billed by use is binned directly. Error: see
`uncia.costs.bins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.costs import bins
from uncia.costs.rows import Tariffs, fit_comparable, prepared, resolve
from uncia.costs.sizes import Size, fit_sizes
from uncia.tariffs import Tariff
from uncia.tariffs.allocation import known_facts
from uncia.tariffs.billable_time import actual_time, measured, turnaround
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.model import BillableTime, Charge
from uncia.tariffs.rules import Minimum, Rules
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from ibis.expr import types as ir

    from uncia.backends import Backend, Source
    from uncia.tariffs import FitRule
    from uncia.tariffs.facts import Facts

USED: Final = "used"
"""The name of the curves of what was used, among those of the tariffs."""

RESOURCES: Final = {"cpu": "vcpu", "memory": "memory"}
_UNITS: Final = {"cpu": float(MICRO_PER_VCPU * NS_PER_S), "memory": float(GIB * NS_PER_S)}
_FLAVOUR: Final = ("v_allocated_cpu", "v_allocated_memory")
_TURNAROUND: Final = "turnaround"
_ELSEWHERE: Final = {("cpu", "reserved"), ("cpu", "borrowed")}  # neither a size nor a use


def inflation_cdf(
    source: Source,
    tariffs: Tariffs | None = None,
    *,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Distribution of what each tariff bills per request, and of what was used.

    Args:
        source: invocations; the rows are those of `uncia.costs.inflation.inflation`.
        tariffs: ids, files or tariffs; by default every one that bills by request.
        fit: how an allocation becomes a size.
        backend: where it is computed; by default a DuckDB of its own.

    Returns:
        Columns ``tariff`` (or ``used``), ``resource`` (vcpu, memory), ``value`` (vCPU-s or GB-s a
        request) and ``share`` (of the rows priced, those that are billed at most so much); at most
        2,048 points a curve. F(value / 1.0109) <= share <= F(value). A tariff that does not bill a
        resource has no curve of it.

    Raises:
        UnciaError: a table or tariff cannot be read, or a tariff bills by instance.
    """
    if backend is None:
        from uncia.backends import connect

        with connect() as own:
            return inflation_cdf(source, tariffs, fit=fit, backend=own)
    facts = known_facts(source, fit)
    table, chosen, _ = fit_comparable(backend.table(source), resolve(tariffs), fit, backend, facts)
    return curves_of(table, chosen, fit, facts, backend)


def curves_of(
    table: ir.Table, chosen: Sequence[Tariff], fit: FitRule, facts: Facts, backend: Backend
) -> pd.DataFrame:
    """As `inflation_cdf`, of a table and tariffs to which the fit is applied already.

    Args:
        table: invocations.
        chosen: the tariffs.
        fit: chooses the rows.
        facts: what is known of the columns.
        backend: where it is computed.
    """
    import pandas as pd

    rows = prepared(table, fit, facts)
    curves: dict[tuple[str, str], bins.Curve] = {}
    for tariff, resource, values, counts in _all(rows, chosen, backend):
        curves[tariff, resource] = bins.cumulative(values / _UNITS[resource], counts)
    order = {name: place for place, name in enumerate([USED, *(t.id for t in chosen)])}
    frames = [
        pd.DataFrame(
            {"tariff": name, "resource": RESOURCES[resource], "value": values, "share": shares}
        )
        for (name, resource), (values, shares) in sorted(
            curves.items(), key=lambda item: (order[item[0][0]], item[0][1])
        )
        if values.size
    ]
    names = ["tariff", "resource", "value", "share"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=names)


_Found = Iterator[tuple[str, str, bins.Floats, bins.Counts]]


def _all(rows: ir.Table, tariffs: Sequence[Tariff], backend: Backend) -> _Found:
    by_size: list[tuple[Tariff, str, Charge]] = []
    direct: list[tuple[str, str, _Amount]] = [
        (USED, "cpu", _used_cpu),
        (USED, "memory", _used_memory),
    ]
    for tariff in tariffs:
        for resource in RESOURCES:
            charges = [one for one in tariff.charges if one.resource == resource]
            if len(charges) != 1 or charges[0].when != "always" or charges[0].is_credit:
                continue  # several charges together have no curve
            if (resource, charges[0].basis) in _ELSEWHERE:
                continue
            if charges[0].basis == "allocated":
                by_size.append((tariff, resource, charges[0]))
            else:
                direct.append((tariff.id, resource, _measured(tariff, charges[0])))
    if by_size:
        yield from _sized(rows, by_size, backend)
    yield from _directly(rows, direct, backend)


# What is billed by allocation: size x T.


def _sized(
    rows: ir.Table, wanted: Sequence[tuple[Tariff, str, Charge]], backend: Backend
) -> _Found:
    tariffs = list({tariff.id: tariff for tariff, _, _ in wanted}.values())
    steps = {_in_bins(tariff.time): None for tariff in tariffs}
    found = [_Times(backend.collect(_by_execution(rows, list(steps))), turnaround=False)]
    waited = {_in_bins(t.time): None for t in tariffs if t.time.kind == _TURNAROUND}
    if waited:
        found.append(_Times(backend.collect(_by_turnaround(rows, list(waited))), turnaround=True))
    flavours = list(dict.fromkeys(size for one in found for size in one.sizes))
    sold = dict(zip((t.id for t in tariffs), fit_sizes(tariffs, flavours), strict=True))
    for tariff, resource, charge in wanted:
        amounts = _amounts(tariff, charge, flavours, sold[tariff.id])
        values: list[bins.Floats] = []
        counts: list[bins.Counts] = []
        for one in found:
            keep = one.of(tariff.time.kind) & one.known(amounts)
            times = _billed(one.longest[keep], tariff.time.rules)
            values.append(times * one.per_row(amounts)[keep])
            counts.append(one.n[keep])
        yield tariff.id, resource, np.concatenate(values), np.concatenate(counts)


class _Times:
    """Rows by allocation and bin of time: how many, and the longest time of each bin."""

    def __init__(self, found: pa.Table, *, turnaround: bool) -> None:
        self.turnaround = turnaround
        self.n: bins.Counts = found["n"].to_numpy()
        self.longest: bins.Counts = found["longest"].to_numpy()
        pairs = zip(*(found[name].to_pylist() for name in _FLAVOUR), strict=True)
        self.sizes = [Size(*pair) for pair in pairs]
        names = ("waited", "unknown_start")
        self._marks = {name: found[name].to_numpy(zero_copy_only=False) for name in names}

    def of(self, kind: str) -> Any:
        """Which bins are a tariff's that bills this kind of time."""
        everything = np.ones(self.n.shape, np.bool_)
        if self.turnaround:
            return everything if kind == _TURNAROUND else ~everything
        if kind != _TURNAROUND:
            return everything
        return ~self._marks["waited"] & ~self._marks["unknown_start"]

    def per_row(self, amounts: dict[Size, int | None]) -> bins.Floats:
        return np.array([amounts[size] or 0 for size in self.sizes], np.float64)

    def known(self, amounts: dict[Size, int | None]) -> Any:
        return np.array([amounts[size] is not None for size in self.sizes], np.bool_)


def _amounts(
    tariff: Tariff, charge: Charge, flavours: Sequence[Size], sold: Sequence[Size]
) -> dict[Size, int | None]:
    """The billed amount of each allocation; None where the tariff cannot price it."""
    priced = [one for one in tariff.charges if one.basis == "allocated" and one.unit_price]
    rules = charge.rules
    found: dict[Size, int | None] = {}
    for flavour, size in zip(flavours, sold, strict=True):
        amount = size.cpu if charge.resource == "cpu" else size.memory
        needed = [size.cpu if one.resource == "cpu" else size.memory for one in priced]
        unknown = amount is None or any(one is None for one in needed)
        found[flavour] = None if unknown or amount is None else rules(amount)
    return found


def _billed(times: bins.Counts, rules: Rules) -> bins.Floats:
    """Each time by the rules of a tariff, ns."""
    distinct, positions = np.unique(times, return_inverse=True)
    billed = np.array([rules(time) for time in distinct.tolist()], np.float64)
    return billed[positions]


def _in_bins(time: BillableTime) -> Rules:
    """The rules by which times are put in bins, but for a minimum: it is the same for a whole bin,
    or cuts it to one value."""
    return time.rules.without(Minimum)


def _by_execution(rows: ir.Table, rules: Sequence[Rules]) -> ir.Table:
    waited = (rows["v_initialization"] > 0).fill_null(False)
    return _by_time(rows, rows["v_execution"], waited, rules)


def _by_turnaround(rows: ir.Table, rules: Sequence[Rules]) -> ir.Table:
    """The rows that waited for an initialization, by turnaround time."""
    table = rows.filter(rows["v_initialization"] > 0)
    time = turnaround(table["v_execution"], table["v_initialization"])
    return _by_time(table, time, table["v_initialization"] > 0, rules)


def _by_time(table: ir.Table, time: Any, waited: Any, rules: Sequence[Rules]) -> ir.Table:
    keys = {name: table[name] for name in (*_FLAVOUR, "unknown_start")} | {"waited": waited}
    keys |= {f"b{index}": bins.log_bin(rule(time)) for index, rule in enumerate(rules)}
    return bins.histogram(table, keys, {"longest": time})


# What is billed by use.

_Amount = Callable[[Columns], Col]


def _directly(
    table: ir.Table, wanted: Sequence[tuple[str, str, _Amount]], backend: Backend
) -> _Found:
    """Amounts of use, binned; the same amount once for all that bill it."""
    rows = Columns(table)
    columns = [amount(rows) for _, _, amount in wanted]
    full = rows.table()
    of_cpu = [resource == "cpu" for _, resource, _ in wanted]
    # CPU billed by use follows from the CPU time alone and rises with it, so that the bins of all
    # such amounts together are hardly more than those of one: one pass does for them.
    together = [column.name for column, cpu in zip(columns, of_cpu, strict=True) if cpu]
    alone = [column.name for column, cpu in zip(columns, of_cpu, strict=True) if not cpu]
    found: dict[str, tuple[bins.Floats, bins.Counts]] = {}
    for names in (list(dict.fromkeys(together)), *([name] for name in dict.fromkeys(alone))):
        answer = backend.collect(
            bins.histogram(
                full,
                {f"bin_{name}": bins.log_bin(full[name]) for name in names},
                {f"most_{name}": full[name] for name in names},
            )
        )
        for name in names:
            known = answer.filter(answer[f"bin_{name}"].is_valid())
            largest = known[f"most_{name}"].to_numpy().astype(np.float64)
            found[name] = largest, known["n"].to_numpy()
    for (name, resource, _), column in zip(wanted, columns, strict=True):
        yield name, resource, *found[column.name]


def _used_cpu(rows: Columns) -> Col:
    return rows.add(_micro, _row(rows, "cpu_time"))


def _used_memory(rows: Columns) -> Col:
    return rows.add(_times, _row(rows, "memory_avg"), _row(rows, "execution"))


def _measured(tariff: Tariff, charge: Charge) -> _Amount:
    """The amount that a charge by use bills, with every rounding, in base units."""

    def build(rows: Columns) -> Col:
        time = _billable(rows, tariff)
        if tariff.time.kind == "cpu":
            return rows.add(_micro, time)
        amount = charge.rules.apply(rows, _row(rows, measured(charge)))
        return rows.add(_times, amount, time) if charge.is_rate else rows.add(_micro, amount)

    return build


def _billable(rows: Columns, tariff: Tariff) -> Col:
    """T of each row, ns, by its rules."""
    time = actual_time(tariff.time, rows, lambda name: _row(rows, name))
    return tariff.time.rules.apply(rows, time)


def _row(rows: Columns, name: str) -> Col:
    return rows.base(f"v_{name}")


def _micro(time: Any) -> Any:
    return time.cast("float64") * float(MICRO_PER_VCPU)


def _times(amount: Any, time: Any) -> Any:
    # Only a place among the bins is wanted of it, so a double's 53 bits are enough.
    return amount.cast("float64") * time.cast("float64")
