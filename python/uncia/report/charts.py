"""The charts as Vega-Lite specifications, made with Altair from data aggregated beforehand.

No mark ever gets more than `MAX_POINTS` points; distributions are drawn through order statistics,
chosen by rank, never through a sample of rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import altair as alt
import numpy as np
from altair.utils import schemapi

from uncia.report import theme
from uncia.stats.quantiles import Ints

# Altair would check each part of a chart against the schema as it is made.
schemapi.disable_debug_mode()

MAX_POINTS: Final = 2_000
"""Points a mark, so that a report of any number of rows stays small and quick."""

POINTS_PER_CURVE: Final = 220
"""Enough for a distribution's curve at any width of screen."""

ROW_STEP: Final = 30
"""Height of one row of a chart with named rows, in pixels."""

_MIN_TICKS: Final = 3
_NO_SPREAD: Final = 1 + 1e-6

Spec: TypeAlias = dict[str, Any]
AnyChart: TypeAlias = Any
"""An Altair chart; layering and parameters return types that overlap without a common base."""

_LOG: Final = alt.Scale(type="log", nice=False)
_LOG_ROOMY: Final = alt.Scale(type="log", nice=False, padding=10)
_GRID: Final = ",~g"


def ecdf(ordered: Ints, points: int = POINTS_PER_CURVE) -> list[tuple[int, float]]:
    """Points of the empirical distribution function: (value, share of values <= it).

    All values if they are few. Else order statistics: one half of them evenly spaced in rank, the
    other half ever denser towards the largest, so that the tail keeps its shape; the first and the
    last value always.

    Args:
        ordered: shape (n,), ascending.
        points: at most so many.
    """
    n = int(ordered.size)
    if n <= points:
        ranks = np.arange(1, n + 1)
    else:
        half = points // 2
        even = np.linspace(1, n, half)
        tail = n + 1 - np.geomspace(1, n, points - half)
        ranks = np.unique(np.clip(np.round(np.concatenate((even, tail))), 1, n).astype(np.int64))
    return [(int(ordered[r - 1]), float(r) / n) for r in ranks]


def log_ticks(low: float, high: float) -> list[float]:
    """Places for the ticks of a logarithmic axis: few enough that each can have its label.

    >>> log_ticks(0.8, 700), log_ticks(3, 40), log_ticks(0.9, 1.4)
    ([1.0, 10.0, 100.0], [5.0, 10.0, 20.0], [1.0, 1.2, 1.4])
    """
    if not 0 < low <= high < math.inf:
        return []
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1.0,), (1.0, 2.0, 5.0)):
        found = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
        found = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(found) >= _MIN_TICKS:
            return found
    if high / low < _NO_SPREAD:
        return [low]
    # Less than a decade: as on a linear axis.
    rough = (high - low) / _MIN_TICKS or low / 10
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough / 1.5)
    digits = max(0, -math.floor(math.log10(step)))
    start, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, digits) for place in range(start, end + 1) if place > 0]


def _log_axis(values: Iterable[float | None], **more: Any) -> Any:
    """A logarithmic axis with ticks for these values."""
    known = [value for value in values if value is not None and value > 0]
    ticks = log_ticks(min(known), max(known)) if known else []
    return alt.Axis(format=_GRID, **({"values": ticks} if ticks else {"tickCount": 4}), **more)


def distribution(
    curves: Mapping[str, Ints],
    reference: Mapping[str, Ints],
    unit: float,
    axis: str,
    *,
    ordered: bool,
) -> Spec:
    """Cumulative distributions on a logarithmic axis.

    Args:
        curves: name -> ascending values.
        reference: curves drawn in grey, for comparison.
        unit: values are divided by this.
        axis: title of the horizontal axis.
        ordered: whether the names have an order (memory sizes), for the colours.
    """
    both = {**reference, **curves}
    each = min(POINTS_PER_CURVE, MAX_POINTS // max(1, len(both)))
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value / unit, "share": share}
        for name, values in both.items()
        for value, share in ecdf(values, each)
        if value > 0
    ]
    colours = [theme.REFERENCE] * len(reference) + theme.colours(len(curves), in_order=ordered)
    pick = alt.selection_point(fields=["name"], bind="legend")
    line = (
        alt.Chart()
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "value:Q",
                scale=_LOG,
                title=axis,
                axis=_log_axis(row["value"] for row in rows),
            ),
            y=alt.Y(
                "share:Q",
                title="share of requests",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 0.9, 1]),
            ),
            color=alt.Color(
                "name:N",
                title=None,
                sort=list(both),
                scale=alt.Scale(domain=list(both), range=colours),
            ),
            strokeDash=alt.StrokeDash(
                "name:N",
                title=None,
                sort=list(both),
                scale=alt.Scale(
                    domain=list(both), range=[[4, 3]] * len(reference) + [[1, 0]] * len(curves)
                ),
            ),
            opacity=alt.condition(pick, alt.value(1), alt.value(0.15)),
            tooltip=[
                alt.Tooltip("name:N", title="experiment"),
                alt.Tooltip("value:Q", title=axis, format=",.4~g"),
                alt.Tooltip("share:Q", title="requests at most", format=".2%"),
            ],
        )
        .add_params(pick)
    )
    return _finish(line, rows, height=240, legend=list(both))


