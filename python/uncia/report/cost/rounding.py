"""The section on fees as time and on what rounding adds (Figure 5 of the cost paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.report import plots
from uncia.report.numbers import count, figure4
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.rounding import Rounding

_MAX_BARS: Final = 60
_QUANTILES: Final = {"p5": "p5", "p50": "p50", "p95": "p95", "p99": "p99", "max": "most"}


def section(fees: pd.DataFrame, added: Rounding | None = None) -> Section:
    """Show fees as time and, for a table of requests, what rounding adds.

    Args:
        fees: what `uncia.costs.fees.fee_equivalents` returns.
        added: what `uncia.costs.rounding.measure` returns.
    """
    blocks: list[Block] = []
    bars = [
        {"name": f"{row['tariff']} {row['size']}", "kind": "fee", "value": float(row["fee_ms"])}
        for row in records(fees)
        if row["fee_ms"]
    ]
    if bars:
        blocks.append(
            Chart(
                "fees",
                plots.bars(bars[:_MAX_BARS], "fee, ms of billable time", ["fee"]),
                "Milliseconds of billable time that cost as much as one invocation, by size",
                "The invocation fee as billable time",
            )
        )
        if len(bars) > _MAX_BARS:
            blocks.append(
                Note(f"Drawn: the first {_MAX_BARS} of {len(bars):,} fees; all are in the table.")
            )
    blocks.append(_fees(fees))
    if added is not None:
        blocks += _added(added)
    return Section(
        "rounding",
        "Fees and rounding",
        blocks,
        "A fee corresponds to the milliseconds that the size could run for its price. Rounding adds"
        " the rest of the last step, or the difference to the minimum.",
    )


def _fees(fees: pd.DataFrame) -> Table:
    return Table(
        [
            Column("tariff", "tariff"),
            Column("size", "size"),
            Column("a second", "usd_per_s", figure4, "USD", "Price of the size per second."),
            Column("fee", "fee_usd", figure4, "USD", "The fee per request."),
            Column("fee", "fee_ms", figure4, "ms", "Billable time that costs as much as the fee."),
        ],
        records(fees),
        "Fee over the price of a millisecond at the size, of CPU time where that is billed."
        " Resources that are billed by use count as if the whole size were used.",
        "Fees",
    )


def _added(added: Rounding) -> list[Block]:
    blocks: list[Block] = []
    for resource, axis in (
        ("time", "ms added to a request"),
        ("memory", "GB-s added to a request"),
    ):
        curves = {
            str(rule): (points["value"].to_numpy(), points["share"].to_numpy())
            for rule, points in added.cdf[added.cdf["resource"] == resource].groupby(
                "rule", sort=False
            )
        }
        if curves:
            blocks.append(
                Chart(
                    f"rounding-{resource}",
                    plots.curves(curves, axis, "requests"),
                    f"Distribution of what each rule adds to the billable {resource}",
                    f"What rounding adds to billable {resource}",
                )
            )
    blocks.append(
        Table(
            [
                Column("rule", "rule"),
                Column("of", "resource", explanation="What is rounded: time or memory."),
                Column("tariffs", lambda row: ", ".join(row["tariffs"])),
                Column("rows", "rows", count),
                Column("unit", lambda row: "ms" if row["resource"] == "time" else "GB-s"),
                Column("mean before", "plain_mean", figure4, explanation="Mean without the rule."),
                Column("mean added", "mean", figure4, explanation="What the rule adds on average."),
                *(
                    Column(name, key, figure4, explanation="Quantile of what the rule adds.")
                    for name, key in _QUANTILES.items()
                ),
            ],
            records(added.frame),
            "Time in ms: execution after the rule, less execution. Memory in GB-s: rounded"
            " memory_avg times rounded time, less memory_avg times execution. Means of exact sums;"
            " quantiles from bins, by the largest value of each.",
            "What rounding adds",
        )
    )
    return blocks
