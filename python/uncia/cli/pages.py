"""HTML pages that commands write in addition to what they print."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

import typer

from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.report.page import Section


class FigureForm(StrEnum):
    """File formats of figures."""

    pdf = "pdf"
    svg = "svg"
    png = "png"


Width: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--width",
        metavar="LENGTH",
        help="Width of the figures: 84mm, 8.4cm, 3.3in or 241pt. Default: 84mm, a paper's column.",
        show_default=False,
    ),
]
Font: TypeAlias = Annotated[
    str | None,
    typer.Option("--font", metavar="NAME", help="Font of the figures. Default: the page's."),
]
_FIGURES: Final[dict[str, Any]] = {
    "figures": Annotated[
        FigureForm | None,
        typer.Option(
            "--figures",
            help="Also write the page's charts as figures for a paper, beside it in NAME-figures.",
        ),
    ],
    "width": Width,
    "font": Font,
}


_PAGES: Final = ("html", "report")
"""Names of parameters that name a command's page."""


def with_figures(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--figures``, ``--width`` and ``--font`` to a command that writes a page."""

    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        figures: FigureForm | None = None,
        width: str | None = None,
        font: str | None = None,
        **rest: Any,
    ) -> None:
        if figures is None:
            if width is not None or font is not None:
                raise UnciaError(
                    "--width and --font are of figures", "Add --figures pdf, svg or png."
                )
            command(*arguments, **rest)
            return
        from uncia.report import figures as drawing

        style = drawing.style(figures.value, width, font)
        page = [name for name in _PAGES if name in rest]
        if page and rest[page[0]] is None:
            raise UnciaError(
                "figures are those of a page, and none is written",
                "Name it too: --html FILE.",
            )
        with drawing.requested(style) as written:
            command(*arguments, **rest)
        for path in written:
            typer.echo(path, err=True)

    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _FIGURES.items()
    ]
    vars(wrapped)["__signature__"] = inspect.Signature([*parameters, *more])
    wrapped.__annotations__ = {**hints, **_FIGURES}
    return wrapped


def write(
    path: Path,
    *,
    kicker: str,
    title: str,
    summary: str,
    sections: Sequence[Section],
    facts: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the page of an analysis, and print its path on standard error.

    Args:
        path: the file, named ``*.html``.
        kicker: the kind of page, printed above the title.
        title: the subject of the page.
        summary: a sentence or two.
        sections: charts and tables.
        facts: names and values at the top.

    Raises:
        UnciaError: the file has another name, or cannot be written.
    """
    from uncia.report import page

    if path.suffix != ".html":
        raise UnciaError(
            f"{path} is not named *.html, but a report is an HTML page", f"Name it {path}.html."
        )
    page.write(
        page.Page(title=title, kicker=kicker, facts=facts, sections=sections, summary=summary),
        path,
    )
    typer.echo(path, err=True)
