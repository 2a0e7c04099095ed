"""CSV files of any size, a block of rows at a time, all cells as text.

The files of the traces are plain: ASCII, a header, commas, one row a line. The reader holds them to
that, and therefore knows each row's line: nothing here joins lines, guesses a dialect or fills up
cells. A cell in quotation marks loses them (some tools add them), but may not hold a comma or a
line break. Lines may end in LF, CR LF, or, where that makes whole rows, in CR. Files may be
compressed with gzip.

DuckDB's ``read_csv`` is no quicker (`benches/bills/readers.py`: 0.54 us of CPU a row, and 0.52 here
with all checks), and cannot do what this reader must. DuckDB 2.0 takes rows with NUL bytes or other
than ASCII text in columns that are not read, numbers such as ``1_000``, and gzip data whose
checksum is wrong. At a carriage return within a line it gives the file up, or, not strict, also
takes rows with too many cells. It returns nothing of a file that is cut off, gives no line numbers
to rows that are rejected for what their cells say, and holds all rejected lines in memory, beyond
its limit (3.5 GB for 0.5 GB of them).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from uncia.errors import UnciaError
from uncia.traces.base import Issues
from uncia.traces.lines import QUOTED, Lines, read_lines
from uncia.traces.rejected import Problem


@dataclass(frozen=True)
class Block:
    """Some rows of a file, all cells as text.

    Attributes:
        path: the file.
        cells: a column for each wanted column of the header.
        lines: the line of each row, from 1; int64, shape (rows,).
        text: lines of the file.
        at: which of the lines of ``text`` each row is, from 0; int64, shape (rows,).
    """

    path: Path
    cells: dict[str, pa.StringArray]
    lines: npt.NDArray[np.int64]
    text: bytes
    at: npt.NDArray[np.int64]

    def rows(self, numbers: npt.NDArray[np.int64]) -> list[str]:
        """The text of some rows, given by their numbers from 0."""
        # Not kept by the block: between its larger pieces it would hinder their memory's reuse.
        ends = _ends(self.text)
        lines = self.at[numbers]
        starts = np.where(lines > 0, ends[lines - 1] + 1, 0)
        return [
            self.text[start:end].decode("ascii")
            for start, end in zip(starts.tolist(), ends[lines].tolist(), strict=True)
        ]


def blocks(path: Path, wanted: Sequence[str], issues: Issues) -> Iterator[Block]:
    """The rows of the file below its header, in order.

    A row with another number of cells than the header, with other than ASCII text, or with a NUL
    byte goes to ``issues``. Empty lines are passed over.

    Args:
        path: the file, plain or compressed with gzip.
        wanted: the columns to return, all of which the header must have.
        issues: where broken rows go.

    Raises:
        UnciaError: the file cannot be read, is damaged or cut off, or (if strict) a row is broken.
    """
    for some in read_lines(path, issues):
        yield from parsed(some, wanted, issues)


def parsed(some: Lines, wanted: Sequence[str], issues: Issues) -> Iterator[Block]:
    """The rows of some lines; the broken ones go to ``issues``.

    Raises:
        UnciaError: a row is broken, and the import is strict.
    """
    path, text, line = some.path, some.text, some.line
    text = text.replace(b"\r\n", b"\n") if b"\r" in text else text
    if text.isascii() and b"\r" not in text and b"\0" not in text:
        broken: list[tuple[int, str]] = []
        table = _table(text, some.names, wanted, broken)
        if not _has_empty_lines(text, table):
            yield from _plain(some, text, table, broken, issues)
            return
    ends = _ends(text)
    good: list[bytes] = []
    numbers: list[int] = []
    for number, run, whole in _runs(text, ends + 1, len(some.names)):
        at = line + number
        if whole:
            good.append(run)
            numbers += range(at, at + run.count(b"\n"))
            continue
        row = run[:-1]
        if not row:
            continue
        problem, pieces = _checked(path, row, at, len(some.names))
        if problem is None:
            good += [piece + b"\n" for piece in pieces]
            numbers += [at] * len(pieces)
            continue
        if issues.strict and good:  # rows above may hold an earlier problem
            yield _checked_block(path, good, numbers, some.names, wanted)
        issues.add(problem)
    if good:
        yield _checked_block(path, good, numbers, some.names, wanted)


def _has_empty_lines(text: bytes, table: pa.Table | None) -> bool:
    """Whether some lines are empty, which Arrow reads as rows of empty cells."""
    if table is not None and table.num_columns:
        shortest = pc.min(pc.binary_length(table.column(0))).as_py()
        if shortest:  # much quicker than to look at the text
            return False
    ends = _ends(text)
    return bool(ends[0] == 0 or (np.diff(ends) == 1).any())


def _plain(
    some: Lines,
    text: bytes,
    table: pa.Table | None,
    broken: Sequence[tuple[int, str]],
    issues: Issues,
) -> Iterator[Block]:
    """The rows of lines, none of them empty; ``broken`` are those of another number of cells."""
    lines = some.count
    if table is None or table.num_rows + len(broken) != lines:
        last = some.line + lines - 1
        raise UnciaError(f"{some.path}, lines {some.line} to {last} cannot be parsed as CSV")
    at = np.delete(np.arange(lines), [number for number, _ in broken])
    block = _block(some.path, table, some.line + at, text, at)
    problems = [
        _checked(some.path, row.encode(), some.line + number, len(some.names))[0]
        for number, row in broken
    ]
    if issues.strict and problems:  # rows above may hold an earlier problem
        above = int(np.searchsorted(at, broken[0][0]))
        cells = {name: column.slice(0, above) for name, column in block.cells.items()}
        yield Block(block.path, cells, block.lines[:above], text, at[:above])
    for problem in problems:
        assert problem is not None
        issues.add(problem)
    yield block


def _runs(
    text: bytes, ends: npt.NDArray[np.int64], columns: int
) -> Iterator[tuple[int, bytes, bool]]:
    """Lines in order: runs of those that are whole rows, and each other line by itself.

    Returns:
        The number of the first line from 0, the lines, and whether they are whole rows.
    """
    data = np.frombuffer(text, dtype=np.uint8)
    commas = np.searchsorted(np.flatnonzero(data == ord(",")), ends)
    wrong = np.diff(commas, prepend=0) != columns - 1
    odd = np.flatnonzero((data > ord("~") + 1) | (data == ord("\r")) | (data == 0))
    wrong[np.searchsorted(ends, odd, "right")] = True
    wrong |= np.diff(ends, prepend=0) == 1
    first = 0
    starts = np.concatenate([[0], ends])
    for line in np.flatnonzero(wrong).tolist():
        if line > first:
            yield first, text[starts[first] : starts[line]], True
        yield line, text[starts[line] : starts[line + 1]], False
        first = line + 1
    if first < len(ends):
        yield first, text[starts[first] :], True


def _checked(path: Path, row: bytes, line: int, columns: int) -> tuple[Problem | None, list[bytes]]:
    """What is wrong with a line, else the rows that it holds: one, unless CR ends some."""
    cells = row.count(b",") + 1
    if b"\0" in row:
        # What a crash or a hole in a file leaves: the ends of two rows may look like one.
        text = row.decode("utf-8", "backslashreplace").replace("\0", "\\0")
        why = "broken line: a NUL byte within"
        return Problem(path, line, "", text, "ASCII text: it has a NUL byte within", why, text), []
    if row.isascii() and cells == columns and b"\r" not in row:
        return None, [row]
    text = row.decode("utf-8", "backslashreplace")
    if not row.isascii():
        why = "broken line: not ASCII text"
        return Problem(path, line, "", text, "ASCII text", why, text), []
    if b"\r" in row:
        pieces = [piece for piece in row.split(b"\r") if piece]
        if pieces and all(piece.count(b",") + 1 == columns for piece in pieces):
            return None, pieces
        why = "broken line: a carriage return within"
        expected = "one line: it has a carriage return within"
        return Problem(path, line, "", text, expected, why, text), []
    many = 2 * columns  # so that there is no end of reasons
    shown = f"{cells}" if cells <= many else f"more than {many}"
    why = f"broken line: {shown} cells instead of {columns}"
    expected = f"a row of {columns} cells: it has {cells}"
    return Problem(path, line, "", text, expected, why, text), []


def _checked_block(
    path: Path,
    good: list[bytes],
    lines: list[int],
    names: tuple[str, ...],
    wanted: Sequence[str],
) -> Block:
    text = b"".join(good)
    table = _table(text, names, wanted)
    if table is None or table.num_rows != len(lines):
        raise UnciaError(f"{path}, lines {lines[0]} to {lines[-1]} cannot be parsed as CSV")
    return _block(path, table, np.array(lines, dtype=np.int64), text, np.arange(len(lines)))


def _table(
    text: bytes,
    names: tuple[str, ...],
    wanted: Sequence[str],
    broken: list[tuple[int, str]] | None = None,
) -> pa.Table | None:
    """The wanted columns as text; None if that cannot be.

    Args:
        text: lines.
        names: the columns of all rows.
        wanted: some of them.
        broken: gets lines of another number of cells, which are left out: number from 0, and text.
    """

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        if broken is None:
            return "error"
        broken.append((row.number - 1, row.text))
        return "skip"

    try:
        return arrow_csv.read_csv(
            pa.py_buffer(text),
            # Without threads, because only then rows have numbers; others read other blocks.
            read_options=arrow_csv.ReadOptions(
                column_names=names, block_size=len(text) + 1, use_threads=False
            ),
            parse_options=arrow_csv.ParseOptions(
                quote_char=False,
                double_quote=False,
                ignore_empty_lines=False,
                invalid_row_handler=leave_out,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.utf8()),
                include_columns=list(wanted),
                strings_can_be_null=False,
                check_utf8=False,  # it is ASCII
            ),
        )
    except pa.ArrowInvalid:
        return None


def _block(
    path: Path,
    table: pa.Table,
    lines: npt.NDArray[np.int64],
    text: bytes,
    at: npt.NDArray[np.int64],
) -> Block:
    cells = {name: _single(table.column(name)) for name in table.column_names}
    if b'"' in text:
        cells = {
            name: pc.replace_substring_regex(column, QUOTED.pattern, r"\1")
            for name, column in cells.items()
        }
    return Block(path, cells, lines, text, at)


def _single(column: pa.ChunkedArray) -> pa.StringArray:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _ends(text: bytes) -> npt.NDArray[np.int64]:
    """Where the line breaks are."""
    return np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
