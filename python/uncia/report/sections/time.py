"""Where time goes: parts of the latency, phases of a start, instances over time."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.record import INSTANCE_STARTS
from uncia.report import charts, numbers, theme
from uncia.report.data import RunData
from uncia.report.page import Block, Cell, Chart, Note, Row, Section, Table
from uncia.stats import breakdown as parts_of
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import QUANTILES, Ints, quantile

_NS_PER_MS: Final = 1e6
_NS_PER_S: Final = 1e9
_MAX_PANELS: Final = 4
_MAX_SERIES: Final = 9

_PART_COLOURS: Final = dict(
    zip(
        parts_of.PARTS,
        (
            theme.ALERT,
            "#98923a",
            "#e08a2c",
            "#8a6fd1",
            "#3b7fc4",
            "#28a19c",
            theme.REFERENCE,
            "#b9c2cc",
        ),
        strict=True,
    )
)


def breakdown(run: RunData) -> Section:
    """The mean latency of each experiment, in parts that add up to it."""
    found = [
        (name, item) for name, table in run.tables.items() for item in parts_of.breakdown(table)
    ]
    if not found:
        return Section("breakdown", "Where time goes", [Note("No request succeeded.", "warning")])
    twice = {name for name, _ in found if sum(other == name for other, _ in found) > 1}
    labels = [
        name if name not in twice or item.platform_times else f"{name} (times not told)"
        for name, item in found
    ]
    used = [part for part in parts_of.PARTS if any(part in item.parts_ns for _, item in found)]
    bars = [
        {
            "name": f"{label} · {numbers.figure(item.mean_ns / _NS_PER_MS)} ms",
            "part": part,
            "value": max(0.0, value) / _NS_PER_MS,
        }
        for label, (_, item) in zip(labels, found, strict=True)
        for part, value in item.parts_ns.items()
    ]
    blocks: list[Block] = [
        Chart(
            "breakdown",
            charts.stacked(
                bars,
                used,
                "share of the mean latency",
                normalized=True,
                colours=[_PART_COLOURS[part] for part in used],
            ),
            "Parts of the mean latency of each experiment, as shares",
        )
    ]
    if any(value < 0 for _, item in found for value in item.parts_ns.values()):
        blocks.append(
            Note(
                "A part below zero means that the platform reports more time than the client"
                " waited; it is drawn as nothing and stands in the table as it is.",
                "warning",
            )
        )
    if not all(item.platform_times for _, item in found):
        blocks.append(
            Note(
                "Where the platform does not tell its own times, everything between connection and"
                " first byte is one part: waiting for the answer."
            )
        )
    blocks.append(
        Table(
            ("<experiment", "n", "mean latency", *used),
            [
                [
                    label,
                    numbers.count(item.rows),
                    numbers.figure(item.mean_ns / _NS_PER_MS),
                    *(_part_cell(item.parts_ns.get(part)) for part in used),
                ]
                for label, (_, item) in zip(labels, found, strict=True)
            ],
            "Means in ms over rows of invocations with outcome ok; the parts of a row add up to its"
            " mean latency. generator lag = sent − scheduled; connect = connected − sent, 0 on a"
            " reused connection; platform queue = queued; initialization and execution as the"
            " platform reports them, initialization counting 0 in requests that caused no start;"
            " answer transfer = received − first_byte; network and platform = what is left.",
        )
    )
    return Section(
        "breakdown",
        "Where time goes",
        blocks,
        "The mean latency of each experiment in parts. Means, because only means add up; each part "
        "is a duration by one clock, so the clocks need not agree.",
    )


def _part_cell(value: float | None) -> Cell:
    if value is None:
        return Cell(numbers.ABSENT)
    return Cell(numbers.figure(value / _NS_PER_MS), mark="bad" if value < 0 else "")


def startup(run: RunData) -> Section | None:
    """Phases of cold starts, from the platform's spans."""
    spans = run.spans.filter(columns.is_word(run.spans, "clock", "platform"))
    if spans.num_rows == 0:
        return None
    phases = _phases(run, spans)
    if not phases:
        return None
    shown = sorted(phases, key=lambda function: -max(row["n"] for row in phases[function]))
    panels = [
        Chart(
            f"startup-{index}",
            charts.phases(phases[function]),
            f"Phases of a cold start of {function}",
            function,
        )
        for index, function in enumerate(shown[:_MAX_PANELS])
    ]
    table = Table(
        ("<function", "<phase", "n", "from, ms", "to, ms", "mean, ms", "p50, ms", "p99, ms"),
        [
            [
                function,
                row["name"],
                numbers.count(row["n"]),
                numbers.figure(row["start"]),
                numbers.figure(row["end"]),
                numbers.figure(row["end"] - row["start"]),
                numbers.figure(row["p50"]),
                numbers.figure(row["p99"]),
            ]
            for function in shown
            for row in phases[function]
        ],
        "Rows of spans with clock platform whose invocation has start cold or restored, or that"
        " belong to an instance and to no invocation, and that began before the function was"
        " called. From and to: mean time since the first of these spans of the same start; p50 and"
        " p99 are of end − start.",
        "Phases",
    )
    blocks: list[Block] = [Row(panels)]
    if len(shown) > _MAX_PANELS:
        blocks.append(
            Note(f"Drawn: the {_MAX_PANELS} functions with the most starts; all are in the table.")
        )
    return Section(
        "startup",
        "What a cold start does",
        [*blocks, table],
        "The phases of starting an instance, as the platform's own clock saw them.",
    )


