"""The machine that the run was on: what it is, and what it did meanwhile."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from uncia.report import charts, numbers
from uncia.report.data import RunData
from uncia.report.page import Block, Chart, Note, Section, Table
from uncia.stats import columns
from uncia.stats.quantiles import Floats

_NS_PER_S: Final = 1e9
_PERCENT: Final = "_percent"
_DRAWN: Final = 6


def machine(run: RunData) -> Section | None:
    """Facts from the run's description, and the counters that were watched."""
    series = _series(run)
    facts = run.meta.get("machine")
    rows = _facts(facts) if isinstance(facts, Mapping) else []
    if not series and not rows:
        return None
    blocks: list[Block] = []
    drawn = [name for name in series if name.endswith(_PERCENT)][:_DRAWN]
    if drawn:
        budget = charts.MAX_POINTS // len(drawn)
        blocks.append(
            Chart(
                "machine",
                charts.series(
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
                ("<counter", "samples", "mean", "median", "max"),
                [
                    [
                        name,
                        numbers.count(int(values.size)),
                        numbers.figure(float(values.mean())),
                        numbers.figure(float(np.quantile(values, 0.5, method="inverted_cdf"))),
                        numbers.figure(float(values.max())),
                    ]
                    for name, (_, values) in series.items()
                ],
                "Rows of the table machine without a cgroup, by counter; a counter's name ends in"
                " its unit.",
            )
        )
    if rows:
        blocks.append(
            Table(("<fact", "<value"), rows, "run.yaml, machine and versions.", "Machine facts")
        )
    versions = run.meta.get("versions")
    if rows and isinstance(versions, Mapping):
        rows.extend([f"version of {key}", str(value)] for key, value in versions.items())
    return Section(
        "machine",
        "The machine",
        blocks,
        "What the run was measured on, and how busy that was meanwhile. Steal is time that the host"
        " kept for others; background is what processes other than the run's used.",
    )


def _series(run: RunData) -> dict[str, tuple[Floats, Floats]]:
    """counter -> (times in s, values), of the whole machine."""
    found = {}
    for name, table in columns.by_word(run.machine, "counter").items():
        own = table.filter(columns.pc.is_null(columns.words(table, "cgroup")))
        if own.num_rows:
            times = columns.measured(columns.integers(own, "time")) / _NS_PER_S
            values = np.asarray(own.column("value").to_numpy(), dtype=np.float64)
            found[name] = (times, values)
    return found


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


def _facts(facts: Mapping[str, Any]) -> list[list[str]]:
    return [
        [str(key).replace("_", " "), _value(value)]
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
