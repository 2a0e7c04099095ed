"""Reads the columns of a recorded table that a replay needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

TIMES: Final = ("scheduled", "sent", "started")
"""The columns that the time of an invocation's arrival is taken from, first to last."""

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "invocations": ("function", "experiment", "attempt", *TIMES),
    "arrivals": ("function", "minute", "count"),
    "profiles": (
        *("function", "owner", "app", "minute"),
        *("statistic", "quantile", "duration", "memory"),
    ),
}
_REPLAYED: Final = ("invocations", "arrivals")


def read(path: Path, extra: Sequence[str] = ()) -> tuple[str, pa.Table]:
    """Read the name of a recorded table, and the columns of it that a replay needs.

    Args:
        path: ``*.parquet`` or ``*.arrows`` of an invocation or arrivals table, or the folder of a
            run or of an imported trace, for its invocations or else its arrivals.
        extra: more columns of an invocation table; one that the file lacks is null.

    Returns:
        ``invocations`` with ``function``, ``experiment``, ``attempt``, :data:`TIMES` and ``extra``,
        or ``arrivals`` with ``function``, ``minute`` and ``count``; types as declared. Values are
        whole: indices within their dictionary, text in UTF-8.

    Raises:
        UnciaError: the path does not exist, is no such table, or is damaged.
    """
    return _whole(path, _REPLAYED, extra)


def profiles(path: Path) -> pa.Table:
    """Read the columns of a table of profiles that tell durations and memory.

    Args:
        path: ``*.parquet`` or ``*.arrows``.

    Raises:
        UnciaError: the path does not exist, is no such table, or is damaged.
    """
    return _whole(path, ("profiles",), ())[1]


def _whole(path: Path, allowed: Sequence[str], extra: Sequence[str]) -> tuple[str, pa.Table]:
    """Read a table of one of the ``allowed`` names, and check its values."""
    import pyarrow as pa

    try:
        name, table = _read(path, allowed, extra)
        more = extra if name == "invocations" else ()
        table = table.select(dict.fromkeys((*_COLUMNS[name], *more)))
        table.validate(full=True)
    # A damaged file can fail in any of these ways.
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        raise UnciaError(f"{path} cannot be read as a table: {error}") from error
    return name, table


def _read(path: Path, allowed: Sequence[str], extra: Sequence[str]) -> tuple[str, pa.Table]:
    from uncia import record

    if path.is_dir():
        files = [path / f"{name}.parquet" for name in allowed]
        parquet = next((file for file in files if file.exists()), None)
        if parquet is None:
            return "invocations", record.read(path, "invocations")
        path = parquet
    if not path.exists():
        raise UnciaError(f"{path} does not exist")
    match path.suffix:
        case ".parquet":
            return _parquet(path, allowed, extra)
        case ".arrows":
            name = _table_name(path, _stream_schema(path), allowed)
            return name, record.read(path, name)
    raise UnciaError(
        f"{path} is not a table: a replay reads *.parquet, *.arrows or the folder of a run"
    )


def _parquet(path: Path, allowed: Sequence[str], extra: Sequence[str]) -> tuple[str, pa.Table]:
    import pyarrow as pa

    from uncia import record
    from uncia.record import parquet
    from uncia.record.schema import check_version

    schema = parquet.open_file(path).schema_arrow
    name = _table_name(path, schema, allowed)
    check_version(path, schema)
    required = _COLUMNS[name]
    missing = [column for column in required if column not in schema.names]
    if missing:
        raise UnciaError(f"{path}: the table {name} lacks its column {missing[0]}")
    declared = record.schema(name)
    wanted = [*dict.fromkeys((*required, *(extra if name == "invocations" else ())))]
    stored = [column for column in wanted if column in schema.names]
    # Only text can be read as a dictionary; what else is stored there, the cast below refuses.
    text = [
        column
        for column in stored
        if pa.types.is_dictionary(declared.field(column).type)
        and (pa.types.is_string(it := schema.field(column).type) or pa.types.is_dictionary(it))
    ]
    table = parquet.read_table(path, columns=stored, read_dictionary=text)
    for column in wanted:
        if column not in stored:
            absent = pa.nulls(table.num_rows, declared.field(column).type)
            table = table.append_column(column, absent)
    types = pa.schema((column, declared.field(column).type) for column in wanted)
    return name, table.select(wanted).cast(types)


def _stream_schema(path: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        return reader.schema


def _table_name(path: Path, schema: pa.Schema, allowed: Sequence[str]) -> str:
    """Read the name of a table, one of ``allowed``, from its metadata.

    A table that somebody else wrote has no name there. It is the one whose columns it has.
    """
    from uncia.record.schema import TABLE_KEY

    name = (schema.metadata or {}).get(TABLE_KEY.encode())
    if name is None:
        for table in allowed:
            if set(_COLUMNS[table]) <= set(schema.names):
                return table
        columns = " or ".join(f"{table} ({', '.join(_COLUMNS[table])})" for table in allowed)
        raise UnciaError(
            f"{path} is not a table of Uncia: its metadata does not name one, and it lacks columns",
            hint="Import a trace first (uncia trace import), or write a table with the columns of"
            f" {columns}.",
        )
    text = str(name, "utf-8", "replace")
    if text not in allowed:
        raise UnciaError(f"{path} holds the table {text}; a replay reads {' or '.join(allowed)}")
    return text
