"""Colours and chart settings, on a light and on a dark ground.

Category colours have a medium lightness, so that they are readable on both grounds and a chart
needs one specification; only the colours of axes and text differ.
"""

import math
from typing import Any, Final

CATEGORIES: Final = (
    "#3b7fc4",
    "#e08a2c",
    "#3f9f68",
    "#cf4a5c",
    "#8a6fd1",
    "#28a19c",
    "#c4659b",
    "#98923a",
    "#a7735a",
)
"""Colours of categories without an order."""

RAMP: Final = ("#dd9f2f", "#dc7a4a", "#c4557a", "#8c58ad", "#4f6cc0", "#2f92a8")
"""Colours of categories with an order, such as memory sizes, from small to large."""

REFERENCE: Final = "#8a95a3"
"""Colour of references, which are there for comparison only."""

ALERT: Final = "#cf4a5c"
"""Colour of limits and failures."""

FONT: Final = (
    "Inter, -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue',"
    " 'Liberation Sans', Arial, system-ui, sans-serif"
)

_MIXED: Final = 0.4  # of the second colour in those that are mixed

_INK: Final = {
    "light": {"text": "#26323f", "muted": "#5d6b7a", "grid": "#e6eaee", "line": "#c4ccd4"},
    "dark": {"text": "#d7dee6", "muted": "#9aa7b4", "grid": "#29323b", "line": "#46525e"},
}


def colours(n: int, *, in_order: bool = False) -> list[str]:
    """Choose `n` colours; with an order, they are spread over the whole ramp.

    Where there are more than of either, they are mixed from two, so that no two are the same;
    without an order up to 81.
    """
    if in_order and n > len(RAMP):
        places = [i * (len(RAMP) - 1) / (n - 1) for i in range(n)]
        return [_mixed(RAMP[int(at)], RAMP[math.ceil(at)], at % 1) for at in places]
    if in_order and n > 1:
        step = (len(RAMP) - 1) / (n - 1)
        return [RAMP[round(i * step)] for i in range(n)]
    count = len(CATEGORIES)
    return [
        _mixed(CATEGORIES[i % count], CATEGORIES[(i + i // count) % count], _MIXED)
        for i in range(n)
    ]


def _mixed(colour: str, other: str, share: float) -> str:
    """Mix `share` of another colour into one."""
    parts = ((int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in parts)


def config(ground: str = "light") -> dict[str, Any]:
    """Make the Vega configuration for charts on a ``light`` or a ``dark`` ground."""
    ink = _INK[ground]
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": "transparent"},
        "axis": {
            "labelColor": ink["muted"],
            "titleColor": ink["muted"],
            "titleFontWeight": 500,
            "titleFontSize": 12,
            "labelFontSize": 12,
            "gridColor": ink["grid"],
            "domainColor": ink["line"],
            "tickColor": ink["line"],
            "titlePadding": 8,
            "labelPadding": 5,
        },
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": ink["text"],
            "titleColor": ink["muted"],
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "orient": "bottom",
            "symbolStrokeWidth": 3,
            "symbolSize": 90,
            "symbolOpacity": 1,
            "labelLimit": 160,
            "rowPadding": 4,
            "columnPadding": 14,
        },
        "title": {
            "color": ink["text"],
            "fontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 8,
        },
        "text": {"color": ink["text"], "fontSize": 12},
        "rule": {"color": ink["muted"]},
        "range": {"category": list(CATEGORIES)},
    }
