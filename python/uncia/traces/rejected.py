"""The rows of a trace that were rejected, kept as CSV beside the tables."""

import csv
from pathlib import Path
from typing import Final, TextIO

from uncia.traces.base import Problem

COLUMNS: Final = ("file", "line", "column", "reason", "row")


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
