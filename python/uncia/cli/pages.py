"""Pages that commands write beside what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.report.page import Section


def write(
    path: Path,
    *,
    kicker: str,
    title: str,
    summary: str,
    sections: Sequence[Section],
    facts: Sequence[tuple[str, str]] = (),
) -> None:
    """Write a page of an analysis, and say where it is.

    Args:
        path: the file, named ``*.html``.
        kicker: what kind of page it is, above the title.
        title: what it is about.
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
        page.Page(
            title=title,
            kicker=kicker,
            facts=facts,
            sections=sections,
            summary=summary,
        ),
        path,
    )
    typer.echo(f"{path}", err=True)
