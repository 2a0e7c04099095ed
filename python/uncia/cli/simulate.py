"""``uncia simulate``: simulates a cluster that serves functions."""

from pathlib import Path
from typing import Any, Literal

import typer

from uncia import terminal
from uncia.cli.options import AsJson
from uncia.errors import UnciaError


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
        overwrite: bool = typer.Option(
            False, help="Replace an earlier run, or an earlier sweep, in the folder."
        ),
        report: bool | None = typer.Option(
            None,
            "--report/--no-report",
            help="Write report.html. Default: of a simulation, but not of the points of a sweep.",
        ),
        resume: bool = typer.Option(
            False, help="Of a sweep in the folder, keep the points that were simulated already."
        ),
        processes: int | None = typer.Option(
            None, min=1, help="Points of a sweep at the same time. Default: as many as CPUs."
        ),
        executor: Literal["processes", "spark"] = typer.Option(
            "processes",
            help="What simulates the points of a sweep: processes here, or on a Spark cluster,"
            " whose executors have the same Uncia, with the extra spark, and see the same folders.",
        ),
        master: str | None = typer.Option(
            None,
            metavar="ADDRESS",
            help="With --executor spark: the cluster, such as spark://host:7077. Default:"
            " local[*].",
            show_default=False,
        ),
        base: Path | None = typer.Option(
            None, metavar="FOLDER", help="Where paths in the file go out from. Default: its folder."
        ),
        as_json: AsJson = False,
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    ) -> None:
        """Simulate a cluster that serves functions, under one or several billing models.

        The folder is that of a run: uncia report, bill, cost, compare and export take it. It also
        holds simulation.json (throughput, utilisation, completion times, revenue) and the tariffs
        with which all models earn the same per worker and time. A file with a key sweep is
        simulated once for each point, in a folder of its own; exit code 1 if one failed.
        """
        import json

        from uncia import yamlio
        from uncia.experiment import progress, simulate, simulation, simulation_checks, sweep
        from uncia.experiment.runner import RESULTS

        document = yamlio.load(file)
        grid = None
        if isinstance(document.data, dict) and sweep.KEY in document.data:
            if seed is not None:
                document.data["seed"] = seed
            grid = sweep.points(document)
        elif resume or processes is not None:
            raise UnciaError(f"{file} has no sweep, which --resume and --processes are for")
        on_spark = executor == "spark"
        if (on_spark or master is not None) and grid is None:
            raise UnciaError(f"{file} has no sweep, which --executor and --master are for")
        if master is not None and not on_spark:
            raise UnciaError("--master: it is of --executor spark")
        if on_spark and processes is not None:
            raise UnciaError("--processes: on a cluster Spark says how many run at the same time")
        if resume and overwrite:
            raise UnciaError("--resume keeps what --overwrite deletes: give one of them")
        reporter = progress.reporter(quiet=quiet)
        try:
            if grid is not None:
                name = grid[0].data["name"]
                folder = out or RESULTS / f"{name}-sweep"
                rows = sweep.execute(
                    grid,
                    folder,
                    reporter,
                    base=base or file.parent,
                    processes=processes,
                    master=(master or "local[*]") if on_spark else None,
                    resume=resume,
                    overwrite=overwrite,
                    with_report=report is True,
                )
            else:
                checked, document = simulation.load(file, seed)
                simulation_checks.check(checked, document)
                folder = out or RESULTS / f"{checked.name}-{checked.seed}"
                result = simulate.execute(
                    checked,
                    folder,
                    reporter,
                    base=base or file.parent,
                    overwrite=overwrite,
                    with_report=report is not False,
                )
        finally:
            reporter.close()
        if as_json:
            typer.echo(json.dumps(result if grid is None else rows, indent=2, default=str))
        elif grid is None:
            _show(result, folder)
        else:
            _show_sweep(rows, folder)
        if grid is not None and any(row["error"] is not None for row in rows):
            raise typer.Exit(1)


def _show_sweep(rows: list[dict[str, Any]], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    names = list(rows[0]["values"])
    for name in (*names, "experiment"):
        table.add_column(name)
    for name in ("served", "per s", "CPU used"):
        table.add_column(name, justify="right")
    table.add_column("error")
    for row in rows:
        cells = [str(value) for value in row["values"].values()]
        if row["error"] is not None:
            table.add_row(*cells, "", "", "", "", row["error"].splitlines()[0])
            continue
        rate, used = row["throughput_in_window_per_s"], row["cpu_utilization"]
        table.add_row(
            *cells,
            row["experiment"],
            f"{row['served']:,}",
            "" if rate is None else f"{rate:.4g}",
            "" if used is None else f"{used:.1%}",
            "",
        )
    console = Console(markup=False, emoji=False, highlight=False)
    terminal.show(console, table, keys=len(names) + 1)
    console.print(f"Sweep: {folder}", soft_wrap=True)


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
            number(values["throughput_in_window_per_s"]),
            percent(values["cpu_utilization"]),
            percent(values["cpu_reservation"]),
            f"{values['preempted']:,}",
            number(values["price_factor_at_equal_revenue"]),
        )
    console = Console(markup=False, emoji=False, highlight=False)
    terminal.show(console, table)
    console.print(f"Run: {folder}", soft_wrap=True)
