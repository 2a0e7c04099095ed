"""Figures for papers: the charts of a page as files of a width, with text that stays legible.

Lengths are points (1/72 inch), so that text has its printed size whatever the width. A chart is
laid out at that width rather than scaled down from the screen's.
"""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from uncia.backends.atomic_write import atomic_path
from uncia.errors import UnciaError
from uncia.report import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMS: Final = ("pdf", "svg", "png")
"""File formats of figures."""

MIN_MM: Final = 50.0
"""The smallest width: with less, names and ticks leave no room for the chart."""

MAX_MM: Final = 420.0
"""The largest width: the long side of A3."""

DEFAULT_MM: Final = 84.0
"""Width of a column in the two-column styles of ACM, IEEE and USENIX, about."""

_MM_PER_INCH: Final = 25.4
_POINTS_PER_INCH: Final = 72.0
_PNG_DOTS_PER_INCH: Final = 300.0
_MM: Final = {"mm": 1.0, "cm": 10.0, "in": _MM_PER_INCH, "pt": _MM_PER_INCH / _POINTS_PER_INCH}
_WIDTH: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)")

_TEXT: Final = 7.0  # points; papers ask for 6 to 8 in figures
_LETTER: Final = 0.53  # width of a letter of the usual fonts, as a share of its size
_SCALE: Final = 0.6  # heights, marks and lines against those on the screen
_NAMES: Final = 0.34  # share of the width that names beside an axis may take
_SYMBOL: Final = 20.0  # points, of a legend's symbol with its padding
_MARGIN: Final = 4.0  # points around a figure
_TITLE_SHARE: Final = 0.6  # of a figure's side, along which the title of an axis stands


class NamedChart(Protocol):
    """A chart of a page (`uncia.report.page.Chart`): its name and its specification."""

    @property
    def name(self) -> str:
        """Letters, digits and dashes; the name of its file."""

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""


@dataclass(frozen=True)
class Style:
    """The form of figures.

    Attributes:
        form: one of `FORMS`.
        width_mm: their width.
        font: name of the font; None: the page's.
    """

    form: str
    width_mm: float = DEFAULT_MM
    font: str | None = None

    @property
    def width(self) -> float:
        """The width in points."""
        return self.width_mm / _MM_PER_INCH * _POINTS_PER_INCH


def style(form: str, width: str | None = None, font: str | None = None) -> Style:
    """Check the form of figures.

    Args:
        form: one of `FORMS`.
        width: such as ``84mm``, ``8.4cm``, ``3.3in`` or ``241pt``; by default `DEFAULT_MM`.
        font: name of a font that is installed.

    Raises:
        UnciaError: the form is unknown, the width is none or too small or large, or there is no
            such font.
    """
    if form not in FORMS:
        raise UnciaError(f"figures are drawn as {', '.join(FORMS)}, not as {form!r}")
    width_mm = DEFAULT_MM if width is None else _millimetres(width)
    # SVG names its font; the program that shows it may have fonts that this machine lacks.
    if font is not None and form != "svg" and not _is_installed(font):
        raise UnciaError(
            f"there is no font {font!r} on this machine",
            "Name one that is installed (fc-list : family), or export SVG.",
        )
    return Style(form, width_mm, font)


def _millimetres(text: str) -> float:
    match = _WIDTH.fullmatch(text.strip())
    if match is None:
        raise UnciaError(
            f"{text!r} is not the width of a figure", "Write 84mm, 8.4cm, 3.3in or 241pt."
        )
    millimetres = float(match[1]) * _MM[match[2]]
    if not MIN_MM <= millimetres <= MAX_MM:
        raise UnciaError(
            f"a figure {text} wide cannot be read or printed",
            f"Take {MIN_MM:g}mm (a narrow column) to {MAX_MM:g}mm (the long side of A3).",
        )
    return millimetres


def _is_installed(font: str) -> bool:
    """Whether a font is found: otherwise text looks like that of the fallback, whichever it is."""
    import vl_convert
    from markupsafe import escape

    def drawn(fallback: str) -> bytes:
        family = escape(f"'{font}', {fallback}")
        return bytes(
            vl_convert.svg_to_png(
                '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40">'
                f'<text x="5" y="28" font-size="20" font-family="{family}">Wil 128 MB</text></svg>'
            )
        )

    return drawn("serif") == drawn("monospace")


def write(charts: Sequence[NamedChart], out: Path, style: Style) -> Iterator[Path]:
    """Write charts as figures, named after them.

    Args:
        charts: of a page.
        out: the folder to write to; created if missing.
        style: of the figures.

    Yields:
        The path of each file, once it is complete.

    Raises:
        UnciaError: there is no chart, or nothing can be written.
    """
    if not charts:
        raise UnciaError("the page has no chart, so there is no figure to write")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot write {out}: {error.strerror or error}", exit_code=1) from error
    for chart in charts:
        image = draw(chart.spec, style)
        path = out / f"{chart.name}.{style.form}"
        with atomic_path(path, directory=False) as partial:
            partial.write_bytes(image)
        yield path


def draw(spec: Mapping[str, Any], style: Style) -> bytes:
    """Draw a chart as the content of a file, on white and without a title.

    Args:
        spec: the specification.
        style: of the figure.
    """
    import vl_convert

    svg, height = _laid_out(spec, style)
    match style.form:
        case "svg":
            height_mm = height / _POINTS_PER_INCH * _MM_PER_INCH
            size = f'width="{style.width_mm:g}mm" height="{height_mm:.4g}mm"'
            return _SIZE.sub(size, svg, count=1).encode()
        case "png":
            scale = _PNG_DOTS_PER_INCH / _POINTS_PER_INCH
            return bytes(vl_convert.svg_to_png(svg, scale=scale))
        case _:
            return bytes(vl_convert.svg_to_pdf(svg))


