"""``uncia trace``: traces of providers become Uncia's tables."""

import json
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add the commands ``trace import`` and ``trace list`` to ``app``."""
    trace = typer.Typer(
        help="Turn traces of providers into tables.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.add_typer(trace, name="trace")

    @trace.command("import")
    def import_(
        paths: list[Path] = typer.Argument(
            metavar="PATH...", help="The trace's files, plain or .gz, or folders of them."
        ),
        out: Path = typer.Option(
            ..., "--out", metavar="DIR|FILE", help="A folder, or a *.parquet file for one table."
        ),
        format: str | None = typer.Option(
            None, "--format", metavar="NAME", help="Which trace; by default told from the headers."
        ),
        skip_bad_rows: bool = typer.Option(
            False, "--skip-bad-rows", help="Leave bad rows out and count them."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print what was written as JSON."),
    ) -> None:
        """Import a trace; a bad row ends it with its file, line and column, and writes nothing."""
        from uncia.traces import load
        from uncia.traces.base import plural

        done = load(paths, out, trace=format, strict=not skip_bad_rows)
        if as_json:
            typer.echo(
                json.dumps(
                    {
                        "rows": done.rows,
                        "tables": {table: str(path) for table, path in done.tables.items()},
                        "skipped": done.skipped,
                        "warnings": done.warnings,
                    },
                    indent=2,
                )
            )
            return
        for warning in done.warnings:
            typer.echo(f"warning: {warning}", err=True)
        for table, path in done.tables.items():
            typer.echo(f"{path}: {plural(done.rows[table], 'row')} of {table}")

    @trace.command("list")
    def list_() -> None:
        """List the traces that can be imported, with license and source."""
        from uncia.traces import known

        for trace in known().values():
            typer.echo(f"{trace.NAME} ({' and '.join(trace.TABLES)})\n  {trace.DESCRIPTION}\n")
