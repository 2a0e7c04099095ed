"""``uncia suite dashboard``: the trends of a history as static pages."""

from __future__ import annotations

from pathlib import Path

import typer

from uncia.cli import completion, pages


def register(app: typer.Typer) -> None:
    """Add the command ``dashboard`` to ``app``."""

    @app.command()
    @pages.with_figures
    def dashboard(
        history: Path = typer.Argument(metavar="DIR", help="The folder of a history."),
        out: Path = typer.Option(..., "--out", metavar="SITE", help="The folder of the pages."),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="Costs under this tariff; may be repeated. Default: aws-lambda-x86.",
            show_default=False,
        ),
    ) -> None:
        """Draw the trends of a history: p50, p99, TMR, cold share and cost of each entry.

        A page that needs no network; its points lead to the reports in the history. The index of
        the history is derived anew from its folders.
        """
        from uncia.suites import catalogue
        from uncia.suites.history import dashboard as boards
        from uncia.suites.history import folders, repeat
        from uncia.tariffs.catalogue import resolve

        tariffs = tariff or [repeat.TARIFF]
        resolve(tariffs)
        suite = catalogue.find(folders.suite_of(history))
        judged = repeat.look(history, tariffs)
        for item in judged:
            if item.time.status == "foreign":
                typer.echo(f"Left out: {item.time.name}: {item.time.reason}", err=True)
        typer.echo(f"Dashboard: {boards.write(suite, history, judged, out)}")
