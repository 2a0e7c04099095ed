"""Uncia's own runs: the tables of any number of them become one of each kind.

Given are run folders, folders of such, or single tables as Parquet or Arrow IPC streams. The times
of a table are relative to its run's epoch; in the result they are Unix times, so that rows of
different runs can be compared. All else stays as it was, in the order of the files. A stream that
a crash cut off counts up to its last whole batch.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from uncia import record
from uncia.errors import UnciaError
from uncia.record import parquet
from uncia.record.schema import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY, as_integers
from uncia.traces.base import Imported, Issues, gather, visible
from uncia.traces.output import BATCH_ROWS, Output, output
from uncia.traces.rejected import Problem

NAME: Final = "uncia"
DESCRIPTION: Final = (
    "Runs of Uncia itself: run folders, or their tables as Parquet or Arrow IPC streams, merged"
    " into one table of each kind; your own data."
)
TABLES: Final = ("invocations", "instances", "spans", "machine")
_STREAM: Final = ".arrows"
_PARQUET: Final = ".parquet"
SUFFIXES: Final = (_PARQUET, _STREAM)

# Where time stands still: columns that count from the epoch. All else is a duration or a quantity.
_TIMES: Final = {
    "invocations": (
        "scheduled",
        "sent",
        "connected",
        "first_byte",
        "received",
        "started",
        "ended",
    ),
    "instances": ("started", "initialized", "ended"),
    "spans": ("start", "end"),
    "machine": ("time",),
}
_FILE_MAGIC: Final = b"PAR1"
_STREAM_MAGIC: Final = b"\xff\xff\xff\xff"

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Source:
    """A file that holds a table."""

    path: Path
    table: str
    epoch: int


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is a table of Uncia's, by what it says of itself or by its columns."""
    return all(_is_table(path) and _source(path) is not None for path in paths)


def convert(paths: Iterable[Path | str], out: Path | str, *, strict: bool = False) -> Imported:
    """Merge tables into one of each kind, with Unix times.

    Args:
        paths: run folders, folders of them, Parquet files, Arrow IPC streams.
        out: a folder, or a file ``*.parquet`` if there are invocations only.
        strict: whether a row that cannot be is an error; otherwise it is kept aside and counted.

    Raises:
        UnciaError: a file is no table of Uncia's or damaged, a row is bad, or nothing can be
            written.
    """
    issues = Issues(strict)
    warnings: list[str] = []
    sources = []
    for path in _expand(paths):
        source = _source(path)
        if source is None:
            raise UnciaError(f"{path} is no table of Uncia's", hint=_what_it_lacks(path))
        if source.table in TABLES:
            sources.append(source)
        else:
            warnings.append(f"{path} is left out: tables of {source.table} are not merged")
    tables = [name for name in TABLES if any(source.table == name for source in sources)]
    if "invocations" not in tables:
        raise UnciaError("no table of invocations is among the files")
    with output(Path(out), tables, issues) as result:
        for name in tables:
            merger = _Merger(name, result, issues, warnings)
            for source in sources:
                if source.table == name:
                    merger.add(source)
            merger.flush()
        return result.finish(warnings)


