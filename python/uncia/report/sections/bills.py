"""Bills: the cost of the same rows under each tariff, and how much of it was used."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.report import numbers, plots, theme
from uncia.report.data import RunData
from uncia.report.numbers import count, figure, figure4, times, usd
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import money
from uncia.stats.summary import WARMUP_SUFFIX
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 80
ROWS: Final = Rows("bill")

_USED: Final = "used"
_OVER: Final = "over-allocation"
_RESOURCES: Final = "resources"
_ROUNDING: Final = "rounding"
_FEE: Final = "invocation fee"
_ROUNDING_ERROR: Final = 1e-12
"""Relative to the cost: what doubles leave of a difference of equal amounts, with a margin."""

_PARTS: Final = {
    _USED: "#3f9f68",
    _RESOURCES: "#3b7fc4",
    _OVER: "#e08a2c",
    _ROUNDING: "#8a6fd1",
    _FEE: theme.REFERENCE,
}


_MEANING: Final = {
    _USED: "What the used CPU time and memory cost at the tariff's prices, per million requests.",
    _RESOURCES: "What CPU and memory cost, used or not, per million requests.",
    _OVER: "What was charged for CPU and memory beyond their use, per million requests.",
    _ROUNDING: "What granularities and minimums add, per million requests.",
    _FEE: "The fee per request, for a million requests.",
}


def section(run: RunData, rows: pa.Table) -> Section:
    """Show the cost under each tariff in parts, and billable resources against used ones."""
    from uncia.tariffs.catalogue import is_model

    tariffs = run.tariffs
    priced = {k: v for k, v in tariffs.items() if v.get("cost_usd_per_million") is not None}
    if not priced:
        return _without_prices(tariffs)
    order = sorted(
        priced, key=lambda name: (is_model(name), -float(priced[name]["cost_usd_per_million"]))
    )
    split = {name: _parts(priced[name], _used_usd(name, priced[name])) for name in order}
    used = [part for part in _PARTS if any(part in parts for parts in split.values())]
    entries = [{"name": name, "parts": split[name], **priced[name]} for name in order]
    blocks: list[Block] = [
        _chart(split, used),
        _table(entries, used),
        *_inflation_chart(entries),
        _inflation_table(entries),
    ]
    by_experiment = money.cost_per_million(rows)
    has_warmups = any(name.endswith(WARMUP_SUFFIX) for name in by_experiment)
    if len(by_experiment) > 1:
        blocks.append(_matrix(by_experiment, order))
    return Section(
        "bills",
        "Bills",
        blocks,
        "The same rows, priced as each platform would: what a request costs depends on how time is"
        " rounded and which resources are counted, as much as on the price. No free tiers."
        + (
            f" Warm-ups (experiments whose names end in {WARMUP_SUFFIX}) are in no total, and have"
            " their own lines by experiment."
            if has_warmups
            else ""
        ),
    )


def _without_prices(tariffs: Mapping[str, Any]) -> Section:
    """Say why there is no bill."""
    reason = (
        "No tariff could price these rows: a bill needs durations and allocations that the"
        " platform reports (execution, allocated_memory, allocated_cpu)."
        if tariffs
        else "This run was not priced yet (uncia bill RUN)."
    )
    return Section("bills", "Bills", [Note(reason, "warning")])


def _chart(split: Mapping[str, Mapping[str, float]], used: list[str]) -> Chart:
    """Show the parts of each tariff's cost as a bar."""
    return Chart(
        "bills",
        plots.stacked(
            [
                {"name": name, "part": part, "value": value}
                for name, parts in split.items()
                for part, value in _drawn(parts).items()
            ],
            used,
            "US dollars per million of these requests",
            palette=[_PARTS[part] for part in used],
            form="$,.4~r",
            cut=True,
        ),
        "Cost per million requests under each tariff, in parts; bars marked » are longer",
        "Cost per million requests",
    )


def _inflation_chart(entries: list[dict[str, Any]]) -> list[Chart]:
    """Show billable resources over used ones; nothing where no use is known."""
    inflated = [
        {"name": row["name"], "kind": kind, "value": row[key], "low": None, "high": None}
        for row in entries
        for kind, key in (("CPU", "inflation_vcpu"), ("memory", "inflation_memory"))
        if row.get(key)
    ]
    if not inflated:
        return []
    return [
        Chart(
            "inflation",
            plots.ratios(inflated, "billable / used (logarithmic)", 1.0, ["CPU", "memory"]),
            "Billable resources divided by used ones, under each tariff; the line stands at 1",
            "Billed for each unit used",
        )
    ]


def _inflation_table(entries: list[dict[str, Any]]) -> Table:
    """Show what each tariff bills for, against what was used."""
    return Table(
        [
            Column("tariff", "name"),
            Column(
                "billable CPU",
                lambda row: row.get("billable_vcpu_s"),
                figure4,
                "vCPU-s",
                "The vCPU-seconds that the tariff charges for, over all rows.",
            ),
            Column(
                "billable memory",
                lambda row: row.get("billable_gb_s"),
                figure4,
                "GB-s",
                "The GB-seconds that the tariff charges for, over all rows.",
            ),
            Column(
                "CPU, billable / used",
                lambda row: row.get("inflation_vcpu"),
                times,
                explanation="vCPU-seconds charged for each second of CPU time used.",
            ),
            Column(
                "memory, billable / used",
                lambda row: row.get("inflation_memory"),
                times,
                explanation="GB-seconds charged for each GB-second of memory used.",
            ),
        ],
        entries,
        "Billable: time and allocation after the tariff's rules. Used: CPU time"
        " (cpu_user + cpu_system), and average memory (memory_avg) over the execution. A"
        " dash: the tariff does not bill for it, or its use was not measured.",
        "Billable against used",
    )


