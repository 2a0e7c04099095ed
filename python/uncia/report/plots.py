"""Charts that several sections share: distributions, ranges, ratios, bars, densities, series."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from uncia.report import theme, vega
from uncia.stats.quantiles import Ints

POINTS_PER_CURVE: Final = 220
"""Enough for a distribution's curve at any width of screen."""

_AXIS_FROM_SHARE: Final = 0.001  # a logarithmic axis begins where the curves reach this share
_MARGIN: Final = 1.2  # beyond the smallest and the largest bar, on a logarithmic axis
_FAR: Final = 10  # times the median, beyond which a bar is cut
_QUANTILES: Final = ("p50", "p90", "p99")
_QUANTILE_COLOURS: Final = (*theme.CATEGORIES[:2], theme.ALERT)
_SHADES: Final = ("#f4e3bd", *theme.RAMP[1:5], "#2c3f86")


def ecdf(ordered: Ints, points: int = POINTS_PER_CURVE) -> list[tuple[int, float]]:
    """Choose points of the empirical distribution function: (value, share of values <= it).

    Few values are returned whole. Of many, half of the points are evenly spaced in rank, and the
    other half get denser towards the largest value, so that the tail keeps its shape; the first and
    the last value are always among them.

    Args:
        ordered: shape (n,), ascending.
        points: the maximum number of points.
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


def distribution(
    curves: Mapping[str, Ints],
    reference: Mapping[str, Ints],
    unit: float,
    axis: str,
    *,
    in_order: bool,
) -> vega.Spec:
    """Draw cumulative distributions of values on a logarithmic axis.

    Args:
        curves: name -> ascending values.
        reference: curves drawn in grey, for comparison.
        unit: values are divided by this.
        axis: title of the horizontal axis.
        in_order: whether the names have an order (memory sizes), for the colours.
    """
    both = {**reference, **curves}
    budget = min(POINTS_PER_CURVE, vega.MAX_POINTS // max(1, len(both)))
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value / unit, "share": share}
        for name, values in both.items()
        for value, share in _from_zero(ecdf(values, budget - 1))
        if value > 0
    ]
    shades = [theme.REFERENCE] * len(reference) + theme.colours(len(curves), in_order=in_order)
    line = _cumulative(
        rows,
        vega.quantity("value", axis, **vega.logarithmic(row["value"] for row in rows)),
        vega.colours("name", list(both), shades),
        ("requests", "experiment", ",.4~r"),
        reference,
    )
    line |= {"params": [vega.PICK]}
    line["encoding"]["opacity"] = vega.PICKED
    return vega.chart(line, height=240)


def curves(
    points: Mapping[str, tuple[Any, Any]],
    axis: str,
    counted: str,
    *,
    reference: Sequence[str] = (),
    log: bool = True,
    percent: bool = False,
    bounds: tuple[float, float] | None = None,
) -> vega.Spec:
    """Draw cumulative distributions that are given as points.

    Args:
        points: name -> ascending values, and the share of values up to each.
        axis: title of the horizontal axis.
        counted: what is counted, such as ``requests``.
        reference: names that are drawn in grey.
        log: whether the horizontal axis is logarithmic; then only values above zero are drawn.
        percent: whether values are shares.
        bounds: of the horizontal axis; by default all values.
    """
    budget = vega.MAX_POINTS // max(1, len(points)) - 3
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value, "share": share}
        for name, (values, shares) in points.items()
        for value, share in _thinned(values, shares, budget)
        if value > 0 or not log
    ]
    coloured = [name for name in points if name not in reference]
    shades = dict(zip(coloured, theme.colours(len(coloured)), strict=True))
    shown = [row["value"] for row in rows if row["share"] >= _AXIS_FROM_SHARE]
    low, high = bounds or (min(shown, default=1.0), max(shown, default=1.0))
    round_ticks = vega.log_ticks(low, high) if log else []
    ticks = {"values": round_ticks} if round_ticks else {"tickCount": 6}
    x = vega.quantity(
        "value",
        axis,
        scale={
            "type": "log" if log else "linear",
            "domain": [low, high],
            "nice": False,
            "clamp": True,
        },
        axis={
            "format": "%" if percent else vega.PLAIN if log else ",~f",
            "labelOverlap": True,
            **ticks,
        },
    )
    palette = [shades.get(name, theme.REFERENCE) for name in points]
    colour = vega.colours("name", list(points), palette, long=True)
    line = _cumulative(rows, x, colour, (counted, " ", ".1%" if percent else ",.4~r"), reference)
    return vega.chart(line, height=240)


def _cumulative(
    rows: vega.Rows,
    x: vega.Channel,
    colour: vega.Channel,
    labels: tuple[str, str, str],
    reference: Collection[str],
) -> vega.Spec:
    """Draw the steps of cumulative distributions.

    `labels`: what is counted, what a name stands for, and the format of values.
    """
    counted, naming, form = labels
    return vega.layer(
        "line",
        rows,
        {"interpolate": "step-after", "strokeWidth": 2, "clip": True},
        x=x,
        y=vega.quantity("share", f"share of {counted}", **vega.SHARES),
        color=colour,
        strokeDash=vega.dashes("name", colour["sort"], reference),
        tooltip=vega.tips(
            ("name", naming), ("value", x["title"], form), ("share", f"{counted} at most", ".2%")
        ),
    )


def _thinned(values: Any, shares: Any, points: int) -> list[tuple[float, float]]:
    """Choose points of a cumulative curve, evenly by share and by rank, with both ends.

    A point with the share 0, from which the curve rises, goes before them.
    """
    count = len(values)
    if count <= points:
        chosen = np.arange(count)
    else:
        by_share = np.searchsorted(shares, np.linspace(0, 1, points // 2))
        by_rank = np.linspace(0, count - 1, points - points // 2).round()
        chosen = np.unique(np.clip(np.concatenate((by_share, by_rank)), 0, count - 1))
    return _from_zero([(float(values[int(i)]), float(shares[int(i)])) for i in chosen])


def _from_zero(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Put a point with the share 0 before the points of a curve, from which it rises."""
    return [*((value, 0.0) for value, _ in points[:1]), *points]


