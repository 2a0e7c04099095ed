"""Distributions of billable resources per request under each tariff (Figure 2's curves).

A charge for an allocation is size x T, and rows with the same allocation have the same size. So
rows are counted once for all tariffs, by allocation and bin of T, and each tariff's distribution is
these bins times its few sizes. Amounts billed by use are binned directly. Error: see
`uncia.costs.bins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.backends import Backend, Source, use
from uncia.costs import bins
from uncia.costs.rows import Tariffs, comparable_rows, fit_comparable, resolve
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

    from uncia.tariffs import FitRule
    from uncia.tariffs.facts import Facts

USED: Final = "used"
"""The name of the curves of usage, next to those of the tariffs."""

RESOURCES: Final = {"cpu": "vcpu", "memory": "memory"}
_UNITS: Final = {"cpu": float(MICRO_PER_VCPU * NS_PER_S), "memory": float(GIB * NS_PER_S)}
_ALLOCATION: Final = ("v_allocated_cpu", "v_allocated_memory")
_TURNAROUND: Final = "turnaround"
_NOT_OF_SIZE: Final = {("cpu", "reserved"), ("cpu", "borrowed")}  # neither a size nor a use


def inflation_cdf(
    source: Source,
    tariffs: Tariffs | None = None,
    *,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compute the distributions of billed amounts per request under each tariff, and of usage.

    Args:
        source: invocations; the rows are those of `uncia.costs.inflation.inflation`.
        tariffs: ids, files or tariffs; by default every one that bills by request.
        fit: how an allocation becomes a size.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        Columns ``tariff`` (or ``used``), ``resource`` (vcpu, memory), ``value`` (vCPU-s or GB-s a
        request) and ``share`` (of the rows priced, those that are billed at most so much); at most
        2,048 points a curve. F(value / 1.0109) <= share <= F(value). A tariff that does not bill a
        resource has no curve of it.

    Raises:
        UnciaError: a table or tariff cannot be read, or a tariff bills by instance.
    """
    with use(backend) as backend:
        facts = known_facts(source, fit)
        table, chosen, _ = fit_comparable(
            backend.table(source), resolve(tariffs), fit, backend, facts
        )
        return curves_of(table, chosen, fit, facts, backend)


def curves_of(
    table: ir.Table, chosen: Sequence[Tariff], fit: FitRule, facts: Facts, backend: Backend
) -> pd.DataFrame:
    """Compute `inflation_cdf` of a table and tariffs to which the fit has been applied.

    Args:
        table: invocations.
        chosen: the tariffs.
        fit: chooses the rows.
        facts: what is known of the columns.
        backend: computes it.
    """
    import pandas as pd

    rows = comparable_rows(table, fit, facts)
    curves: dict[tuple[str, str], bins.Curve] = {}
    for tariff, resource, values, counts in _all_curves(rows, chosen, backend):
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


_Curves = Iterator[tuple[str, str, bins.Floats, bins.Counts]]


def _all_curves(rows: ir.Table, tariffs: Sequence[Tariff], backend: Backend) -> _Curves:
    by_size: list[tuple[Tariff, str, Charge]] = []
    direct: list[tuple[str, str, _Amount]] = [
        (USED, "cpu", _used_cpu),
        (USED, "memory", _used_memory),
    ]
    for tariff in tariffs:
        for resource in RESOURCES:
            charges = [charge for charge in tariff.charges if charge.resource == resource]
            if len(charges) != 1 or charges[0].when != "always" or charges[0].is_credit:
                continue  # only a single charge for the resource has a curve
            if (resource, charges[0].basis) in _NOT_OF_SIZE:
                continue
            if charges[0].basis == "allocated":
                by_size.append((tariff, resource, charges[0]))
            else:
                direct.append((tariff.id, resource, _measured(tariff, charges[0])))
    if by_size:
        yield from _by_size(rows, by_size, backend)
    yield from _by_use(rows, direct, backend)


# Charges for allocations: size x T.


def _by_size(
    rows: ir.Table, wanted: Sequence[tuple[Tariff, str, Charge]], backend: Backend
) -> _Curves:
    tariffs = list({tariff.id: tariff for tariff, _, _ in wanted}.values())
    steps = {_in_bins(tariff.time): None for tariff in tariffs}
    histograms = [_Times(backend.collect(_by_execution(rows, list(steps))), turnaround=False)]
    waited = {_in_bins(t.time): None for t in tariffs if t.time.kind == _TURNAROUND}
    if waited:
        histograms.append(
            _Times(backend.collect(_by_turnaround(rows, list(waited))), turnaround=True)
        )
    allocations = list(dict.fromkeys(size for histogram in histograms for size in histogram.sizes))
    fitted = dict(zip((t.id for t in tariffs), fit_sizes(tariffs, allocations), strict=True))
    for tariff, resource, charge in wanted:
        amounts = _amounts(tariff, charge, allocations, fitted[tariff.id])
        values: list[bins.Floats] = []
        counts: list[bins.Counts] = []
        for histogram in histograms:
            keep = histogram.of(tariff.time.kind) & histogram.known(amounts)
            times = _billed(histogram.longest[keep], tariff.time.rules)
            values.append(times * histogram.per_row(amounts)[keep])
            counts.append(histogram.n[keep])
        yield tariff.id, resource, np.concatenate(values), np.concatenate(counts)


