"""The machine that the run was on: what it is, and what it did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.report import numbers, plots
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.report.vega import MAX_POINTS
from uncia.stats import columns
from uncia.stats.quantiles import Floats, quantiles_of
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 120
ROWS: Final = Rows("machine", {"cgroup": None})

_PERCENT: Final = "_percent"
_DRAWN: Final = 6


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Facts from the run's description, and the counters that were watched."""
    series = _series(rows)
    facts = run.meta.get("machine")
    told = _facts(facts) if isinstance(facts, Mapping) else []
    if not series and not told:
        return None
    blocks: list[Block] = []
    drawn = [name for name in series if name.endswith(_PERCENT)][:_DRAWN]
    if drawn:
        budget = MAX_POINTS // len(drawn)
        blocks.append(
            Chart(
                "machine",
                plots.series(
                    [
                        {"name": _title(name), "time": time, "value": value}
                        for name in drawn
                        for time, value in _thin(*series[name], budget)
                    ],
                    [_title(name) for name in drawn],
                    "% of the time",
                ),
                "Load of the machine over time",
            )
        )
        if any(times.size > budget for times, _ in series.values()):
            blocks.append(Note("Where there are too many samples, the highest of each stretch."))
    if series:
        blocks.append(
            Table(
                [
                    Column("counter", 0),
                    Column("samples", lambda row: int(row[1].size), count),
                    Column("mean", lambda row: row[1].mean(), figure),
                    Column(
                        "median",
                        lambda row: quantiles_of(row[1], [0.5])[0],
                        figure,
                    ),
                    Column("max", lambda row: row[1].max(), figure),
                ],
                [(name, values) for name, (_, values) in series.items()],
                "Rows of the table machine without a cgroup, by counter; a counter's name ends in"
                " its unit.",
            )
        )
    versions = run.meta.get("versions")
    if told and isinstance(versions, Mapping):
        told += [(f"version of {key}", str(value)) for key, value in versions.items()]
    if told:
        blocks.append(
            Table(
                [Column("fact", 0), Column("value", 1)],
                told,
                "run.yaml, machine and versions.",
                "Machine facts",
            )
        )
    return Section(
        "machine",
        "The machine",
        blocks,
        "What the run was measured on, and how busy that was meanwhile. Steal is time that the host"
        " kept for others; background is what processes other than the run's used.",
    )


def _series(rows: pa.Table) -> dict[str, tuple[Floats, Floats]]:
    """counter -> (times in s, values)."""
    return {
        name: (
            columns.measured(columns.integers(own, "time")) / NS_PER_S,
            np.asarray(own.column("value").to_numpy(), dtype=np.float64),
        )
        for name, own in columns.by_word(rows, "counter").items()
    }


def _thin(times: Floats, values: Floats, budget: int) -> list[tuple[float, float]]:
    """At most `budget` points: the highest of each stretch of equal length."""
    if times.size <= budget:
        return [(float(t), float(v)) for t, v in zip(times, values, strict=True)]
    points = []
    for part in np.array_split(np.arange(times.size), budget):
        place = part[int(np.argmax(values[part]))]
        points.append((float(times[place]), float(values[place])))
    return points


def _title(counter: str) -> str:
    return counter.removesuffix(_PERCENT).replace("_", " ").replace(".", " ")


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (str(key).replace("_", " "), _value(value))
        for key, value in facts.items()
        if value is not None and not isinstance(value, Mapping)
    ]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return numbers.count(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(str(item) for item in value)
    return str(value)