class _Merger:
    """Writes the tables of one kind as one."""

    def __init__(self, table: str, result: Output, issues: Issues, warnings: list[str]) -> None:
        self._table = table
        self._result = result
        self._issues = issues
        self._warnings = warnings
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, source: _Source) -> None:
        """Append the rows of a file.

        Raises:
            UnciaError: it is damaged or of another form, or (if strict) a row is bad.
        """
        at = 0
        for batch in self._batches(source):
            data = pa.Table.from_batches([batch])
            try:
                good = self._good(source, data, at)
                at += data.num_rows
                if not good.all():
                    data = data.filter(pa.array(good))
                data = record.conform(data, self._table, epoch=0)
                data = _shifted(data, self._table, source.epoch)
            except UnciaError as error:
                raise UnciaError(f"{source.path}: {error.message}", error.hint) from error
            except pa.ArrowInvalid as error:
                raise UnciaError(
                    f"{source.path}: its times, with the epoch {source.epoch}, are beyond 64 bits"
                ) from error
            self._waiting.append(data)
            self._rows += data.num_rows
            self._issues.take(data.num_rows)
            if self._rows >= BATCH_ROWS:
                self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._rows:
            merged = record.merge(self._waiting, self._table)
            self._result.write(
                self._table, dict(zip(merged.column_names, merged.columns, strict=True))
            )
        self._waiting.clear()
        self._rows = 0

    def _batches(self, source: _Source) -> Iterator[pa.RecordBatch]:
        if source.path.suffix == _PARQUET:
            try:
                with parquet.open_file(source.path) as file:
                    yield from file.iter_batches(batch_size=BATCH_ROWS)
            except (pa.ArrowInvalid, OSError) as error:
                raise UnciaError(f"{source.path} is damaged: {error}") from error
            return
        with pa.OSFile(str(source.path), "rb") as file:
            reader = pa.ipc.open_stream(file)
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except (pa.ArrowInvalid, OSError):
                    self._warnings.append(
                        f"{source.path} is cut off, as a crash leaves it: its whole batches count"
                    )
                    return
                yield batch

    def _good(self, source: _Source, data: pa.Table, before: int) -> _Bools:
        """The rows that can be; the others go to the issues, their row in the file as line."""
        bad = np.zeros(data.num_rows, dtype=bool)
        problems = []
        for column in record.columns(self._table):
            if column.name not in data.column_names:
                continue
            values = data.column(column.name)
            try:
                checks = list(_checks(self._table, column, values))
            except pa.ArrowException as error:
                raise UnciaError(
                    f"{self._table}.{column.name} must be {column.type}, but is {values.type}:"
                    f" {error}"
                ) from error
            for wrong, expected in checks:
                shown = _shown(data) if wrong.any() else data
                for row in np.flatnonzero(wrong & ~bad):
                    text = str(shown.column(column.name)[int(row)].as_py())
                    line = before + int(row) + 1
                    whole = json.dumps(shown.slice(int(row), 1).to_pylist()[0], default=str)
                    problems.append(
                        Problem(source.path, line, column.name, text, expected, row=whole)
                    )
                bad |= wrong
        for problem in sorted(problems, key=lambda problem: problem.line):
            self._issues.add(problem)
        return ~bad


def _shown(data: pa.Table) -> pa.Table:
    """The rows with times and durations as numbers: Python's do not reach as far."""
    for index, field in enumerate(data.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type):
            data = data.set_column(index, field.name, data.column(index).cast(pa.int64()))
    return data


def _checks(
    table: str, column: record.Column, values: pa.ChunkedArray
) -> Iterator[tuple[_Bools, str]]:
    """What may be wrong with the values of a column, and what should stand there."""
    if not column.nullable:
        yield _bools(pc.is_null(values)), "a value: it may not be null"
    if column.name == "outcome":
        known = pc.is_in(
            values.cast(pa.utf8()), value_set=pa.array([*record.OUTCOMES, None], pa.utf8())
        )
        yield ~_bools(known), f"one of {', '.join(record.OUTCOMES)}"
    if column.type != "int64":
        return
    whole = values
    if values.type != pa.int64():
        whole = _whole(values, column.unit)
        unfit = _bools(values.is_valid()) & ~_bools(whole.is_valid())
        yield unfit, "an integer of 64 bits with a sign"
    if column.unit and column.name not in _TIMES[table]:
        yield _bools(pc.less(whole, 0)), "a quantity of 0 or more"


