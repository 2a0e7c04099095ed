"""What the readers of all traces share: what they return, how they are given files, bad rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces.rejected import Problem, Rejected

SUFFIXES: Final = (".csv", ".csv.gz", ".txt", ".txt.gz")
"""How the names of a trace's files end, unless its module says so itself as ``SUFFIXES``."""

REJECTED_FILE: Final = "rejected.csv"
"""The file of rejected rows in the folder of an import's tables."""

ACCOUNT: Final = "planted.json"
"""What a synthetic trace says of itself, in a file beside its files."""

_PACKED: Final = (".gz", ".bz2", ".xz")
_EXAMPLES: Final = 3  # bad rows that are shown in full; the others are counted
_MAX_REASONS: Final = 5  # reasons that an error lists


@dataclass(frozen=True)
class Imported:
    """What an import wrote.

    Attributes:
        rows: rows written, by table.
        tables: the file of each table, or the folder of its parts.
        warnings: what a reader of the tables should know, a sentence each.
        skipped: bad rows of the trace that were left out: the sum of ``rejected``.
        read: rows of the trace that were read: those taken, and ``skipped``.
        rejected: bad rows by reason.
        noted: rows that were taken although something is missing or odd, by what it is.
        rejected_file: where the bad rows are kept; None if there were none.
    """

    rows: dict[str, int]
    tables: dict[str, Path]
    warnings: list[str]
    skipped: int = 0
    read: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)
    rejected_file: Path | None = None


@dataclass
class Issues:
    """The rows of an import: how many were taken, and which were rejected and why.

    Attributes:
        strict: whether the first bad row ends the import.
        keep_cut: whether the whole rows of a file that was cut off are taken.
        taken: good rows.
        rejected: bad rows by reason.
        noted: remarks on good rows, with how many rows each is true of.
        file: where the bad rows go; :func:`uncia.traces.output.output` opens it.
    """

    strict: bool = False
    keep_cut: bool = False
    taken: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    file: Rejected | None = None
    _examples: list[Problem] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """Bad rows so far."""
        return self.rejected.total()

    @property
    def read(self) -> int:
        """Rows so far, good and bad."""
        return self.taken + self.skipped

    def take(self, rows: int) -> None:
        """Count rows that are good; `Checks.good` does it for its block."""
        self.taken += rows

    def add(self, problem: Problem) -> None:
        """Reject a row: count it by its reason, and keep its text in the file of rejected rows.

        Raises:
            UnciaError: the import is strict.
        """
        if self.strict:
            raise UnciaError(
                problem.sentence(),
                hint="Without --strict, such rows are kept in a file of their own and counted.",
            )
        self.rejected[problem.reason] += 1
        if self.file is not None:
            self.file.write(problem)
        if len(self._examples) < _EXAMPLES:
            self._examples.append(problem)

    def note(self, text: str, count: int = 1) -> None:
        """Remark something on rows that are taken, such as a cell that is empty."""
        if count:
            self.noted[text] += count

    def warnings(self) -> list[str]:
        """How many rows were rejected, and the first of them."""
        if not self.skipped:
            return []
        rows = "1 bad row was" if self.skipped == 1 else f"{self.skipped:,} bad rows were"
        return [
            f"{rows} left out, of which the first: {problem.sentence()}"
            if index == 0
            else f"another bad row: {problem.sentence()}"
            for index, problem in enumerate(self._examples)
        ]

    def reasons(self) -> str:
        """The rejected rows by reason, the most frequent first, for a sentence."""
        reasons = [
            f"{count:,} {reason}" for reason, count in self.rejected.most_common(_MAX_REASONS)
        ]
        if (more := len(self.rejected) - len(reasons)) > 0:
            reasons.append(f"and {plural(more, 'other reason')}")
        return "; ".join(reasons)


class Collected(Issues):
    """Issues of one block, which another thread checks: kept until the blocks before are done."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """Keep the problem."""
        self.problems.append(problem)

    def tell(self, issues: Issues) -> None:
        """Hand everything on, rows in order of their lines.

        Raises:
            UnciaError: a row was rejected, and the import is strict.
        """
        for problem in sorted(self.problems, key=lambda problem: problem.line):
            issues.add(problem)
        issues.take(self.taken)
        issues.noted.update(self.noted)


def expand(paths: Iterable[Path | str], suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files that ``paths`` name, folders searched to the bottom, in a stable order.

    In a folder, files whose names end in one of ``suffixes`` are taken, hidden ones are not, nor is
    what an import wrote (``rejected.csv``) or a synthetic trace says of itself (``planted.json``).

    Raises:
        UnciaError: a path does not exist, a folder holds no such file, or a file is named twice.
    """

    def in_folder(folder: Path) -> list[Path]:
        files = sorted(
            file
            for file in visible(folder)
            if file.name.lower().endswith(suffixes)
            and file.is_file()
            and file.name not in (REJECTED_FILE, ACCOUNT)
        )
        if not files:
            listed = ", ".join(f"*{suffix}" for suffix in suffixes)
            raise UnciaError(f"{folder} holds no file of a trace ({listed})")
        return files

    return gather(paths, in_folder)


def visible(folder: Path) -> Iterator[Path]:
    """Everything below a folder that is not hidden, nor in a hidden folder."""
    for path in folder.rglob("*"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def gather(paths: Iterable[Path | str], in_folder: Callable[[Path], list[Path]]) -> list[Path]:
    """The files that ``paths`` name; of a folder, those that ``in_folder`` chooses.

    Raises:
        UnciaError: there is none, a path does not exist, or a file is named twice, be it once
            plain and once compressed.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += in_folder(path)
        elif path.exists():
            files.append(path)
        else:
            raise UnciaError(f"{path} does not exist")
    if not files:
        raise UnciaError("no file of a trace was named")
    seen: dict[Path, Path] = {}
    for file in files:
        path = file.resolve()
        plain = path.with_suffix("") if path.suffix.lower() in _PACKED else path
        if plain not in seen:
            seen[plain] = path
        elif seen[plain] == path:
            raise UnciaError(f"{file} is named twice, so its rows would count twice")
        else:
            raise UnciaError(
                f"{file} and {seen[plain].name} beside it seem to be the same file, compressed and"
                " not, so its rows would count twice",
                hint="Move one of them away; if they differ, give one of them another name.",
            )
    return files