def _by_name(order: Sequence[str], width: int = 130) -> vega.Channel:
    """A vertical axis with a row for each name."""
    return vega.names("name", order, axis={"labelLimit": width})


def ranges(rows: vega.Rows, axis: str) -> vega.Spec:
    """Draw the spread of each experiment: a line from p50 to p99, with p50, p90, p99 as points.

    Args:
        rows: each with ``name``, ``p50``, ``p90``, ``p99`` in the axis' unit, all above 0.
        axis: title of the horizontal axis.
    """
    order = [row["name"] for row in rows]
    points = [
        {"name": row["name"], "quantile": quantile, "value": row[quantile]}
        for row in rows
        for quantile in _QUANTILES
    ]
    x = vega.logarithmic((row["value"] for row in points), padding=10)
    domain = list(_QUANTILES)
    shapes = {"domain": domain, "range": ["circle", "diamond", "triangle-right"]}
    return vega.chart(
        vega.layer(
            "rule",
            rows,
            {"strokeWidth": 3, "opacity": 0.35, "color": theme.CATEGORIES[0]},
            x=vega.quantity("p50", axis, scale=x["scale"]),
            x2={"field": "p99"},
            y=_by_name(order),
        ),
        vega.layer(
            "point",
            points,
            {"filled": True, "size": 85, "opacity": 1},
            x=vega.quantity("value", axis, **x),
            y=_by_name(order),
            color=vega.colours("quantile", domain, _QUANTILE_COLOURS),
            shape=vega.names("quantile", scale=shapes),
            tooltip=vega.tips(("name", "experiment"), ("quantile",), ("value", axis, ",.4~r")),
        ),
        height=vega.rows_height(len(rows)),
    )


