"""Latency over time, the median of each second, by group: of the requests that ended ok."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from uncia.report import plots, theme
from uncia.report.by_key import latencies, requests
from uncia.report.data import RunData
from uncia.report.page import Chart
from uncia.report.vega import MAX_POINTS
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import quantile
from uncia.units import NS_PER_MS, NS_PER_S

_MOST: Final = len(theme.CATEGORIES)
"""Lines that can be told apart."""


def chart(lines: Sequence[dict[str, Any]], runs: Sequence[RunData]) -> Chart | None:
    """Draw it; of as many experiments as have a colour, which the label says."""
    by_path = {str(run.path): run for run in runs}
    shown = lines[:_MOST]
    rows = []
    for line in shown:
        name = f"{line['group']}: {line['run']}, {line['experiment']}"
        sent, ok = requests(by_path[line["path"]], line["experiment"])
        begun, values = latencies(ok)
        if not begun.size:
            continue
        # From the first request, though it should have failed.
        due = pc.coalesce(*(columns.integers(sent, it) for it in ("scheduled", "sent")))
        seconds = (begun - pc.min(due).as_py()) // NS_PER_S
        step = max(1, int(seconds.max() + 1) * len(shown) // MAX_POINTS + 1)
        for second in np.unique(seconds // step):
            median = quantile(np.sort(values[seconds // step == second]), Fraction(1, 2))
            assert median is not None, "the second has a value"
            value = median / NS_PER_MS
            rows.append({"name": name, "time": float(second * step), "value": value})
    if not rows:
        return None
    spec = plots.series(rows, plots.order_of(rows, "name"), "latency, ms")
    label = "Latency over the time of each experiment"
    if len(lines) > len(shown):
        label = f"Latency over the time of the first {len(shown)} of {len(lines)} experiments"
    return Chart("latency-over-time", spec, label)
