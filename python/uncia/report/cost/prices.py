"""The section on prices of resources (Figure 1 and section 1 of the cost paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import numbers
from uncia.report.cost import marks
from uncia.report.page import Block, Chart, Section, Table

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.sizes import Size

_MICRO: Final = 1_000_000
_HOUR: Final = 3600
_KINDS: Final = ("by request", "by instance")


def section(frame: pd.DataFrame, size: Size, against: str) -> Section:
    """Table and charts of what `uncia.costs.prices.prices` returns.

    Args:
        frame: of all tariffs.
        size: the size that is compared.
        against: the tariff whose price is 1.
    """
    blocks: list[Block] = []
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
            for _, row in frame.iterrows()
            if row[key] is not None
        ]
        if bars:
            bars.sort(key=lambda bar: (-bar["value"], bar["name"]))
            blocks.append(
                Chart(
                    name,
                    marks.bars(bars, "US dollars an hour", _KINDS, value_format="$.3~g"),
                    title,
                    title,
                )
            )
    blocks.append(
        Table(
            (
                "<tariff",
                "<bills",
                "<as of",
                "$ / million vCPU-s",
                "$ / million GB-s",
                "ratio",
                f"{size.words}",
                "<sold as",
                "sold at",
                f"/ {against}",
            ),
            [_cells(row) for _, row in frame.iterrows()],
            "Prices in US dollars for a million seconds. Where only memory is priced, the vCPU is"
            " in its price. Sold as: the smallest size that covers it, or the only one, with"
            " storage where the tariff has it. No fees, no rounding.",
            "Prices",
            fold=False,
        )
    )
    return Section(
        "prices",
        "Prices",
        blocks,
        "What resources cost while they are billed. Serverless bills only while requests run; a"
        " container or a machine bills all the time that it is there.",
    )


def _cells(row: Any) -> list[str]:
    sold = "/".join(
        text
        for text in (
            None if row["sold_cpu"] is None else f"{row['sold_cpu'] / _MICRO:g} vCPU",
            None if row["sold_memory"] is None else numbers.megabytes(row["sold_memory"]),
        )
        if text
    )

    def million(value: Any) -> str:
        return numbers.figure(None if value is None else float(value) * _MICRO, 4)

    return [
        row["tariff"],
        row["bills"],
        row["as_of"],
        million(row["usd_per_vcpu_s"]),
        million(row["usd_per_gb_s"]),
        numbers.figure(row["cpu_memory_ratio"]),
        million(row["usd_per_s"]),
        sold or numbers.ABSENT,
        million(row["sold_usd_per_s"]),
        numbers.percent(row["relative"]),
    ]