def ranges(rows: Sequence[Mapping[str, Any]], axis: str, limit: float | None = None) -> Spec:
    """Spread of each experiment: a line from p50 to p99, with p50, p90 and p99 as points.

    Args:
        rows: each with ``name``, ``p50``, ``p90``, ``p99`` in the axis' unit, all above 0.
        axis: title of the horizontal axis.
        limit: a vertical line there.
    """
    names = [row["name"] for row in rows]
    long = [
        {"name": row["name"], "quantile": quantile, "value": row[quantile]}
        for row in rows
        for quantile in ("p50", "p90", "p99")
    ]
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=130))
    rule = (
        alt.Chart(inline(rows))
        .mark_rule(strokeWidth=3, opacity=0.35, color=theme.CATEGORIES[0])
        .encode(x=alt.X("p50:Q", scale=_LOG_ROOMY, title=axis), x2="p99:Q", y=y)
    )
    domain = ["p50", "p90", "p99"]
    points = (
        alt.Chart(inline(long))
        .mark_point(filled=True, size=85, opacity=1)
        .encode(
            x=alt.X(
                "value:Q",
                scale=_LOG_ROOMY,
                title=axis,
                axis=_log_axis(row["value"] for row in long),
            ),
            y=y,
            color=alt.Color(
                "quantile:N",
                title=None,
                scale=alt.Scale(
                    domain=domain, range=[theme.CATEGORIES[0], theme.CATEGORIES[1], theme.ALERT]
                ),
            ),
            shape=alt.Shape(
                "quantile:N",
                title=None,
                scale=alt.Scale(domain=domain, range=["circle", "diamond", "triangle-right"]),
            ),
            tooltip=[
                alt.Tooltip("name:N", title="experiment"),
                alt.Tooltip("quantile:N"),
                alt.Tooltip("value:Q", title=axis, format=",.4~g"),
            ],
        )
    )
    layers: list[AnyChart] = [rule, points]
    if limit is not None:
        layers.append(_limit(limit))
    return _finish(alt.layer(*layers), None, _rows_height(len(rows)), legend=domain, labels=names)


def ratios(
    rows: Sequence[Mapping[str, Any]], axis: str, limit: float, domain: Sequence[str]
) -> Spec:
    """Ratios with their intervals on a logarithmic axis, and a limit as a vertical line.

    Args:
        rows: each with ``name``, ``kind``, ``value`` and ``low``, ``high`` (or None).
        axis: title of the horizontal axis.
        limit: where the line stands.
        domain: the kinds, in order.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=130))
    offset = alt.YOffset("kind:N", sort=list(domain))
    colour = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=list(domain), range=theme.colours(len(domain)))
    )
    certain = [row for row in rows if row["low"] is not None]
    bars = (
        alt.Chart(inline(certain))
        .mark_rule(strokeWidth=2, opacity=0.6)
        .encode(
            x=alt.X("low:Q", scale=_LOG_ROOMY, title=axis),
            x2="high:Q",
            y=y,
            yOffset=offset,
            color=colour,
        )
    )
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=75, opacity=1)
        .encode(
            x=alt.X(
                "value:Q",
                scale=_LOG_ROOMY,
                title=axis,
                axis=_log_axis(
                    [limit, *(row[key] for row in rows for key in ("value", "low", "high"))]
                ),
            ),
            y=y,
            yOffset=offset,
            color=colour,
            tooltip=[
                alt.Tooltip("name:N", title="experiment"),
                alt.Tooltip("kind:N", title="ratio"),
                alt.Tooltip("value:Q", format=",.4~g"),
                alt.Tooltip("low:Q", title="from", format=",.4~g"),
                alt.Tooltip("high:Q", title="to", format=",.4~g"),
            ],
        )
    )
    return _finish(
        alt.layer(*([bars] if certain else []), points, _limit(limit)),
        None,
        _rows_height(len(names)),
        legend=domain,
        labels=names,
    )


def stacked(
    rows: Sequence[Mapping[str, Any]],
    parts: Sequence[str],
    axis: str,
    *,
    normalized: bool = False,
    colours: Sequence[str] | None = None,
    value_format: str = ",.3~g",
) -> Spec:
    """Horizontal bars made of parts.

    Args:
        rows: each with ``name``, ``part`` and ``value``.
        parts: the parts in the order in which they are stacked.
        axis: title of the horizontal axis.
        normalized: show shares of each bar.
        colours: of the parts.
        value_format: of the values in tooltips.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    data = [{**row, "rank": parts.index(row["part"])} for row in rows]
    chart = (
        alt.Chart()
        .mark_bar(height={"band": 0.66})
        .encode(
            x=alt.X(
                "value:Q",
                stack="normalize" if normalized else "zero",
                title=axis,
                axis=alt.Axis(format="%" if normalized else ",~g", tickCount=6),
            ),
            y=alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=165)),
            color=alt.Color(
                "part:N",
                title=None,
                sort=list(parts),
                scale=alt.Scale(
                    domain=list(parts), range=list(colours or theme.colours(len(parts)))
                ),
            ),
            order=alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("part:N"),
                alt.Tooltip("value:Q", format=value_format),
            ],
        )
    )
    return _finish(chart, data, _rows_height(len(names)), legend=parts, labels=names)


