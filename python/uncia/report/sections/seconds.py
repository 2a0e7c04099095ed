"""Seconds: answers and latency of closed loops, second by second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.report import plots, vega
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 28
ROWS: Final = Rows("invocations", {"outcome": "ok"}, required=True)

_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1e6
_FEWEST: Final = 3
"""Seconds: of fewer there is no course."""


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Two lines over time and a row of the table for each closed loop; None if none is so long."""
    courses = {
        name: course
        for name, table in run.by_experiment(rows).items()
        if _is_closed(run, name) and len(course := _course(table)) >= _FEWEST
    }
    if not courses:
        return None
    budget = max(1, vega.MAX_POINTS // len(courses))
    rates: list[dict[str, Any]] = []
    latencies: list[dict[str, Any]] = []
    table = []
    for name, course in courses.items():
        step = -(-len(course) // budget)
        for start in range(0, len(course), step):
            part = course[start : start + step]
            least = min(part, key=lambda second: second["answers"])
            rates.append({"name": name, "time": least["time"], "value": least["answers"]})
            answered = [second for second in part if second["mean"] is not None]
            if answered:
                worst = max(answered, key=lambda second: second["mean"])
                latencies.append({"name": name, "time": worst["time"], "value": worst["mean"]})
        answers = [second["answers"] for second in course]
        means = [second["mean"] for second in course if second["mean"] is not None]
        table.append(
            {
                "name": name,
                "seconds": len(course),
                "rate": float(np.mean(answers)),
                "least": min(answers),
                "most": max(answers),
                "mean": float(np.mean(means)),
                "worst": max(means),
            }
        )
    names = list(courses)
    blocks: list[Block] = [
        Chart("answers-by-second", plots.series(rates, names, "answers/s"), "Answers"),
        Chart("latency-by-second", plots.series(latencies, names, "mean ms"), "Mean latency"),
    ]
    if any(len(course) > budget for course in courses.values()):
        blocks.append(
            Note(
                "Of many seconds, the charts show of each interval the one with the fewest answers"
                " and the one with the highest mean latency."
            )
        )
    blocks.append(
        Table(
            [
                Column("experiment", "name"),
                Column("seconds", "seconds", count, explanation="whole ones"),
                Column("answers", "rate", figure, "1/s"),
                Column("least", "least", count, "1/s"),
                Column("most", "most", count, "1/s"),
                Column("mean latency", "mean", figure, "ms", "mean of the seconds' means"),
                Column("worst second", "worst", figure, "ms", "the largest mean of a second"),
            ],
            table,
            "The columns received and scheduled of closed loops' invocations with outcome ok, by"
            " the second in which the answer came.",
        )
    )
    return Section(
        "seconds",
        "Second by second",
        blocks,
        "How many answers closed loops had in each second, and after what time on average.",
    )


def _is_closed(run: RunData, name: str) -> bool:
    streams = run.experiment_meta.get(name, {}).get("streams")
    return isinstance(streams, list) and any("closed" in stream for stream in streams)


def _course(table: pa.Table) -> list[dict[str, Any]]:
    """Whole seconds, from the first answer's on: ``time`` (s of the run), ``answers``, ``mean``."""
    table = table.filter(columns.pc.is_valid(columns.integers(table, "received")))
    received = np.asarray(columns.measured(columns.integers(table, "received")), np.int64)
    begun = columns.pc.coalesce(
        columns.integers(table, "scheduled"),
        columns.integers(table, "sent"),
        columns.integers(table, "received"),
    )
    latency = received - np.asarray(columns.measured(begun), np.int64)
    if not received.size:
        return []
    seconds = (received - received.min()) // _NS_PER_S
    # The last one is not whole.
    last = int(seconds.max())
    answers = np.bincount(seconds, minlength=last + 1)[:last]
    sums = np.bincount(seconds, weights=latency / _NS_PER_MS, minlength=last + 1)[:last]
    began = received.min() / _NS_PER_S
    return [
        {
            "time": float(began + number),
            "answers": int(answers[number]),
            "mean": float(sums[number] / answers[number]) if answers[number] else None,
        }
        for number in range(last)
    ]
