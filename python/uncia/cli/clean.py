"""``uncia clean``: removes what a crashed run left."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command ``clean`` to ``app``."""

    @app.command()
    def clean(
        dry_run: bool = typer.Option(False, "--dry-run", help="Say what is left; remove nothing."),
    ) -> None:
        """Remove what crashed runs left: processes, functions, state; and close their tables.

        Runs that still go on are not touched. Exits 1 when something could not be removed.
        """
        from uncia.experiment import cleanup

        done = cleanup.clean(dry_run=dry_run, log=typer.echo)
        for run in done.living:
            typer.echo(f"{run} still goes on and was left alone")
        if not done.runs:
            typer.echo("Nothing is left of any crashed run.")
        elif dry_run:
            typer.echo("Nothing was removed: this was a dry run.")
        if done.failed and not dry_run:
            raise typer.Exit(1)
