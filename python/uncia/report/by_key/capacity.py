"""The capacity of each group's runs, between the rates that bound it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uncia.report import plots, vega
from uncia.report.data import RunData
from uncia.report.page import Chart

_KEYS = ("group", "capacity_per_s", "capacity_low_per_s", "capacity_high_per_s")


def chart(lines: Sequence[dict[str, Any]], runs: Sequence[RunData]) -> Chart | None:
    """Draw it; of runs of which it was searched."""
    del runs
    # It is of a whole run, or of several, and stands in each of their lines.
    capacities = dict.fromkeys(
        tuple(line[key] for key in _KEYS) for line in lines if line["capacity_per_s"] is not None
    )
    rows = [
        {"name": group, "capacity": per_s, "low": low, "high": high}
        for group, per_s, low, high in capacities
    ]
    if not rows:
        return None
    rows = rows[: vega.MAX_POINTS]
    names = plots.order_of(rows, "name")
    y = vega.names("name", names)
    tips = vega.tips(
        ("name", " "),
        ("capacity", "capacity", ",.4~r"),
        ("low", "sustained", ",.4~r"),
        ("high", "not sustained", ",.4~r"),
    )
    bounds = vega.layer(
        "rule",
        rows,
        {"strokeWidth": 2},
        x=vega.quantity("low", "requests a second", scale={"zero": True}),
        x2={"field": "high"},
        y=y,
        tooltip=tips,
    )
    points = vega.layer(
        "point",
        rows,
        {"filled": True, "size": 60, "opacity": 1},
        x=vega.quantity("capacity", "requests a second"),
        y=y,
        color=vega.colours("name", names),
        tooltip=tips,
    )
    spec = vega.chart(bounds, points, height=vega.rows_height(len(names)))
    return Chart("capacity", spec, "Capacity, between the rates that were and were not sustained")
