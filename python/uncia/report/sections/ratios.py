"""The ratios MR, TR and TMR of every experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.sections.latency import FEW, SAMPLES, interval
from uncia.report.table import Column, Table
from uncia.stats.summary import HIGH_RATIO

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 30
ROWS: Final = Rows("invocations", {"outcome": "ok"})

RATIOS: Final = ("mr", "tr", "tmr")


def section(run: RunData, _: pa.Table) -> Section:
    """Show a chart and a table of the ratios."""
    rows = [{"name": name, **summary} for name, summary in run.summaries.items()]
    drawn = [
        {
            "name": row["name"],
            "kind": kind.upper(),
            "value": row[kind],
            "low": (row[f"{kind}_ci95"] or (None, None))[0],
            "high": (row[f"{kind}_ci95"] or (None, None))[1],
        }
        for row in rows
        for kind in RATIOS
        if row[kind] is not None and row[kind] > 0
    ]
    first: Block = Note("No experiment has a ratio: see the warnings.", "warning")
    if drawn:
        first = Chart(
            "ratios",
            plots.ratios(drawn, "ratio (logarithmic)", HIGH_RATIO, ("MR", "TR", "TMR")),
            "MR, TR and TMR of each experiment with 95 % intervals; the line stands at 10",
        )
    waits = any(row["wait_ms"] for row in rows)
    table = Table(
        [
            Column("experiment", "name"),
            Column("n", "latency_rows", count, explanation=SAMPLES),
            *(ratio(kind) for kind in RATIOS),
            Column(
                "base", "base", explanation="The experiment whose median MR and TR are divided by."
            ),
            Column(
                "wait subtracted",
                lambda row: row["wait_ms"] or None,
                figure,
                "ms",
                "Time that the function waits on purpose, which is not the platform's.",
            ),
        ],
        rows,
        "MR = p50 / p50 of the base, TR = p99 / p50 of the base, TMR = p99 / p50, of latency"
        f" as above{' less the wait' if waits else ''}. Small figures: 95 % bootstrap"
        f" interval. Red: above {HIGH_RATIO:g}. {FEW}",
    )
    return Section(
        "ratios",
        "Ratios to warm",
        [first, table],
        "How much slower an experiment is than a single warm request: at the median (MR) and in "
        "the tail (TR); and how far its tail is from its own median (TMR). A ratio above 10, the "
        "line, is a problem for callers."
        + (
            " Where a function waits on purpose, the wait is subtracted first, so that only the "
            "platform's time is left."
            if waits
            else ""
        ),
    )


_MEANING: Final = {
    "mr": "Median latency divided by the median of the base.",
    "tr": "99th percentile of latency divided by the median of the base.",
    "tmr": "99th percentile of latency divided by the experiment's own median.",
}


def ratio(kind: str) -> Column:
    """Make the column of a ratio of a summary, with its interval."""

    def mark(row: Any) -> str:
        value = row[kind]
        few = value is not None and row[f"{kind}_ci95"] is None
        high = value is not None and value > HIGH_RATIO
        return " ".join(name for name, is_set in (("few", few), ("high", high)) if is_set)

    return Column(
        kind.upper(),
        kind,
        figure,
        explanation=_MEANING[kind],
        note=lambda row: interval(row[f"{kind}_ci95"]),
        mark=mark,
    )
