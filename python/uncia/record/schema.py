"""The schemas of the tables, in pyarrow's types."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from uncia.errors import UnciaError
from uncia.text import plural

TABLE_KEY = "uncia.table"
VERSION_KEY = "uncia.schema_version"
EPOCH_KEY = "uncia.epoch_unix_ns"

_INT64_MAX = (1 << 63) - 1
_EPOCH = re.compile(rb"-?[0-9]{1,19}")
_EPOCH_SHOWN = 40  # characters of an invalid epoch in a message

OUTCOMES: Final = (
    "ok",
    "function_error",
    "throttled",
    "timeout",
    "transport_error",
    "preempted",
)
"""The values of ``outcome``."""

INSTANCE_STARTS: Final = ("cold", "restored")
"""The values of ``start`` of requests for which an instance was started."""


def _list_of(*names: str, named: str | None = None) -> pa.DataType:
    """Lists of structures of these fields, whole numbers all of them; before them a text."""
    fields = [] if named is None else [pa.field(named, pa.utf8(), nullable=False)]
    fields += [pa.field(name, pa.int64(), nullable=False) for name in names]
    return pa.list_(pa.field("item", pa.struct(fields), nullable=False))


_TYPES: dict[str, pa.DataType] = {
    "dictionary<int32, utf8>": pa.dictionary(pa.int32(), pa.utf8()),
    "utf8": pa.utf8(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "decimal128(38, 0)": pa.decimal128(38, 0),
    "decimal128(38, 18)": pa.decimal128(38, 18),
    "list<struct<start: int64, end: int64>>": _list_of("start", "end"),
    "list<struct<duration: int64, threads: int64, memory: int64>>": _list_of(
        "duration", "threads", "memory"
    ),
    "list<struct<service: utf8, sent: int64, received: int64>>": _list_of(
        "sent", "received", named="service"
    ),
}


@dataclass(frozen=True)
class Column:
    """A column as declared: name, type, unit, whether and when it is null, and its meaning."""

    name: str
    type: str
    nullable: bool
    unit: str
    null_rule: str
    meaning: str


@dataclass(frozen=True)
class _Table:
    version: int
    columns: tuple[Column, ...]


@cache
def _declared() -> dict[str, _Table]:
    text = Path(__file__).with_name("tables.json").read_text(encoding="utf-8")
    return {
        table["name"]: _Table(
            version=table["version"],
            columns=tuple(Column(**column) for column in table["columns"]),
        )
        for table in json.loads(text)
    }


TABLES: tuple[str, ...] = tuple(_declared())
SCHEMA_VERSION: int = max(table.version for table in _declared().values())


def columns(table: str) -> tuple[Column, ...]:
    """The columns of ``table`` as declared, in order.

    Raises:
        UnciaError: there is no such table.
    """
    try:
        return _declared()[table].columns
    except KeyError:
        raise UnciaError(
            f"there is no table {table!r}", hint=f"The tables are: {', '.join(TABLES)}."
        ) from None


def schema(table: str, epoch_unix_ns: int = 0) -> pa.Schema:
    """The Arrow schema of ``table``, with its name, version and epoch in the metadata.

    Args:
        table: one of :data:`TABLES`.
        epoch_unix_ns: the Unix time in ns that the table's times are counted from.
    """
    fields = [pa.field(c.name, _TYPES[c.type], nullable=c.nullable) for c in columns(table)]
    metadata = {
        TABLE_KEY: table,
        VERSION_KEY: str(SCHEMA_VERSION),
        EPOCH_KEY: str(epoch_unix_ns),
    }
    return pa.schema(fields, metadata=metadata)


def empty(table: str, epoch_unix_ns: int = 0) -> pa.Table:
    """A table of no rows."""
    return schema(table, epoch_unix_ns).empty_table()


def epoch_unix_ns(table: pa.Table) -> int:
    """The Unix time in ns that the times of ``table`` are counted from; 0 if it has none.

    Raises:
        UnciaError: its metadata holds no such time.
    """
    metadata = table.schema.metadata or {}
    text = metadata.get(EPOCH_KEY.encode(), b"0")
    # The pattern bounds the length, so that no huge text is parsed.
    epoch = int(text) if _EPOCH.fullmatch(text) else _INT64_MAX + 1
    if not -_INT64_MAX <= epoch <= _INT64_MAX:
        shown = text[:_EPOCH_SHOWN].decode("utf-8", "backslashreplace")
        raise UnciaError(f"the table's epoch is {shown!r}, which is no Unix time in ns of 64 bits")
    return epoch


def check_version(file: Path, stored: pa.Schema) -> None:
    """Raise :class:`UnciaError` if a file's metadata name another version of the tables."""
    version = (stored.metadata or {}).get(VERSION_KEY.encode())
    if version is not None and version != str(SCHEMA_VERSION).encode():
        raise UnciaError(
            f"{file} was written with table schema version {version.decode(errors='replace')}; "
            f"this uncia reads version {SCHEMA_VERSION}"
        )


