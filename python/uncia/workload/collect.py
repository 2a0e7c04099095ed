"""Merges the rows of all generator processes into one table, sorted by scheduled time.

A process writes its rows as answers arrive, in no particular order. DuckDB sorts them, on disk if
memory does not suffice; no step has a whole table in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from uncia.errors import UnciaError
from uncia.record import parquet

STREAM: Final = ".arrows"
PARQUET: Final = ".parquet"

_BATCH_ROWS: Final = 65_536
_MEMORY: Final = "512MB"
_pc: Any = compute


def merge(parts: Sequence[Path], out: Path) -> int:
    """Write the rows of ``parts`` to one file, by scheduled time, and remove the parts.

    Args:
        parts: Arrow IPC streams with the same columns; a truncated one counts up to its last whole
            batch.
        out: ``*.parquet`` or ``*.arrows``; it gets its name only once it is complete.

    Returns:
        The number of rows.

    Raises:
        UnciaError: a part cannot be read, or the file cannot be written; the parts are kept.
    """
    import duckdb

    partial = out.with_name(out.name + ".partial")
    try:
        with ExitStack() as stack:
            schema = _schema(parts[0])
            spill = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=".uncia-sort-", dir=out.resolve().parent)
            )
            base = stack.enter_context(duckdb.connect())
            base.execute(f"SET memory_limit = '{_MEMORY}'")
            base.execute("SET temp_directory = ?", [spill])
            base.register("parts", _reader(parts, _used(parts, schema)))
            # Later stages of chains have no scheduled time; the schedule of a dry run has no other.
            order = "scheduled, invocation"
            if "sent" in schema.names:
                order = "coalesce(scheduled, sent), sent"
            ordered = base.sql(f"SELECT * FROM parts ORDER BY {order}")
            # DuckDB 2 renamed the method.
            reader = getattr(ordered, "to_arrow_reader", None) or ordered.fetch_record_batch
            rows = _write(reader(_BATCH_ROWS), schema, partial, out.suffix)
    except (OSError, pa.ArrowException, duckdb.Error) as error:
        partial.unlink(missing_ok=True)
        names = ", ".join(part.name for part in parts)
        raise UnciaError(
            f"the rows cannot be written to {out}: {error}",
            hint=f"They are kept in {names}; `uncia recover` makes Parquet of each.",
            exit_code=1,
        ) from error
    partial.replace(out)
    parquet.sync_folder(out.resolve().parent)
    for part in parts:
        if part != out:
            part.unlink()
    return rows


def readable(part: Path) -> bool:
    """Whether a stream has at least its header, so that its process has started to write."""
    try:
        _schema(part)
    except (OSError, pa.ArrowException):
        return False
    return True


def _write(reader: pa.RecordBatchReader, schema: pa.Schema, path: Path, suffix: str) -> int:
    rows = 0
    with ExitStack() as stack:
        write: Callable[[pa.Table], None]
        if suffix == STREAM:
            sink = stack.enter_context(pa.OSFile(str(path), "wb"))
            write = stack.enter_context(pa.ipc.new_stream(sink, schema)).write_table
        else:
            write = stack.enter_context(parquet.Writer(path, schema)).write
        for batch in reader:
            if batch.num_rows:
                write(_typed(pa.Table.from_batches([batch]), schema))
                rows += batch.num_rows
    return rows


def _schema(part: Path) -> pa.Schema:
    with pa.OSFile(str(part), "rb") as source, pa.ipc.open_stream(source) as reader:
        return reader.schema


def _used(parts: Sequence[Path], schema: pa.Schema) -> pa.Schema:
    """Select the columns with any value, and those that rows are sorted by.

    Most columns of an invocation table are known to platforms only: sorting nulls would cost time.
    """
    used = {"scheduled", "sent", "invocation"}
    for part in parts:
        for batch in _batches(part):
            used |= {
                name
                for name in set(schema.names) - used
                if batch.column(name).null_count < batch.num_rows
            }
    return pa.schema([field for field in schema if field.name in used])


def _reader(parts: Sequence[Path], used: pa.Schema) -> pa.RecordBatchReader:
    """Read all rows, with plain text, because each batch of a part has another dictionary."""
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in used])
    batches = (batch.select(plain.names).cast(plain) for part in parts for batch in _batches(part))
    return pa.RecordBatchReader.from_batches(plain, batches)


def _batches(part: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(part), "rb") as source, pa.ipc.open_stream(source) as reader:
        while True:
            try:
                yield reader.read_next_batch()
            except (StopIteration, pa.ArrowInvalid, OSError):
                # The end, or the point where a crash cut the stream; the batches before are whole.
                return


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        if pa.types.is_dictionary(field.type):
            column = _pc.dictionary_encode(column.cast(field.type.value_type))
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