def _table(entries: list[dict[str, Any]], used: list[str]) -> Table:
    highest = max(float(entry["cost_usd_per_million"]) for entry in entries)

    def part(name: str) -> Column:
        def share(row: Any) -> str:
            total = float(row["cost_usd_per_million"])
            value = row["parts"].get(name)
            return numbers.percent(value / total, 2) if total and value is not None else ""

        return Column(
            name, lambda row: row["parts"].get(name), usd, "USD", _MEANING[name], note=share
        )

    def reasons(row: Any, key: str) -> str:
        counts = row.get(key)
        return ", ".join(counts) if isinstance(counts, Mapping) else ""

    def not_billable(row: Any) -> int | None:
        counts = row.get("not_billable")
        return sum(counts.values()) if isinstance(counts, Mapping) else None

    return Table(
        [
            Column("tariff", "name"),
            Column("rows priced", lambda row: row.get("rows"), count),
            Column(
                "not billable",
                not_billable,
                count,
                explanation="Rows that no platform charges for, such as throttled ones.",
                note=lambda row: reasons(row, "not_billable"),
            ),
            Column(
                "not priceable",
                lambda row: row.get("unpriced_rows"),
                count,
                explanation="Rows that lack a value which this tariff bills by.",
                note=lambda row: reasons(row, "unpriced"),
                mark=lambda row: "bad" if row.get("unpriced_rows") else "",
            ),
            Column(
                "per million",
                "cost_usd_per_million",
                usd,
                "USD",
                "Cost of a million such requests, without free tiers.",
            ),
            *(part(name) for name in used),
            Column(
                "dearest = 1",
                lambda row: float(row["cost_usd_per_million"]) / highest if highest else None,
                figure,
                explanation="Cost relative to the dearest of these tariffs.",
            ),
        ],
        entries,
        "From bill.parquet, summed over its rows of each tariff. Rounding is what"
        " granularities and minimums add; the fee is per request. "
        + _explain(used)
        + " Not billable: rows that no platform charges for, such as throttled ones. Not"
        " priceable: rows that lack what this tariff bills by.",
        "Bills",
    )


def _parts(tariff: Mapping[str, Any], used_usd: float | None) -> dict[str, float]:
    """Split the cost per million, in USD, as far as the bill distinguishes its parts."""
    total = float(tariff["cost_usd_per_million"])
    fee = total * float(tariff.get("fee_share") or 0.0)
    rounding = total * float(tariff.get("rounding_share") or 0.0)
    rest = total - fee - rounding
    shared = {_ROUNDING: rounding, _FEE: fee}
    if used_usd is None:
        return {_RESOURCES: rest, **shared}
    over = rest - used_usd
    if abs(over) <= _ROUNDING_ERROR * total:
        over = 0.0
    return {_USED: used_usd, _OVER: over, **shared}


def _drawn(parts: Mapping[str, float]) -> dict[str, float]:
    """Convert the parts to lengths that add up to the bill.

    A negative part (more was used than is billed for) shortens the parts before it.
    """
    excess = -sum(value for value in parts.values() if value < 0)
    drawn = {}
    for part, value in parts.items():
        cut = min(excess, max(0.0, value))
        excess -= cut
        drawn[part] = max(0.0, value) - cut
    return drawn


def _used_usd(name: str, entry: Mapping[str, Any]) -> float | None:
    """What the used CPU and memory cost at the tariff's own prices, USD per million requests.

    None where that has no meaning: a tariff that is not in the catalogue, one that charges for
    reserving or lending, or rows whose use was not measured.
    """
    from uncia.tariffs import get, ids
    from uncia.tariffs.used_cost import cost_of_use

    rows = entry.get("rows")
    if not rows or name not in ids():
        return None

    def used(amount: str, measured: str, unit: int) -> Fraction | None:
        known = entry.get(amount) is not None and entry.get(measured) == rows
        return Fraction(entry[amount]) * unit if known else None

    total = cost_of_use(
        get(name),
        {
            "cpu": used("used_vcpu_s", "used_vcpu_rows", MICRO_PER_VCPU * NS_PER_S),
            "memory": used("used_gb_s", "used_memory_rows", GIB * NS_PER_S),
        },
    )
    return None if total is None else float(total / rows * money.MILLION)


def _explain(used: list[str]) -> str:
    if _USED in used:
        return (
            "Used: what the CPU and memory that were used would have cost at the tariff's prices;"
            " over-allocation is what is left, below zero where more was used than is billed for"
            " (the bar then shows as much of the use as is billed)."
        )
    return "Resources: the rest, for what was used and what was allocated beyond it."


def _matrix(costs: Mapping[str, Mapping[str, Fraction]], tariffs: list[str]) -> Table:
    """Show the cost per million of each experiment under each tariff."""

    def cost(tariff: str) -> Column:
        return Column(tariff, lambda row: row[1].get(tariff), usd, "USD")

    return Table(
        [Column("experiment", 0), *(cost(tariff) for tariff in tariffs)],
        list(costs.items()),
        "USD per million requests: cost_usd / rows × 1,000,000 over the rows of bill.parquet of the"
        " experiment and the tariff.",
        "By experiment",
    )
