"""Misses in a thousand instructions against execution time, by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from uncia.report import plots, vega
from uncia.report.data import RunData
from uncia.report.page import Chart

_KINDS: Final = {"branch_mpki": "branches", "llc_mpki": "last-level cache"}


def chart(lines: Sequence[dict[str, Any]], runs: Sequence[RunData]) -> Chart | None:
    """Draw it; of experiments whose invocations have these counters."""
    del runs
    rows = [
        {
            "name": line["group"],
            "experiment": line["experiment"],
            "of": of,
            "execution": line["execution_ms"],
            "mpki": line[key],
        }
        for line in lines
        for key, of in _KINDS.items()
        if line[key] is not None and line["execution_ms"] is not None
    ]
    if not rows:
        return None
    rows = rows[: vega.MAX_POINTS]
    names = plots.order_of(rows, "name")
    layer = vega.layer(
        "point",
        rows,
        {"filled": True, "size": 60, "opacity": 0.9},
        x=vega.quantity("execution", "execution, ms"),
        y=vega.quantity("mpki", "misses in a thousand instructions"),
        color=vega.colours("name", names),
        shape=vega.names("of", list(_KINDS.values())),
        tooltip=vega.tips(
            ("name", " "),
            ("experiment", "experiment"),
            ("of", "misses of"),
            ("execution", "execution, ms", ",.4~r"),
            ("mpki", "misses", ",.4~r"),
        ),
    )
    return Chart("misses", vega.chart(layer, height=260), "Misses against execution time")
