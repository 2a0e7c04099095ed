"""The section on cold starts: Figure 4, and what billing turnaround adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import theme, vega
from uncia.report.numbers import count, general, share
from uncia.report.page import Chart, Row, Section
from uncia.report.table import Column, Fact, Table, fact_columns, records

if TYPE_CHECKING:
    import pandas as pd

_TITLES: Final = {"cpu": "vCPU", "memory": "Memory"}
_LINEAR_WITHIN: Final = 1e-3
"""Below this many vCPU-s or GB-s the axis is linear, and logarithmic beyond."""


def section(frame: pd.DataFrame, cdf: pd.DataFrame) -> Section:
    """Show what `uncia.costs.coldstarts.analysed` returns."""
    drawn = [
        _chart(cdf[cdf["resource"] == name], name)
        for name in _TITLES
        if (cdf["resource"] == name).any()
    ]
    blocks: list[Any] = [Row(drawn)] if drawn else []
    if not frame.empty:
        facts = frame.iloc[0]
        blocks.append(_matching(facts))
        blocks.append(
            Table(
                [
                    Column("tariff", "tariff"),
                    Column(
                        "bills initialization",
                        lambda row: "yes" if row["bills_initialization"] else "no",
                        explanation="Whether the tariff charges for initialization.",
                    ),
                    Column(
                        "rows that waited",
                        "waited_rows",
                        count,
                        explanation="Requests that waited for an instance to start.",
                    ),
                    Column(
                        "execution",
                        "execution_usd",
                        general,
                        "USD",
                        "The bill if only execution is charged for.",
                    ),
                    Column(
                        "turnaround adds",
                        "initialization_usd",
                        general,
                        "USD",
                        "What charging for initialization too adds.",
                    ),
                    Column(
                        "share",
                        "initialization_share",
                        share,
                        explanation="What turnaround adds, as a share of the sum.",
                    ),
                ],
                records(frame),
                "execution_usd, initialization_usd of uncia cost coldstarts --json",
            )
        )
    return Section(
        "coldstarts",
        "Cold starts and what they serve",
        blocks,
        "For each cold start: allocation x execution of all requests that its instance then served,"
        " less allocation x initialization. Below zero, the start held more than all the requests"
        " that it served (the cost paper's Figure 4).",
    )


def _matching(facts: pd.Series) -> Table:
    rows = [
        Fact("cold starts", facts["cold_starts"], count),
        Fact(f"matched ({facts['match']})", facts["matched"], count),
        Fact("requests matched", facts["requests"], count),
        *(Fact(f"not matched: {why}", n, count) for why, n in facts["unmatched"].items()),
        *(
            Fact(
                f"difference at most zero, {title}",
                facts[f"{name}_not_repaid_share"],
                share,
                "of the starts",
            )
            for name, title in _TITLES.items()
        ),
    ]
    return Table(
        fact_columns("cold starts"), rows, "matched, unmatched, <resource>_not_repaid_share"
    )


def _chart(points: pd.DataFrame, name: str) -> Chart:
    unit = str(points["unit"].iloc[0])
    data = [
        {"difference": row["difference"], "share": row["share"]} for _, row in points.iterrows()
    ]
    line = vega.layer(
        "line",
        data,
        {"interpolate": "step-after", "color": theme.CATEGORIES[0]},
        x=vega.quantity(
            "difference",
            f"execution less initialization, {unit}",
            scale={"type": "symlog", "constant": _LINEAR_WITHIN},
            axis={"format": vega.PLAIN, "values": _ticks(data), "labelOverlap": True},
        ),
        y=vega.quantity("share", "share of cold starts", axis={"format": "%"}),
        tooltip=vega.tips(("difference", unit, ",.4~r"), ("share", "starts at most", ".1%")),
    )
    spec = vega.chart(line, vega.rule(0), height=220)
    return Chart(
        f"coldstarts-{name}",
        spec,
        f"Distribution of execution resources less initialization resources, {unit}.",
        f"{_TITLES[name]}, {unit}",
    )


def _ticks(data: list[dict[str, Any]]) -> list[float]:
    """Choose zero, and every second power of ten on both sides within the range of the values."""
    low, high = data[0]["difference"], data[-1]["difference"]
    powers = [10.0**power for power in range(-3, 13, 2)]
    below = [-value for value in reversed(powers) if -value >= low]
    return [*below, 0.0, *(value for value in powers if value <= high)]