def conform(
    data: pa.Table,
    table: str,
    epoch: int | None = None,
    only: Sequence[str] | None = None,
    *,
    is_clipped: bool = False,
) -> pa.Table:
    """Conform ``data`` to exactly the columns and types of ``table``, in order.

    A missing nullable column becomes null, as in tables written before the column existed.

    Args:
        data: rows whose columns are those of ``table``, in any order.
        table: one of :data:`TABLES`.
        epoch: the epoch for the metadata; by default that of ``data``.
        only: columns to conform, in this order; by default all.
        is_clipped: whether unsigned numbers beyond int64 are clipped, as by `signed`.

    Raises:
        UnciaError: a required column is missing or holds a null, a column is unknown, or values do
            not fit the type.
    """
    target = schema(table, epoch_unix_ns(data) if epoch is None else epoch)
    unknown = sorted(set(data.column_names) - set(target.names))
    if unknown:
        raise UnciaError(
            f"the table {table} has no column {', '.join(unknown)}",
            hint=f"Its columns are: {', '.join(target.names)}.",
        )
    if len(set(data.column_names)) < data.num_columns:
        repeated = next(it for it in data.column_names if data.column_names.count(it) > 1)
        raise UnciaError(f"the column {repeated} stands there more than once")
    units = {column.name: column.unit for column in columns(table)}
    if only is not None:
        target = pa.schema([target.field(name) for name in only], metadata=target.metadata)
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for field in target:
        if field.name not in data.column_names:
            if not field.nullable and data.num_rows > 0:
                raise UnciaError(f"the table {table} lacks its required column {field.name}")
            arrays.append(pa.nulls(data.num_rows, field.type))
            continue
        column = data.column(field.name)
        if not field.nullable and column.null_count > 0:
            raise UnciaError(
                f"{table}.{field.name} must not be null, but is in"
                f" {plural(column.null_count, 'row')}"
            )
        unit = units.get(field.name, "")
        if pa.types.is_timestamp(column.type) and epoch_unix_ns(data):
            raise UnciaError(
                f"{table}.{field.name} is {column.type}, which counts from 1970, but the table's"
                " times count from its own epoch: write whole ns"
            )
        arrays.append(_cast(column, field, table, unit, is_clipped=is_clipped))
    return pa.Table.from_arrays(arrays, schema=target)


def as_integers(values: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Values as int64: numbers that are whole, and times and durations of any unit in ns.

    Args:
        values: of a foreign table.
        unit: of the column that they are for.

    Raises:
        pyarrow.ArrowException: a value is not whole or does not fit, or the type means none.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return as_integers(values.cast(kind.value_type), unit)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        if unit != "ns":
            raise pa.ArrowTypeError("it holds no times")
        in_ns = pa.duration("ns")
        if pa.types.is_timestamp(kind):
            in_ns = pa.timestamp("ns", tz=kind.tz)
        values = values.cast(in_ns)
    elif pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        raise pa.ArrowTypeError("its values are no whole numbers")
    return values.cast(pa.int64())


def signed(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers as int64; an unsigned one that does not fit becomes the largest that does.

    That is absurd as well, and makes one row unpriced where an error would cost the whole table.
    """
    if pa.types.is_uint64(values.type):
        import pyarrow.compute as pc  # seldom needed, and commands are to start soon

        largest = pa.scalar(_INT64_MAX, pa.uint64())
        values = pc.min_element_wise(values, largest, skip_nulls=False)
    return values.cast(pa.int64())


def _cast(
    column: pa.ChunkedArray, field: pa.Field, table: str, unit: str, *, is_clipped: bool
) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        if is_clipped and pa.types.is_int64(field.type) and pa.types.is_uint64(column.type):
            return signed(column)
        if pa.types.is_dictionary(field.type):
            text = column.cast(pa.utf8())
            if text.null_count == len(text):
                return pa.chunked_array([pa.nulls(len(text), field.type)])
            encoded = text.dictionary_encode()
            return encoded if encoded.type == field.type else encoded.cast(field.type)
        if pa.types.is_int64(field.type):
            return as_integers(column, unit)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnciaError(
            f"{table}.{field.name} must be {field.type}, but is {column.type}: {error}"
        ) from error
