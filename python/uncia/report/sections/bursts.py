"""Bursts: latency and ratios by burst size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.report import plots
from uncia.report.data import RunData
from uncia.report.numbers import count
from uncia.report.page import Block, Chart, Section
from uncia.report.sections import Rows
from uncia.report.sections.latency import AXIS, FEW, INTERVAL, SAMPLES, drawn, quantile
from uncia.report.sections.ratios import RATIOS, ratio
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 40
ROWS: Final = Rows("invocations", {"outcome": "ok"})


def section(run: RunData, _: pa.Table) -> Section | None:
    """Show the summaries by burst size; None if there are no bursts."""
    rows = [
        {"name": name, **size}
        for name, summary in run.summaries.items()
        for size in summary["by_burst_size"]
    ]
    if not rows:
        return None
    blocks: list[Block] = []
    if ranges := drawn({f"{row['name']} × {row['size']}": row for row in rows}):
        blocks.append(
            Chart(
                "bursts",
                plots.ranges(ranges, AXIS),
                "Median, p90 and p99 latency by burst size on a logarithmic axis",
            )
        )
    blocks.append(
        Table(
            [
                Column("experiment", "name"),
                Column("burst size", "size", count, explanation="Requests in a burst."),
                Column("bursts", "bursts", count, explanation="Number of bursts of this size."),
                Column("n", "latency_rows", count, explanation=SAMPLES),
                quantile("p50"),
                quantile("p99"),
                *(ratio(kind) for kind in RATIOS),
            ],
            rows,
            "A burst is the rows of one stream of a run with the same burst number; its size counts"
            f" them all, n those with outcome ok. {INTERVAL} {FEW}",
            "By burst size",
        )
    )
    return Section(
        "bursts",
        "Bursts",
        blocks,
        "Requests that were sent at the same instant, or within the jitter of their burst, by the"
        " size of the burst. If large bursts are slower than small ones by whole executions,"
        " requests queue; if only by a start, the platform scales.",
    )
