"""Instances over time: how many of each function were alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.report import plots
from uncia.report.data import RunData
from uncia.report.numbers import ABSENT, count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.report.vega import MAX_POINTS
from uncia.stats import columns
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 90
ROWS: Final = Rows("instances", required=True)

_MAX_SERIES: Final = 9


def section(run: RunData, rows: pa.Table) -> Section:
    """Show a curve for each function, and a table."""
    tables = columns.by_word(rows, "function")
    by_size = sorted(tables, key=lambda name: -tables[name].num_rows)
    names = sorted(by_size[:_MAX_SERIES], key=list(tables).index)
    until = _latest_time(run)
    points = [
        {"name": name, "time": time / NS_PER_S, "value": alive}
        for name in names
        for time, alive in steps(tables[name], until, MAX_POINTS // len(names))
    ]
    table = Table(
        [
            Column("function", 0),
            Column("instances", lambda row: row[1].num_rows, count),
            Column(
                "peak",
                lambda row: _peak(row[1], until),
                count,
                explanation="The largest number of instances that were alive at the same time.",
            ),
            Column(
                "mean lifetime",
                lambda row: _mean_lifetime(row[1]),
                figure,
                "s",
                "From start to end, over the instances that ended.",
            ),
            Column("ended because", lambda row: _reasons(row[1])),
        ],
        list(tables.items()),
        "Rows of instances: alive from started to ended; an instance without an end is drawn as"
        " alive until the run's latest time, and does not count in the mean lifetime.",
        "Instances",
    )
    blocks: list[Block] = [
        Chart(
            "instances",
            plots.series(points, names, "instances alive", steps=True),
            "Instances alive over time, by function",
        )
    ]
    if len(tables) > len(names):
        blocks.append(
            Note(
                f"Drawn: the {len(names)} functions with the most instances; all are in the table."
            )
        )
    return Section(
        "instances",
        "Instances over time",
        [*blocks, table],
        "The instances that the platform kept running, which someone has to pay for.",
    )


def _peak(table: pa.Table, until: int) -> int:
    return max((alive for _, alive in steps(table, until, table.num_rows * 2 + 2)), default=0)


def _reasons(table: pa.Table) -> str:
    counts = columns.count_words(table, "end_reason").items()
    return ", ".join(f"{count(n)} {reason}" for reason, n in counts) or ABSENT


def _latest_time(run: RunData) -> int:
    """Find the latest time in the run's tables, in ns since its epoch."""
    times = [
        columns.measured(columns.integers(table, name))
        for table, name in (
            (run.instances, "started"),
            (run.instances, "ended"),
            (run.invocations, "received"),
        )
    ]
    return max((int(values.max()) for values in times if values.size), default=0)


def _mean_lifetime(table: pa.Table) -> float | None:
    lifetimes = columns.measured(columns.difference(table, "ended", "started"))
    return float(lifetimes.mean()) / NS_PER_S if lifetimes.size else None


def steps(table: pa.Table, until: int, budget: int) -> list[tuple[int, int]]:
    """Count the instances alive: (time, number from then on); empty if no start is known.

    More than `budget` steps are reduced to two of each of equal intervals: its peak, when it was
    reached, and the number at its end.
    """
    table = table.filter(columns.pc.is_valid(columns.integers(table, "started")))
    if not table.num_rows:
        return []
    begin = columns.ordered(columns.integers(table, "started"))
    end = columns.ordered(columns.integers(table, "ended"))
    times = np.concatenate((begin, end))
    changes = np.concatenate((np.ones(begin.size, np.int64), -np.ones(end.size, np.int64)))
    moments, indexes = np.unique(times, return_inverse=True)
    alive = np.cumsum(np.bincount(indexes, weights=changes)).astype(np.int64)
    if moments.size > budget - 2:
        intervals = max(1, (budget - 2) // 2)
        edges = np.linspace(moments[0], moments[-1], intervals + 1)
        bins = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, intervals - 1)
        parts = np.split(np.arange(moments.size), np.flatnonzero(np.diff(bins)) + 1)
        kept = sorted({int(i) for part in parts for i in (part[alive[part].argmax()], part[-1])})
        moments, alive = moments[kept], alive[kept]
    counted = [(int(t), int(n)) for t, n in zip(moments, alive, strict=True)]
    first, (last, left) = counted[0][0], counted[-1]
    return [(first, 0), *counted, (max(until, last), left)]
