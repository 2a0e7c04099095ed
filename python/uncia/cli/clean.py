"""``uncia clean``: removes what a crashed run left."""

from __future__ import annotations

import typer

from uncia.errors import UnciaError


def register(app: typer.Typer) -> None:
    """Add the command ``clean`` to ``app``."""

    @app.command()
    def clean(
        dry_run: bool = typer.Option(
            False, "--dry-run", help="List the leftovers; remove nothing."
        ),
    ) -> None:
        """Remove what crashed runs left behind, and close their tables.

        That is processes, functions, state, the control groups of platforms and CPU profiles that
        were killed, and what killed monitors left in the file system resctrl. Runs that are still
        going on are left alone. Exits 1 when something could not be removed.
        """
        from uncia.experiment import cleanup, probe_groups

        cleaned = cleanup.clean(dry_run=dry_run, log=typer.echo)
        for run in cleaned.living:
            typer.echo(f"{run} still goes on and was left alone")
        try:
            groups = probe_groups.clean(dry_run=dry_run, log=typer.echo)
        except UnciaError as error:
            # The runs were cleaned nevertheless; go on to say so.
            typer.echo(error.message)
            groups = None
        if not cleaned.runs and groups is not None and not groups.folders:
            typer.echo("Nothing is left of any crashed run.")
        elif dry_run:
            typer.echo("Nothing was removed: this was a dry run.")
        if groups is None or ((cleaned.failed or groups.failed) and not dry_run):
            raise typer.Exit(1)