def _whole(values: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Values as int64, null where one is none; halves are tried where a whole does not fit.

    Raises:
        pyarrow.ArrowException: no value of the type is one.
    """
    try:
        return as_integers(values, unit)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.chunked_array([pa.nulls(1, pa.int64())])
    middle = len(values) // 2
    halves = [_whole(part, unit) for part in (values[:middle], values[middle:])]
    return pa.chunked_array([chunk for half in halves for chunk in half.chunks], pa.int64())


def _bools(values: pa.ChunkedArray) -> _Bools:
    filled: _Bools = pc.fill_null(values, False).to_numpy().astype(bool)
    return filled


def _shifted(data: pa.Table, table: str, epoch: int) -> pa.Table:
    """The rows with Unix times instead of times since the epoch."""
    if epoch == 0:
        return data
    for name in _TIMES[table]:
        index = data.schema.get_field_index(name)
        data = data.set_column(index, data.schema.field(index), _plus(data.column(index), epoch))
    if table == "instances":
        index = data.schema.get_field_index("idle")
        idle = data.column(index).combine_chunks()
        spans = idle.values
        both = [_plus(spans.field(name), epoch) for name in ("start", "end")]
        moved = pa.ListArray.from_arrays(
            idle.offsets,
            pa.StructArray.from_arrays(both, fields=list(spans.type)),
            type=idle.type,
            mask=pc.is_null(idle),
        )
        data = data.set_column(index, data.schema.field(index), moved)
    return data


def _plus(values: Any, epoch: int) -> Any:
    return pc.add_checked(values, pa.scalar(epoch, pa.int64()))


def _is_table(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in (_FILE_MAGIC, _STREAM_MAGIC)
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error


def _schema(path: Path) -> pa.Schema:
    """The columns of a file.

    Raises:
        UnciaError: it cannot be read.
    """
    try:
        if path.suffix == _PARQUET:
            schema: pa.Schema = parquet.open_file(path).schema_arrow
        else:
            with pa.OSFile(str(path), "rb") as file:
                schema = pa.ipc.open_stream(file).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise parquet.unreadable(path, error) from error
    return schema


def _what_it_lacks(path: Path) -> str:
    """What a file that is no table of Uncia's would need to be one of invocations."""
    names = _schema(path).names
    needed = [column.name for column in record.columns("invocations") if not column.nullable]
    missing = [name for name in needed if name not in names]
    lacks = f"; it lacks {', '.join(missing)}" if missing else ""
    return (
        f"A table of invocations has the columns {', '.join(needed)}{lacks}. The folder of a run"
        " holds such tables."
    )


def _source(path: Path) -> _Source | None:
    """Which table a file holds; None if it is none of Uncia's.

    Raises:
        UnciaError: it cannot be read, is of another version of the tables, names a column twice,
            or counts its times from no time.
    """
    schema = _schema(path)
    metadata = schema.metadata or {}
    table = str(metadata.get(TABLE_KEY.encode(), b""), "utf-8")
    if not table and {"function", "invocation", "outcome"} <= set(schema.names):
        table = "invocations"
    if table not in record.TABLES:
        return None
    version = metadata.get(VERSION_KEY.encode())
    if version is not None and version != str(SCHEMA_VERSION).encode():
        raise UnciaError(
            f"{path} was written with table schema version {version.decode()}; this uncia reads"
            f" version {SCHEMA_VERSION}"
        )
    twice = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if twice:
        raise UnciaError(f"{path} has the column {', '.join(twice)} more than once")
    try:
        return _Source(path, table, record.epoch_unix_ns(schema.empty_table()))
    except UnciaError as error:
        raise UnciaError(f"{path}: {error.message}", error.hint) from error


def _expand(paths: Iterable[Path | str]) -> list[Path]:
    """The files that hold tables; where a table is there as Parquet, its streams are not read.

    Raises:
        UnciaError: a path does not exist, a folder holds no table, or a file is named twice.
    """

    def in_folder(folder: Path) -> list[Path]:
        tables = [
            file
            for file in sorted(visible(folder))
            if file.suffix in SUFFIXES and file.name.split(".")[0] in record.TABLES
        ]
        done = {file.with_suffix("") for file in tables if file.suffix == _PARQUET}
        tables = [
            file
            for file in tables
            if file.suffix == _PARQUET or file.with_name(file.name.split(".")[0]) not in done
        ]
        if not tables:
            raise UnciaError(
                f"{folder} holds no table of Uncia's",
                hint="A run folder holds run.yaml and invocations.parquet.",
            )
        return tables

    return gather(paths, in_folder)
