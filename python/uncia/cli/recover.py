"""``uncia recover``: finishes the tables that a crash left."""

from pathlib import Path

import typer

from uncia.errors import UnciaError
from uncia.text import plural


def register(app: typer.Typer) -> None:
    """Add the command ``recover`` to ``app``."""

    @app.command()
    def recover(
        run: Path = typer.Argument(help="The folder of the run, or one *.arrows file."),
    ) -> None:
        """Convert the *.arrows files that a crash left to Parquet, up to their last whole batch."""
        from uncia.record import recover_folder
        from uncia.runs.folder import check_over, read_run, recover

        if not run.exists():
            raise UnciaError(f"{run} does not exist")
        if run.is_dir():
            check_over(run)
            recovered = recover(run)
        else:
            recovered = recover_folder(run)
        if not recovered:
            typer.echo(f"{run}: nothing to recover")
        for name, rows in recovered.items():
            typer.echo(f"{name}: {plural(rows, 'row')}")
        if run.is_dir():
            try:
                read_run(run)
            except UnciaError as error:
                typer.echo(f"Warning: {error.message}; nothing says that it crashed.", err=True)
