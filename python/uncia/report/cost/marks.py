"""Charts that the sections share: cumulative curves, a density and bars of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from uncia.report import charts, theme
from uncia.report.charts import MAX_POINTS, Spec, inline

_SEEN: Final = 0.001  # a logarithmic axis begins where so many are reached
_ROOM: Final = 1.2  # beyond the smallest and the largest bar, on a logarithmic axis


def thinned(values: Any, shares: Any, points: int) -> list[tuple[float, float]]:
    """Points of a cumulative curve, chosen evenly by share and by place, first and last always;
    before them one with the share 0, from which the curve rises."""
    count = len(values)
    if count <= points:
        chosen = np.arange(count)
    else:
        by_share = np.searchsorted(shares, np.linspace(0, 1, points // 2))
        by_place = np.linspace(0, count - 1, points - points // 2).round()
        chosen = np.unique(np.clip(np.concatenate((by_share, by_place)), 0, count - 1))
    found = [(float(values[int(i)]), float(shares[int(i)])) for i in chosen]
    return [(value, 0.0) for value, _ in found[:1]] + found


def curves(
    found: Mapping[str, tuple[Any, Any]],
    axis: str,
    of: str,
    *,
    reference: Sequence[str] = (),
    logarithmic: bool = True,
    percent: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Spec:
    """Cumulative distributions.

    Args:
        found: name to ascending values and the share at most each.
        axis: title of the horizontal axis.
        of: what is counted, such as ``requests``.
        reference: names that are drawn in grey.
        logarithmic: whether the horizontal axis is; then what is not above zero is not drawn.
        percent: whether values are shares.
        bounds: of the horizontal axis; by default all values.
    """
    each = MAX_POINTS // max(1, len(found)) - 3
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value, "share": share}
        for name, (values, shares) in found.items()
        for value, share in thinned(values, shares, each)
        if value > 0 or not logarithmic
    ]
    names = list(found)
    plain = [name for name in names if name not in reference]
    colours = dict(zip(plain, theme.colours(len(plain)), strict=True))
    shown = [row["value"] for row in rows if row["share"] >= _SEEN]
    low, high = bounds or (min(shown, default=1.0), max(shown, default=1.0))
    scale: Any = alt.Scale(
        type="log" if logarithmic else "linear", domain=[low, high], nice=False, clamp=True
    )
    ticks: dict[str, Any] = {"tickCount": 6}
    if logarithmic and (own := charts.log_ticks(low, high)):
        ticks = {"values": own}
    chart = (
        alt.Chart(inline(rows))
        .mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        .encode(
            x=alt.X(
                "value:Q",
                scale=scale,
                title=axis,
                axis=alt.Axis(
                    format="%" if percent else ",~g" if logarithmic else ",~f",
                    labelOverlap=True,
                    **ticks,
                ),
            ),
            y=alt.Y(
                "share:Q",
                title=f"share of {of}",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 0.9, 1]),
            ),
            color=alt.Color(
                "name:N",
                title=None,
                sort=names,
                legend=alt.Legend(labelLimit=0),
                scale=alt.Scale(
                    domain=names, range=[colours.get(name, theme.REFERENCE) for name in names]
                ),
            ),
            strokeDash=alt.StrokeDash(
                "name:N",
                title=None,
                sort=names,
                scale=alt.Scale(
                    domain=names,
                    range=[[4, 3] if name in reference else [1, 0] for name in names],
                ),
            ),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("value:Q", title=axis, format=".1%" if percent else ",.4~g"),
                alt.Tooltip("share:Q", title=f"{of} at most", format=".2%"),
            ],
        )
    )
    return finish(chart, 240, legend=names)


def density(
    cells: Sequence[Mapping[str, Any]], width: float, titles: tuple[str, str], of: str
) -> Spec:
    """A heat map of two shares, 0 to 1 each.

    Args:
        cells: each with ``x``, ``y`` (lower edges) and ``share`` of the rows, above zero.
        width: of a cell.
        titles: of the axes.
        of: what is counted.
    """
    rows = [{**cell, "x2": cell["x"] + width, "y2": cell["y"] + width} for cell in cells]
    axis: dict[str, Any] = {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1], "grid": False}
    scale = alt.Scale(domain=[0, 1], nice=False)
    ticks = charts.log_ticks(
        min((row["share"] for row in rows), default=1),
        max((row["share"] for row in rows), default=1),
    )
    shades = alt.Scale(type="log", range=["#f4e3bd", *theme.RAMP[1:5], "#2c3f86"])
    of_legend: dict[str, Any] = {"values": ticks} if ticks else {}
    chart = (
        alt.Chart(inline(rows))
        .mark_rect(strokeWidth=0.7)
        .encode(
            x=alt.X("x:Q", scale=scale, title=titles[0], axis=alt.Axis(**axis)),
            x2="x2:Q",
            y=alt.Y("y:Q", scale=scale, title=titles[1], axis=alt.Axis(**axis)),
            y2="y2:Q",
            color=alt.Color(
                "share:Q",
                title=f"share of {of}",
                scale=shades,
                legend=alt.Legend(
                    format=".1~p",
                    gradientLength=260,
                    orient="bottom",
                    **of_legend,
                ),
            ),
            # In its own colour, or seams show between the cells.
            stroke=alt.Stroke("share:Q", scale=shades, legend=None),
            tooltip=[
                alt.Tooltip("x:Q", title=f"{titles[0]}, from", format=".1%"),
                alt.Tooltip("y:Q", title=f"{titles[1]}, from", format=".1%"),
                alt.Tooltip("share:Q", title=f"share of {of}", format=".3~p"),
            ],
        )
    )
    return finish(chart, 340)


def bars(
    rows: Sequence[Mapping[str, Any]],
    axis: str,
    kinds: Sequence[str],
    *,
    logarithmic: bool = False,
    value_format: str = ",.3~g",
) -> Spec:
    """Horizontal bars, one a row, with their value beside them.

    Args:
        rows: each with ``name``, ``kind`` (its colour), ``value`` above zero; each name once.
        axis: title of the horizontal axis.
        kinds: in order.
        logarithmic: whether the axis is; bars then begin below the smallest value.
        value_format: of the values.
    """
    names = [row["name"] for row in rows]
    values = [row["value"] for row in rows]
    low = min(values, default=1.0) / _ROOM**4 if logarithmic else 0.0
    # The text stands right of the longest bar.
    high = max(values, default=1.0) * (_ROOM**6 if logarithmic else _ROOM)
    data = inline([{**row, "low": low} for row in rows])
    scale = alt.Scale(type="log" if logarithmic else "linear", domain=[low, high], nice=False)
    ticks: dict[str, Any] = {"tickCount": 6}
    if logarithmic:
        ticks = {"values": charts.log_ticks(low, high)}
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=230))
    one_kind: dict[str, Any] = {} if len(kinds) > 1 else {"legend": None}
    bar = (
        alt.Chart(data)
        .mark_bar(height={"band": 0.66})
        .encode(
            x=alt.X(
                "low:Q",
                scale=scale,
                title=axis,
                axis=alt.Axis(format=",~g" if logarithmic else ",~f", **ticks),
            ),
            x2="value:Q",
            y=y,
            color=alt.Color(
                "kind:N",
                title=None,
                sort=list(kinds),
                scale=alt.Scale(domain=list(kinds), range=theme.colours(len(kinds))),
                **one_kind,
            ),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("value:Q", title=axis, format=value_format),
            ],
        )
    )
    text = (
        alt.Chart(data)
        .mark_text(align="left", dx=5, fontSize=11)
        .encode(x=alt.X("value:Q", scale=scale), y=y, text=alt.Text("value:Q", format=value_format))
    )
    return finish(
        alt.layer(bar, text), max(2, len(rows)) * charts.ROW_STEP, legend=kinds, labels=names
    )


def finish(
    chart: Any, height: int, legend: Sequence[str] = (), labels: Sequence[str] = ("100%",)
) -> Spec:
    """A chart as wide as its place, as `uncia.report.charts` makes them."""
    spec = charts.specification(
        chart.properties(
            width="container",
            height=height,
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
    )
    spec["usermeta"] = {
        "legend": max((len(name) for name in legend), default=0),
        "labels": max((len(name) for name in labels), default=0),
    }
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec
