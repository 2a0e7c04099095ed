"""The bills: what the same rows cost under each tariff, and what of it was used."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from uncia.report import charts, numbers, theme
from uncia.report.data import RunData
from uncia.report.page import Block, Cell, Chart, Note, Section, Table
from uncia.stats import money

_MICRO_VCPU_NS: Final = 10**15
"""Base units of CPU (micro-vCPU x ns) in a vCPU-second."""

_BYTE_NS: Final = 2**30 * 10**9
"""Base units of memory (bytes x ns) in a GB-second."""

_USED: Final = "used"
_OVER: Final = "over-allocation"
_RESOURCES: Final = "resources"
_ROUNDING: Final = "rounding"
_FEE: Final = "invocation fee"
_PARTS: Final = {
    _USED: "#3f9f68",
    _RESOURCES: "#3b7fc4",
    _OVER: "#e08a2c",
    _ROUNDING: "#8a6fd1",
    _FEE: theme.REFERENCE,
}


def bills(run: RunData) -> Section:
    """Cost under each tariff in parts, and billable resources against used ones."""
    tariffs = run.tariffs
    priced = {k: v for k, v in tariffs.items() if v.get("cost_usd_per_million") is not None}
    if not priced:
        return Section(
            "bills",
            "Bills",
            [
                Note(
                    "No tariff could price these rows: a bill needs durations and allocations that"
                    " the platform reports (execution, allocated_memory, allocated_cpu)."
                    if tariffs
                    else "This run was not priced yet (uncia bill RUN).",
                    "warning",
                )
            ],
        )
    order = sorted(priced, key=lambda name: -float(priced[name]["cost_usd_per_million"]))
    split = {name: _parts(priced[name], _used_usd(name, priced[name])) for name in order}
    used = [part for part in _PARTS if any(part in parts for parts in split.values())]
    blocks: list[Block] = [
        Chart(
            "bills",
            charts.stacked(
                [
                    {"name": name, "part": part, "value": max(0.0, value)}
                    for name, parts in split.items()
                    for part, value in parts.items()
                ],
                used,
                "US dollars per million of these requests",
                colours=[_PARTS[part] for part in used],
                value_format="$,.4~g",
            ),
            "Cost per million requests under each tariff, in parts",
            "Cost per million requests",
        ),
        Table(
            (
                "<tariff",
                "rows priced",
                "not billable",
                "not priceable",
                "USD per million",
                *used,
                "dearest = 1",
            ),
            [
                [
                    name,
                    numbers.count(priced[name].get("rows")),
                    _not_billable(priced[name]),
                    _unpriced(priced[name]),
                    numbers.usd(priced[name]["cost_usd_per_million"]),
                    *(_part_cell(split[name].get(part), priced[name]) for part in used),
                    numbers.figure(_relative(priced, name, order[0])),
                ]
                for name in order
            ],
            "From bill.parquet, summed over its rows of each tariff. Rounding is what"
            " granularities and minimums add; the fee is per request. "
            + _explain(used)
            + " Not billable: rows that no platform charges for, such as throttled ones. Not"
            " priceable: rows that lack what this tariff bills by.",
            "Bills",
        ),
    ]
    inflated = [
        {
            "name": name,
            "kind": kind,
            "value": priced[name][key],
            "low": None,
            "high": None,
        }
        for name in order
        for kind, key in (("CPU", "inflation_vcpu"), ("memory", "inflation_memory"))
        if priced[name].get(key)
    ]
    if inflated:
        blocks.append(
            Chart(
                "inflation",
                charts.ratios(inflated, "billable / used (logarithmic)", 1.0, ["CPU", "memory"]),
                "Billable resources divided by used ones, under each tariff; the line stands at 1",
                "Billed for each unit used",
            )
        )
    blocks.append(
        Table(
            (
                "<tariff",
                "billable vCPU-s",
                "billable GB-s",
                "CPU, billable / used",
                "memory, billable / used",
            ),
            [
                [
                    name,
                    numbers.figure(priced[name].get("billable_vcpu_s"), 4),
                    numbers.figure(priced[name].get("billable_gb_s"), 4),
                    numbers.times(priced[name].get("inflation_vcpu")),
                    numbers.times(priced[name].get("inflation_memory")),
                ]
                for name in order
            ],
            "Billable: what the tariff's rules make of time and allocation. Used: CPU time"
            " (cpu_user + cpu_system), and average memory (memory_avg) over the execution. A"
            " dash: the tariff does not bill for it, or its use was not measured.",
            "Billable against used",
        )
    )
    by_experiment = money.cost_per_million(run.bill)
    if len(by_experiment) > 1:
        blocks.append(_matrix(by_experiment, order))
    return Section(
        "bills",
        "Bills",
        blocks,
        "The same rows, priced as each platform would: what a request costs depends on how time is"
        " rounded and which resources are counted, as much as on the price. No free tiers.",
    )


def _parts(tariff: Mapping[str, Any], used_usd: float | None) -> dict[str, float]:
    """The cost per million in parts, USD, as far as the bill tells them apart."""
    total = float(tariff["cost_usd_per_million"])
    fee = total * float(tariff.get("fee_share") or 0.0)
    rounding = total * float(tariff.get("rounding_share") or 0.0)
    rest = total - fee - rounding
    shared = {_ROUNDING: rounding, _FEE: fee}
    if used_usd is None:
        return {_RESOURCES: rest, **shared}
    return {_USED: used_usd, _OVER: rest - used_usd, **shared}


def _used_usd(name: str, entry: Mapping[str, Any]) -> float | None:
    """What the used CPU and memory cost at the tariff's own prices, USD per million requests.

    None where that has no meaning: a tariff that is not in the catalogue, one that charges for
    reserving or lending, or rows whose use was not measured.
    """
    from uncia.tariffs import get, ids

    rows = entry.get("rows")
    if not rows or name not in ids():
        return None
    used = {
        "cpu": (entry.get("used_vcpu_s"), entry.get("used_vcpu_rows"), _MICRO_VCPU_NS),
        "memory": (entry.get("used_gb_s"), entry.get("used_memory_rows"), _BYTE_NS),
    }
    total = 0.0
    for charge in get(name).charges:
        if charge.basis not in ("allocated", "used") or charge.when != "always":
            return None
        price = charge.unit_price
        if not price:
            continue
        amount, measured, unit = used.get(charge.resource, (None, None, 1))
        if amount is None or measured != rows:
            return None
        total += float(price * unit) * float(amount)
    return total / float(rows) * money.MILLION


def _explain(used: list[str]) -> str:
    if _USED in used:
        return (
            "Used: what the CPU and memory that were used would have cost at the tariff's prices;"
            " over-allocation is what is left."
        )
    return "Resources: the rest, for what was used and what was allocated beyond it."


def _part_cell(value: float | None, tariff: Mapping[str, Any]) -> Cell:
    if value is None:
        return Cell(numbers.ABSENT)
    total = float(tariff["cost_usd_per_million"])
    return Cell(numbers.usd(value), numbers.percent(value / total, 2) if total else "")


def _not_billable(tariff: Mapping[str, Any]) -> Cell:
    reasons = tariff.get("not_billable")
    if not isinstance(reasons, Mapping):
        return Cell(numbers.ABSENT)
    return Cell(numbers.count(sum(reasons.values())), ", ".join(reasons))


def _unpriced(tariff: Mapping[str, Any]) -> Cell:
    rows = tariff.get("unpriced_rows")
    reasons = tariff.get("unpriced")
    note = ", ".join(reasons) if isinstance(reasons, Mapping) else ""
    return Cell(numbers.count(rows), note, "bad" if rows else "")


def _relative(priced: Mapping[str, Mapping[str, Any]], name: str, dearest: str) -> float | None:
    most = float(priced[dearest]["cost_usd_per_million"])
    return float(priced[name]["cost_usd_per_million"]) / most if most else None


def _matrix(found: Mapping[str, Mapping[str, Fraction]], tariffs: list[str]) -> Table:
    """Cost per million of each experiment under each tariff."""
    return Table(
        ("<experiment", *tariffs),
        [
            [
                name,
                *(
                    numbers.usd(float(costs[tariff]) if tariff in costs else None)
                    for tariff in tariffs
                ),
            ]
            for name, costs in found.items()
        ],
        "USD per million requests: cost_usd / rows × 1,000,000 over the rows of bill.parquet of the"
        " experiment and the tariff.",
        "By experiment",
    )