def _phases(run: RunData, spans: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """function -> its phases in order of their mean start, offsets and durations in ms."""
    started = pa.table(
        {
            "invocation": columns.words(run.invocations, "invocation"),
            "by_invocation": columns.words(run.invocations, "function"),
            "kind": columns.words(run.invocations, "start"),
            "called": columns.integers(run.invocations, "started"),
        }
    )
    hosts = pa.table(
        {
            "instance": columns.words(run.instances, "instance"),
            "by_instance": columns.words(run.instances, "function"),
            "ready": columns.integers(run.instances, "initialized"),
        }
    )
    plain = pa.table(
        {
            "invocation": columns.words(spans, "invocation"),
            "instance": columns.words(spans, "instance"),
            "name": columns.words(spans, "name"),
            "start": columns.integers(spans, "start"),
            "end": columns.integers(spans, "end"),
        }
    )
    joined = plain.join(_first_of(started, "invocation"), "invocation").join(
        _first_of(hosts, "instance"), "instance"
    )
    began = pc.is_in(joined.column("kind"), pa.array(INSTANCE_STARTS))
    joined = joined.filter(pc.or_(began, pc.is_null(joined.column("invocation"))))
    # What begins once the function was called, or the instance was ready, is no part of a start.
    over = pc.coalesce(joined.column("called"), joined.column("ready"))
    begun = pc.fill_null(pc.less(joined.column("start"), over), True)
    joined = joined.filter(begun)
    if joined.num_rows == 0:
        return {}
    function = pc.coalesce(joined.column("by_invocation"), joined.column("by_instance"))
    # A start is known by its instance; where a span names none, by its invocation.
    key = pc.coalesce(joined.column("instance"), joined.column("invocation"))
    joined = joined.append_column("function", function).append_column("key", key)
    joined = joined.filter(pc.and_(pc.is_valid(function), pc.is_valid(key)))
    first = joined.group_by("key").aggregate([("start", "min")])
    joined = joined.join(first, "key")
    result: dict[str, list[dict[str, Any]]] = {}
    for name, own in columns.by_word(joined, "function").items():
        rows = []
        for phase, each in columns.by_word(own, "name").items():
            offset = columns.measured(columns.difference(each, "start", "start_min"))
            duration: Ints = columns.ordered(columns.difference(each, "end", "start"))
            begin = float(offset.mean()) / _NS_PER_MS
            rows.append(
                {
                    "name": phase,
                    "n": int(duration.size),
                    "start": begin,
                    "end": begin + float(duration.mean()) / _NS_PER_MS,
                    "p50": (quantile(duration, QUANTILES["p50"]) or 0) / _NS_PER_MS,
                    "p99": (quantile(duration, QUANTILES["p99"]) or 0) / _NS_PER_MS,
                }
            )
        result[name] = sorted(rows, key=lambda row: (row["start"], row["end"]))
    return result


def _first_of(table: pa.Table, key: str) -> pa.Table:
    """One row for each key, so that a join adds none; keys that are null never join."""
    others = [name for name in table.column_names if name != key]
    if table.num_rows == 0:
        return table
    grouped = table.group_by(key, use_threads=False).aggregate([(name, "first") for name in others])
    return grouped.select([key, *(f"{name}_first" for name in others)]).rename_columns(
        [key, *others]
    )


def alive(run: RunData) -> Section | None:
    """How many instances of each function were alive, over time."""
    if run.instances.num_rows == 0:
        return None
    tables = columns.by_word(run.instances, "function")
    shown = sorted(tables, key=lambda name: -tables[name].num_rows)
    names = sorted(shown[:_MAX_SERIES], key=list(tables).index)
    until = _last_moment(run)
    budget = charts.MAX_POINTS // len(names)
    rows = [
        {"name": name, "time": time / _NS_PER_S, "value": count}
        for name in names
        for time, count in _steps(tables[name], until, budget)
    ]
    table = Table(
        ("<function", "instances", "most at once", "mean life, s", "<ended because"),
        [
            [
                name,
                numbers.count(own.num_rows),
                numbers.count(max(count for _, count in _steps(own, until, own.num_rows * 2 + 2))),
                numbers.figure(_mean_life(own)),
                ", ".join(
                    f"{numbers.count(n)} {why}"
                    for why, n in columns.count_words(own, "end_reason").items()
                )
                or numbers.ABSENT,
            ]
            for name, own in tables.items()
        ],
        "Rows of instances: alive from started to ended; an instance without an end is drawn as"
        " alive to the run's last moment and takes no part in the mean life.",
        "Instances",
    )
    blocks: list[Block] = [
        Chart(
            "instances",
            charts.series(rows, names, "instances alive", steps=True),
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
    return float(life.mean()) / _NS_PER_S if life.size else None


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
