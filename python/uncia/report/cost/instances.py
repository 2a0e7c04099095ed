"""The sections on instances: what they cost, and when they are cheaper than requests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from uncia.report import charts, theme
from uncia.report.charts import inline
from uncia.report.cost.marks import finish
from uncia.report.page import Chart, Section, Table

if TYPE_CHECKING:
    import pandas as pd

_POINTS: Final = 60
_MOST_CURVES: Final = charts.MAX_POINTS // _POINTS


def section(frame: pd.DataFrame) -> Section:
    """Table and chart of what `uncia.costs.instances.instances` returns."""
    blocks: list[Any] = []
    priced = frame[[cost is not None for cost in frame["cost_usd"]]]
    bars: list[dict[str, Any]] = []
    for _, row in priced.iterrows():
        rounding = float(row["rounding_usd"])
        parts = {"time they existed": float(row["cost_usd"]) - rounding, "rounding": rounding}
        bars += [
            {"name": row["tariff"], "part": part, "value": value} for part, value in parts.items()
        ]
    if bars:
        blocks.append(
            Chart(
                "instances",
                charts.stacked(bars, ["time they existed", "rounding"], "USD"),
                "Bars of what the instances cost under each tariff.",
            )
        )
    blocks.append(
        Table(
            ["<tariff", "instances", "hours", "USD", "USD an hour", "<note"],
            [
                [
                    str(row["tariff"]),
                    f"{row['priced']:,}",
                    _number(row["instance_ns"], 3.6e12),
                    _number(row["cost_usd"]),
                    _number(row["usd_per_instance_hour"]),
                    str(row["note"] or ""),
                ]
                for _, row in frame.iterrows()
            ],
            "instance_ns, cost_usd of uncia cost instances --json",
        )
    )
    return Section("instances", "What the instances cost", blocks)


def break_even_section(frame: pd.DataFrame) -> Section:
    """Table and chart of what `uncia.costs.breakeven.break_even` returns."""
    curves = _curves(frame)
    blocks: list[Any] = []
    if curves:
        blocks.append(
            Chart(
                "break-even",
                _chart(curves),
                "Dollars an hour against requests a second, under each tariff.",
            )
        )
    blocks.append(
        Table(
            ["<by request", "<by instance", "USD a request", "USD an hour", "cheaper from, /s",
             "holds, /s", "<feasible", "<note"],
            [
                [
                    str(row["request_tariff"]),
                    str(row["instance_tariff"]),
                    _number(row["usd_per_request"]),
                    _number(row["usd_per_hour"]),
                    _number(row["rate_per_s"]),
                    _number(row["capacity_per_s"]),
                    {True: "yes", False: "no"}.get(row["feasible"], "-"),
                    str(row["note"] or ""),
                ]
                for _, row in frame.iterrows()
            ],
            "rate_per_s, capacity_per_s of uncia cost break-even --json",
        )
    )  # fmt: skip
    return Section(
        "break-even",
        "Requests or instances",
        blocks,
        "Instances are added as the rate exceeds what those before can hold, so their lines rise in"
        " steps.",
    )


def _curves(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Points of dollars an hour against the rate, from a tenth of the first crossing on."""
    requests = {
        row["request_tariff"]: float(row["usd_per_request"])
        for _, row in frame.iterrows()
        if row["usd_per_request"]
    }
    instances = {
        row["instance_tariff"]: (float(row["usd_per_hour"]), float(row["capacity_per_s"]))
        for _, row in frame.iterrows()
        if row["usd_per_hour"] is not None
    }
    rates = [float(rate) for rate in frame["rate_per_s"] if rate]
    if not rates:
        return []
    low, high = min(rates) / 10, max(rates) * 3
    steps = [low * (high / low) ** (n / (_POINTS - 1)) for n in range(_POINTS)]
    points = [
        {
            "name": name,
            "kind": "by instance",
            "rate": rate,
            "usd": cost * max(1, math.ceil(rate / capacity)),
        }
        for name, (cost, capacity) in instances.items()
        for rate in steps
    ]
    points += [
        {"name": name, "kind": "by request", "rate": rate, "usd": cost * rate * 3600}
        for name, cost in requests.items()
        for rate in steps
    ]
    return points[: _MOST_CURVES * _POINTS]


def _chart(points: list[dict[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(point["name"] for point in points))
    log = alt.Scale(type="log", nice=False)

    def ticks(name: str) -> Any:
        values = [point[name] for point in points]
        return alt.Axis(format=",~g", values=charts.log_ticks(min(values), max(values)))

    chart = (
        alt.Chart(inline(points))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("rate:Q", title="requests a second", scale=log, axis=ticks("rate")),
            y=alt.Y("usd:Q", title="USD an hour", scale=log, axis=ticks("usd")),
            color=alt.Color(
                "name:N",
                title=None,
                sort=names,
                legend=alt.Legend(labelLimit=0),
                scale=alt.Scale(domain=names, range=theme.colours(len(names))),
            ),
            strokeDash=alt.StrokeDash(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=["by request", "by instance"], range=[[1, 0], [5, 3]]),
            ),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("rate:Q", title="requests a second", format=",.4~g"),
                alt.Tooltip("usd:Q", title="USD an hour", format=",.4~g"),
            ],
        )
    )
    return finish(chart, 320, legend=names)


def _number(value: Any, unit: float = 1.0) -> str:
    return "-" if value is None else f"{float(value) / unit:,.4g}"
