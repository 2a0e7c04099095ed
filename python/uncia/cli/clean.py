"""``uncia clean``: removes what a crashed run left."""

from __future__ import annotations

import typer

from uncia.errors import UnciaError


def register(app: typer.Typer) -> None:
    """Add the command ``clean`` to ``app``."""

    @app.command()
    def clean(
        dry_run: bool = typer.Option(False, "--dry-run", help="Say what is left; remove nothing."),
    ) -> None:
        """Remove what crashed runs left: processes, functions, state; and close their tables.

        Also the control groups of platforms and CPU profiles that were killed. What still goes on
        is not touched. Exits 1 when something could not be removed.
        """
        from uncia.experiment import cleanup, probe_groups

        done = cleanup.clean(dry_run=dry_run, log=typer.echo)
        for run in done.living:
            typer.echo(f"{run} still goes on and was left alone")
        try:
            groups = probe_groups.clean(dry_run=dry_run, log=typer.echo)
        except UnciaError as error:
            # The runs were cleaned all the same, and the rest of the output says so.
            typer.echo(error.message)
            groups = None
        if not done.runs and groups is not None and not groups.found:
            typer.echo("Nothing is left of any crashed run.")
        elif dry_run:
            typer.echo("Nothing was removed: this was a dry run.")
        if groups is None or ((done.failed or groups.failed) and not dry_run):
            raise typer.Exit(1)
