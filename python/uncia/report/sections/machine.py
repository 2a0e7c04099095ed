"""The machine of the run: its facts, and how busy it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.doctor.monitor import NOISE
from uncia.report import numbers, plots
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.report.vega import MAX_POINTS
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import Floats, quantiles_of
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 120
ROWS: Final = Rows("machine", {"cgroup": None})

_PERCENT: Final = "_percent"
_UNITS: Final = {_PERCENT: "%", "_bytes": "bytes"}
_MAX_SERIES: Final = 6


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show what the monitor beside every run recorded, and facts from the run's description."""
    # Runs of earlier versions have it without a name.
    named = pc.coalesce(columns.words(rows, "monitor"), NOISE)
    of_machine = pc.starts_with(columns.words(rows, "counter"), "monitor.")
    rows = rows.filter(pc.and_(pc.equal(named, NOISE), pc.invert(of_machine)))
    series = _series(rows)
    machine = run.meta.get("machine")
    facts = _facts(machine) if isinstance(machine, Mapping) else []
    if not series and not facts:
        return None
    blocks: list[Block] = []
    shares = [name for name in series if name.endswith(_PERCENT)]
    drawn = shares[:_MAX_SERIES]
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
            blocks.append(Note("Of many samples, the chart shows the highest of each interval."))
        if len(shares) > len(drawn):
            blocks.append(
                Note(
                    f"Drawn: the first {len(drawn)} of {len(shares)} counters in %; all are in the"
                    " table."
                )
            )
    if series:
        blocks.append(
            Table(
                [
                    Column("counter", lambda row: _title(row[0])),
                    Column("unit", lambda row: _unit(row[0])),
                    Column("samples", lambda row: int(row[1].size), count),
                    Column("mean", lambda row: row[1].mean(), figure),
                    Column("median", lambda row: quantiles_of(row[1], [0.5])[0], figure),
                    Column("max", lambda row: row[1].max(), figure),
                ],
                [(name, values) for name, (_, values) in series.items()],
                "Rows of the table machine without a cgroup, by counter.",
            )
        )
    versions = run.meta.get("versions")
    if facts and isinstance(versions, Mapping):
        facts += [(f"version of {key}", value) for key, value in versions.items()]
    if facts:
        blocks.append(
            Table(
                [Column("fact", 0), Column("value", 1, numbers.fact, align="text")],
                facts,
                "run.yaml, machine and versions.",
                "Machine facts",
            )
        )
    return Section(
        "machine",
        "The machine",
        blocks,
        "The machine that the run was measured on, and how busy it was. Steal is time that the host"
        " gave to others; background is the use of processes other than the run's.",
    )


def _series(rows: pa.Table) -> dict[str, tuple[Floats, Floats]]:
    """Split the samples by counter: counter -> (times in s, values)."""
    return {
        name: (
            columns.measured(columns.integers(samples, "time")) / NS_PER_S,
            np.asarray(samples.column("value").to_numpy(), dtype=np.float64),
        )
        for name, samples in columns.by_word(rows, "counter").items()
    }


def _thin(times: Floats, values: Floats, budget: int) -> list[tuple[float, float]]:
    """Reduce a series to `budget` points: the highest of each interval of equal length."""
    if times.size <= budget:
        return [(float(t), float(v)) for t, v in zip(times, values, strict=True)]
    points = []
    for part in np.array_split(np.arange(times.size), budget):
        index = part[int(np.argmax(values[part]))]
        points.append((float(times[index]), float(values[index])))
    return points


def _title(counter: str) -> str:
    """A counter in words, without its unit: ``CPU steal``."""
    for suffix in _UNITS:
        counter = counter.removesuffix(suffix)
    return (
        counter.replace("_", " ")
        .replace(".", " ")
        .replace("cpu", "CPU")
        .replace("pressure io", "pressure I/O")
    )


def _unit(counter: str) -> str | None:
    """The unit in which a counter's name ends; None if it has none."""
    return next((unit for suffix, unit in _UNITS.items() if counter.endswith(suffix)), None)


def _facts(machine: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (str(key).replace("_", " "), value)
        for key, value in machine.items()
        if value is not None and not isinstance(value, Mapping)
    ]
