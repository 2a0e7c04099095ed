"""``uncia report``: renders the report of a run again."""

from pathlib import Path

import typer

from uncia.cli import pages


def register(app: typer.Typer) -> None:
    """Add the command ``report`` to ``app``."""

    @app.command()
    @pages.with_figures
    def report(
        run: Path = typer.Argument(metavar="RUN", help="The folder of a run, or a file of rows."),
        show: bool = typer.Option(False, "--open", help="Open it in the browser."),
    ) -> None:
        """Write the report of a run: one HTML file that works offline."""
        from uncia import report as reports

        path = reports.render(run)
        typer.echo(str(path))
        if show and typer.launch(path.resolve().as_uri()) != 0:
            typer.echo("No browser could be started; open the file by hand.", err=True)