def memory(rows: Sequence[Mapping[str, Any]], ideal: Sequence[Mapping[str, Any]]) -> Spec:
    """Execution time against memory size, with the ideal reciprocal.

    Args:
        rows: each with ``function``, ``memory`` (MB), ``p5``, ``p50``, ``p95`` (ms).
        ideal: points of the ideal curves, each with ``function``, ``memory`` and ``value``.
    """
    names = list(dict.fromkeys(row["function"] for row in rows))
    sizes = sorted({row["memory"] for row in rows})
    x = alt.X(
        "memory:Q",
        scale=alt.Scale(type="log", base=2, nice=False, padding=18),
        title="memory size, MB",
        axis=alt.Axis(values=sizes, format="d", grid=False),
    )
    y_axis = _log_axis(
        [value for row in rows for value in (row["p5"], row["p95"])]
        + [row["value"] for row in ideal]
    )
    colour = alt.Color(
        "function:N",
        title=None,
        scale=alt.Scale(domain=names, range=theme.colours(len(names))),
    )
    data = inline(rows)
    tooltip = [
        alt.Tooltip("function:N"),
        alt.Tooltip("memory:Q", title="memory, MB"),
        alt.Tooltip("p50:Q", title="median, ms", format=",.4~g"),
        alt.Tooltip("p5:Q", title="p5, ms", format=",.4~g"),
        alt.Tooltip("p95:Q", title="p95, ms", format=",.4~g"),
    ]
    y50 = alt.Y("p50:Q", scale=_LOG_ROOMY, title="execution, ms", axis=y_axis)
    layers: list[AnyChart] = []
    if ideal:
        layers.append(
            alt.Chart(inline(ideal))
            .mark_line(strokeDash=[5, 4], strokeWidth=1.6, color=theme.REFERENCE)
            .encode(
                x=x,
                y=alt.Y("value:Q", scale=_LOG_ROOMY, title="execution, ms", axis=y_axis),
                detail="function:N",
            )
        )
    layers += [
        alt.Chart(data)
        .mark_rule(strokeWidth=7, opacity=0.28)
        .encode(x=x, y=alt.Y("p5:Q", scale=_LOG_ROOMY, axis=y_axis), y2="p95:Q", color=colour),
        alt.Chart(data).mark_line(strokeWidth=2).encode(x=x, y=y50, color=colour),
        alt.Chart(data)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(x=x, y=y50, color=colour, tooltip=tooltip),
    ]
    return _finish(alt.layer(*layers), None, height=300, legend=names)


