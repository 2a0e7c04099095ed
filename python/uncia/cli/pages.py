"""HTML pages that commands write in addition to what they print."""

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
