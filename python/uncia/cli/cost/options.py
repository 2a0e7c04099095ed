"""Options that the cost analyses share, and how their tables are printed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import typer

from uncia import terminal
from uncia.cli import completion, pages
from uncia.cli.options import AsJson as AsJson
from uncia.cli.options import Html as Html
from uncia.text import plural

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from uncia.backends import Backend, Source
    from uncia.report.page import Section
    from uncia.tariffs import FitRule

_DECIMALS_BELOW: Final = 1000  # from here on, numbers are printed without decimals
_WIDTH: Final = 160  # columns, unless a terminal has another width

ALL: Final[list[str]] = []
"""Default of an option that may be repeated: nothing is left out."""

_FITS: Final = "allocated|used-peak|paper"
_BACKENDS: Final = "duckdb|spark"

Tables: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="Run or import folders, Parquet files or folders of them, *.arrows files, or addresses"
        " (s3://, gs://).",
    ),
]
InstanceTables: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="Folders of runs or imports with a table of instances, or such tables: Parquet files"
        " or folders of them, *.arrows files, or addresses (s3://, gs://).",
    ),
]
TariffIds: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--tariff",
        "-t",
        metavar="ID",
        autocompletion=completion.tariffs,
        help="A tariff's id (uncia tariffs list) or file; may be repeated. Default: all that bill"
        " by request.",
    ),
]
Fit: TypeAlias = Annotated[
    str,
    typer.Option(
        "--fit",
        metavar=_FITS,
        autocompletion=completion.words(_FITS),
        help="The size that each request is billed at: one that covers what was allocated, one that"
        " covers the most that its function used, or the choice of the cost paper's artifact.",
    ),
]
BackendName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar=_BACKENDS,
        autocompletion=completion.words(_BACKENDS),
        help="The database that computes the result.",
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master: local[*], spark://host:port."),
]
MemoryLimit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Memory that the backend may use, such as 4GB; beyond it, it uses the disk.",
    ),
]


class Time(StrEnum):
    """The time that a bound applies to."""

    execution = "execution"
    turnaround = "turnaround"


P95: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--p95", metavar="DURATION", help="Upper bound of the 95th percentile, such as 200ms."
    ),
]
BoundedTime: TypeAlias = Annotated[
    Time,
    typer.Option(
        "--of",
        help="The time that --p95 bounds: execution alone, or turnaround, which includes starts.",
    ),
]
Functions: TypeAlias = Annotated[
    list[str],
    typer.Option("--function", metavar="NAME", help="A function; may be repeated. Default: all."),
]
PresentTariff: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--present",
        metavar="ID",
        autocompletion=completion.tariffs,
        help="The tariff in use now, by id or file. Default: that of the platform that the rows ran"
        " on.",
    ),
]
Confidence: TypeAlias = Annotated[
    float, typer.Option("--confidence", help="Confidence that a claim needs, from 0.5 to below 1.")
]


class By(StrEnum):
    """Columns by which rows can be analysed separately."""

    experiment = "experiment"
    platform = "platform"
    function = "function"


def fit_rule(name: str) -> FitRule:
    """Check the name of a fit.

    Raises:
        UnciaError: there is no such fit.
    """
    from uncia.tariffs.compare import check

    check(name)
    return cast("FitRule", name)


def results(table: Sequence[str], backend: Backend, groups: Sequence[str] = ()) -> Source:
    """Return the rows of a table without its warm-ups, as `uncia bill` takes them.

    Notes on standard error say how many are left out, and how many are there more than once.

    Args:
        table: paths.
        backend: where the rows are.
        groups: columns that rows are analysed by; warm-ups stay if experiments are apart.
    """
    from uncia.costs.billed_rows import select_rows

    selected = select_rows(list(table), None, groups, backend)
    for note in (*selected.notes, *selected.warnings):
        typer.echo(f"note: {note}", err=True)
    return selected.rows


def unique(names: Iterable[str]) -> list[str]:
    """Drop repeated names of a repeatable option, in order."""
    return list(dict.fromkeys(str(name) for name in names))


def reasons(counts: Mapping[str, int]) -> str:
    """Write how many rows are left out for each reason: ``3 rows (throttled), 1 row (...)``."""
    return ", ".join(f"{plural(count, 'row')} ({reason})" for reason, count in counts.items())


def unpriced_notes(unpriced: Iterable[tuple[str, Mapping[str, int]]]) -> list[str]:
    """Write a sentence for all tariffs that leave out the same rows.

    Args:
        unpriced: tariffs, and how many rows each leaves out for which reason.
    """
    tariffs: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for tariff, counts in unpriced:
        if counts:
            tariffs.setdefault(tuple(counts.items()), []).append(tariff)
    return [
        f"Not in the bill of {', '.join(names)}: {reasons(dict(counts))}."
        for counts, names in tariffs.items()
    ]


def plain(value: Any) -> Any:
    """Convert a cell of a DataFrame to JSON: exact amounts as text, null where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, Decimal):
        return exact(value)
    if isinstance(value, Fraction):
        return float(value)
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def exact(value: Decimal) -> str:
    """Write an amount as plain digits, without trailing zeros."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def emit(
    frame: pd.DataFrame,
    *,
    as_json: bool,
    columns: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    keys: int = 1,
) -> None:
    """Print an analysis as JSON (a list of objects with every column), or as a table.

    Args:
        frame: the rows.
        as_json: whether to print JSON.
        columns: the columns of the table and their headings; by default all, by name.
        notes: sentences below the table; with JSON they go to standard error.
        keys: how many of the table's columns say what a row is of.
    """
    if as_json:
        names = [str(name) for name in frame.columns]
        rows = [
            {name: plain(value) for name, value in zip(names, row, strict=True)}
            for row in frame.itertuples(index=False, name=None)
        ]
        typer.echo(json.dumps(rows, indent=2, allow_nan=False))
        for note in notes:
            typer.echo(f"note: {note}", err=True)
        return
    from rich.table import Table

    console = plain_console(_WIDTH)
    headings = dict(columns) if columns is not None else {str(name): str(name) for name in frame}
    table = Table(box=None, pad_edge=False)
    for name, heading in headings.items():
        numeric = all(_is_number(value) for value in frame[name])
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for _, row in frame.iterrows():
        table.add_row(*(_text(row[name]) for name in headings))
    terminal.show(console, table, keys)
    for note in notes:
        console.print(note, style="yellow")


def plain_console(width: int) -> Console:
    """Make a console that prints text as it is, without markup: names may contain brackets.

    Args:
        width: columns, unless a terminal has another width.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=width)
    return console


def write_report(
    path: Path, title: str, summary: str, sections: Sequence[Section], tables: Sequence[str]
) -> None:
    """Write the page of an analysis.

    Raises:
        UnciaError: it cannot be written.
    """
    pages.write(
        path,
        kicker="Uncia cost analysis",
        title=f"{title}: {', '.join(map(_short_name, tables))}" if tables else title,
        summary=summary,
        sections=sections,
        facts=[("Tables", ", ".join(tables))] if tables else [],
    )


def _short_name(table: str) -> str:
    """The last part of a table's path or address, as it was typed."""
    return table.rstrip("/").rpartition("/")[2] or table


def _is_number(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, (int, float, Decimal, Fraction))
        or hasattr(value, "item")
    )


def _text(value: Any) -> str:
    value = plain(value) if not isinstance(value, (Decimal, Fraction)) else value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if isinstance(value, (float, Decimal, Fraction)):
        number = float(value)
        return f"{number:,.4g}" if abs(number) < _DECIMALS_BELOW else f"{number:,.0f}"
    return str(value)
