"""Pages: single HTML files with text, tables, charts and the script that draws them.

`page.html` is the template. It escapes whatever comes from a run (names, error texts), and carries
a Content-Security-Policy that forbids every network request, so that pages work offline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import jinja2
from markupsafe import Markup

from uncia import __version__
from uncia.backends.atomic_write import atomic_path
from uncia.report import figures, runtime, theme
from uncia.report.table import Table

WRITTEN: Final = f"Written by uncia {__version__}"


@dataclass(frozen=True)
class Chart:
    """A chart: a Vega-Lite specification without data from elsewhere.

    Attributes:
        name: letters, digits and dashes; unique in the page, also the name of an exported file.
        spec: the specification.
        label: what it shows, for screen readers.
        title: shown above it.
    """

    kind: ClassVar = "chart"

    name: str
    spec: dict[str, Any]
    label: str
    title: str = ""


@dataclass(frozen=True)
class Row:
    """Charts side by side, where the screen is wide enough."""

    kind: ClassVar = "row"

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Note:
    """A paragraph, of text or of `Markup`; `mark` is "" or ``warning``."""

    kind: ClassVar = "note"

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
        kicker: the kind of page, in a few words above the heading.
        sections: its parts.
        summary: a sentence or two on what the page is about.
        verdict: one sentence, or none.
        good: whether the verdict is good news, for its colour.
        facts: label and value, below the heading.
        warnings: sentences in a box of their own.
        tiles: the numbers at the top.
        footer: the last paragraph.
        style: CSS in addition to that of all pages.
    """

    title: str
    kicker: str
    sections: Sequence[Section]
    summary: str = ""
    verdict: str = ""
    good: bool = True
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    footer: str = f"{WRITTEN}. This page loads nothing from anywhere."
    style: str = ""


def charts(page: Page) -> list[Chart]:
    """List every chart of the page, in order."""
    result: list[Chart] = []
    for section in page.sections:
        for block in section.blocks:
            if isinstance(block, Chart):
                result.append(block)
            elif isinstance(block, Row):
                result.extend(block.charts)
    return result


def html(page: Page) -> str:
    """Render the page as text.

    Raises:
        ValueError: two charts have the same name.
    """
    all_charts = charts(page)
    specs = {chart.name: chart.spec for chart in all_charts}
    if len(specs) != len(all_charts):
        names = sorted(chart.name for chart in all_charts)
        raise ValueError(f"two charts of a page have the same name: {names}")
    return _template().render(
        page=page,
        specs=specs,
        configs={ground: theme.config(ground) for ground in ("light", "dark")},
        runtime=Markup(runtime.script()) if specs else "",
        asset=_asset,
    )


def write(page: Page, path: Path) -> Path:
    """Write the page, and its figures if they are requested (`uncia.report.figures.requested`).

    A file gets its name only once it is complete.

    Raises:
        UnciaError: it cannot be written, or it has no chart and figures are requested.
    """
    with atomic_path(path, directory=False) as partial:
        partial.write_text(html(page), encoding="utf-8")
    figures.write_requested(charts(page), path)
    return path


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    # jinja2 sorts keys by default; the order of a specification is that of its legend.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(_asset("page.html"))


@cache
def _asset(name: str) -> Markup:
    """A file of this package as trusted markup."""
    return Markup(resources.files("uncia.report").joinpath(name).read_text(encoding="utf-8"))
