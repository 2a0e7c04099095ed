"""One HTML file that needs nothing else: text, tables, chart specifications, the Vega runtime once.

Whatever comes from a run (names, error texts) is escaped here and nowhere else. The page carries a
Content-Security-Policy that forbids every network request, so that it is offline by force.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeAlias

from uncia.errors import UnciaError
from uncia.report import runtime, theme

_LONG_TABLE: Final = 16
"""Tables with more rows than this are folded until asked for."""

_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline';"
    " img-src data: blob:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Cell:
    """A table cell: the text, a smaller note after it, and how it is marked.

    Attributes:
        text: what it says.
        note: said smaller after it, for instance a confidence interval.
        mark: "", or words of ``few`` (too few rows), ``high`` (above a limit), ``bad``, ``worse``,
            ``better``, ``wrap`` (long text).
    """

    text: str
    note: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """Numbers, and where they come from.

    Attributes:
        head: the column titles; one that begins with ``<`` is of text, set to the left.
        rows: cells, as many in each row as there are titles.
        trace: which rows and columns of which table the numbers were computed from.
        title: what is shown when the table is folded.
        stacked: notes stand under the texts, not beside them.
        fold: whether it is folded until asked for; by default if it is long.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    trace: str
    title: str = "Numbers"
    stacked: bool = False
    fold: bool | None = None


@dataclass(frozen=True)
class Chart:
    """A chart: a Vega-Lite specification without data from elsewhere.

    Attributes:
        name: letters, digits and dashes; unique in the page, also the name of an exported file.
        spec: the specification.
        label: what it shows, for those who cannot see it.
        title: set above it.
    """

    name: str
    spec: dict[str, Any]
    label: str
    title: str = ""


@dataclass(frozen=True)
class Row:
    """Charts side by side, where the screen is wide enough."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Note:
    """A paragraph; `mark` is "" or ``warning``."""

    text: str
    mark: str = ""


Block: TypeAlias = Table | Chart | Row | Note


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    name: str
    title: str
    blocks: Sequence[Block]
    intro: str = ""


@dataclass(frozen=True)
class Tile:
    """A single number at the top of the page."""

    label: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: heading and window title.
        kicker: a word above the heading that says what kind of page it is.
        verdict: one sentence, or none; `good` tells how it is marked.
        facts: label and value, below the heading.
        warnings: sentences in a box of their own.
        tiles: the numbers at the top.
        sections: the rest.
        summary: a sentence or two on what the page is about.
        footer: the last paragraph.
    """

    title: str
    kicker: str
    verdict: str
    good: bool
    facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    sections: Sequence[Section]
    tiles: Sequence[Tile] = field(default_factory=tuple)
    summary: str = ""
    footer: str = ""


def charts(page: Page) -> list[Chart]:
    """Every chart of the page, in order."""
    found: list[Chart] = []
    for section in page.sections:
        for block in section.blocks:
            if isinstance(block, Chart):
                found.append(block)
            elif isinstance(block, Row):
                found.extend(block.charts)
    return found


def html(page: Page) -> str:
    """The page as text."""
    all_charts = charts(page)
    names = [chart.name for chart in all_charts]
    if len(set(names)) != len(names):
        raise ValueError(f"two charts of a page have the same name: {sorted(names)}")
    sections = "\n".join(_section(section) for section in page.sections)
    links = "".join(
        f'<a href="#{escape(section.name)}">{escape(section.title)}</a>'
        for section in page.sections
    )
    specs = json.dumps({chart.name: chart.spec for chart in all_charts}, separators=(",", ":"))
    configs = json.dumps({ground: theme.config(ground) for ground in ("light", "dark")})
    scripts = ""
    if all_charts:
        scripts = (
            f'<script type="application/json" id="specs">{_inert(specs)}</script>\n'
            f'<script type="application/json" id="configs">{_inert(configs)}</script>\n'
            f'<script id="vega-runtime">{runtime.script()}</script>\n'
            f"<script>{_asset('page.js')}</script>\n"
        )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(page.title)} · Uncia</title>\n"
        f"<style>{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"{_header(page)}\n"
        f'<div class="body"><nav aria-label="Sections">{links}</nav>\n<main>\n'
        f"{_tiles(page.tiles)}{_warnings(page.warnings)}{sections}\n"
        f"<footer>{_paragraph(page.footer)}</footer></main></div>\n"
        '<noscript><p class="noscript">The charts need JavaScript; every number is in the tables.'
        "</p></noscript>\n"
        f"{scripts}</body>\n</html>\n"
    )


