"""One HTML file that needs nothing else: text, tables, charts, and once the script that draws them.

`page.html` is the template. It escapes whatever comes from a run (names, error texts), and carries
a Content-Security-Policy that forbids every network request, so that the page is offline by force.
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
from uncia.report import runtime, theme
from uncia.report.table import Table

WRITTEN: Final = f"Written by uncia {__version__}"


@dataclass(frozen=True)
class Chart:
    """A chart: a Vega-Lite specification without data from elsewhere.

    Attributes:
        name: letters, digits and dashes; unique in the page, also the name of an exported file.
        spec: the specification.
        label: what it shows, for those who cannot see it.
        title: set above it.
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
        kicker: a word above the heading that says what kind of page it is.
        sections: its parts.
        summary: a sentence or two on what the page is about.
        verdict: one sentence, or none; `good` tells how it is marked.
        facts: label and value, below the heading.
        warnings: sentences in a box of their own.
        tiles: the numbers at the top.
        footer: the last paragraph.
        style: CSS beyond that of all pages.
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
    """The page as text.

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
    """Write the page; the file appears under its name only when it is complete.

    Raises:
        UnciaError: it cannot be written.
    """
    with atomic_path(path, directory=False) as partial:
        partial.write_text(html(page), encoding="utf-8")
    return path


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    # In the order of the specification, which is that of the legend.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(_asset("page.html"))


@cache
def _asset(name: str) -> Markup:
    """A file of this package, to stand in the page as it is."""
    return Markup(resources.files("uncia.report").joinpath(name).read_text(encoding="utf-8"))
