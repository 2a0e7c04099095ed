"""``uncia cpu explain``: writes the chapter on CPU bandwidth control, with interactive charts."""

from __future__ import annotations

from pathlib import Path

import typer

from uncia.cli import pages
from uncia.errors import UnciaError


def register(app: typer.Typer) -> None:
    """Add the command ``explain`` to ``app``."""

    @app.command()
    @pages.with_figures
    def explain(
        html: Path = typer.Option(
            None, "--html", metavar="FILE", help="Write the chapter as an HTML page."
        ),
        markdown: Path = typer.Option(
            None, metavar="FILE", help="Write it as Markdown, with charts as images."
        ),
        images: Path = typer.Option(
            None,
            metavar="DIR",
            help="Folder of the images. Default: images, next to the Markdown file.",
        ),
    ) -> None:
        """Write a chapter that explains what a CPU quota does, from one tick to the bill.

        Its charts are interactive, and computed by Uncia's models when the chapter is written.
        """
        if html is None and markdown is None:
            raise UnciaError("no file to write was named", "Give --html FILE.")
        if html is not None and html.suffix != ".html":
            raise UnciaError(
                f"{html} is not named *.html, but the chapter is an HTML page",
                f"Name it {html}.html.",
            )
        if images is not None and markdown is None:
            raise UnciaError("--images is for --markdown", "Give --markdown FILE too.")
        from uncia.report.cpu import explain as chapter

        if html is not None:
            typer.echo(chapter.html(html))
        if markdown is not None:
            _markdown(markdown, images or markdown.parent / "images")


def _markdown(path: Path, images: Path) -> None:
    import os

    from uncia.report.cpu import explain as chapter

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        images.mkdir(parents=True, exist_ok=True)
        for name, content in chapter.pictures():
            (images / name).write_bytes(content)
        relative = os.path.relpath(images, path.parent)
        path.write_text(chapter.markdown(Path(relative).as_posix()), encoding="utf-8")
    except OSError as error:
        raise UnciaError(
            f"cannot write {error.filename}: {error.strerror or error}", exit_code=1
        ) from error
    typer.echo(path)
