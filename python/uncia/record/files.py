"""Reading, writing and recovering table files: Arrow IPC streams during a run, Parquet after it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.ipc

from uncia.errors import UnciaError
from uncia.record import parquet
from uncia.record.schema import (
    TABLE_KEY,
    TABLES,
    check_version,
    conform,
    empty,
    epoch_unix_ns,
    schema,
)

_STREAM = ".arrows"
_PARQUET = ".parquet"

# What ends an Arrow IPC stream: the mark of a message, and a length of zero.
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
SUFFIXES = (_PARQUET, _STREAM)
"""The endings of files that hold a table."""

_GROUP_ROWS = 1 << 18
_SCANNED_ROWS = 1 << 16


def read(path: Path | str, table: str = "invocations", *, is_clipped: bool = False) -> pa.Table:
    """Read a table from a run folder, a Parquet file, a folder of them, or an Arrow IPC stream.

    A large table, or one that an engine wrote, is a folder ``NAME.parquet`` of Parquet files, or of
    folders of them such as ``platform=aws``; rows are in order of the paths. A stream that a crash
    cut off is read up to its last whole batch.

    Args:
        path: the run folder, or the file or folder ``NAME.parquet`` itself.
        table: which table of a folder; a file must hold this one.
        is_clipped: whether unsigned numbers beyond int64 are clipped, for bills, of which such a
            row is absurd; by default they are an error.

    Returns:
        A table with exactly the columns of ``table``; empty if the run has no such table.

    Raises:
        UnciaError: the path does not exist, or holds another table.
    """
    path = Path(path)
    files = _files(path, table)
    if files == [path]:
        return _read_file(path, table, is_clipped)
    return merge([_read_file(file, table, is_clipped) for file in files], table)


def scan(
    path: Path | str, columns: Sequence[str], table: str = "invocations"
) -> Iterator[pa.Table]:
    """Read some columns of a table, some rows at a time, so that memory does not grow with rows.

    Args:
        path: as in :func:`read`.
        columns: their names; one that the file lacks is null.
        table: which table of a folder; a file must hold this one.

    Yields:
        The rows in order, with these columns in this order; nothing if the run has no such table.

    Raises:
        UnciaError: as :func:`read`, once that file is reached.
    """
    for file in _files(Path(path), table):
        try:
            for rows in _scan_file(file, columns):
                yield conform(rows, table, only=columns)
        except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
            raise parquet.unreadable(file, error) from error
        except UnciaError as error:
            raise UnciaError(f"{file}: {error.message}", error.hint) from error


def _scan_file(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Rows with at least these columns, of those that the file has."""
    if file.suffix == _STREAM:
        with _open_stream(file) as reader:
            check_version(file, reader.schema)
            for batch in _batches(reader):
                yield pa.Table.from_batches([batch])
        return
    with parquet.open_file(file) as source:
        check_version(file, source.schema_arrow)
        names = source.schema_arrow.names
        # No rows, but all columns: one that the table does not have is found.
        yield source.schema_arrow.empty_table()
        known = [name for name in columns if name in names]
        # Group by group: Arrow's reader of several keeps what it has read of all of them.
        for group in range(source.num_row_groups):
            for batch in source.iter_batches(_SCANNED_ROWS, row_groups=[group], columns=known):
                yield pa.Table.from_batches([batch])


def _files(path: Path, table: str) -> list[Path]:
    """The files that a table is in, in order; none if the run has no such table."""
    if path.is_dir() and path.suffix == _PARQUET:
        return _parts(path)
    if path.is_dir():
        file = path / f"{table}{_PARQUET}"
        if file.is_dir():
            return _parts(file)
        if file.exists():
            return [file]
        if streams := _streams(path, table):
            return streams
        if any(is_there(path, name) for name in TABLES):
            return []
        raise UnciaError(
            f"{path} is not the folder of a run: it holds no table",
            hint="A run folder holds run.yaml and invocations.parquet.",
        )
    if not path.exists():
        raise UnciaError(f"{path} does not exist")
    return [path]


