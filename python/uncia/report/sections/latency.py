"""Latency: quantiles of every experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia.report import numbers, plots
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 10
ROWS: Final = Rows("invocations", {"outcome": "ok"})

LATENCY: Final = (
    "Latency is received − scheduled over the experiment's rows of invocations with outcome ok; n"
    " is their number."
)
SAMPLES: Final = "Number of requests that the figures are computed from."
INTERVAL: Final = "Small figures: 95 % interval from order statistics."
FEW: Final = "† too few rows for an interval: read it as a single observation."
AXIS: Final = "latency, ms (logarithmic)"


def section(run: RunData, _: pa.Table) -> Section:
    """Show a chart and a table of quantiles."""
    blocks: list[Block] = []
    if ranges := drawn(run.summaries):
        blocks.append(
            Chart(
                "latency-quantiles",
                plots.ranges(ranges, AXIS),
                "Median, p90 and p99 latency of each experiment on a logarithmic axis",
            )
        )
    blocks.append(
        Table(
            [
                Column("experiment", "name"),
                Column("n", "latency_rows", count, explanation=SAMPLES),
                *(quantile(name) for name in ("p50", "p90", "p95", "p99")),
                Column("max", lambda row: row["latency_ms"]["max"], figure, "ms"),
                Column("mean", lambda row: row["latency_ms"]["mean"], figure, "ms"),
            ],
            [{"name": name, **summary} for name, summary in run.summaries.items()],
            f"{LATENCY} {INTERVAL} {FEW}",
        )
    )
    return Section(
        "latency",
        "Latency",
        blocks,
        "How long a client waits: from the time a request was scheduled to the last byte of its "
        "answer. If the generator sent a request late, its latency includes the delay.",
    )


def drawn(summaries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make rows for `uncia.report.plots.ranges` of the summaries that have a latency."""
    return [
        {"name": name, **{q: summary["latency_ms"][q] for q in ("p50", "p90", "p99")}}
        for name, summary in summaries.items()
        if summary["latency_rows"] and summary["latency_ms"]["p50"] > 0
    ]


def quantile(name: str) -> Column:
    """Make the column of a quantile of a summary's latency, with its interval."""

    def is_single(row: Any) -> bool:
        return name in row["unsupported_quantiles"] and row["latency_ms"][name] is not None

    return Column(
        name,
        lambda row: row["latency_ms"][name],
        figure,
        "ms",
        f"{name[1:]} % of the requests took no longer.",
        note=lambda row: interval(row["latency_ci95_ms"][name]),
        mark=lambda row: "few" if is_single(row) else "",
    )


def interval(bounds: Any) -> str:
    """Write an interval as a note; "" for none."""
    return "" if bounds is None else numbers.span(bounds)
