"""The sections on instances: what they cost, and when they are cheaper than requests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots, vega
from uncia.report.numbers import count, general, yes_no
from uncia.report.page import Chart, Section
from uncia.report.plots import order_of
from uncia.report.table import Column, Table, records
from uncia.units import NS_PER_H

if TYPE_CHECKING:
    import pandas as pd

_POINTS: Final = 60
_MAX_CURVES: Final = vega.MAX_POINTS // _POINTS


def section(frame: pd.DataFrame) -> Section:
    """Show what `uncia.costs.instances.instances` returns."""
    blocks: list[Any] = []
    priced = frame[[cost is not None for cost in frame["cost_usd"]]]
    bars: list[dict[str, Any]] = []
    for row in records(priced):
        rounding = float(row["rounding_usd"])
        parts = {"time they existed": float(row["cost_usd"]) - rounding, "rounding": rounding}
        bars += [
            {"name": row["tariff"], "part": part, "value": value} for part, value in parts.items()
        ]
    if bars:
        blocks.append(
            Chart(
                "instances",
                plots.stacked(bars, ["time they existed", "rounding"], "USD"),
                "Bars of what the instances cost under each tariff.",
            )
        )
    blocks.append(
        Table(
            [
                Column("tariff", "tariff"),
                Column("instances", "priced", count, explanation="Instances that have a price."),
                Column(
                    "lifetime",
                    lambda row: _over(row["instance_ns"], NS_PER_H),
                    general,
                    "h",
                    "Lifetimes of all instances, summed.",
                ),
                Column("cost", "cost_usd", general, "USD"),
                Column(
                    "an hour", "usd_per_instance_hour", general, "USD", "Cost per hour of life."
                ),
                Column("note", lambda row: row["note"] or ""),
            ],
            records(frame),
            "instance_ns, cost_usd of uncia cost instances --json",
        )
    )
    return Section("instances", "What the instances cost", blocks)


def break_even_section(frame: pd.DataFrame) -> Section:
    """Show what `uncia.costs.breakeven.break_even` returns."""
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
            [
                Column("by request", "request_tariff"),
                Column("by instance", "instance_tariff"),
                Column("a request", "usd_per_request", general, "USD", "Cost of a request."),
                Column("an hour", "usd_per_hour", general, "USD", "Cost of an instance per hour."),
                Column(
                    "cheaper from",
                    "rate_per_s",
                    general,
                    "/s",
                    "Above this request rate, an instance is cheaper.",
                ),
                Column(
                    "capacity",
                    "capacity_per_s",
                    general,
                    "/s",
                    "Requests that an instance can serve.",
                ),
                Column(
                    "feasible",
                    lambda row: yes_no(row["feasible"]),
                    explanation="Whether one instance can serve that rate.",
                ),
                Column("note", lambda row: row["note"] or ""),
            ],
            records(frame),
            "rate_per_s, capacity_per_s of uncia cost break-even --json",
        )
    )
    return Section(
        "break-even",
        "Requests or instances",
        blocks,
        "An instance is added whenever the rate exceeds the capacity of the others, so their lines"
        " rise in steps.",
    )


def _curves(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Compute dollars an hour against the rate, from a tenth of the first crossing on."""
    rows = records(frame)
    requests = {
        row["request_tariff"]: float(row["usd_per_request"])
        for row in rows
        if row["usd_per_request"]
    }
    instances = {
        row["instance_tariff"]: (float(row["usd_per_hour"]), float(row["capacity_per_s"]))
        for row in rows
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
    return points[: _MAX_CURVES * _POINTS]


def _chart(points: list[dict[str, Any]]) -> vega.Spec:
    by, kinds = order_of(points, "name"), ["by request", "by instance"]
    line = vega.layer(
        "line",
        points,
        {"strokeWidth": 1.8},
        x=vega.quantity(
            "rate", "requests a second", **vega.logarithmic(point["rate"] for point in points)
        ),
        y=vega.quantity("usd", "USD an hour", **vega.logarithmic(point["usd"] for point in points)),
        color=vega.colours("name", by, long=True),
        strokeDash=vega.dashes("kind", kinds, kinds[1:], (5, 3)),
        tooltip=vega.tips(
            ("name", " "), ("rate", "requests a second", ",.4~r"), ("usd", "USD an hour", ",.4~r")
        ),
    )
    return vega.chart(line, height=320)


def _over(value: Any, unit: float) -> float | None:
    return None if value is None else float(value) / unit
