"""Reads the columns of a recorded table that a replay needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

TIMES: Final = ("scheduled", "sent", "started")
"""The columns that the time of an invocation's arrival is taken from, first to last."""

_TEXT: Final = ("function", "experiment")
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "invocations": ("function", "experiment", "attempt", *TIMES),
    "arrivals": ("function", "minute", "count"),
}


def read(path: Path) -> tuple[str, pa.Table]:
    """Read the name of a recorded table, and the columns of it that a replay needs.

    Args:
        path: ``*.parquet`` or ``*.arrows`` of an invocation or arrivals table, or the folder of a
            run, for its invocations.

    Returns:
        ``invocations`` with ``function``, ``experiment``, ``attempt`` and :data:`TIMES`, or
        ``arrivals`` with ``function``, ``minute`` and ``count``; text as dictionaries, numbers as
        int64. Values are whole: indices within their dictionary, text in UTF-8.

    Raises:
        UnciaError: the path does not exist, is no such table, or is damaged.
    """
    import pyarrow as pa

    try:
        name, table = _read(path)
        table = table.select(_COLUMNS[name])
        table.validate(full=True)
    # A damaged file can fail in any of these ways.
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        raise UnciaError(f"{path} cannot be read as a table: {error}") from error
    return name, table


def _read(path: Path) -> tuple[str, pa.Table]:
    from uncia import record

    if path.is_dir():
        parquet = path / "invocations.parquet"
        if not parquet.exists():
            return "invocations", record.read(path, "invocations")
        path = parquet
    if not path.exists():
        raise UnciaError(f"{path} does not exist")
    match path.suffix:
        case ".parquet":
            return _parquet(path)
        case ".arrows":
            name = _table_name(path, _stream_schema(path))
            return name, record.read(path, name)
    raise UnciaError(
        f"{path} is not a table: a replay reads *.parquet, *.arrows or the folder of a run"
    )


def _parquet(path: Path) -> tuple[str, pa.Table]:
    import pyarrow as pa

    from uncia.record import SCHEMA_VERSION, parquet
    from uncia.record.schema import VERSION_KEY

    schema = parquet.open_file(path).schema_arrow
    name = _table_name(path, schema)
    version = schema.metadata.get(VERSION_KEY.encode())
    if version is not None and int(version) != SCHEMA_VERSION:
        raise UnciaError(
            f"{path} was written with table schema version {int(version)}; "
            f"this uncia reads version {SCHEMA_VERSION}"
        )
    required = _COLUMNS[name]
    missing = [column for column in required if column not in schema.names]
    if missing:
        raise UnciaError(f"{path}: the table {name} lacks its column {missing[0]}")
    text = [column for column in required if column in _TEXT]
    table = parquet.read_table(path, columns=list(required), read_dictionary=text).select(required)
    types = dict.fromkeys(text, pa.dictionary(pa.int32(), pa.utf8()))
    return name, table.cast(
        pa.schema((column, types.get(column, pa.int64())) for column in required)
    )


def _stream_schema(path: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        return reader.schema


def _table_name(path: Path, schema: pa.Schema) -> str:
    """Read the name of a table from its metadata."""
    from uncia.record.schema import TABLE_KEY

    name = (schema.metadata or {}).get(TABLE_KEY.encode())
    if name is None:
        raise UnciaError(
            f"{path} is not a table of Uncia: its metadata does not name one",
            hint="Import a trace first: uncia trace import.",
        )
    text = str(name, "utf-8", "replace")
    if text not in _COLUMNS:
        raise UnciaError(f"{path} holds the table {text}; a replay reads {' or '.join(_COLUMNS)}")
    return text