def ratios(rows: vega.Rows, axis: str, limit: float, kinds: Sequence[str]) -> vega.Spec:
    """Draw ratios with their intervals on a logarithmic axis, and a limit as a vertical line.

    Args:
        rows: each with ``name``, ``kind``, ``value`` and ``low``, ``high`` (or None).
        axis: title of the horizontal axis.
        limit: position of the line.
        kinds: in order.
    """
    order = order_of(rows, "name")
    x = vega.logarithmic(
        [limit, *(row[key] for row in rows for key in ("value", "low", "high"))], padding=10
    )
    position: dict[str, Any] = {
        "y": _by_name(order),
        "yOffset": vega.offset("kind", kinds),
        "color": vega.colours("kind", kinds),
    }
    intervals = vega.layer(
        "rule",
        certain := [row for row in rows if row["low"] is not None],
        {"strokeWidth": 2, "opacity": 0.6},
        x=vega.quantity("low", axis, scale=x["scale"]),
        x2={"field": "high"},
        **position,
    )
    points = vega.layer(
        "point",
        rows,
        {"filled": True, "size": 75, "opacity": 1},
        x=vega.quantity("value", axis, **x),
        **position,
        tooltip=vega.tips(
            ("name", "experiment"),
            ("kind", "ratio"),
            ("value", "", ",.4~r"),
            ("low", "from", ",.4~r"),
            ("high", "to", ",.4~r"),
        ),
    )
    layers = [*([intervals] if certain else ()), points, vega.rule(limit)]
    return vega.chart(*layers, height=vega.rows_height(len(order)))


def stacked(
    rows: vega.Rows,
    parts: Sequence[str],
    axis: str,
    *,
    normalized: bool = False,
    palette: Sequence[str] | None = None,
    form: str = ",.3~r",
    ticks: str = vega.PLAIN,
    cut: bool = False,
) -> vega.Spec:
    """Draw horizontal bars made of parts.

    Args:
        rows: each with ``name``, ``part`` and ``value``.
        parts: the parts in the order in which they are stacked.
        axis: title of the horizontal axis.
        normalized: show shares of each bar.
        palette: colours of the parts.
        form: format of values in the tooltip.
        ticks: format of the axis.
        cut: whether bars far longer than most end at the edge, marked with their length.
    """
    totals: dict[str, float] = {}
    for row in rows:
        totals[row["name"]] = totals.get(row["name"], 0.0) + row["value"]
    end = _cut_at(list(totals.values())) if cut else None
    scale = {} if end is None else {"scale": {"domain": [0, end], "nice": False}}
    y = _by_name(order := order_of(rows, "name"), 165)
    bars = vega.layer(
        "bar",
        [{**row, "rank": parts.index(row["part"])} for row in rows],
        {"height": {"band": 0.66}, "clip": True},
        x=vega.quantity(
            "value",
            axis,
            stack="normalize" if normalized else "zero",
            axis={"format": "%" if normalized else ticks, "tickCount": 6},
            **scale,
        ),
        y=y,
        color=vega.colours("part", parts, palette),
        order=vega.quantity("rank"),
        tooltip=vega.tips(("name", " "), ("part",), ("value", "", form)),
    )
    height = vega.rows_height(len(order))
    if end is None:
        return vega.chart(bars, height=height)
    marks = vega.layer(
        "text",
        [
            {"name": name, "end": end, "value": total}
            for name, total in totals.items()
            if total > end
        ],
        {"align": "right", "dx": -5, "fontSize": 11, "fontWeight": 600, "color": "#ffffff"},
        transform=[{"calculate": f"'» ' + format(datum.value, '{form}')", "as": "text"}],
        x=vega.quantity("end"),
        y=y,
        text=vega.names("text"),
    )
    return vega.chart(bars, marks, height=height)


def _cut_at(totals: Sequence[float]) -> float | None:
    """Where to cut bars of which a few are far longer than most; None if none is."""
    if not totals:
        return None
    limit = _FAR * float(np.median(totals))
    shorter = [total for total in totals if total <= limit]
    if limit <= 0 or len(shorter) == len(totals):
        return None
    return max(shorter) * _MARGIN


