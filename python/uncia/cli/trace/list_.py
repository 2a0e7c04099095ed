"""``uncia trace list``: the traces that can be imported."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command ``list`` to ``app``."""

    @app.command("list")
    def list_() -> None:
        """List the traces that can be imported, with license and source."""
        from uncia.traces import known

        for trace in known().values():
            typer.echo(f"{trace.NAME} ({' and '.join(trace.TABLES)})\n  {trace.DESCRIPTION}\n")
