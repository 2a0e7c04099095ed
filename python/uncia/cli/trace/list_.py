"""``uncia trace list``: the traces that can be imported."""

import typer


def register(trace: typer.Typer) -> None:
    """Add the command to ``trace``."""

    @trace.command("list")
    def list_() -> None:
        """List the traces that can be imported, with license and source."""
        from uncia.traces import known

        for one in known().values():
            typer.echo(f"{one.NAME} ({' and '.join(one.TABLES)})\n  {one.DESCRIPTION}\n")
