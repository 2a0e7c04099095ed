"""The page of a prediction: Figure 10 with measured points over it, the bill, and the advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from uncia.bandwidth.predict.cpu import size_words
from uncia.report import theme, vega
from uncia.report.numbers import count, figure4, general, percent, usd
from uncia.report.page import Block, Chart, Section
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    from uncia.bandwidth.predict.study import Study

PREDICTED: Final = "predicted"
RECIPROCAL: Final = "reciprocal"
EQUATION_2: Final = "Equation (2)"
MEASURED: Final = "measured"

Errors: TypeAlias = Sequence[tuple[int, float, float, float]]
"""For each size: the errors of the prediction, of Equation (2) and of the reciprocal."""

_MAX_ADVICE: Final = 40
"""Sizes in the table of advice."""


def sections(study: Study) -> list[Section]:
    """Make the sections of the page."""
    parts = [_durations(study)]
    if study.choices():
        parts.append(_bill(study))
    if study.errors():
        parts.append(_accuracy(study))
    return parts


def _durations(study: Study) -> Section:
    rows = _thinned(study.rows())
    return Section(
        "durations",
        "Duration by size",
        [
            Chart(
                "durations",
                durations(rows, _axis(study)),
                "Predicted mean duration by size with the range from p5 to p95, measured means over"
                " it, Equation (2) and the reciprocal",
                "Mean duration, and p5 to p95",
            ),
            _rows(study, rows),
        ],
        f"CPU time: {study.work.cpu.words}. Requests come {study.arrivals.words}. The share alone"
        " would give the reciprocal, a quota enforced to the nanosecond Equation (2); the kernel"
        " accounts at ticks.",
    )


def durations(rows: Sequence[Mapping[str, Any]], axis: str) -> vega.Spec:
    """Draw durations by size, like Figure 10 of the cost paper.

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
    values = [row["value"] for row in (*lines, *dots)] + [row["low"] for row in band]
    x = vega.quantity("size", axis, scale={"zero": False, "nice": False, "padding": 6})
    y = vega.quantity("value", "duration, ms", **vega.logarithmic(values, padding=8))
    colour = vega.colours("kind", order, [shades[name] for name in order])
    tooltip = vega.tips(("kind", "what"), ("size", axis, ",.4~r"), ("value", "ms", ",.4~r"))
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


def _rows(study: Study, rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        [
            Column("memory", "memory_mb", count, "MB")
            if study.preset.by_memory
            else Column("size", "vcpu", general, "vCPU"),
            Column("mean", "mean_ms", figure4, "ms", "Predicted mean duration."),
            *(Column(name, f"{name}_ms", figure4, "ms") for name in ("p5", "p50", "p95")),
            Column("reciprocal", "reciprocal_ms", figure4, "ms", "Mean CPU time over the share."),
            Column(EQUATION_2, "equation2_ms", figure4, "ms", "Mean, with an exact quota."),
            Column("measured", "measured_mean_ms", figure4, "ms", "Measured mean duration."),
            Column(
                "model's error",
                "model_error",
                percent,
                explanation="Mean absolute error at such sizes on published measurements.",
            ),
            Column(
                "a million", "cost_usd_per_million", usd, "USD", "Cost of a million invocations."
            ),
        ],
        rows,
        f"Of {study.predicted[0].durations.size:,} simulated invocations at each size. The model's"
        " error: mean absolute error at such sizes on published measurements, from CPU time at one"
        " vCPU alone.",
        "Durations",
    )


