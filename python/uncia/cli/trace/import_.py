"""``uncia trace import``: converts a trace to Uncia's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli import completion
from uncia.cli.options import AsJson
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
            ...,
            metavar="KIND",
            autocompletion=completion.traces,
            help="The kind of trace (uncia trace list); auto: recognized from the files.",
        ),
        paths: list[Path] | None = typer.Argument(
            None, metavar="PATH...", help="The trace's files, plain or .gz, or folders of them."
        ),
        out: Path = typer.Option(
            ...,
            "--out",
            metavar="DIR|FILE",
            help="The folder to write, or a *.parquet file for a single table.",
        ),
        strict: bool = typer.Option(
            False, "--strict", help="Stop at the first bad row, with file, line and column."
        ),
        keep_cut: bool = typer.Option(
            False,
            "--keep-cut",
            help="Import the rows of a truncated gzip file up to the cut (azure2019, azure2021,"
            " huawei2023, huawei2025).",
        ),
        max_memory: str | None = typer.Option(
            None,
            "--max-memory",
            metavar="SIZE|none",
            help="Reject rows with more allocated memory (huawei2025). Default: 10240MB.",
        ),
        sort: bool | None = typer.Option(
            None,
            "--sorted/--unsorted",
            help="Sort rows by start (huawei2025). Default: only if they are few.",
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
            help="Unit of function_delay, which the release does not state (huawei2023); without"
            " it, the column is not read.",
        ),
        as_json: AsJson = False,
    ) -> None:
        """Import a trace. Bad rows are counted by reason and copied to DIR/rejected.csv."""
        from uncia.traces import load

        if not paths:
            raise _without_kind(kind)
        imported = load(
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
            typer.echo(json.dumps(_json(imported), indent=2))
        else:
            _print(imported)


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
    """The upper bound of memory in bytes; None without the option."""
    from uncia.units import INT64_MAX, parse_size

    if text is None:
        return None
    if text == _NO_BOUND:
        return INT64_MAX
    return quantity("--max-memory", text, parse_size)


def _json(imported: Imported) -> dict[str, object]:
    rejected_file = imported.rejected_file
    return {
        "read": imported.read,
        "kept": imported.read - imported.skipped,
        "rows": imported.rows,
        "rejected": imported.rejected,
        "rejected_file": None if rejected_file is None else str(rejected_file),
        "noted": imported.noted,
        "tables": {table: str(path) for table, path in imported.tables.items()},
        "warnings": imported.warnings,
    }


def _print(imported: Imported) -> None:
    from uncia.text import plural

    for warning in imported.warnings:
        typer.echo(f"warning: {warning}", err=True)
    rows, rejected = imported.read, imported.skipped
    typer.echo(f"{plural(rows, 'row')} read: {rows - rejected:,} taken, {rejected:,} rejected")
    for verb, counts in (("rejected", imported.rejected), ("noted", imported.noted)):
        for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            typer.echo(f"  {verb} {count:,}: {text}")
    if imported.rejected_file is not None:
        typer.echo(f"{imported.rejected_file}: the rejected rows")
    for table, path in imported.tables.items():
        typer.echo(f"{path}: {plural(imported.rows[table], 'row')} of {table}")
