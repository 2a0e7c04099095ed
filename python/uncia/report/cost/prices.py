"""The section on prices of resources (Figure 1 and section 1 of the cost paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots
from uncia.report.numbers import figure, figure4, megabytes, percent, whole
from uncia.report.page import Block, Chart, Section
from uncia.report.table import Column, Table, records
from uncia.units import MIB

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.sizes import Size

_MICRO: Final = 1_000_000
_HOUR: Final = 3600
_KINDS: Final = ("by request", "by instance")


def section(frame: pd.DataFrame, size: Size, against: str) -> Section:
    """Show what `uncia.costs.prices.prices` returns.

    Args:
        frame: of all tariffs.
        size: the size that is compared.
        against: the tariff whose price is 1.
    """
    rows = records(frame)
    blocks: list[Block] = [*_charts(rows, size), _table(rows, size, against)]
    return Section(
        "prices",
        "Prices",
        blocks,
        "What resources cost while they are billed. Serverless bills only while requests run; a"
        " container or a machine is billed as long as it exists.",
    )


def _charts(rows: list[dict[str, Any]], size: Size) -> list[Chart]:
    """Show prices for an hour: of the size, of a vCPU and of a GB."""
    charts = []
    for key, name, title in (
        ("sold_usd_per_s", "prices", f"{size.words} for an hour, at the size that is sold"),
        ("usd_per_vcpu_s", "prices-vcpu", "A vCPU for an hour, where it has a price"),
        ("usd_per_gb_s", "prices-memory", "A GB for an hour (with its vCPU, where that has none)"),
    ):
        bars = [
            {
                "name": row["tariff"],
                "kind": _KINDS[row["bills"] == "instance"],
                "value": float(row[key]) * _HOUR,
            }
            for row in rows
            if row[key] is not None
        ]
        if bars:
            bars.sort(key=lambda bar: (-bar["value"], bar["name"]))
            charts.append(
                Chart(
                    name,
                    plots.bars(bars, "US dollars an hour", _KINDS, form="$.3~r"),
                    title,
                    title,
                )
            )
    return charts


def _table(rows: list[dict[str, Any]], size: Size, against: str) -> Table:
    """Show all prices for a million seconds."""
    return Table(
        [
            Column("tariff", "tariff"),
            Column("bills", "bills"),
            Column("as of", "as_of"),
            _million("a million vCPU-s", "usd_per_vcpu_s"),
            _million("a million GB-s", "usd_per_gb_s"),
            Column(
                "ratio",
                "cpu_memory_ratio",
                figure,
                explanation="Price of a vCPU-second over that of a GB-second.",
            ),
            _million(size.words, "usd_per_s", "Price of this size for a million seconds."),
            Column(
                "sold as",
                _sold,
                explanation="The smallest size of the tariff that covers the one compared.",
                parts=[
                    Column("sold CPU", lambda row: _over(row["sold_cpu"], _MICRO), figure, "vCPU"),
                    Column("sold memory", lambda row: _over(row["sold_memory"], MIB), whole, "MB"),
                ],
            ),
            _million("sold at", "sold_usd_per_s", "Price of that size for a million seconds."),
            Column(
                f"/ {against}",
                "relative",
                percent,
                explanation=f"Price at the size sold, relative to {against}.",
            ),
        ],
        rows,
        "Prices in US dollars for a million seconds. Where only memory is priced, its price"
        " includes the vCPU. Sold as: the smallest size that covers it, or the only one, with"
        " storage where the tariff has it. No fees, no rounding.",
        "Prices",
        fold=False,
    )


def _million(name: str, key: str, explanation: str = "") -> Column:
    """Make the column of a price for a million seconds."""

    def price(row: Any) -> Any:
        return None if row[key] is None else row[key] * _MICRO

    return Column(name, price, figure4, "USD", explanation)


def _over(value: int | None, unit: int) -> float | None:
    return None if value is None else value / unit


def _sold(row: Any) -> str | None:
    parts = (
        None if row["sold_cpu"] is None else f"{row['sold_cpu'] / _MICRO:g} vCPU",
        None if row["sold_memory"] is None else megabytes(row["sold_memory"]),
    )
    return "/".join(text for text in parts if text) or None
