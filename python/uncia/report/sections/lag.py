"""Generator lag: how late requests were sent, and the rates offered and achieved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.report import theme, vega
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns, untimed
from uncia.stats.quantiles import Ints
from uncia.stats.summary import LAG_LIMIT_US

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 100
ROWS: Final = Rows("invocations")

_NS_PER_US: Final = 1e3
_BINS: Final = 48
_LAG: Final = "How much later than scheduled requests were sent."


def section(run: RunData, rows: pa.Table) -> Section:
    """Show a histogram of all rows, and a table by experiment."""
    rows = rows.filter(columns.is_request(rows))
    values = columns.ordered(columns.difference(rows, "sent", "scheduled"))
    if values.size == 0:
        why = untimed.sentence(untimed.why_no_lag, run.all_summaries.values())
        return Section("lag", "Generator lag", [Note(why, "warning")])

    def mark(row: Any) -> str:
        p99 = row["lag_us"]["p99"]
        return "high" if p99 is not None and p99 > LAG_LIMIT_US else ""

    def lag(name: str, **options: Any) -> Column:
        return Column(name, lambda row: row["lag_us"][name], figure, "µs", _LAG, **options)

    return Section(
        "lag",
        "Generator lag",
        [
            Chart(
                "lag",
                histogram(values, _NS_PER_US, "sent − scheduled, µs", LAG_LIMIT_US),
                "Histogram of generator lag on a logarithmic axis; the line stands at 1 ms",
            ),
            Table(
                [
                    Column("experiment", "name"),
                    Column("sent", "sent", count),
                    lag("p50"),
                    lag("p99", mark=mark),
                    lag("max"),
                    Column("offered", "offered_rate", figure, "1/s", "Rate of scheduled requests."),
                    Column(
                        "answered", "achieved_rate", figure, "1/s", "Rate of successful answers."
                    ),
                ],
                [{"name": name, **summary} for name, summary in run.all_summaries.items()],
                "Lag is sent − scheduled over all rows of invocations with both, whatever their"
                " outcome. Offered: (rows − 1) / (last − first scheduled); answered: the same of"
                " received over rows with outcome ok. A dash: all at one instant.",
            ),
        ],
        "How late the load generator itself was. Its lag is part of every latency above, so it "
        "must be small compared with them; the line marks 1 ms.",
    )


def histogram(values: Ints, unit: float, axis: str, limit: float) -> vega.Spec:
    """Draw a histogram with bins of equal width on a logarithmic axis.

    Args:
        values: in any order; zero and negative ones fall into the first bin.
        unit: values are divided by this.
        axis: title of the horizontal axis.
        limit: position of a vertical line, in the axis' unit.
    """
    scaled = np.maximum(values / unit, 1e-9)
    low = max(float(scaled.min()), 1e-1)
    high = max(float(scaled.max()), limit * 1.5, low * 10)
    edges = np.geomspace(low, high * 1.001, _BINS + 1)
    counts, _ = np.histogram(np.maximum(scaled, low), bins=edges)
    rows = [
        {"low": edges[bin], "high": edges[bin + 1], "share": int(n) / values.size, "zero": 0}
        for bin, n in enumerate(counts)
        if n
    ]
    bars = vega.layer(
        "bar",
        rows,
        {"color": theme.CATEGORIES[0], "opacity": 0.85},
        x=vega.quantity("low", axis, **vega.logarithmic((low, high))),
        x2={"field": "high"},
        y=vega.quantity("share", "share of requests", axis={"format": "~%", "tickCount": 4}),
        y2={"field": "zero"},
        tooltip=vega.tips(("low", "from", ",.3~r"), ("high", "to", ",.3~r"), ("share", "", ".2%")),
    )
    return vega.chart(bars, vega.rule(limit), height=190)