class _Times:
    """Rows by allocation and bin of time: their number, and the longest time of each bin."""

    def __init__(self, table: pa.Table, *, turnaround: bool) -> None:
        self.turnaround = turnaround
        self.n: bins.Counts = table["n"].to_numpy()
        self.longest: bins.Counts = table["longest"].to_numpy()
        pairs = zip(*(table[name].to_pylist() for name in _ALLOCATION), strict=True)
        self.sizes = [Size(*pair) for pair in pairs]
        names = ("waited", "unknown_start")
        self._marks = {name: table[name].to_numpy(zero_copy_only=False) for name in names}

    def of(self, kind: str) -> Any:
        """Which bins count for a tariff that bills this kind of time."""
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
    tariff: Tariff, charge: Charge, allocations: Sequence[Size], sold: Sequence[Size]
) -> dict[Size, int | None]:
    """The billed amount of each allocation; None where the tariff cannot price it."""
    resources = [c.resource for c in tariff.charges if c.basis == "allocated" and c.unit_price]
    rules = charge.rules
    amounts: dict[Size, int | None] = {}
    for allocation, size in zip(allocations, sold, strict=True):
        amount = size.cpu if charge.resource == "cpu" else size.memory
        needed = [size.cpu if resource == "cpu" else size.memory for resource in resources]
        unknown = amount is None or None in needed
        amounts[allocation] = None if unknown or amount is None else rules(amount)
    return amounts


def _billed(times: bins.Counts, rules: Rules) -> bins.Floats:
    """Each time by the rules of a tariff, ns."""
    distinct, positions = np.unique(times, return_inverse=True)
    billed = np.array([rules(time) for time in distinct.tolist()], np.float64)
    return billed[positions]


def _in_bins(time: BillableTime) -> Rules:
    """The rules applied before binning; a minimum is applied later, to the longest of each bin."""
    return time.rules.without(Minimum)


def _by_execution(rows: ir.Table, rules: Sequence[Rules]) -> ir.Table:
    waited = (rows["v_initialization"] > 0).fill_null(False)
    return _by_time(rows, rows["v_execution"], waited, rules)


def _by_turnaround(rows: ir.Table, rules: Sequence[Rules]) -> ir.Table:
    """The histogram of turnaround times, over the rows that waited for an initialization."""
    table = rows.filter(rows["v_initialization"] > 0)
    time = turnaround(table["v_execution"], table["v_initialization"])
    return _by_time(table, time, table["v_initialization"] > 0, rules)


def _by_time(table: ir.Table, time: Any, waited: Any, rules: Sequence[Rules]) -> ir.Table:
    keys = {name: table[name] for name in (*_ALLOCATION, "unknown_start")} | {"waited": waited}
    keys |= {f"b{index}": bins.log_bin(rule(time)) for index, rule in enumerate(rules)}
    return bins.histogram(table, keys, {"longest": time})


# Charges for usage.

_Amount = Callable[[Columns], Col]


def _by_use(
    table: ir.Table, wanted: Sequence[tuple[str, str, _Amount]], backend: Backend
) -> _Curves:
    """Bin amounts of use; tariffs that bill the same amount share its bins."""
    columns = Columns(table)
    amounts = [(name, resource, build(columns).name) for name, resource, build in wanted]
    full = columns.table()
    # CPU billed by use depends on the CPU time alone and rises with it. So all such amounts
    # together have hardly more bins than one of them, and need one pass.
    shared = dict.fromkeys(amount for _, resource, amount in amounts if resource == "cpu")
    alone = dict.fromkeys(amount for _, resource, amount in amounts if resource != "cpu")
    curves: dict[str, tuple[bins.Floats, bins.Counts]] = {}
    for names in (list(shared), *([name] for name in alone)):
        binned = backend.collect(
            bins.histogram(
                full,
                {f"bin_{name}": bins.log_bin(full[name]) for name in names},
                {f"most_{name}": full[name] for name in names},
            )
        )
        for name in names:
            valid = binned.filter(binned[f"bin_{name}"].is_valid())
            largest = valid[f"most_{name}"].to_numpy().astype(np.float64)
            curves[name] = largest, valid["n"].to_numpy()
    for name, resource, amount in amounts:
        yield name, resource, *curves[amount]


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
    # It only selects a bin, so a double's 53 bits are enough.
    return amount.cast("float64") * time.cast("float64")
