"""``uncia simulate``: simulates a cluster that serves functions."""

from pathlib import Path
from typing import Any

import typer

from uncia.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command ``simulate`` to ``app``."""

    @app.command()
    def simulate(
        file: Path = typer.Argument(metavar="FILE", help="A simulation file (YAML)."),
        out: Path | None = typer.Option(
            None, metavar="FOLDER", help="Folder of the run. Default: results/ and the file's name."
        ),
        seed: int | None = typer.Option(
            None, min=0, max=2**64 - 1, help="Seed, instead of the file's."
        ),
        overwrite: bool = typer.Option(False, help="Replace an earlier run in the folder."),
        report: bool = typer.Option(True, help="Write report.html."),
        as_json: AsJson = False,
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    ) -> None:
        """Simulate a cluster that serves functions, under one or several billing models.

        The folder is that of a run: uncia report, bill, cost, compare and export take it. It also
        holds simulation.json (throughput, utilisation, completion times, revenue) and the tariffs
        with which all models earn the same per worker and time.
        """
        import json

        from uncia.experiment import progress, simulate, simulation
        from uncia.experiment.runner import RESULTS

        checked, _ = simulation.load(file)
        if seed is not None:
            checked = checked.model_copy(update={"seed": seed})
        folder = out or RESULTS / f"{checked.name}-{checked.seed}"
        reporter = progress.reporter(quiet=quiet)
        try:
            result = simulate.execute(
                checked, folder, reporter, overwrite=overwrite, with_report=report
            )
        finally:
            reporter.close()
        if as_json:
            typer.echo(json.dumps(result, indent=2))
        else:
            _show(result, folder)


def _show(result: dict[str, Any], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("model")
    for name in ("served", "per s", "CPU used", "CPU reserved", "preempted", "prices times"):
        table.add_column(name, justify="right")

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.1%}"

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4g}"

    for model, values in result.items():
        table.add_row(
            model,
            f"{values['served']:,}",
            number(values["throughput_per_s"]),
            percent(values["cpu_utilization"]),
            percent(values["cpu_reservation"]),
            f"{values['preempted']:,}",
            number(values["price_factor_at_equal_revenue"]),
        )
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(table)
    console.print(f"Run: {folder}", soft_wrap=True)
