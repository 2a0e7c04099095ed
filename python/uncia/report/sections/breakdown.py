"""Where time goes: the parts of each experiment's mean latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots, theme
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.sections.latency import SAMPLES
from uncia.report.table import Column, Table
from uncia.stats import breakdown as parts_of
from uncia.stats import untimed
from uncia.units import NS_PER_MS

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 50
ROWS: Final = Rows("invocations", {"outcome": "ok"})

_COLOURS: Final = dict(
    zip(
        parts_of.PARTS,
        (
            theme.ALERT,
            "#98923a",
            "#e08a2c",
            "#c77fb8",
            "#8a6fd1",
            "#3b7fc4",
            "#28a19c",
            theme.REFERENCE,
            "#b9c2cc",
        ),
        strict=True,
    )
)


_MEANING: Final = {
    "generator lag": "How much later than scheduled requests were sent.",
    "connect": "Time to open a connection; 0 on a reused one.",
    "platform queue": "Time that requests waited in the platform's queue.",
    "thaw": "Time until a paused instance went on; 0 in requests that met none.",
    "initialization": "Time to initialize an instance; 0 in requests that caused no start.",
    "execution": "Time that the function ran.",
    "answer transfer": "From the first byte of the answer to its last.",
    "network and platform": "The rest of the latency.",
    "waiting for the answer": "Everything between connection and first byte.",
}


def section(run: RunData, rows: pa.Table) -> Section:
    """Show shares as bars, and a table of means."""
    breakdowns = [
        (name, item)
        for name, table in run.by_experiment(rows).items()
        for item in parts_of.breakdown(table, run.spans)
    ]
    if not breakdowns:
        why = untimed.sentence(untimed.why_no_latency, run.summaries.values())
        return Section("breakdown", "Where time goes", [Note(why, "warning")])
    repeated = {name for name, n in Counter(name for name, _ in breakdowns).items() if n > 1}
    labelled = [
        (f"{name} (without platform times)", item)
        if name in repeated and not item.platform_times
        else (name, item)
        for name, item in breakdowns
    ]
    used = [part for part in parts_of.PARTS if any(part in item.parts_ns for _, item in breakdowns)]
    bars = [
        {
            "name": f"{label} · {figure(item.mean_ns / NS_PER_MS)} ms",
            "part": part,
            "value": max(0.0, value) / NS_PER_MS,
        }
        for label, item in labelled
        for part, value in item.parts_ns.items()
    ]
    blocks: list[Block] = [
        Chart(
            "breakdown",
            plots.stacked(
                bars,
                used,
                "share of the mean latency",
                normalized=True,
                palette=[_COLOURS[part] for part in used],
            ),
            "Parts of the mean latency of each experiment, as shares",
        )
    ]
    if any(value < 0 for _, item in breakdowns for value in item.parts_ns.values()):
        blocks.append(
            Note(
                "A part below zero means that the platform reports more time than the client"
                " waited; the chart omits it, the table shows it.",
                "warning",
            )
        )
    if not all(item.platform_times for _, item in breakdowns):
        blocks.append(
            Note(
                "Where the platform does not report its own times, everything between connection"
                " and first byte is one part: waiting for the answer."
            )
        )
    blocks.append(_table(labelled, used))
    return Section(
        "breakdown",
        "Where time goes",
        blocks,
        "The mean latency of each experiment in parts. Means, because only means add up; each part "
        "is a duration by one clock, so the clocks need not agree.",
    )


def _table(labelled: Sequence[tuple[str, parts_of.Breakdown]], used: Sequence[str]) -> Table:
    """Show the mean of every part."""
    return Table(
        [
            Column("experiment", 0),
            Column("n", lambda row: row[1].rows, count, explanation=SAMPLES),
            Column("mean latency", lambda row: row[1].mean_ns / NS_PER_MS, figure, "ms"),
            *(_part(part) for part in used),
        ],
        labelled,
        "Means in ms over rows of invocations with outcome ok; the parts of a row add up to its"
        " mean latency. generator lag = sent − scheduled; connect = connected − sent, 0 on a"
        " reused connection; platform queue = queued without thaw, which is the span of that name;"
        " initialization and execution as the"
        " platform reports them, initialization counting 0 in requests that caused no start;"
        " answer transfer = received − first_byte; network and platform = the rest.",
    )


def _part(name: str) -> Column:
    def value(row: Any) -> float | None:
        ns = row[1].parts_ns.get(name)
        return None if ns is None else ns / NS_PER_MS

    return Column(
        name,
        value,
        figure,
        "ms",
        _MEANING.get(name, ""),
        mark=lambda row: "bad" if (value(row) or 0) < 0 else "",
    )
