"""Options that the analyses share, and how their tables are printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import typer

from uncia.cli import pages

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from uncia.report.page import Section
    from uncia.tariffs import FitRule

_MOST_DIGITS: Final = 1000  # from here on a number has no decimals
_WIDE: Final = 160  # columns, where no terminal says how wide it is

Tables: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="Run or import folders, Parquet files or folders of them, *.arrows files, or addresses"
        " (s3://, gs://).",
    ),
]
TariffIds: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--tariff",
        "-t",
        metavar="ID",
        help="A tariff's id (uncia tariffs list) or file; again for more. Default: all that bill by"
        " request.",
    ),
]
Fit: TypeAlias = Annotated[
    str,
    typer.Option(
        "--fit",
        metavar="allocated|used-peak|paper",
        help="How an observed request is fitted to a tariff's sizes: by what was allocated, by the"
        " most that its function used, or as the published analysis did.",
    ),
]
EngineName: TypeAlias = Annotated[
    str, typer.Option("--engine", metavar="duckdb|spark", help="What computes.")
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master: local[*], spark://host:port."),
]
MemoryLimit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="What the engine may hold in memory, such as 4GB."
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, amounts as exact text.")
]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Also write a page with table and chart."),
]


class By(StrEnum):
    """What rows are told apart by."""

    experiment = "experiment"
    platform = "platform"
    function = "function"


def fit_rule(name: str) -> FitRule:
    """The fit of that name.

    Raises:
        UnciaError: there is none.
    """
    from uncia.tariffs.compare import check

    check(name)
    return cast("FitRule", name)


def one_or_many(paths: Sequence[str]) -> str | list[str]:
    """The tables as a source."""
    return paths[0] if len(paths) == 1 else list(paths)


def plain(value: Any) -> Any:
    """A cell of a DataFrame as JSON: exact amounts as text, null where there is nothing."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, Decimal):
        return exact(value)
    if isinstance(value, Fraction):
        return float(value)
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def exact(value: Decimal) -> str:
    """An amount as plain digits, without zeros at its end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def emit(
    frame: pd.DataFrame,
    *,
    as_json: bool,
    columns: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print an analysis: JSON (a list of objects, every column), or a table.

    Args:
        frame: one row a line; columns as the analysis says.
        as_json: which of the two.
        columns: the columns of the table and their headings; by default all, by name.
        notes: sentences below the table; with JSON they go to standard error.
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

    console = plain_console(_WIDE)
    shown = dict(columns) if columns is not None else {str(name): str(name) for name in frame}
    table = Table(box=None, pad_edge=False)
    for name, heading in shown.items():
        numeric = all(_is_number(value) for value in frame[name])
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for _, row in frame.iterrows():
        table.add_row(*(_text(row[name]) for name in shown))
    console.print(table)
    for note in notes:
        console.print(note, style="yellow")


def plain_console(width: int) -> Console:
    """A console that shows every text as it is: names may hold brackets and colons.

    Args:
        width: columns, where no terminal says how wide it is.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=width)
    return console


def write_report(
    path: Path | None, title: str, summary: str, sections: Sequence[Section], tables: Sequence[str]
) -> None:
    """Write the page of an analysis, if one was asked for.

    Raises:
        UnciaError: it cannot be written.
    """
    if path is None:
        return
    pages.write(
        path,
        kicker="Uncia cost analysis",
        title=title,
        summary=summary,
        sections=sections,
        facts=[("Tables", ", ".join(tables))] if tables else [],
    )


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
        return ", ".join(_text(one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(one)}" for name, one in value.items())
    if isinstance(value, (float, Decimal, Fraction)):
        number = float(value)
        return f"{number:,.4g}" if abs(number) < _MOST_DIGITS else f"{number:,.0f}"
    return str(value)
