"""The parts of the mean latency, by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from uncia.report import plots
from uncia.report.by_key import requests
from uncia.report.data import RunData
from uncia.report.page import Chart
from uncia.stats.breakdown import PARTS, breakdown
from uncia.units import NS_PER_MS


def chart(lines: Sequence[dict[str, Any]], runs: Sequence[RunData]) -> Chart | None:
    """Draw it, over all requests of a group's experiments that ended ok."""
    by_path = {str(run.path): run for run in runs}
    counts: dict[tuple[str, bool], int] = defaultdict(int)
    sums: dict[tuple[str, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in lines:
        run = by_path[line["path"]]
        rows, _ = requests(run, line["experiment"])
        for item in breakdown(rows, run.spans):
            key = line["group"], item.platform_times
            counts[key] += item.rows
            for part, mean in item.parts_ns.items():
                sums[key][part] += mean * item.rows
    if not sums:
        return None
    is_mixed = len(sums) > len({group for group, _ in sums})
    bars = [
        {
            "name": f"{group} (without platform times)" if is_mixed and not timed else group,
            "part": part,
            "value": max(0.0, total / counts[group, timed]) / NS_PER_MS,
        }
        for (group, timed), parts in sums.items()
        for part, total in parts.items()
    ]
    used = [part for part in PARTS if any(row["part"] == part for row in bars)]
    spec = plots.stacked(bars, used, "mean latency, ms")
    return Chart("parts", spec, "Parts of the mean latency")
