"""Throughput against the offered rate, by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uncia.report import plots, vega
from uncia.report.data import RunData
from uncia.report.page import Chart


def chart(lines: Sequence[dict[str, Any]], runs: Sequence[RunData]) -> Chart | None:
    """Draw it; of open loops, which have an offered rate."""
    del runs
    rows = [
        {
            "name": line["group"],
            "offered": line["offered_per_s"],
            "throughput": line["throughput_per_s"],
        }
        for line in lines
        if line["offered_per_s"] is not None and line["throughput_per_s"] is not None
    ]
    if not rows:
        return None
    names = plots.order_of(rows, "name")
    rows = sorted(rows, key=lambda row: (names.index(row["name"]), float(row["offered"])))
    layer = vega.layer(
        "line",
        rows[: vega.MAX_POINTS],
        {"point": True, "strokeWidth": 1.8},
        x=vega.quantity("offered", "offered, requests a second"),
        y=vega.quantity("throughput", "answered, requests a second"),
        color=vega.colours("name", names),
        tooltip=vega.tips(
            ("name", " "), ("offered", "offered", ",.4~r"), ("throughput", "answered", ",.4~r")
        ),
    )
    spec = vega.chart(layer, height=260)
    return Chart("throughput", spec, "Throughput against offered rate")
