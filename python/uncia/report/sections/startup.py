"""Startup: the phases of each kind of start, from the platform's spans."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from uncia.record import INSTANCE_STARTS
from uncia.report import theme, vega
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Row, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import QUANTILES, Ints, quantile
from uncia.stats.waits import EVENT
from uncia.units import NS_PER_MS

POSITION: Final = 60
ROWS: Final = Rows("spans", {"clock": "platform"}, required=True)

_MAX_PANELS: Final = 4
_DURATION: Final = "Duration of the phase."


def section(run: RunData, spans: pa.Table) -> Section | None:
    """Show charts of the functions with the most starts, and a table of all."""
    phases = _phases(run, spans)
    if not phases:
        return None
    shown = sorted(phases, key=lambda key: -max(row["n"] for row in phases[key]))
    kinds = {kind for _, kind in shown}
    panels = [
        Chart(
            f"startup-{index}",
            _timeline(phases[function, kind]),
            f"Phases of a {kind} start of {function}",
            function if len(kinds) == 1 else f"{function}, {kind}",
        )
        for index, (function, kind) in enumerate(shown[:_MAX_PANELS])
    ]
    table = Table(
        [
            Column("function", "function"),
            Column("start", "kind"),
            Column("phase", "name"),
            Column("n", "n", count, explanation="Number of starts that have this phase."),
            Column("from", "start", figure, "ms", "Mean time from the begin of the start."),
            Column("to", "end", figure, "ms", "Mean time from the begin of the start."),
            Column("mean", lambda row: row["end"] - row["start"], figure, "ms", _DURATION),
            Column("p50", "p50", figure, "ms", _DURATION),
            Column("p99", "p99", figure, "ms", _DURATION),
        ],
        [
            {"function": function, "kind": kind, **row}
            for function, kind in shown
            for row in phases[function, kind]
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
        "What a cold start does" if kinds == {"cold"} else "What a start does",
        [*blocks, table],
        "The phases of starting an instance, by the platform's own clock."
        + (
            " A restored start uses a runtime that was started before."
            if "restored" in kinds
            else ""
        ),
    )


def _timeline(rows: list[dict[str, Any]]) -> vega.Spec:
    """Draw phases as bars from their mean begin to their mean end."""
    bars = vega.layer(
        "bar",
        rows,
        {"height": {"band": 0.62}, "color": theme.CATEGORIES[0], "minBandSize": 2},
        x=vega.quantity("start", "ms after the start began (means)", axis={"tickCount": 6}),
        x2={"field": "end"},
        y=vega.names("name", [row["name"] for row in rows], axis={"labelLimit": 165}),
        tooltip=vega.tips(
            ("name", "phase"), ("start", "from, ms", ",.4~r"), ("end", "to, ms", ",.4~r")
        ),
    )
    return vega.chart(bars, height=vega.rows_height(len(rows)))


_Phases = dict[tuple[str, str], list[dict[str, Any]]]


def _phases(run: RunData, spans: pa.Table) -> _Phases:
    """Compute the phases of each (function, kind of start): offsets and durations in ms.

    Phases are in order of their mean start. A start whose kind is unknown counts as cold.
    """
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
            "instance_kind": columns.words(run.instances, "start"),
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
    # How long an event waited is no phase of a start.
    joined = joined.filter(pc.not_equal(joined.column("name"), EVENT))
    is_start = pc.is_in(joined.column("kind"), pa.array(INSTANCE_STARTS))
    joined = joined.filter(pc.or_(is_start, pc.is_null(joined.column("invocation"))))
    # A start ends when the function is called, or the instance is ready.
    start_end = pc.coalesce(joined.column("called"), joined.column("ready"))
    joined = joined.filter(pc.fill_null(pc.less(joined.column("start"), start_end), True))
    if joined.num_rows == 0:
        return {}
    function = pc.coalesce(joined.column("by_invocation"), joined.column("by_instance"))
    # A start is identified by its instance, or by its invocation if the span has no instance.
    key = pc.coalesce(joined.column("instance"), joined.column("invocation"))
    kind = pc.coalesce(joined.column("kind"), joined.column("instance_kind"), pa.scalar("cold"))
    joined = joined.append_column("function", function).append_column("key", key)
    joined = joined.append_column("start_kind", kind)
    joined = joined.filter(pc.and_(pc.is_valid(function), pc.is_valid(key)))
    first = joined.group_by("key").aggregate([("start", "min")])
    joined = joined.join(first, "key")
    result: _Phases = {}
    groups = (
        (function, kind, starts)
        for function, all_kinds in columns.by_word(joined, "function").items()
        for kind, starts in columns.by_word(all_kinds, "start_kind").items()
    )
    for name, kind, starts in groups:
        rows = []
        for phase, spans_of_phase in columns.by_word(starts, "name").items():
            offset = columns.measured(columns.difference(spans_of_phase, "start", "start_min"))
            duration: Ints = columns.ordered(columns.difference(spans_of_phase, "end", "start"))
            begin = float(offset.mean()) / NS_PER_MS
            rows.append(
                {
                    "name": phase,
                    "n": int(duration.size),
                    "start": begin,
                    "end": begin + float(duration.mean()) / NS_PER_MS,
                    "p50": (quantile(duration, QUANTILES["p50"]) or 0) / NS_PER_MS,
                    "p99": (quantile(duration, QUANTILES["p99"]) or 0) / NS_PER_MS,
                }
            )
        result[name, kind] = sorted(rows, key=lambda row: (row["start"], row["end"]))
    return result


def _first_of(table: pa.Table, key: str) -> pa.Table:
    """Keep the first row of each key, so that a join adds no rows; null keys never join."""
    others = [name for name in table.column_names if name != key]
    if table.num_rows == 0:
        return table
    grouped = table.group_by(key, use_threads=False).aggregate([(name, "first") for name in others])
    return grouped.select([key, *(f"{name}_first" for name in others)]).rename_columns(
        [key, *others]
    )
