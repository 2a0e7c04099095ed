"""The page of a prediction: Figure 10 with measured points over it, the bill, and the advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from uncia.bandwidth.predict.cpu import size_words
from uncia.report import theme, vega
from uncia.report.numbers import count, figure4, percent, usd
from uncia.report.page import Block, Chart, Section
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    from uncia.bandwidth.predict.study import Study

PREDICTED: Final = "predicted"
RECIPROCAL: Final = "reciprocal"
EQUATION_2: Final = "Equation (2)"
MEASURED: Final = "measured"

Errors: TypeAlias = Sequence[tuple[int, float, float, float]]
"""Of each size: its errors by the prediction, by Equation (2) and by the reciprocal."""

_ADVICE: Final = 40
"""Sizes in the table of advice."""


def sections(found: Study) -> list[Section]:
    """The parts of the page."""
    parts = [_durations(found)]
    if found.choices():
        parts.append(_bill(found))
    if found.errors():
        parts.append(_accuracy(found))
    return parts


def _durations(found: Study) -> Section:
    rows = _thinned(found.rows())
    return Section(
        "durations",
        "Duration by size",
        [
            Chart(
                "durations",
                durations(rows, _axis(found)),
                "Predicted mean duration by size with the range from p5 to p95, measured means over"
                " it, Equation (2) and the reciprocal",
                "Mean duration, and p5 to p95",
            ),
            _rows(found, rows),
        ],
        f"CPU time: {found.work.cpu.words}. Requests come {found.arrivals.words}. The share alone"
        " would give the reciprocal, a quota enforced to the nanosecond Equation (2); the kernel"
        " accounts at ticks.",
    )


def durations(rows: Sequence[Mapping[str, Any]], axis: str) -> vega.Spec:
    """Figure 10: durations by size.

    Args:
        rows: as `Study.rows` gives them.
        axis: title of the horizontal axis.
    """
    key = "memory_mb" if rows and "memory_mb" in rows[0] else "vcpu"
    lines = [
        {"size": row[key], "kind": kind, "value": row[name]}
        for kind, name in (
            (RECIPROCAL, "reciprocal_ms"),
            (EQUATION_2, "equation2_ms"),
            (PREDICTED, "mean_ms"),
        )
        for row in rows
    ]
    dots = [
        {"size": row[key], "kind": MEASURED, "value": row["measured_mean_ms"]}
        for row in rows
        if row["measured_mean_ms"] is not None
    ]
    band = [{"size": row[key], "low": row["p5_ms"], "high": row["p95_ms"]} for row in rows]
    order = [PREDICTED, EQUATION_2, RECIPROCAL, *([MEASURED] if dots else [])]
    shades = dict(zip((PREDICTED, EQUATION_2, MEASURED), theme.colours(3), strict=True))
    shades[RECIPROCAL] = theme.REFERENCE
    every = [one["value"] for one in (*lines, *dots)] + [one["low"] for one in band]
    x = vega.quantity("size", axis, scale={"zero": False, "nice": False, "padding": 6})
    y = vega.quantity("value", "duration, ms", **vega.logarithmic(every, padding=8))
    colour = vega.colours("kind", order, [shades[name] for name in order])
    tooltip = vega.tips(("kind", "what"), ("size", axis, ",.4~g"), ("value", "ms", ",.4~g"))
    area = vega.layer(
        "area",
        band,
        {"opacity": 0.16, "color": shades[PREDICTED]},
        x=x,
        y=vega.quantity("low", "duration, ms"),
        y2={"field": "high"},
    )
    curves = [
        vega.layer(
            "line",
            [line for line in lines if line["kind"] == kind],
            style,
            x=x,
            y=y,
            color=colour,
            tooltip=tooltip,
        )
        for kind, style in (
            (RECIPROCAL, {"strokeDash": [5, 4], "strokeWidth": 1.4}),
            (EQUATION_2, {"strokeDash": [2, 2], "strokeWidth": 1.4}),
            (PREDICTED, {"strokeWidth": 2.2}),
        )
    ]
    if dots:
        style = {"filled": True, "size": 26, "opacity": 0.9}
        curves.append(vega.layer("point", dots, style, x=x, y=y, color=colour, tooltip=tooltip))
    return vega.chart(area, *curves, height=340)


def _rows(found: Study, rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        [
            Column("size", _words),
            Column("mean", "mean_ms", figure4, "ms"),
            *(Column(name, f"{name}_ms", figure4) for name in ("p5", "p50", "p95")),
            Column("reciprocal", "reciprocal_ms", figure4, "ms"),
            Column(EQUATION_2, "equation2_ms", figure4, "ms"),
            Column("measured", "measured_mean_ms", figure4, "ms"),
            Column("model's error", "model_error", percent),
            Column("USD a million", "cost_usd_per_million", usd),
        ],
        rows,
        f"Of {found.predicted[0].durations.size:,} simulated invocations at each size. The model's"
        " error: mean absolute error at such sizes on published measurements, from CPU time at one"
        " vCPU alone.",
        "Durations",
    )


def _bill(found: Study) -> Section:
    choices = found.choices()
    take = {one.size for one in found.ladder()}
    steps = [step for step in found.steps() if step.avoid is not None]
    avoid = {step.avoid.size for step in steps if step.avoid is not None}
    points = [
        {
            "size": found.size_number(one.size),
            "usd": one.usd,
            "ms": one.mean_ms,
            "mark": "take" if one.size in take else "avoid" if one.size in avoid else "",
        }
        for one in choices
    ]
    blocks: list[Block] = [
        Chart(
            "bill",
            _cost(points, _axis(found)),
            "Cost of a million invocations by size, with the sizes to take and to avoid",
            f"USD for a million invocations ({found.tariff.id})",
        ),
        Table(
            _choice(found, "take"),
            [{"take": choice} for choice in found.ladder()[:_ADVICE]],
            "The cheapest size; then each time the cheapest of those that are faster by more than"
            f" {found.tolerance:.1%}, which is what the model can tell apart.",
            "Sizes worth taking",
            fold=False,
        ),
    ]
    if steps:
        blocks.append(
            Table(
                [
                    *_choice(found, "avoid"),
                    *_choice(found, "take"),
                    Column("extra", "extra", percent, mark="bad"),
                ],
                steps[:_ADVICE],
                "Where the bill turns: its heights, just before a jump or at the end of the sizes,"
                " and the lows before them, where a step begins.",
                "Sizes to avoid",
                fold=False,
            )
        )
    return Section(
        "bill",
        "Which size to take",
        blocks,
        "Along a step a larger size is no faster and costs more; past the next jump it may cost"
        " less again.",
    )


def _choice(found: Study, which: str) -> list[Column]:
    """The columns of a choice, which a row has under this name."""

    def part(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda row: value(row[which] if isinstance(row, dict) else getattr(row, which))

    return [
        Column(which, part(lambda choice: size_words(found.preset, choice.size))),
        Column("mean", part(lambda choice: choice.mean_ms), figure4, "ms"),
        Column("USD a million", part(lambda choice: choice.usd), usd),
    ]


def _cost(points: Sequence[Mapping[str, Any]], axis: str) -> vega.Spec:
    step = -(-len(points) // vega.MAX_POINTS)
    x = vega.quantity("size", axis, scale={"zero": False, "nice": False, "padding": 6})
    y = vega.quantity("usd", "USD a million", scale={"zero": False})
    tooltip = vega.tips(
        ("size", axis, ",.4~g"), ("usd", "USD a million", ",.4~g"), ("ms", "mean, ms", ",.4~g")
    )
    style = {"strokeWidth": 2, "color": theme.REFERENCE}
    line = vega.layer("line", points[:: max(1, step)], style, x=x, y=y, tooltip=tooltip)
    dots = vega.layer(
        "point",
        [one for one in points if one["mark"]],
        {"filled": True, "size": 70},
        x=x,
        y=y,
        color=vega.colours("mark", ["take", "avoid"], [theme.colours(1)[0], theme.ALERT]),
        tooltip=tooltip,
    )
    return vega.chart(line, dots, height=260)


def _accuracy(found: Study) -> Section:
    errors = found.errors()
    bounds = [below for below, _ in found.preset.errors] or [found.preset.whole]
    rows: list[tuple[str, Errors]] = []
    low = 0
    for below in bounds:
        own = [row for row in errors if low <= row[0] < below]
        if own:
            first, last = size_words(found.preset, own[0][0]), size_words(found.preset, own[-1][0])
            rows.append((f"{first} to {last}", own))
        low = below
    rows.append(("all", errors))
    return Section(
        "accuracy",
        "Against the measured sizes",
        [
            Table(
                [
                    Column("sizes", 0),
                    Column("measured", lambda row: len(row[1]), count),
                    _error("predicted", 1),
                    Column("bias", lambda row: _mean(error[1] for error in row[1]), _signed),
                    _error(EQUATION_2, 2),
                    _error(RECIPROCAL, 3),
                ],
                rows,
                "Mean absolute relative error of the mean duration over the measured sizes below"
                " one vCPU; bias is the mean error with its sign, of the prediction.",
                "Errors",
                fold=False,
            )
        ],
    )


def _error(name: str, index: int) -> Column:
    """The column of a mean absolute error."""
    return Column(name, lambda row: _mean(abs(error[index]) for error in row[1]), percent)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _signed(share: float) -> str:
    return f"{share:+.1%}"


def _axis(found: Study) -> str:
    return "memory, MB" if found.preset.by_memory else "vCPU"


def _words(row: Mapping[str, Any]) -> str:
    return f"{row['memory_mb']:,} MB" if "memory_mb" in row else f"{row['vcpu']:g} vCPU"


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many rows that the three curves of a chart have `MAX_POINTS`; measured ones all
    stay."""
    most = vega.MAX_POINTS // 3
    if len(rows) <= most:
        return rows
    measured = [row["measured_mean_ms"] is not None for row in rows]
    room = max(2, most - sum(measured))
    even = {round(index * (len(rows) - 1) / (room - 1)) for index in range(room)}
    return [row for index, row in enumerate(rows) if index in even or measured[index]]
