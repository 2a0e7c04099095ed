"""Tables at rest: Arrow IPC streams while a run goes on, Parquet after it."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from uncia.errors import UnciaError
from uncia.record.schema import (
    SCHEMA_VERSION,
    TABLE_KEY,
    TABLES,
    VERSION_KEY,
    conform,
    empty,
)

_STREAM = ".arrows"
_PARQUET = ".parquet"


def read(path: Path | str, table: str = "invocations") -> pa.Table:
    """Read a table from a run folder, a Parquet file, a folder of them, or an Arrow IPC stream.

    A table that is large, or was written by an engine, is a folder ``NAME.parquet`` of Parquet
    files, or of folders of them such as ``platform=aws``; their rows follow each other in order of
    the paths. A stream that a crash cut off is read up to its last whole batch.

    Args:
        path: the run folder, or the file or folder ``NAME.parquet`` itself.
        table: which table; of a file it is what the file must hold.

    Returns:
        A table with exactly the columns of ``table``; empty if the run has none of it.

    Raises:
        UnciaError: nothing is there, or it is not such a table.
    """
    path = Path(path)
    if path.is_dir() and path.suffix == _PARQUET:
        return _read_parts(path, table)
    if path.is_dir():
        parquet = path / f"{table}{_PARQUET}"
        if parquet.is_dir():
            return _read_parts(parquet, table)
        if parquet.exists():
            return _read_file(parquet, table)
        if streams := _streams(path, table):
            return merge([_read_file(stream, table) for stream in streams], table)
        if any((path / f"{name}{_PARQUET}").exists() or _streams(path, name) for name in TABLES):
            return empty(table)
        raise UnciaError(
            f"{path} is not the folder of a run: it holds no table",
            hint="A run folder holds run.yaml and invocations.parquet.",
        )
    if not path.exists():
        raise UnciaError(f"{path} does not exist")
    return _read_file(path, table)


def _read_parts(folder: Path, table: str) -> pa.Table:
    # Hidden files are what an engine keeps beside the parts, such as checksums.
    parts = [part for part in sorted(folder.rglob(f"*{_PARQUET}")) if not part.name.startswith(".")]
    if not parts:
        raise UnciaError(f"{folder} is a folder without a file *{_PARQUET}")
    return merge([_read_file(part, table) for part in parts], table)


def _read_file(file: Path, table: str) -> pa.Table:
    try:
        data = (
            _read_stream(file)
            if file.suffix == _STREAM
            else pa.parquet.read_table(file, partitioning=None)
        )
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise UnciaError(f"{file} cannot be read as a table: {error}") from error
    version = (data.schema.metadata or {}).get(VERSION_KEY.encode())
    if version is not None and int(version) != SCHEMA_VERSION:
        raise UnciaError(
            f"{file} was written with table schema version {int(version)}; "
            f"this uncia reads version {SCHEMA_VERSION}"
        )
    try:
        return conform(data, table)
    except UnciaError as error:
        raise UnciaError(f"{file}: {error.message}", error.hint) from error


def _read_stream(file: Path) -> pa.Table:
    with pa.OSFile(str(file), "rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid as error:
            raise UnciaError(
                f"{file} has no whole schema: its writer was cut off before the first row"
            ) from error
        batches: list[pa.RecordBatch] = []
        while True:
            try:
                batches.append(reader.read_next_batch())
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError):
                # A crash cut the stream here; every batch before is whole.
                break
        return pa.Table.from_batches(batches, schema=reader.schema)


def write(data: pa.Table, path: Path | str, table: str = "invocations") -> Path:
    """Write rows as Parquet; the file appears under its name only when it is complete.

    Raises:
        UnciaError: the rows are not of ``table``, or the file cannot be written.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        pa.parquet.write_table(conform(data, table), partial, compression="zstd")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    return path


def merge(parts: Iterable[pa.Table], table: str = "invocations") -> pa.Table:
    """The rows of all ``parts``, one after the other, with dictionaries unified.

    Returns:
        A table with the columns of ``table``; empty if there are no parts.
    """
    tables = [conform(part, table) for part in parts]
    if not tables:
        return empty(table)
    return pa.concat_tables(tables).unify_dictionaries()


def recover_folder(path: Path) -> dict[str, int]:
    """Turn Arrow IPC streams into Parquet files beside them, each up to its last whole batch.

    A stream is removed once its Parquet file is complete. A stream whose head is damaged does
    not keep the others from being recovered.

    Args:
        path: a run folder, whose streams are all recovered, or one stream.

    Returns:
        Rows recovered, by file name of the stream.

    Raises:
        UnciaError: a stream could not be recovered; it is still there.
    """
    streams = sorted(path.glob(f"*{_STREAM}")) if path.is_dir() else [path]
    targets: dict[Path, list[tuple[Path, pa.Table]]] = {}
    failures: list[str] = []
    for stream in streams:
        try:
            data = _read_file(stream, _table_of(stream))
        except UnciaError as error:
            failures.append(error.message)
            continue
        targets.setdefault(_target_of(stream), []).append((stream, data))
    recovered: dict[str, int] = {}
    for target, parts in targets.items():
        table = _table_of(parts[0][0])
        try:
            write(merge([data for _, data in parts], table), target, table)
        except UnciaError as error:
            failures.append(error.message)
            continue
        for stream, data in parts:
            stream.unlink()
            recovered[stream.name] = data.num_rows
    if failures:
        raise UnciaError("; ".join(failures), exit_code=1)
    return recovered


def _streams(folder: Path, table: str) -> list[Path]:
    """The streams of a table in a run folder: one whole, or parts ``table.NNN-experiment``."""
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
            metadata = pa.ipc.open_stream(source).schema.metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise UnciaError(f"{stream} is not a readable Arrow IPC stream: {error}") from error
    table = str(metadata.get(TABLE_KEY.encode(), b""), "utf-8")
    if table not in TABLES:
        raise UnciaError(f"{stream} does not say which table it holds")
    return table