def _bill(study: Study) -> Section:
    choices = study.choices()
    take = {choice.size for choice in study.ladder()}
    steps = [step for step in study.steps() if step.avoid is not None]
    avoid = {step.avoid.size for step in steps if step.avoid is not None}
    points = [
        {
            "size": study.size_number(choice.size),
            "usd": choice.usd,
            "ms": choice.mean_ms,
            "mark": "take" if choice.size in take else "avoid" if choice.size in avoid else "",
        }
        for choice in choices
    ]
    blocks: list[Block] = [
        Chart(
            "bill",
            _cost(points, _axis(study)),
            "Cost of a million invocations by size, with the sizes to take and to avoid",
            f"USD for a million invocations ({study.tariff.id})",
        ),
        Table(
            _choice(study, "take"),
            [{"take": choice} for choice in study.ladder()[:_MAX_ADVICE]],
            "The cheapest size; then, repeatedly, the cheapest of those that are faster by more"
            f" than {study.tolerance:.1%}, which is what the model can distinguish.",
            "Sizes worth taking",
            fold=False,
        ),
    ]
    if steps:
        blocks.append(
            Table(
                [
                    *_choice(study, "avoid"),
                    *_choice(study, "take"),
                    Column(
                        "extra",
                        "extra",
                        percent,
                        explanation="How much more the size to avoid costs.",
                        mark="bad",
                    ),
                ],
                steps[:_MAX_ADVICE],
                "Local maxima of the bill, just before a jump or at the largest size, and the"
                " minima before them, where a step begins.",
                "Sizes to avoid",
                fold=False,
            )
        )
    return Section(
        "bill",
        "Which size to take",
        blocks,
        "Along a step, a larger size costs more and is no faster; after the next jump it may cost"
        " less again.",
    )


def _choice(study: Study, which: str) -> list[Column]:
    """Make the columns of a choice, which a row has under this name."""

    def part(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda row: value(row[which] if isinstance(row, dict) else getattr(row, which))

    return [
        Column(which, part(lambda choice: size_words(study.preset, choice.size))),
        Column("mean", part(lambda choice: choice.mean_ms), figure4, "ms"),
        Column("a million", part(lambda choice: choice.usd), usd, "USD"),
    ]


def _cost(points: Sequence[Mapping[str, Any]], axis: str) -> vega.Spec:
    step = -(-len(points) // vega.MAX_POINTS)
    x = vega.quantity("size", axis, scale={"zero": False, "nice": False, "padding": 6})
    y = vega.quantity("usd", "USD a million", scale={"zero": False})
    tooltip = vega.tips(
        ("size", axis, ",.4~r"), ("usd", "USD a million", ",.4~r"), ("ms", "mean, ms", ",.4~r")
    )
    style = {"strokeWidth": 2, "color": theme.REFERENCE}
    line = vega.layer("line", points[:: max(1, step)], style, x=x, y=y, tooltip=tooltip)
    dots = vega.layer(
        "point",
        [point for point in points if point["mark"]],
        {"filled": True, "size": 70},
        x=x,
        y=y,
        color=vega.colours("mark", ["take", "avoid"], [theme.colours(1)[0], theme.ALERT]),
        tooltip=tooltip,
    )
    return vega.chart(line, dots, height=260)


def _accuracy(study: Study) -> Section:
    errors = study.errors()
    bounds = [below for below, _ in study.preset.errors] or [study.preset.whole]
    rows: list[tuple[str, Errors]] = []
    low = 0
    for below in bounds:
        part = [row for row in errors if low <= row[0] < below]
        if part:
            first, last = (size_words(study.preset, row[0]) for row in (part[0], part[-1]))
            rows.append((f"{first} to {last}", part))
        low = below
    rows.append(("all", errors))
    return Section(
        "accuracy",
        "Against the measured sizes",
        [
            Table(
                [
                    Column("sizes", 0),
                    Column(
                        "measured", lambda row: len(row[1]), count, explanation="Sizes measured."
                    ),
                    _error("predicted", 1),
                    Column(
                        "bias",
                        lambda row: _mean(error[1] for error in row[1]),
                        "{:+.1%}".format,
                        explanation="Mean error of the prediction, with its sign.",
                    ),
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
    """Make the column of a mean absolute error."""
    return Column(
        name,
        lambda row: _mean(abs(error[index]) for error in row[1]),
        percent,
        explanation="Mean absolute relative error.",
    )


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return sum(items) / len(items)


def _axis(study: Study) -> str:
    return "memory, MB" if study.preset.by_memory else "vCPU"


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reduce the rows so that three curves fit `MAX_POINTS`; measured ones are all kept."""
    budget = vega.MAX_POINTS // 3
    if len(rows) <= budget:
        return rows
    measured = [row["measured_mean_ms"] is not None for row in rows]
    predicted = max(2, budget - sum(measured))
    even = {round(index * (len(rows) - 1) / (predicted - 1)) for index in range(predicted)}
    return [row for index, row in enumerate(rows) if index in even or measured[index]]