def histogram(values: Ints, unit: float, axis: str, limit: float) -> Spec:
    """A histogram with bins of equal width on a logarithmic axis.

    Args:
        values: any order; what is not above 0 falls into the first bin.
        unit: values are divided by this.
        axis: title of the horizontal axis.
        limit: a vertical line there, in the axis' unit.
    """
    scaled = np.maximum(values / unit, 1e-9)
    low = max(float(scaled.min()), 1e-1)
    high = max(float(scaled.max()), limit * 1.5, low * 10)
    edges = np.geomspace(low, high * 1.001, 49)
    counts, _ = np.histogram(np.maximum(scaled, low), bins=edges)
    rows = [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "share": int(c) / values.size,
            "zero": 0,
        }
        for i, c in enumerate(counts)
        if c
    ]
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(color=theme.CATEGORIES[0], opacity=0.85)
        .encode(
            x=alt.X("low:Q", scale=_LOG, title=axis, axis=_log_axis((low, high))),
            x2="high:Q",
            y=alt.Y("share:Q", title="share of requests", axis=alt.Axis(format="~%", tickCount=4)),
            y2="zero:Q",
            tooltip=[
                alt.Tooltip("low:Q", title="from", format=",.3~g"),
                alt.Tooltip("high:Q", title="to", format=",.3~g"),
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
    )
    return _finish(alt.layer(bars, _limit(limit)), None, height=190)


def phases(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Phases of a start as bars from their mean begin to their mean end.

    Args:
        rows: each with ``name``, ``start`` and ``end`` in ms, in order of start.
    """
    names = [row["name"] for row in rows]
    chart = (
        alt.Chart()
        .mark_bar(height={"band": 0.62}, color=theme.CATEGORIES[0], minBandSize=2)
        .encode(
            x=alt.X(
                "start:Q", title="ms after the start began (means)", axis=alt.Axis(tickCount=6)
            ),
            x2="end:Q",
            y=alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=165)),
            tooltip=[
                alt.Tooltip("name:N", title="phase"),
                alt.Tooltip("start:Q", title="from, ms", format=",.4~g"),
                alt.Tooltip("end:Q", title="to, ms", format=",.4~g"),
            ],
        )
    )
    return _finish(chart, rows, _rows_height(len(rows)), labels=names)


def series(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], axis: str, *, steps: bool = False
) -> Spec:
    """Values over the time of the run.

    Args:
        rows: each with ``name``, ``time`` (s) and ``value``, in order of time.
        names: of the curves.
        axis: title of the vertical axis.
        steps: whether a value holds until the next.
    """
    chart = (
        alt.Chart()
        .mark_line(interpolate="step-after" if steps else "linear", strokeWidth=1.8)
        .encode(
            x=alt.X(
                "time:Q",
                title="seconds since the run began",
                axis=alt.Axis(grid=False, tickCount=8),
            ),
            y=alt.Y("value:Q", title=axis, axis=alt.Axis(tickCount=5)),
            color=alt.Color(
                "name:N",
                title=None,
                sort=list(names),
                scale=alt.Scale(domain=list(names), range=theme.colours(len(names))),
            ),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("time:Q", title="second", format=",.2f"),
                alt.Tooltip("value:Q", title=axis, format=",.4~g"),
            ],
        )
    )
    return _finish(chart, rows, height=220, legend=names)


def _limit(value: float) -> AnyChart:
    return (
        alt.Chart(inline([{"limit": value}]))
        .mark_rule(color=theme.ALERT, strokeDash=[4, 3], strokeWidth=1.3)
        .encode(x=alt.X("limit:Q"))
    )


@dataclass(frozen=True)
class _Rows:
    """Rows that Altair passes on as they are, rather than copy them whenever a chart is changed."""

    rows: Sequence[Mapping[str, Any]]


def inline(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as data that stands in the specification itself; for `specification`."""
    make: Any = alt.Data
    return make(values=_Rows(rows))


def _rows_height(rows: int) -> int:
    return max(2, rows) * ROW_STEP


def _finish(
    chart: AnyChart,
    rows: Sequence[Mapping[str, Any]] | None,
    height: int,
    legend: Sequence[str] = (),
    labels: Sequence[str] = ("100%",),
) -> Spec:
    """A chart as wide as its place; colours and fonts are the page's.

    `legend` and `labels` (of the vertical axis) tell the page how many columns of the legend fit.
    """
    if rows is not None:
        chart = chart.properties(data=inline(rows))
    chart = chart.properties(
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec = specification(chart)
    spec["usermeta"] = {
        "legend": max((len(name) for name in legend), default=0),
        "labels": max((len(name) for name in labels), default=0),
    }
    spec.pop("config", None)
    # An address that nothing is loaded from, but that looks as if; the page names the language.
    spec.pop("$schema", None)
    return spec


def specification(chart: AnyChart) -> Spec:
    """The Vega-Lite specification of a chart whose rows are `inline`.

    That it follows the schema is for the tests to show: to look at every row takes longer than all
    the rest of a page.
    """
    spec: Spec = _with_rows(chart.to_dict(validate=False))
    return spec


def _with_rows(part: Any) -> Any:
    if isinstance(part, _Rows):
        return [{key: _plain(value) for key, value in row.items()} for row in part.rows]
    if isinstance(part, dict):
        return {key: _with_rows(value) for key, value in part.items()}
    return [_with_rows(one) for one in part] if isinstance(part, list) else part


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, np.number) else value
