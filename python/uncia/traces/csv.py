"""CSV files of any size, a block of lines at a time, so that memory stays bounded.

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

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces.base import Issues
from uncia.traces.packed import (
    MAGIC,
    Bytes,
    CutError,
    DamagedError,
    Gzip,
    Plain,
    refuse_archive,
)
from uncia.traces.rejected import Problem, shown

BLOCK_BYTES: Final = 4 << 20
"""Text that is parsed at once; a few blocks for each thread are in memory."""

MAX_LINE_BYTES: Final = 64 << 20
"""A longer line belongs to no trace; without a bound, a file without lines would fill memory."""

MAX_HEADER_BYTES: Final = 8 << 20
"""A longer header belongs to no trace."""

_HEADER_BYTES: Final = 1 << 16  # what is read at a time to find the header's end
_MAX_HEADER_NAMES: Final = 8  # column names that an error lists

_BOM: Final = b"\xef\xbb\xbf"
_QUOTED: Final = re.compile(r'^"([^"]*)"$')

# What a file of a trace is often packed as: first bytes, and what they say.
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


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


@dataclass(frozen=True)
class Lines:
    """Whole lines of a file, not yet parsed.

    Attributes:
        path: the file.
        text: the lines, each ending in a newline.
        line: the number of the first.
        names: the columns of the file's header.
        count: how many lines they are.
    """

    path: Path
    text: bytes
    line: int
    names: tuple[str, ...]
    count: int


def header(path: Path) -> tuple[str, ...]:
    """The names of the columns, from the file's first line.

    Raises:
        UnciaError: the file is empty, no plain text, damaged, or names a column twice.
    """
    with _opened(path) as file:
        return _header(path, file)[0]


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
    for some in lines(path, issues):
        yield from parsed(some, wanted, issues)


def lines(path: Path, issues: Issues) -> Iterator[Lines]:
    """The lines of the file below its header, about `BLOCK_BYTES` at a time.

    Raises:
        UnciaError: the file cannot be read, is damaged, or is cut off and that is not accepted.
    """
    with _opened(path) as file:
        names, rest = _header(path, file)
        line = 2
        try:
            for text in _texts(file, rest):
                count = _line_breaks(text)
                yield Lines(path, text, line, names, count)
                line += count
        except _LongLineError as error:
            raise _too_long(path, line + error.line_breaks, MAX_LINE_BYTES) from error
        except CutError as cut:
            whole = cut.rest.rfind(b"\n") + 1
            if not issues.keep_cut:
                raise UnciaError(
                    f"{path} is cut off: its gzip data ends before its end mark, after"
                    f" {plural(_rows_before_cut(path), 'whole row')}",
                    hint="Fetch or copy the file again; --keep-cut takes the rows before the cut.",
                ) from cut
            text, row = cut.rest[:whole], cut.rest[whole:]
            if text:
                count = _line_breaks(text)
                yield Lines(path, text, line, names, count)
                line += count
            issues.note("file cut off: its rows up to the cut were taken")
            if row:
                shown = row.decode("utf-8", "backslashreplace")
                issues.add(Problem(path, line, "", shown, "a whole row", "row cut off", shown))


def _rows_before_cut(path: Path) -> int:
    """Lines of a file that is cut off which hold something, without the header."""
    rows, rest = 0, b""
    with path.open("rb") as raw:
        file = Gzip(raw)
        try:
            while chunk := file.read(BLOCK_BYTES):
                text, _, rest = (rest + chunk).rpartition(b"\n")
                rows += sum(1 for line in text.split(b"\n") if line.strip())
        except CutError:
            pass
    return max(0, rows - 1)


def _line_breaks(text: bytes) -> int:
    """How many lines end in the text; six times as quick as ``text.count``."""
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")))


def _ends(text: bytes) -> npt.NDArray[np.int64]:
    """Where the line breaks are."""
    return np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))


def ends_in_newline(path: Path) -> bool:
    """Whether a plain file's last line is complete; of a compressed file gzip itself knows."""
    with path.open("rb") as file:
        if file.read(2) == MAGIC:
            return True
        file.seek(0, 2)
        if file.tell() == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"