def bars(
    rows: vega.Rows, axis: str, kinds: Sequence[str], *, log: bool = False, form: str = ",.3~r"
) -> vega.Spec:
    """Draw horizontal bars, one for each row, labelled with their values.

    Args:
        rows: each with ``name``, ``kind`` (its colour), ``value`` above zero; each name once.
        axis: title of the horizontal axis.
        kinds: in order.
        log: whether the axis is logarithmic; bars then begin below the smallest value.
        form: format of the values.
    """
    values = [row["value"] for row in rows]
    low = min(values, default=1.0) / _MARGIN**4 if log else 0.0
    # Leaves space for the label of the longest bar.
    high = max(values, default=1.0) * (_MARGIN**6 if log else _MARGIN)
    data = [{**row, "low": low} for row in rows]
    scale = {"type": "log" if log else "linear", "domain": [low, high], "nice": False}
    ticks = {"values": vega.log_ticks(low, high)} if log else {"tickCount": 6}
    y = _by_name([row["name"] for row in rows], 230)
    colour = vega.colours("kind", kinds)
    return vega.chart(
        vega.layer(
            "bar",
            data,
            {"height": {"band": 0.66}},
            x=vega.quantity(
                "low", axis, scale=scale, axis={"format": vega.PLAIN if log else ",~f", **ticks}
            ),
            x2={"field": "value"},
            y=y,
            color=colour if len(kinds) > 1 else {**colour, "legend": None},
            tooltip=vega.tips(("name", " "), ("value", axis, form)),
        ),
        vega.layer(
            "text",
            data,
            {"align": "left", "dx": 5, "fontSize": 11},
            x=vega.quantity("value", scale=scale),
            y=y,
            text=vega.quantity("value", format=form),
        ),
        height=vega.rows_height(len(rows)),
    )


def density(cells: vega.Rows, width: float, titles: tuple[str, str], counted: str) -> vega.Spec:
    """Draw a heat map of two shares, 0 to 1 each.

    Args:
        cells: each with ``x``, ``y`` (lower edges) and ``share`` of the rows, above zero.
        width: of a cell.
        titles: of the axes.
        counted: what is counted, such as ``requests``.
    """
    rows = [{**cell, "x2": cell["x"] + width, "y2": cell["y"] + width} for cell in cells]
    axis: vega.Channel = {
        "scale": {"domain": [0, 1], "nice": False},
        "axis": {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1], "grid": False},
    }
    shades = {"type": "log", "range": list(_SHADES)}
    shares = [row["share"] for row in rows]
    ticks = vega.log_ticks(min(shares, default=1), max(shares, default=1))
    legend = {"format": ".1~p", "gradientLength": 260, "orient": "bottom"}
    heat = vega.layer(
        "rect",
        rows,
        {"strokeWidth": 0.7},
        x=vega.quantity("x", titles[0], **axis),
        x2={"field": "x2"},
        y=vega.quantity("y", titles[1], **axis),
        y2={"field": "y2"},
        color=vega.quantity(
            "share",
            f"share of {counted}",
            scale=shades,
            legend={**legend, **({"values": ticks} if ticks else {})},
        ),
        # A border in the cell's colour hides the seams between cells.
        stroke=vega.quantity("share", scale=shades, legend=None),
        tooltip=vega.tips(
            ("x", f"{titles[0]}, from", ".1%"),
            ("y", f"{titles[1]}, from", ".1%"),
            ("share", f"share of {counted}", ".3~p"),
        ),
    )
    return vega.chart(heat, height=340)


def series(rows: vega.Rows, order: Sequence[str], axis: str, *, steps: bool = False) -> vega.Spec:
    """Draw values over the time of the run.

    Args:
        rows: each with ``name``, ``time`` (s) and ``value``, in order of time.
        order: of the names.
        axis: title of the vertical axis.
        steps: whether a value holds until the next.
    """
    line = vega.layer(
        "line",
        rows,
        {"interpolate": "step-after" if steps else "linear", "strokeWidth": 1.8},
        x=vega.quantity(
            "time", "seconds since the run began", axis={"grid": False, "tickCount": 8}
        ),
        y=vega.quantity("value", axis, axis={"tickCount": 5}),
        color=vega.colours("name", order),
        tooltip=vega.tips(("name", " "), ("time", "second", ",.2f"), ("value", axis, ",.4~r")),
    )
    return vega.chart(line, height=220)


def order_of(rows: Iterable[Mapping[str, Any]], field: str) -> list[Any]:
    """List the distinct values of a field, in order of appearance."""
    return list(dict.fromkeys(row[field] for row in rows))
