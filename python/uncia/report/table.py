"""Tables as data: columns that say what they show of a row, and rows of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from uncia.report.numbers import text

if TYPE_CHECKING:
    import pandas as pd

Format: TypeAlias = Callable[[Any], str]
"""Writes a value as a reader wants it; None as `uncia.report.numbers.ABSENT`."""

_LONG: Final = 16
"""Tables with more rows than this are folded until asked for."""


@dataclass(frozen=True)
class Cell:
    """A cell as it is shown.

    Attributes:
        text: what it says.
        note: said smaller after it, for instance a confidence interval.
        mark: "", or words of ``few`` (too few rows), ``high`` (above a limit), ``bad``, ``worse``,
            ``better``, ``wrap`` (long text).
        value: what stands for it in CSV; None: the text.
    """

    text: str
    note: str = ""
    mark: str = ""
    value: str | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, without the unit.
        value: what it shows of a row: a key, an index or an attribute, or a function of the row.
        format: how a value is written; columns of `uncia.report.numbers.text` are set to the left.
        unit: in the heading, after the name.
        explanation: shown while the pointer rests on the heading.
        note: said smaller after the value, of a row.
        mark: of each cell, or a function of the row; see `Cell`.
    """

    name: str
    value: str | int | Callable[[Any], Any]
    format: Format = text
    unit: str = ""
    explanation: str = ""
    note: Callable[[Any], str] | None = None
    mark: str | Callable[[Any], str] = ""

    @property
    def heading(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def kind(self) -> str:
        """``text`` or ``number``, for the alignment."""
        return "text" if self.format is text else "number"

    def cell(self, row: Any) -> Cell:
        """The cell of a row."""
        value = self.value(row) if callable(self.value) else _part(row, self.value)
        shown = self.format(value)
        mark = self.mark(row) if callable(self.mark) else self.mark
        return Cell(shown, self.note(row) if self.note else "", mark, _exact(value, shown))


@dataclass(frozen=True)
class Table:
    """Numbers, and where they come from.

    Attributes:
        columns: from left to right.
        rows: what the columns read.
        trace: which rows and columns of which table the numbers were computed from.
        title: what is shown when the table is folded.
        stacked: notes stand under the texts, not beside them.
        fold: whether it is folded until asked for; by default if it is long.
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
        return len(self.rows) > _LONG if self.fold is None else self.fold

    @property
    def cells(self) -> list[list[Cell]]:
        """The cells, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as they are; pandas would make a row of texts and None one of texts and NaN."""
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def _part(row: Any, key: str | int) -> Any:
    if isinstance(key, int) or isinstance(row, Mapping):
        return row[key]
    return getattr(row, key)


def _exact(value: Any, shown: str) -> str | None:
    """A number with all its digits; None where the text says as much."""
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