_SIZE: Final = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def _laid_out(spec: Mapping[str, Any], style: Style) -> tuple[str, float]:
    """Draw a chart as SVG of the style's width in points; the height is returned too.

    A legend that is too wide gets fewer columns; what is too wide even so is scaled down.
    """
    import vl_convert

    columns = _columns(spec, style.width)
    while True:
        svg = str(vl_convert.vegalite_to_svg(_for_paper(spec, style, columns)))
        match = _SIZE.search(svg)
        assert match is not None, "Vega writes the size of a chart"
        width, height = float(match[1]), float(match[2])
        if width <= style.width + 0.5 or columns == 1:
            break
        columns -= 1
    scaled_height = height * style.width / width
    size = f'width="{style.width:.4f}" height="{scaled_height:.4f}"'
    return _SIZE.sub(size, svg, count=1), scaled_height


def _columns(spec: Mapping[str, Any], width: float) -> int:
    """How many columns of the legend fit beside the names of the axis."""
    meta = spec["usermeta"]
    letter = _TEXT * _LETTER
    room = width - min(meta["labels"] * letter, width * _NAMES) - 2 * _MARGIN
    return max(1, min(7, int(room / (meta["legend"] * letter + _SYMBOL))))


def _for_paper(spec: Mapping[str, Any], style: Style, columns: int) -> dict[str, Any]:
    """The specification at the style's width, in points."""
    result = copy.deepcopy(dict(spec))
    result["width"], result["height"] = style.width, spec["height"] * _SCALE
    result["padding"] = _MARGIN
    for part in (result, *result.get("layer", ())):
        _shrink_mark(part)
        for name, channel in part["encoding"].items() if "encoding" in part else ():
            if isinstance(channel, dict):
                _shrink_channel(name, channel, style.width, result["height"])
    for part in (result, *result.get("layer", ())):
        _settle_params(part)
    result["config"] = _config(style, columns)
    return result


def _settle_params(part: dict[str, Any]) -> None:
    """Leave settings at their values, as expressions refer to them, and nothing to be picked."""
    settled = [
        {name: value for name, value in param.items() if name != "bind"}
        for param in part.pop("params", ())
        if "value" in param and "select" not in param
    ]
    if settled:
        part["params"] = settled


def _shrink_mark(part: dict[str, Any]) -> None:
    mark = part.get("mark")
    if not isinstance(mark, dict):
        return
    if "fontSize" in mark:
        mark["fontSize"] = min(mark["fontSize"], _TEXT)
    for name in ("strokeWidth", "dx", "dy"):
        if isinstance(mark.get(name), int | float):
            mark[name] *= _SCALE
    if isinstance(mark.get("size"), int | float):
        mark["size"] *= _SCALE**2


def _shrink_channel(name: str, channel: dict[str, Any], width: float, height: float) -> None:
    axis = channel.get("axis")
    if isinstance(axis, dict) and "labelLimit" in axis:
        axis["labelLimit"] = width * _NAMES
    legend = channel.get("legend")
    if isinstance(legend, dict) and "gradientLength" in legend:
        legend["gradientLength"] = width * _TITLE_SHARE
    title = channel.get("title")
    if name in ("x", "y") and isinstance(title, str):
        side = width if name == "x" else height
        letters = max(8, int(side * _TITLE_SHARE / (_TEXT * _LETTER)))
        if len(title) > letters:
            channel["title"] = textwrap.wrap(title, letters)
    if isinstance(channel.get("condition"), dict) and "param" in channel["condition"]:
        channel.clear()  # the opacity of names that a reader picks
        channel["value"] = 1


def _config(style: Style, columns: int) -> dict[str, Any]:
    config = copy.deepcopy(theme.config("light"))
    config["background"] = "#ffffff"
    if style.font is not None:
        config["font"] = style.font
    config["axis"] |= {
        "titleFontSize": _TEXT,
        "labelFontSize": _TEXT,
        "labelColor": "#000000",
        "titleColor": "#000000",
        "titlePadding": 4,
        "labelPadding": 3,
        "tickSize": 3,
        "gridWidth": 0.5,
        "domainWidth": 0.5,
        "tickWidth": 0.5,
        "labelLimit": style.width * _NAMES,
    }
    config["legend"] |= {
        "labelFontSize": _TEXT,
        "titleFontSize": _TEXT,
        "labelColor": "#000000",
        "titleColor": "#000000",
        "symbolSize": 90 * _SCALE**2,
        "symbolStrokeWidth": 3 * _SCALE,
        "labelLimit": style.width - 2 * _SYMBOL,
        "rowPadding": 2,
        "columnPadding": 8,
        "offset": 6,
        "columns": columns,
    }
    config["text"] |= {"fontSize": _TEXT}
    return config


@dataclass
class _Request:
    style: Style
    written: list[Path] = field(default_factory=list)


_REQUEST: ContextVar[_Request | None] = ContextVar("figures", default=None)


@contextmanager
def requested(style: Style) -> Iterator[list[Path]]:
    """Write the figures of every page that is written meanwhile.

    Yields:
        The files, which get more as pages are written.
    """
    request = _Request(style)
    token = _REQUEST.set(request)
    try:
        yield request.written
    finally:
        _REQUEST.reset(token)


def write_requested(charts: Sequence[NamedChart], page: Path) -> None:
    """Write the figures of a page beside it, in a folder ``NAME-figures``, if they are requested.

    Raises:
        UnciaError: as `write`.
    """
    request = _REQUEST.get()
    if request is not None:
        folder = page.with_name(f"{page.stem}-figures")
        request.written.extend(write(charts, folder, request.style))
