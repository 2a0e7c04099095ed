"""Short declarations of charts in Vega-Lite: layers of marks, with channels on common scales.

``chart(layer("line", rows, x=..., y=...), height=240)`` is a chart. Rows are aggregated beforehand:
no mark gets more than `MAX_POINTS` of them. Colours and fonts are the page's
(`uncia.report.theme`); tests check every chart against the schema.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from uncia.report import checks, theme

MAX_POINTS: Final = 2_000
"""Rows per mark, so that the page of a large run stays small and quick."""

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

PLAIN: Final = ",~r"
"""Format of the labels of an axis: 1, 10, 100; with ``~g`` Vega writes 1e+1 where ticks are few."""

DASHED: Final = [5, 4]
SOLID: Final = [1, 0]


def chart(*layers: Spec, height: int, params: Sequence[Spec] = ()) -> Spec:
    """Make a chart of layers, as wide as its container.

    Args:
        layers: what `layer` returns, the bottom one first.
        height: in pixels.
        params: settings that the reader chooses (`choice`).
    """
    spec: Spec = dict(layers[0]) if len(layers) == 1 else {"layer": list(layers)}
    spec["width"] = "container"
    spec["height"] = height
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    if params:
        spec["params"] = [*spec.get("params", ()), *params]
    encodings = [layer["encoding"] for layer in layers]
    legends = [
        colour.get("scale", {}).get("domain", ())
        for encoding in encodings
        if (colour := encoding.get("color", {})).get("type") == "nominal"
    ]
    labels = [encoding["y"]["sort"] for encoding in encodings if encoding.get("y", {}).get("sort")]
    # The page computes from these how many columns of the legend fit.
    spec["usermeta"] = {
        "legend": _max_length(legends),
        "labels": _max_length(labels or [["100%"]]),
    }
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
    """Make a layer: one kind of mark, drawn for each row.

    Args:
        mark: ``line``, ``bar``, ``rule``, ``point``, ``rect``, ``area`` or ``text``.
        rows: the rows; at most `MAX_POINTS` are shown at once.
        style: properties that all marks share.
        where: a filter of the rows, as a Vega expression.
        transform: other transforms of the rows, after the filter.
        params: of this layer, such as `PICK`.
        channels: x, y, color and so on, each from a field of the rows; None is left out.
    """
    spec: Spec = {
        "mark": {"type": mark, **(style or {})},
        "data": {"values": [{key: _plain(value) for key, value in row.items()} for row in rows]},
        "encoding": {name: channel for name, channel in channels.items() if channel is not None},
    }
    if transforms := [*([{"filter": where}] if where else ()), *transform]:
        spec["transform"] = transforms
    if params:
        spec["params"] = list(params)
    return spec


def quantity(field: str, title: str | None = None, **options: Any) -> Channel:
    """Make a channel of a number, with the title of its axis."""
    titled = {"title": title} if title else {}
    return {"field": field, "type": "quantitative", **titled, **options}


def names(field: str, order: Sequence[str] | None = None, **options: Any) -> Channel:
    """Make a channel of a name, without a title."""
    sort = {} if order is None else {"sort": list(order)}
    return {"field": field, "type": "nominal", "title": None, **sort, **options}


def offset(field: str, order: Sequence[str]) -> Channel:
    """Make a channel that sets marks of different names side by side on the axis."""
    return {"field": field, "type": "nominal", "sort": list(order)}


def colours(
    field: str,
    order: Sequence[str],
    palette: Sequence[str] | None = None,
    *,
    in_order: bool = False,
    long: bool = False,
) -> Channel:
    """Make a channel that gives each name a colour.

    Args:
        field: the field with the name.
        order: all names, in the order of the legend.
        palette: their colours; by default the theme's.
        in_order: whether the names have an order, such as memory sizes.
        long: show long names in full.
    """
    shades = list(palette or theme.colours(len(order), in_order=in_order))
    scale = {"domain": list(order), "range": shades}
    return names(field, order, scale=scale, **({"legend": {"labelLimit": 0}} if long else {}))


def dashes(
    field: str, order: Sequence[str], dashed: Collection[str], pattern: Sequence[int] = (4, 3)
) -> Channel:
    """Make a channel that dashes the lines of some names."""
    patterns = [list(pattern) if name in dashed else SOLID for name in order]
    return names(field, order, scale={"domain": list(order), "range": patterns})


def fixed(value: Any) -> Channel:
    """Make a channel with the same value for every row."""
    return {"value": value}


def tips(*entries: tuple[str, ...]) -> list[Channel]:
    """Make the tooltip of a mark.

    Args:
        entries: ``(field, title, format)`` for numbers, ``(field, title)`` or ``(field,)`` for
            texts; an empty title is the field.
    """
    channels: list[Channel] = []
    for field, title, *form in (entry if len(entry) > 1 else (*entry, "") for entry in entries):
        channel: Channel = {"field": field, "type": "quantitative" if form else "nominal"}
        if title:
            channel["title"] = title
        if form and form[0]:
            channel["format"] = form[0]
        channels.append(channel)
    return channels


PICK: Final[Spec] = {
    "name": "pick",
    "select": {"type": "point", "fields": ["name"]},
    "bind": "legend",
}
"""Lets the reader pick a name in the legend; for lines with the opacity `PICKED`."""

PICKED: Final[Channel] = {"condition": {"param": "pick", "value": 1}, "value": 0.15}


def choice(name: str, value: Any, label: str, options: Sequence[Any]) -> Spec:
    """Make a setting that the reader chooses from a list; expressions refer to it by name."""
    bind = {"input": "select", "options": list(options), "name": label}
    return {"name": name, "value": value, "bind": bind}


def logarithmic(
    values: Iterable[float | None], *, padding: int | None = None, **scale: Any
) -> Channel:
    """Make a logarithmic scale for some values, and an axis with few, round ticks."""
    positive = [value for value in values if value is not None and value > 0]
    ticks = log_ticks(min(positive), max(positive)) if positive else []
    padded = {} if padding is None else {"padding": padding}
    return {
        "scale": {"type": "log", "nice": False, **padded, **scale},
        "axis": {"format": PLAIN, **({"values": ticks} if ticks else {"tickCount": 4})},
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Choose the ticks of a logarithmic axis, few enough that each can have a label.

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
    # Less than a decade: use the ticks of a linear axis.
    rough = (high - low) / _MIN_TICKS or low / 10
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough / 1.5)
    digits = max(0, -math.floor(math.log10(step)))
    start, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, digits) for index in range(start, end + 1) if index > 0]


def rule(at: float, channel: str = "x", **style: Any) -> Spec:
    """Make a line across the chart, such as a limit.

    It is dashed and red unless the style says otherwise; a property that is None is the theme's.
    """
    style = {"color": theme.ALERT, "strokeDash": [4, 3], "strokeWidth": 1.3, **style}
    style = {name: value for name, value in style.items() if value is not None}
    channels: dict[str, Any] = {channel: quantity("at")}
    return layer("rule", [{"at": at}], style, **channels)


def rows_height(rows: int, step: int = ROW_STEP) -> int:
    """Return the height of a chart with named rows, in pixels."""
    return max(2, rows) * step


def _max_length(lists: Sequence[Sequence[str]]) -> int:
    return max((len(name) for order in lists for name in order), default=0)


def _plain(value: Any) -> Any:
    """A value as JSON has it: what is not finite is null."""
    if isinstance(value, np.number):
        value = float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