def is_there(folder: Path, table: str) -> bool:
    """Whether a run folder has a table, as a file, a folder of files or a stream."""
    return (folder / f"{table}{_PARQUET}").exists() or bool(_streams(folder, table))


def _parts(folder: Path) -> list[Path]:
    # Engines keep hidden files next to the parts, such as checksums.
    parts = [part for part in sorted(folder.rglob(f"*{_PARQUET}")) if not part.name.startswith(".")]
    if not parts:
        raise UnciaError(f"{folder} is a folder without a file *{_PARQUET}")
    return parts


def _read_file(file: Path, table: str, is_clipped: bool) -> pa.Table:
    try:
        data = _read_stream(file) if file.suffix == _STREAM else parquet.read_table(file)
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise parquet.unreadable(file, error) from error
    check_version(file, data.schema)
    try:
        return conform(data, table, is_clipped=is_clipped)
    except UnciaError as error:
        raise UnciaError(f"{file}: {error.message}", error.hint) from error


def _read_stream(file: Path) -> pa.Table:
    with _open_stream(file) as reader:
        return pa.Table.from_batches(_batches(reader), schema=reader.schema)


@contextmanager
def _open_stream(file: Path) -> Iterator[pa.RecordBatchReader]:
    with pa.OSFile(str(file), "rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid as error:
            raise UnciaError(
                f"{file} has no whole schema: its writer was cut off before the first row"
            ) from error
        yield reader


def check_whole(file: Path) -> None:
    """Check that a stream has its end, which it lacks after a crash and while it is written.

    Files of other forms are whole once they can be read.

    Raises:
        UnciaError: it was cut off, or is not finished.
    """
    if file.suffix != _STREAM:
        return
    rows = 0
    with _open_stream(file) as reader:
        try:
            for batch in reader:
                rows += batch.num_rows
        except (pa.ArrowInvalid, OSError):
            is_whole = False
        else:
            # Without its end mark, a stream of whole batches ends like one that goes on.
            with file.open("rb") as stream:
                stream.seek(-min(len(_END), file.stat().st_size), os.SEEK_END)
                is_whole = stream.read() == _END
    if not is_whole:
        raise UnciaError(
            f"{file} has no end: it holds {rows:,} whole rows, and is still being written or was"
            " cut off by a crash",
            hint=f"Once nothing writes to it, `uncia recover {file}` makes a table of them.",
        )


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            # The end, or where a crash cut the stream; all batches before it are whole.
            return


def write(data: pa.Table, path: Path | str, table: str = "invocations") -> Path:
    """Write rows as Parquet; the file gets its name once all of it is on the disk.

    Raises:
        UnciaError: the rows are not of ``table``, or the file cannot be written.
    """
    path = Path(path)
    rows = conform(data, table)
    with _atomic_writer(path, rows.schema) as writer:
        writer.write(rows)
    return path


@contextmanager
def _atomic_writer(path: Path, schema: pa.Schema) -> Iterator[parquet.Writer]:
    """Yield a writer whose file becomes ``path`` at the end, or is deleted on error."""
    partial = path.with_name(path.name + ".partial")
    try:
        with parquet.Writer(partial, schema) as writer:
            yield writer
        partial.replace(path)
        parquet.sync_folder(path.parent)
    except OSError as error:
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    finally:
        partial.unlink(missing_ok=True)


def merge(parts: Iterable[pa.Table], table: str = "invocations") -> pa.Table:
    """Concatenate tables, with their dictionaries unified.

    Returns:
        A table with the columns of ``table``; empty if there are no parts.
    """
    tables = [conform(part, table) for part in parts]
    if not tables:
        return empty(table)
    return pa.concat_tables(tables).unify_dictionaries()


def write_stream(source: IO[bytes], path: Path, table: str) -> int:
    """Write the rows of an Arrow IPC stream as Parquet while they come, some at a time.

    Args:
        source: the stream, such as a pipe; it is read to its end.
        path: the file; it gets its name once all of it is on the disk.
        table: which table it holds.

    Returns:
        How many rows there were.

    Raises:
        UnciaError: the stream ends before its time or holds another table, or the file cannot be
            written.
    """
    rows = 0
    try:
        with pa.ipc.open_stream(source) as reader:
            epoch = epoch_unix_ns(reader.schema.empty_table())
            with _atomic_writer(path, schema(table, epoch)) as writer:
                for group in _groups(iter(reader)):
                    writer.write(conform(group, table))
                    rows += group.num_rows
    except pa.ArrowInvalid as error:
        raise UnciaError(f"the rows of {path} were cut off: {error}", exit_code=1) from error
    return rows


def concatenate(sources: Sequence[Path], path: Path, table: str) -> None:
    """Write the rows of Parquet files to one file, some at a time.

    Args:
        sources: the files, at least one.
        path: the file; it gets its name once all of it is on the disk.
        table: which table they hold.

    Raises:
        UnciaError: a file cannot be read or written.
    """
    names = schema(table).names
    with _atomic_writer(path, schema(table)) as writer:
        for source in sources:
            for group in _groups(
                batch for part in scan(source, names, table) for batch in part.to_batches()
            ):
                writer.write(conform(group, table, 0))


def recover_folder(path: Path) -> dict[str, int]:
    """Convert Arrow IPC streams to Parquet files, each up to its last whole batch.

    A stream is deleted once its Parquet file is complete. Streams that can be recovered are, even
    where others are damaged.

    Args:
        path: a run folder with streams, or one stream.

    Returns:
        Rows recovered, by file name of the stream.

    Raises:
        UnciaError: a stream could not be recovered; it is kept.
    """
    streams = sorted(path.glob(f"*{_STREAM}")) if path.is_dir() else [path]
    targets: dict[Path, list[Path]] = {}
    failures: list[str] = []
    for stream in streams:
        try:
            _table_of(stream)
        except UnciaError as error:
            failures.append(error.message)
            continue
        targets.setdefault(_target_of(stream), []).append(stream)
    recovered: dict[str, int] = {}
    for target, parts in targets.items():
        try:
            recovered |= _convert(parts, target, _table_of(parts[0]))
        except UnciaError as error:
            failures.append(error.message)
            continue
        # From here on, the Parquet file is on the disk under its name.
        for stream in parts:
            stream.unlink()
    if failures:
        raise UnciaError("; ".join(failures), exit_code=1)
    return recovered


def _convert(streams: Sequence[Path], target: Path, table: str) -> dict[str, int]:
    """Write the rows of streams to one Parquet file, group by group; return rows by stream."""
    rows = dict.fromkeys((stream.name for stream in streams), 0)
    with _open_stream(streams[0]) as reader:
        target_schema = schema(table, epoch_unix_ns(reader.schema.empty_table()))
    with _atomic_writer(target, target_schema) as writer:
        for stream in streams:
            with _open_stream(stream) as reader:
                for group in _groups(_batches(reader)):
                    writer.write(conform(group, table))
                    rows[stream.name] += group.num_rows
    return rows


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of batches in groups of at least `_GROUP_ROWS`, but for the last."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting).unify_dictionaries()
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).unify_dictionaries()


def _streams(folder: Path, table: str) -> list[Path]:
    """A table's streams in a run folder: ``table.arrows``, or ``table.NNN-experiment.arrows``."""
    whole = folder / f"{table}{_STREAM}"
    return [*([whole] if whole.exists() else []), *sorted(folder.glob(f"{table}.*{_STREAM}"))]


def _target_of(stream: Path) -> Path:
    """The Parquet file that a stream belongs to; the parts of a table share one."""
    table = stream.name.split(".")[0]
    is_part = table in TABLES and stream.name != f"{table}{_STREAM}"
    return stream.with_name(f"{table}{_PARQUET}") if is_part else stream.with_suffix(_PARQUET)


def _table_of(stream: Path) -> str:
    try:
        with pa.OSFile(str(stream), "rb") as source:
            file_schema = pa.ipc.open_stream(source).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UnciaError(f"{stream} is not a readable Arrow IPC stream: {error}") from error
    check_version(stream, file_schema)
    table = str((file_schema.metadata or {}).get(TABLE_KEY.encode(), b""), "utf-8")
    if table not in TABLES:
        raise UnciaError(f"{stream} does not say which table it holds")
    return table
