"""The rows of a trace that were rejected, kept as CSV beside the tables."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

COLUMNS: Final = ("file", "line", "column", "reason", "row")

_SHOWN: Final = 60  # characters of a bad cell that an error shows


@dataclass(frozen=True)
class Problem:
    """A row of a trace that cannot be believed.

    Attributes:
        path: the file.
        line: the row's line in it, from 1; the header is line 1.
        column: the column by name; empty if the row itself is broken.
        text: what stands there.
        expected: what should stand there.
        why: the reason by which such rows are counted, if not made of column and expectation.
        row: the text of the whole row, for the file of rejected rows.
    """

    path: Path
    line: int
    column: str
    text: str
    expected: str
    why: str = ""
    row: str | None = None

    @property
    def reason(self) -> str:
        """Why the row was rejected: the same text for all rows that share the reason."""
        if self.why:
            return self.why
        return f"{self.column}: not {self.expected}" if self.column else f"not {self.expected}"

    def sentence(self) -> str:
        """The problem in words: file, line, column, what was found, what was expected."""
        position = f"{self.path}, line {self.line}"
        if self.column:
            position += f", column {self.column}"
        if not self.expected:
            return f"{position}: {shown(self.text)}: {self.reason}"
        return f"{position}: {shown(self.text)} is not {self.expected}"


def shown(text: str) -> str:
    """``text`` quoted for an error, shortened if it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


class Rejected:
    """Writes rejected rows as they come; the file exists only if there are any.

    Its columns are `COLUMNS`. ``row`` is the row's text as it stands in the trace; bytes of it that
    are no UTF-8 text are written like ``\\xff``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def write(self, problem: Problem) -> None:
        """Append a row."""
        if self._file is None:
            self._file = self.path.open(
                "w", encoding="utf-8", errors="backslashreplace", newline=""
            )
            # Texts are quoted, because not every version of csv quotes one with a carriage return.
            self._writer = csv.writer(self._file, csv.unix_dialect, quoting=csv.QUOTE_NONNUMERIC)
            self._writer.writerow(COLUMNS)
        row = problem.text if problem.row is None else problem.row
        self._writer.writerow(
            (str(problem.path), problem.line, problem.column, problem.reason, row)
        )

    def close(self) -> bool:
        """Complete the file; returns whether there is one."""
        if self._file is None:
            return False
        self._file.close()
        return True
