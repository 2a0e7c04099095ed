"""How a chart is declared: marks with channels, on scales that all charts share.

A declaration is Vega-Lite, written short: ``chart(layer("line", rows, x=..., y=...), height=240)``.
Charts are aggregated beforehand: no mark gets more than `MAX_POINTS` rows. Colours and fonts are
the page's (`uncia.report.theme`); tests check every chart against the schema.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from uncia.report import checks, theme

MAX_POINTS: Final = 2_000
"""Rows a mark, so that a page of any number of requests stays small and quick."""

ROW_STEP: Final = 30
"""Height of one row of a chart with named rows, in pixels."""

_MIN_TICKS: Final = 3
_NO_SPREAD: Final = 1 + 1e-6

Spec: TypeAlias = dict[str, Any]
Channel: TypeAlias = dict[str, Any]
Rows: TypeAlias = Sequence[Mapping[str, Any]]

SHARES: Final[Channel] = {
    "scale": {"domain": [0, 1]},
    "axis": {"format": "%", "values": [0, 0.25, 0.5, 0.75, 0.9, 1]},
}
"""The vertical axis of a cumulative distribution."""

DASHED: Final = [5, 4]
SOLID: Final = [1, 0]


def chart(*layers: Spec, height: int, params: Sequence[Spec] = ()) -> Spec:
    """A chart as wide as its place, of layers that lie one over the other.

    Args:
        layers: what `layer` returns, the undermost first.
        height: in pixels.
        params: settings that the reader chooses (`choice`).
    """
    spec: Spec = dict(layers[0]) if len(layers) == 1 else {"layer": list(layers)}
    spec["width"] = "container"
    spec["height"] = height
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    if params:
        spec["params"] = [*spec.get("params", ()), *params]
    channels = [one["encoding"] for one in layers]
    legends = [
        one.get("scale", {}).get("domain", ())
        for each in channels
        if (one := each.get("color", {})).get("type") == "nominal"
    ]
    labels = [each["y"]["sort"] for each in channels if each.get("y", {}).get("sort")]
    # By these the page tells how many columns of the legend fit.
    spec["usermeta"] = {"legend": _longest(legends), "labels": _longest(labels or [["100%"]])}
    checks.check(spec)
    return spec


def layer(
    mark: str,
    rows: Rows,
    style: Mapping[str, Any] | None = None,
    *,
    where: str = "",
    transform: Sequence[Spec] = (),
    params: Sequence[Spec] = (),
    **channels: Channel | list[Channel] | None,
) -> Spec:
    """One kind of mark, drawn for each of some rows.

    Args:
        mark: ``line``, ``bar``, ``rule``, ``point``, ``rect``, ``area`` or ``text``.
        rows: what is drawn; at most `MAX_POINTS` are shown at once.
        style: what is the same of all marks.
        where: a condition of the rows that are shown, in Vega's language.
        transform: other changes of the rows, after that.
        params: of this layer, such as `PICK`.
        channels: what of a row decides place, colour, and so on; None: nothing.
    """
    spec: Spec = {
        "mark": {"type": mark, **(style or {})},
        "data": {"values": [{key: _plain(value) for key, value in row.items()} for row in rows]},
        "encoding": {name: channel for name, channel in channels.items() if channel is not None},
    }
    if changes := [*([{"filter": where}] if where else ()), *transform]:
        spec["transform"] = changes
    if params:
        spec["params"] = list(params)
    return spec


def quantity(field: str, title: str | None = None, **more: Any) -> Channel:
    """A channel that shows a number of the row; with the title of its axis."""
    return {"field": field, "type": "quantitative", **({"title": title} if title else {}), **more}


def names(field: str, order: Sequence[str] | None = None, **more: Any) -> Channel:
    """A channel that shows a name of the row, without a title."""
    sort = {} if order is None else {"sort": list(order)}
    return {"field": field, "type": "nominal", "title": None, **sort, **more}


def offset(field: str, order: Sequence[str]) -> Channel:
    """Names beside one another within one place of the axis."""
    return {"field": field, "type": "nominal", "sort": list(order)}


def colours(
    field: str,
    order: Sequence[str],
    palette: Sequence[str] | None = None,
    *,
    in_order: bool = False,
    long: bool = False,
) -> Channel:
    """A colour for each name.

    Args:
        field: the name of a row.
        order: all names, as they stand in the legend.
        palette: their colours; by default the theme's.
        in_order: whether the names have an order, such as memory sizes.
        long: whether names are shown whole, however long.
    """
    shades = list(palette or theme.colours(len(order), in_order=in_order))
    scale = {"domain": list(order), "range": shades}
    return names(field, order, scale=scale, **({"legend": {"labelLimit": 0}} if long else {}))


def dashes(
    field: str, order: Sequence[str], dashed: Collection[str], pattern: Sequence[int] = (4, 3)
) -> Channel:
    """Lines of some names are dashed."""
    patterns = [list(pattern) if name in dashed else SOLID for name in order]
    return names(field, order, scale={"domain": list(order), "range": patterns})


def fixed(value: Any) -> Channel:
    """The same for every row."""
    return {"value": value}


def tips(*shown: tuple[str, ...]) -> list[Channel]:
    """What is said of a mark under the pointer: ``(field, title, format)`` of each number, and
    ``(field, title)`` of each text; a title may be empty, which is the field."""
    found: list[Channel] = []
    for field, title, *form in (one if len(one) > 1 else (*one, "") for one in shown):
        channel: Channel = {"field": field, "type": "quantitative" if form else "nominal"}
        if title:
            channel["title"] = title
        if form and form[0]:
            channel["format"] = form[0]
        found.append(channel)
    return found


PICK: Final[Spec] = {
    "name": "pick",
    "select": {"type": "point", "fields": ["name"]},
    "bind": "legend",
}
"""A name that the reader picks in the legend; for lines with the opacity `PICKED`."""

PICKED: Final[Channel] = {"condition": {"param": "pick", "value": 1}, "value": 0.15}


def choice(name: str, value: Any, label: str, options: Sequence[Any]) -> Spec:
    """A setting that the reader chooses from a list; expressions know it by its name."""
    bind = {"input": "select", "options": list(options), "name": label}
    return {"name": name, "value": value, "bind": bind}


def logarithmic(
    values: Iterable[float | None], *, padding: int | None = None, **scale: Any
) -> Channel:
    """A logarithmic scale for these values, and an axis with few, round ticks."""
    known = [value for value in values if value is not None and value > 0]
    ticks = log_ticks(min(known), max(known)) if known else []
    room = {} if padding is None else {"padding": padding}
    return {
        "scale": {"type": "log", "nice": False, **room, **scale},
        "axis": {"format": ",~g", **({"values": ticks} if ticks else {"tickCount": 4})},
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Places for the ticks of a logarithmic axis: few enough that each can have its label.

    >>> log_ticks(0.8, 700), log_ticks(3, 40), log_ticks(0.9, 1.4)
    ([1.0, 10.0, 100.0], [5.0, 10.0, 20.0], [1.0, 1.2, 1.4])
    """
    if not 0 < low <= high < math.inf:
        return []
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1.0,), (1.0, 2.0, 5.0)):
        ticks = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
        ticks = [value for value in ticks if low * 0.999 <= value <= high * 1.001]
        if len(ticks) >= _MIN_TICKS:
            return ticks
    if high / low < _NO_SPREAD:
        return [low]
    # Less than a decade: as on a linear axis.
    rough = (high - low) / _MIN_TICKS or low / 10
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough / 1.5)
    digits = max(0, -math.floor(math.log10(step)))
    start, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, digits) for index in range(start, end + 1) if index > 0]


def rule(at: float, channel: str = "x", **style: Any) -> Spec:
    """A line across the chart, such as a limit.

    Dashed and red, unless the style says otherwise; with None a property is the theme's.
    """
    style = {"color": theme.ALERT, "strokeDash": [4, 3], "strokeWidth": 1.3, **style}
    style = {name: value for name, value in style.items() if value is not None}
    channels: dict[str, Any] = {channel: quantity("at")}
    return layer("rule", [{"at": at}], style, **channels)


def rows_height(rows: int, step: int = ROW_STEP) -> int:
    """Height of a chart with named rows, in pixels."""
    return max(2, rows) * step


def _longest(lists: Sequence[Sequence[str]]) -> int:
    return max((len(name) for order in lists for name in order), default=0)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, np.number) else value
