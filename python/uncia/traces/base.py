"""What the readers of all traces share: what they return, how they are given files, bad rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError

_SUFFIXES: Final = (".csv", ".csv.gz", ".txt", ".txt.gz")
_EXAMPLES: Final = 3  # bad rows that are told in full; the others are counted
_SHOWN: Final = 60  # characters of a bad cell that an error shows


@dataclass(frozen=True)
class Imported:
    """What an import wrote.

    Attributes:
        rows: rows written, by table.
        tables: the file of each table.
        warnings: what a reader of the tables should know, a sentence each.
        skipped: bad rows of the trace that were left out; 0 unless that was asked for.
    """

    rows: dict[str, int]
    tables: dict[str, Path]
    warnings: list[str]
    skipped: int


@dataclass(frozen=True)
class Problem:
    """A row of a trace that cannot be believed.

    Attributes:
        path: the file.
        line: the row's line in it, from 1; the header is line 1.
        column: the column by name; empty if the row itself is broken.
        text: what stands there.
        expected: what should stand there.
    """

    path: Path
    line: int
    column: str
    text: str
    expected: str

    def sentence(self) -> str:
        """The problem in words: file, line, column, what was found, what was expected."""
        place = f"{self.path}, line {self.line}"
        if self.column:
            place += f", column {self.column}"
        return f"{place}: {shown(self.text)} is not {self.expected}"


def shown(text: str) -> str:
    """``text`` quoted for an error, shortened if it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


@dataclass
class Issues:
    """Bad rows: the first ends the import if ``strict``; otherwise they are counted."""

    strict: bool
    skipped: int = 0
    _examples: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Count a row that is left out.

        Raises:
            UnciaError: the import is strict.
        """
        if self.strict:
            raise UnciaError(
                problem.sentence(),
                hint="With --skip-bad-rows such rows are left out and counted.",
            )
        self.skipped += 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(problem)

    def count(self, rows: int) -> None:
        """Count further rows that are left out, which no example is wanted of."""
        self.skipped += rows

    @property
    def wants_examples(self) -> int:
        """How many more problems :meth:`add` would keep as examples."""
        return max(0, _EXAMPLES - len(self._examples))

    def warnings(self) -> list[str]:
        """How many rows were left out, and the first of them."""
        if not self.skipped:
            return []
        rows = "1 bad row was" if self.skipped == 1 else f"{self.skipped:,} bad rows were"
        return [
            f"{rows} left out, of which the first: {problem.sentence()}"
            if index == 0
            else f"another bad row: {problem.sentence()}"
            for index, problem in enumerate(self._examples)
        ]


def expand(paths: Iterable[Path | str]) -> list[Path]:
    """The files that ``paths`` name, folders searched to the bottom, in a stable order.

    In a folder, files ``*.csv``, ``*.txt`` and these with ``.gz`` are taken, hidden ones are not.

    Raises:
        UnciaError: a path does not exist, a folder holds no such file, or a file is named twice.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(
                file
                for file in path.rglob("*")
                if file.name.lower().endswith(_SUFFIXES)
                and file.is_file()
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
            )
            if not inside:
                raise UnciaError(f"{path} holds no file of a trace (*.csv, *.txt, or with .gz)")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UnciaError(f"{path} does not exist")
    if not found:
        raise UnciaError("no file of a trace was named")
    seen: set[Path] = set()
    for file in found:
        if file.resolve() in seen:
            raise UnciaError(f"{file} is named twice, so its rows would count twice")
        seen.add(file.resolve())
    return found


def plural(count: int, noun: str) -> str:
    """``count`` and the noun, as ``1 row`` or ``1,200 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
