"""The page of a prediction: Figure 10 with measured points over it, the bill, and the advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from uncia.bandwidth.predict.cpu import size_words
from uncia.report import charts, numbers, theme
from uncia.report.charts import MAX_POINTS, Spec, inline
from uncia.report.cost.marks import finish
from uncia.report.page import Block, Cell, Chart, Section, Table

if TYPE_CHECKING:
    from uncia.bandwidth.predict.study import Study

PREDICTED: Final = "predicted"
RECIPROCAL: Final = "reciprocal"
EQUATION_2: Final = "Equation (2)"
MEASURED: Final = "measured"

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


def durations(rows: Sequence[Mapping[str, Any]], axis: str) -> Spec:
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
    names = [PREDICTED, EQUATION_2, RECIPROCAL, *([MEASURED] if dots else [])]
    colours = dict(zip((PREDICTED, EQUATION_2, MEASURED), theme.colours(3), strict=True))
    colours[RECIPROCAL] = theme.REFERENCE
    every = [one["value"] for one in (*lines, *dots)] + [one["low"] for one in band]
    x = alt.X("size:Q", title=axis, scale=alt.Scale(zero=False, nice=False, padding=6))
    ticks = charts.log_ticks(min(every), max(every)) if every else []
    y = alt.Y(
        "value:Q",
        title="duration, ms",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(values=ticks, format=",~g"),
    )
    colour = alt.Color(
        "kind:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
    )
    tip = [
        alt.Tooltip("kind:N", title="what"),
        alt.Tooltip("size:Q", title=axis, format=",.4~g"),
        alt.Tooltip("value:Q", title="ms", format=",.4~g"),
    ]
    area = (
        alt.Chart(inline(band))
        .mark_area(opacity=0.16, color=colours[PREDICTED])
        .encode(x=x, y=alt.Y("low:Q", title="duration, ms"), y2="high:Q")
    )
    thin = alt.Chart(inline(lines)).encode(x=x, y=y, color=colour, tooltip=tip)
    layers: list[Any] = [
        area,
        *(
            thin.transform_filter(alt.datum.kind == kind).mark_line(**style)
            for kind, style in (
                (RECIPROCAL, {"strokeDash": [5, 4], "strokeWidth": 1.4}),
                (EQUATION_2, {"strokeDash": [2, 2], "strokeWidth": 1.4}),
                (PREDICTED, {"strokeWidth": 2.2}),
            )
        ),
    ]
    if dots:
        layers.append(
            alt.Chart(inline(dots))
            .mark_point(filled=True, size=26, opacity=0.9)
            .encode(x=x, y=y, color=colour, tooltip=tip)
        )
    return finish(alt.layer(*layers), 340, legend=names)


def _rows(found: Study, rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        (
            "<size",
            "mean, ms",
            "p5",
            "p50",
            "p95",
            "reciprocal, ms",
            "Equation (2), ms",
            "measured, ms",
            "model's error",
            "USD a million",
        ),
        [
            [
                _words(found, row),
                numbers.figure(row["mean_ms"], 4),
                numbers.figure(row["p5_ms"], 4),
                numbers.figure(row["p50_ms"], 4),
                numbers.figure(row["p95_ms"], 4),
                numbers.figure(row["reciprocal_ms"], 4),
                numbers.figure(row["equation2_ms"], 4),
                numbers.figure(row["measured_mean_ms"], 4),
                numbers.percent(row["model_error"]),
                _usd(row["cost_usd_per_million"]),
            ]
            for row in rows
        ],
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
            ("<take", "mean, ms", "USD a million"),
            [
                [
                    size_words(found.preset, one.size),
                    numbers.figure(one.mean_ms, 4),
                    numbers.usd(one.usd),
                ]
                for one in found.ladder()[:_ADVICE]
            ],
            "The cheapest size; then each time the cheapest of those that are faster by more than"
            f" {found.tolerance:.1%}, which is what the model can tell apart.",
            "Sizes worth taking",
            fold=False,
        ),
    ]
    if steps:
        blocks.append(
            Table(
                (
                    "<avoid",
                    "mean, ms",
                    "USD a million",
                    "<take",
                    "mean, ms",
                    "USD a million",
                    "extra",
                ),
                [
                    [
                        size_words(found.preset, step.avoid.size),
                        numbers.figure(step.avoid.mean_ms, 4),
                        numbers.usd(step.avoid.usd),
                        size_words(found.preset, step.take.size),
                        numbers.figure(step.take.mean_ms, 4),
                        numbers.usd(step.take.usd),
                        Cell(numbers.percent(step.extra), mark="bad"),
                    ]
                    for step in steps[:_ADVICE]
                    if step.avoid is not None
                ],
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


def _cost(points: Sequence[Mapping[str, Any]], axis: str) -> Spec:
    thin = [*points]
    if len(thin) > MAX_POINTS:
        step = -(-len(thin) // MAX_POINTS)
        thin = [one for place, one in enumerate(points) if place % step == 0]
    x = alt.X("size:Q", title=axis, scale=alt.Scale(zero=False, nice=False, padding=6))
    y = alt.Y("usd:Q", title="USD a million", scale=alt.Scale(zero=False))
    names = ["take", "avoid"]
    tip = [
        alt.Tooltip("size:Q", title=axis, format=",.4~g"),
        alt.Tooltip("usd:Q", title="USD a million", format=",.4~g"),
        alt.Tooltip("ms:Q", title="mean, ms", format=",.4~g"),
    ]
    line = (
        alt.Chart(inline(thin))
        .mark_line(strokeWidth=2, color=theme.REFERENCE)
        .encode(x=x, y=y, tooltip=tip)
    )
    dots = (
        alt.Chart(inline([one for one in points if one["mark"]]))
        .mark_point(filled=True, size=70)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "mark:N",
                title=None,
                scale=alt.Scale(domain=names, range=[theme.colours(1)[0], theme.ALERT]),
            ),
            tooltip=tip,
        )
    )
    return finish(alt.layer(line, dots), 260, legend=names)


def _accuracy(found: Study) -> Section:
    errors = found.errors()
    bounds = [below for below, _ in found.preset.errors] or [found.preset.whole]
    rows: list[list[Cell | str]] = []
    low = 0
    for below in bounds:
        own = [row for row in errors if low <= row[0] < below]
        if own:
            first, last = size_words(found.preset, own[0][0]), size_words(found.preset, own[-1][0])
            rows.append([f"{first} to {last}", *_means(own)])
        low = below
    rows.append(["all", *_means(errors)])
    return Section(
        "accuracy",
        "Against the measured sizes",
        [
            Table(
                ("<sizes", "measured", "predicted", "bias", EQUATION_2, RECIPROCAL),
                rows,
                "Mean absolute relative error of the mean duration over the measured sizes below"
                " one vCPU; bias is the mean error with its sign, of the prediction.",
                "Errors",
                fold=False,
            )
        ],
    )


def _means(errors: Sequence[tuple[int, float, float, float]]) -> list[Cell | str]:
    shares = [sum(abs(row[place]) for row in errors) / len(errors) for place in (1, 2, 3)]
    bias = sum(row[1] for row in errors) / len(errors)
    return [
        numbers.count(len(errors)),
        numbers.percent(shares[0]),
        f"{bias:+.1%}",
        numbers.percent(shares[1]),
        numbers.percent(shares[2]),
    ]


def _axis(found: Study) -> str:
    return "memory, MB" if found.preset.by_memory else "vCPU"


def _words(found: Study, row: Mapping[str, Any]) -> str:
    return f"{row['memory_mb']:,} MB" if "memory_mb" in row else f"{row['vcpu']:g} vCPU"


def _usd(value: float | None) -> str:
    return numbers.ABSENT if value is None else numbers.usd(value)


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many rows that the three curves of a chart have `MAX_POINTS`; measured ones all
    stay."""
    most = MAX_POINTS // 3
    if len(rows) <= most:
        return rows
    measured = [row["measured_mean_ms"] is not None for row in rows]
    room = max(2, most - sum(measured))
    even = {round(place * (len(rows) - 1) / (room - 1)) for place in range(room)}
    return [row for place, row in enumerate(rows) if place in even or measured[place]]