def write(page: Page, path: Path) -> Path:
    """Write the page; the file appears under its name only when it is complete.

    Raises:
        UnciaError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(html(page), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    return path


def _header(page: Page) -> str:
    facts = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"
        for label, value in page.facts
    )
    state = "good" if page.good else "bad"
    verdict = _paragraph(page.verdict, f"verdict {state}")
    return (
        '<header><div class="inner">'
        f'<p class="kicker">{_MARK}<span>{escape(page.kicker)}</span></p>'
        f"<h1>{escape(page.title)}</h1>{_paragraph(page.summary, 'summary')}"
        f'{verdict}<dl class="facts">{facts}</dl></div></header>'
    )


def _tiles(tiles: Sequence[Tile]) -> str:
    if not tiles:
        return ""
    inner = "".join(
        f'<div class="tile"><p class="label">{escape(tile.label)}</p>'
        f'<p class="value">{escape(tile.value)}'
        f'<span class="unit">{escape(tile.unit)}</span></p>'
        f'<p class="note">{escape(tile.note)}</p></div>'
        for tile in tiles
    )
    return f'<div class="tiles">{inner}</div>\n'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return (
        '<section class="warnings" id="warnings"><h2>Read this first</h2>'
        f"<ul>{items}</ul></section>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return (
        f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
        f"{_paragraph(section.intro, 'intro')}\n{blocks}\n</section>"
    )


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Chart():
            return _chart(block)
        case Row():
            return f'<div class="row">{"".join(_chart(chart) for chart in block.charts)}</div>'
        case Note():
            return _paragraph(block.text, f"note {block.mark}".strip())


def _chart(chart: Chart) -> str:
    title = f"<figcaption>{escape(chart.title)}</figcaption>" if chart.title else ""
    return (
        f'<figure>{title}<div class="chart" data-chart="{escape(chart.name)}" role="img"'
        f' aria-label="{escape(chart.label)}"></div></figure>'
    )


def _table(table: Table) -> str:
    kinds = ["text" if title.startswith("<") else "number" for title in table.head]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(title.removeprefix("<"))}</th>'
        for title, kind in zip(table.head, kinds, strict=True)
    )
    body = ""
    for row in table.rows:
        cells = []
        for position, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
            item = cell if isinstance(cell, Cell) else Cell(cell)
            note = f' <span class="ci">{escape(item.note)}</span>' if item.note else ""
            css = f"{kind} {item.mark}".strip()
            name = 'th scope="row"' if position == 0 else "td"
            end = name.split()[0]
            cells.append(f'<{name} class="{css}">{escape(item.text)}{note}</{end}>')
        body += f"<tr>{''.join(cells)}</tr>\n"
    trace = _paragraph(table.trace, "trace")
    css = ' class="stacked"' if table.stacked else ""
    inner = (
        f'<div class="scroll"><table{css}><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>{trace}"
    )
    fold = len(table.rows) > _LONG_TABLE if table.fold is None else table.fold
    if fold:
        title = f"{table.title} ({len(table.rows)} rows)"
        return f"<details><summary>{escape(title)}</summary>{inner}</details>"
    return f'<div class="numbers">{inner}</div>'


def _paragraph(text: str, css: str = "") -> str:
    if not text:
        return ""
    attribute = f' class="{css}"' if css else ""
    return f"<p{attribute}>{escape(text)}</p>"


def _inert(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _asset(name: str) -> str:
    return resources.files("uncia.report").joinpath(name).read_text(encoding="utf-8")


# A scale pan and its chain, the ounce to be weighed in it: drawn for this page.
_MARK: Final = (
    '<svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">'
    '<path d="M12 3v3M4 7h16M4 7l-2.5 7h5zM20 7l-2.5 7h5z" fill="none" stroke="currentColor"'
    ' stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round"/>'
    '<path d="M1.2 14a2.9 2.9 0 0 0 5.6 0zM17.2 14a2.9 2.9 0 0 0 5.6 0z" fill="currentColor"/>'
    '<path d="M12 7v13M8.5 20.5h7" fill="none" stroke="currentColor" stroke-width="1.6"'
    ' stroke-linecap="round"/></svg>'
)
