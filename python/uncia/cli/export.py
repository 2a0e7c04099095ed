"""``uncia export``: a run's tables and charts in other forms."""

from enum import StrEnum
from pathlib import Path

import typer

from uncia.cli import pages
from uncia.errors import UnciaError


class ChartForm(StrEnum):
    """File formats of a chart."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


def register(app: typer.Typer) -> None:
    """Add the command ``export`` to ``app``."""

    @app.command()
    def export(
        run: Path = typer.Argument(metavar="RUN", help="The folder of a run, or a file of rows."),
        csv: bool = typer.Option(False, "--csv", help="Write every table as CSV, with a header."),
        charts: ChartForm | None = typer.Option(
            None, "--charts", help="Write every chart of the report as a file in this format."
        ),
        figures: pages.FigureForm | None = typer.Option(
            None, "--figures", help="Write every chart of the report as a figure for a paper."
        ),
        width: pages.Width = None,
        font: pages.Font = None,
        out: Path | None = typer.Option(
            None,
            "--out",
            metavar="DIR",
            help="The folder to write to. Default: csv/, charts/ or figures/ in the run, NAME-csv/"
            " and so on beside a file.",
        ),
    ) -> None:
        """Write a run's tables as CSV, or its charts as SVG, PNG or PDF."""
        if not csv and charts is None and figures is None:
            raise UnciaError(
                "nothing to export was named",
                hint="Add --csv, or --charts or --figures with svg, png or pdf.",
            )
        if figures is None and (width is not None or font is not None):
            raise UnciaError("--width and --font are of figures", "Add --figures pdf, svg or png.")
        from uncia.report import export as exports

        if csv:
            empty = []
            for path, rows in exports.tables(run, out or _default_folder(run, "csv")):
                typer.echo(str(path))
                if not rows:
                    empty.append(path.stem)
            if empty:
                typer.echo(f"Without rows, a header alone: {', '.join(empty)}", err=True)
        if charts is not None:
            for path in exports.charts(run, out or _default_folder(run, "charts"), charts.value):
                typer.echo(str(path))
        if figures is not None:
            from uncia.report import data, page
            from uncia.report import run as report
            from uncia.report.figures import style, write

            chosen = style(figures.value, width, font)
            drawn = page.charts(report.page(data.load(run)))
            for path in write(drawn, out or _default_folder(run, "figures"), chosen):
                typer.echo(str(path))


def _default_folder(run: Path, name: str) -> Path:
    """The folder for exports of a run, or of a file of rows."""
    return run.with_name(f"{run.stem}-{name}") if run.is_file() else run / name
