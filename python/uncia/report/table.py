"""Tables as data: columns, which say what they show of a row, and rows of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from uncia.report.numbers import figure, text

if TYPE_CHECKING:
    import pandas as pd

Format: TypeAlias = Callable[[Any], str]
"""Writes a value as a reader wants it; None as `uncia.report.numbers.ABSENT`."""

_FOLD_ABOVE: Final = 16
"""Tables with more rows than this are folded until the reader opens them."""


@dataclass(frozen=True)
class Cell:
    """A cell as it is shown.

    Attributes:
        text: the value as shown.
        note: shown smaller after the text, for instance a confidence interval.
        mark: "", or any of ``few`` (too few rows), ``high`` (above a limit), ``bad``, ``worse``,
            ``better``, ``wrap`` (long text).
        value: the value in CSV; None: the text.
        parts: the values of the columns that replace this one in CSV; empty: this one stays.
    """

    text: str
    note: str = ""
    mark: str = ""
    value: str | None = None
    parts: Sequence[str] = ()

    @property
    def csv(self) -> str:
        """The cell in CSV."""
        return self.text if self.value is None else self.value


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, without the unit.
        value: what it shows of a row: a key, an index or an attribute, or a function of the row.
        format: how a value is written; columns of `uncia.report.numbers.text` are set to the left.
        unit: in the heading, after the name.
        explanation: a sentence, shown while the pointer rests on the heading.
        note: text shown smaller after the value, as a function of the row.
        mark: of each cell, or a function of the row; see `Cell`.
        parts: columns that replace this one in CSV, where a cell shows several numbers.
        align: ``text`` (left) or ``number`` (right); by default as the format says.
    """

    name: str
    value: str | int | Callable[[Any], Any]
    format: Format = text
    unit: str = ""
    explanation: str = ""
    note: Callable[[Any], str] | None = None
    mark: str | Callable[[Any], str] = ""
    parts: Sequence[Column] = ()
    align: str = ""

    @property
    def heading(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def kind(self) -> str:
        """``text`` or ``number``, for the alignment."""
        return self.align or ("text" if self.format is text else "number")

    def cell(self, row: Any) -> Cell:
        """Make the cell of a row."""
        value = self.value(row) if callable(self.value) else _get(row, self.value)
        value = None if _is_nan(value) else value
        shown = self._format(row)(value)
        mark = self.mark(row) if callable(self.mark) else self.mark
        note = self.note(row) if self.note else ""
        parts = [part.cell(row).csv for part in self.parts]
        return Cell(shown, note, mark, _exact(value, shown), parts)

    def _format(self, row: Any) -> Format:
        del row
        return self.format


@dataclass(frozen=True)
class Fact:
    """A row of a table in which each row is another quantity, with its own format and unit."""

    name: str
    value: Any
    format: Format = text
    unit: str = ""
    source: str = ""


class _FactValue(Column):
    def _format(self, row: Fact) -> Format:
        return row.format


def fact_columns(name: str, source: str = "") -> list[Column]:
    """Make the columns of a table of `Fact` rows.

    Args:
        name: heading of the facts' names.
        source: heading of where they come from; "": no such column.
    """
    columns = [
        Column(name, "name"),
        _FactValue("value", "value", align="number"),
        Column("unit", "unit"),
    ]
    return [*columns, Column(source, "source")] if source else columns


def time_column(key: str, statistic: str, heading: str, explanation: str) -> Column:
    """Make the column of a statistic of a summary's times, in ms.

    Args:
        key: of the summary, whose value has the statistics by name, such as ``latency_ms``.
        statistic: such as ``p99``.
        heading: the column's name.
        explanation: from when to when the times are.
    """
    return Column(heading, lambda row: row[key][statistic], figure, "ms", explanation)


@dataclass(frozen=True)
class Table:
    """Numbers, and where they come from.

    Attributes:
        columns: from left to right.
        rows: what the columns read.
        trace: which rows and columns of which table the numbers were computed from.
        title: shown when the table is folded.
        stacked: whether notes stand under the texts instead of after them.
        fold: whether it is folded until the reader opens it; by default if it is long.
    """

    kind: ClassVar = "table"

    columns: Sequence[Column]
    rows: Sequence[Any]
    trace: str
    title: str = "Numbers"
    stacked: bool = False
    fold: bool | None = None

    @property
    def folded(self) -> bool:
        """Whether only the title is shown at first."""
        return len(self.rows) > _FOLD_ABOVE if self.fold is None else self.fold

    @property
    def cells(self) -> list[list[Cell]]:
        """The cells, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dicts; with pandas' own methods, None among texts would become NaN."""
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def _get(row: Any, key: str | int) -> Any:
    if isinstance(key, int) or isinstance(row, Mapping):
        return row[key]
    return getattr(row, key)


def _is_nan(value: Any) -> bool:
    """Whether a number is NaN, which stands for no value in frames of pandas."""
    return isinstance(value, float | np.floating | Decimal) and math.isnan(value)


def _exact(value: Any, shown: str) -> str | None:
    """A number with all its digits; None if the text shown has them all."""
    match value:
        case None:
            exact = ""
        case bool():
            return None
        case int() | np.integer():
            exact = str(int(value))
        case Decimal():
            exact = f"{value:f}"
        case float() | np.floating() | Fraction():
            exact = repr(float(value))
        case _:
            return None
    return None if exact == shown else exact
