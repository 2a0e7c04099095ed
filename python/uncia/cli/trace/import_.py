"""``uncia trace import``: a trace becomes Uncia's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli.quantities import quantity
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.traces import Imported

_NO_BOUND = "none"


def register(trace: typer.Typer) -> None:
    """Add the command to ``trace``."""

    @trace.command("import")
    def import_(
        kind: str = typer.Argument(
            ..., metavar="KIND", help="Which trace (uncia trace list); auto tells from the files."
        ),
        paths: list[Path] | None = typer.Argument(
            None, metavar="PATH...", help="The trace's files, plain or .gz, or folders of them."
        ),
        out: Path = typer.Option(
            ..., "--out", metavar="DIR|FILE", help="A folder, or a *.parquet file for one table."
        ),
        strict: bool = typer.Option(
            False, "--strict", help="End at the first bad row, with file, line and column."
        ),
        keep_cut: bool = typer.Option(
            False,
            "--keep-cut",
            help="Of a gzip file that is cut off, take the rows before the cut.",
        ),
        max_memory: str | None = typer.Option(
            None,
            "--max-memory",
            metavar="SIZE|none",
            help="Reject rows with more memory allocated (huawei2025; by default 10240MB).",
        ),
        sort: bool | None = typer.Option(
            None,
            "--sorted/--unsorted",
            help="Whether rows are sorted by start (huawei2025; by default if they are few).",
        ),
        partition_by: str | None = typer.Option(
            None,
            "--partition-by",
            metavar="platform|none",
            help="Write a folder of Parquet files for each platform (huawei2025).",
        ),
        delay_unit: str | None = typer.Option(
            None,
            "--delay-unit",
            metavar="s|ms",
            help="Read function_delay, whose unit the release does not say (huawei2023).",
        ),
        as_json: bool = typer.Option(False, "--json", help="Print what was written as JSON."),
    ) -> None:
        """Import a trace. Bad rows are counted by reason and kept in DIR/rejected.csv."""
        from uncia.traces import load

        if not paths:
            raise _without_kind(kind)
        done = load(
            paths,
            out,
            trace=kind,
            strict=strict,
            keep_cut=keep_cut or None,
            max_memory=_bound(max_memory),
            sort=sort,
            partition_by=partition_by,
            delay_unit=delay_unit,
        )
        if as_json:
            typer.echo(json.dumps(_json(done), indent=2))
        else:
            _tell(done)


def _without_kind(kind: str) -> UnciaError:
    if Path(kind).exists():
        return UnciaError(
            f"{kind} is a path, but the kind of the trace comes first",
            hint=f"uncia trace import auto {kind} --out DIR",
        )
    return UnciaError(
        "no file of a trace was named", hint="uncia trace import KIND PATH... --out DIR"
    )


def _bound(text: str | None) -> int | None:
    """The most memory in bytes; None if nothing was said."""
    from uncia.units import INT64_MAX, parse_size

    if text is None:
        return None
    if text == _NO_BOUND:
        return INT64_MAX
    return quantity("--max-memory", text, parse_size)


def _json(done: Imported) -> dict[str, object]:
    return {
        "read": done.read,
        "kept": done.read - done.skipped,
        "rows": done.rows,
        "rejected": done.rejected,
        "rejected_file": None if done.rejected_file is None else str(done.rejected_file),
        "noted": done.noted,
        "tables": {table: str(path) for table, path in done.tables.items()},
        "warnings": done.warnings,
    }


def _tell(done: Imported) -> None:
    from uncia.traces.base import plural

    for warning in done.warnings:
        typer.echo(f"warning: {warning}", err=True)
    kept = done.read - done.skipped
    typer.echo(f"{plural(done.read, 'row')} read: {kept:,} taken, {done.skipped:,} rejected")
    for reason, count in sorted(done.rejected.items(), key=lambda one: (-one[1], one[0])):
        typer.echo(f"  rejected {count:,}: {reason}")
    for text, count in sorted(done.noted.items(), key=lambda one: (-one[1], one[0])):
        typer.echo(f"  noted {count:,}: {text}")
    if done.rejected_file is not None:
        typer.echo(f"{done.rejected_file}: the rejected rows")
    for table, path in done.tables.items():
        typer.echo(f"{path}: {plural(done.rows[table], 'row')} of {table}")
