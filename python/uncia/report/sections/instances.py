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
    """A curve for each function, and a table."""
    tables = columns.by_word(rows, "function")
    shown = sorted(tables, key=lambda name: -tables[name].num_rows)
    names = sorted(shown[:_MAX_SERIES], key=list(tables).index)
    until = _last_moment(run)
    points = [
        {"name": name, "time": time / NS_PER_S, "value": alive}
        for name in names
        for time, alive in _steps(tables[name], until, MAX_POINTS // len(names))
    ]
    table = Table(
        [
            Column("function", 0),
            Column("instances", lambda row: row[1].num_rows, count),
            Column("most at once", lambda row: _most(row[1], until), count),
            Column("mean life", lambda row: _mean_life(row[1]), figure, "s"),
            Column("ended because", lambda row: _reasons(row[1])),
        ],
        list(tables.items()),
        "Rows of instances: alive from started to ended; an instance without an end is drawn as"
        " alive to the run's last moment and takes no part in the mean life.",
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
        "What the platform kept running, and so what it must be paid for by someone.",
    )


def _most(table: pa.Table, until: int) -> int:
    return max(alive for _, alive in _steps(table, until, table.num_rows * 2 + 2))


def _reasons(table: pa.Table) -> str:
    found = columns.count_words(table, "end_reason").items()
    return ", ".join(f"{count(n)} {why}" for why, n in found) or ABSENT


def _last_moment(run: RunData) -> int:
    """The latest time in the run's tables, ns since its epoch."""
    found = [
        columns.measured(columns.integers(table, name))
        for table, name in (
            (run.instances, "started"),
            (run.instances, "ended"),
            (run.invocations, "received"),
        )
    ]
    return max((int(values.max()) for values in found if values.size), default=0)


def _mean_life(table: pa.Table) -> float | None:
    life = columns.measured(columns.difference(table, "ended", "started"))
    return float(life.mean()) / NS_PER_S if life.size else None


def _steps(table: pa.Table, until: int, budget: int) -> list[tuple[int, int]]:
    """(time, instances alive from then on); where there are too many steps, the peak of each of
    `budget` equal intervals."""
    begin = columns.ordered(columns.integers(table, "started"))
    end = columns.ordered(columns.integers(table, "ended"))
    times = np.concatenate((begin, end))
    changes = np.concatenate((np.ones(begin.size, np.int64), -np.ones(end.size, np.int64)))
    moments, where = np.unique(times, return_inverse=True)
    alive_now = np.cumsum(np.bincount(where, weights=changes)).astype(np.int64)
    steps = [(int(t), int(n)) for t, n in zip(moments, alive_now, strict=True)]
    room = max(2, budget - 2)
    if len(steps) > room:
        edges = np.linspace(moments[0], moments[-1], room + 1)
        place = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, room - 1)
        peak: dict[int, int] = {}
        for position, n in zip(place.tolist(), alive_now.tolist(), strict=True):
            peak[position] = max(peak.get(position, 0), n)
        steps = [(int(edges[position]), n) for position, n in sorted(peak.items())]
        steps[-1] = (int(moments[-1]), int(alive_now[-1]))
    first = steps[0][0]
    return [(first, 0), *steps, (max(until, steps[-1][0]), steps[-1][1])]
