"""The section on cold starts: Figure 4, and what billing turnaround adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt

from uncia.report import theme
from uncia.report.charts import inline
from uncia.report.cost.marks import finish
from uncia.report.page import Chart, Row, Section, Table

if TYPE_CHECKING:
    import pandas as pd

_TITLES: Final = {"cpu": "vCPU", "memory": "Memory"}
_LINEAR_WITHIN: Final = 1e-3
"""Below this many vCPU-s or GB-s the axis is linear, and logarithmic beyond."""


def section(frame: pd.DataFrame, cdf: pd.DataFrame) -> Section:
    """Tables and charts of what `uncia.costs.coldstarts.analysed` returns."""
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
                ["<tariff", "<bills initialization", "rows that waited", "USD, execution alone",
                 "turnaround adds, USD", "share of both"],
                [
                    [
                        str(row["tariff"]),
                        "yes" if row["bills_initialization"] else "no",
                        _count(row["waited_rows"]),
                        _money(row["execution_usd"]),
                        _money(row["initialization_usd"]),
                        _share(row["initialization_share"]),
                    ]
                    for _, row in frame.iterrows()
                ],
                "execution_usd, initialization_usd of uncia cost coldstarts --json",
            )
        )  # fmt: skip
    return Section(
        "coldstarts",
        "Cold starts and what they serve",
        blocks,
        "For each cold start: allocation x execution of all requests that its instance then served,"
        " less allocation x initialization. Left of zero, the start alone held more than all that"
        " it served (the cost paper's Figure 4).",
    )


def _matching(facts: pd.Series) -> Table:
    rows = [
        ["cold starts", f"{facts['cold_starts']:,}"],
        [f"matched ({facts['match']})", f"{facts['matched']:,}"],
        ["requests matched", f"{facts['requests']:,}"],
        *([f"not matched: {why}", f"{count:,}"] for why, count in facts["unmatched"].items()),
        *(
            [f"difference at most zero, {title}", _share(facts[f"{name}_not_repaid_share"])]
            for name, title in _TITLES.items()
        ),
    ]
    return Table(["<cold starts", "value"], rows, "matched, unmatched, <resource>_not_repaid_share")


def _chart(points: pd.DataFrame, name: str) -> Chart:
    unit = str(points["unit"].iloc[0])
    data = [
        {"difference": row["difference"], "share": row["share"]} for _, row in points.iterrows()
    ]
    line = (
        alt.Chart(inline(data))
        .mark_line(interpolate="step-after", color=theme.CATEGORIES[0])
        .encode(
            x=alt.X(
                "difference:Q",
                title=f"execution less initialization, {unit}",
                scale=alt.Scale(type="symlog", constant=_LINEAR_WITHIN),
                axis=alt.Axis(format="~g", values=_ticks(data), labelOverlap=True),
            ),
            y=alt.Y("share:Q", title="share of cold starts", axis=alt.Axis(format="%")),
            tooltip=[
                alt.Tooltip("difference:Q", title=unit, format=",.4~g"),
                alt.Tooltip("share:Q", title="starts at most", format=".1%"),
            ],
        )
    )
    zero = (
        alt.Chart(inline([{"zero": 0}]))
        .mark_rule(color=theme.ALERT, strokeDash=[4, 3])
        .encode(x="zero:Q")
    )
    spec = finish(alt.layer(line, zero), 220)
    return Chart(
        f"coldstarts-{name}",
        spec,
        f"Distribution of execution resources less initialization resources, {unit}.",
        f"{_TITLES[name]}, {unit}",
    )


def _ticks(data: list[dict[str, Any]]) -> list[float]:
    """Zero, and every second power of ten on both sides as far as the values go."""
    least, most = data[0]["difference"], data[-1]["difference"]
    powers = [10.0**power for power in range(-3, 13, 2)]
    below = [-value for value in reversed(powers) if -value >= least]
    return [*below, 0.0, *(value for value in powers if value <= most)]


def _count(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _money(value: Any) -> str:
    return "-" if value is None else f"{float(value):,.4g}"


def _share(value: Any) -> str:
    return "-" if value is None else f"{float(value):.1%}"