@contextmanager
def _opened(path: Path) -> Iterator[Bytes]:
    """Open the file's text, unpacked; errors name the file."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(8)
            raw.seek(0)
            refuse_archive(path, magic)
            yield Gzip(raw) if magic.startswith(MAGIC) else Plain(raw)
    except CutError as error:
        raise UnciaError(
            f"{path} is cut off: its gzip data ends before its end mark",
            hint="Fetch or copy the file again.",
        ) from error
    except DamagedError as error:
        raise UnciaError(
            f"{path} is damaged: {error}", hint="Fetch or copy the file again."
        ) from error
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error


def _header(path: Path, file: Bytes) -> tuple[tuple[str, ...], bytes]:
    """The column names, and the text after them that was read along."""
    pieces: list[bytes] = []
    most = min(MAX_LINE_BYTES, MAX_HEADER_BYTES)
    while chunk := file.read(min(_HEADER_BYTES, BLOCK_BYTES)):
        pieces.append(chunk)
        if b"\n" in chunk:
            break
        if len(pieces) * min(_HEADER_BYTES, BLOCK_BYTES) > most:
            raise _too_long(path, 1, most)
    read = b"".join(pieces)
    if not read.strip():
        raise UnciaError(f"{path} is empty")
    if read.startswith(_UTF16):
        raise UnciaError(
            f"{path} is UTF-16 text; the files of a trace are ASCII",
            hint=f"Convert it: iconv -f UTF-16 -t ASCII {path.name}",
        )
    first, _, rest = read.removeprefix(_BOM).partition(b"\n")
    first = first.removesuffix(b"\r")
    if not first.isascii() or re.search(rb"[\x00-\x08\x0b-\x1f]", first):
        text = first.decode("latin-1")
        raise UnciaError(f"{path} is not a CSV file of ASCII text: its first line is {shown(text)}")
    names = tuple(_unquoted(name) for name in first.decode("ascii").split(","))
    if len(set(names)) < len(names):
        counts = Counter(names)
        twice = [name for name in counts if counts[name] > 1]
        named = ", ".join(map(repr, twice[:_MAX_HEADER_NAMES]))
        raise UnciaError(f"{path}, line 1: the header names {named} more than once")
    return names, rest


def _unquoted(name: str) -> str:
    match = _QUOTED.match(name)
    return match.group(1) if match else name


class _LongLineError(Exception):
    """A line is longer than `MAX_LINE_BYTES`.

    Attributes:
        line_breaks: those of the text that was not yet passed on, before that line.
    """

    def __init__(self, line_breaks: int) -> None:
        super().__init__("line too long")
        self.line_breaks = line_breaks


def _texts(file: Bytes, rest: bytes) -> Iterator[bytes]:
    """The text in blocks of whole lines, each line ending in a newline.

    Args:
        file: where it goes on.
        rest: its beginning, which was read before.

    Raises:
        CutError: the file was cut off; with the text that was not yet yielded.
        _LongLineError: a line is too long.
    """
    pieces = [rest]  # after its last line break, unless it is the first
    size = len(rest)
    while True:
        try:
            chunk = file.read(BLOCK_BYTES)
        except CutError as cut:
            raise CutError(b"".join(pieces)) from cut
        if not chunk:
            break
        whole = chunk.rfind(b"\n") + 1
        if whole:
            yield b"".join([*pieces, memoryview(chunk)[:whole]])
            pieces, size = [chunk[whole:]], len(chunk) - whole
            continue
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_LINE_BYTES:
            raise _LongLineError(pieces[0].count(b"\n"))
    rest = b"".join(pieces)
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _too_long(path: Path, line: int, most: int) -> UnciaError:
    return UnciaError(f"{path}, line {line} is longer than {most >> 20} MiB, so this is no trace")


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
            name: pc.replace_substring_regex(column, _QUOTED.pattern, r"\1")
            for name, column in cells.items()
        }
    return Block(path, cells, lines, text, at)


def _single(column: pa.ChunkedArray) -> pa.StringArray:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
