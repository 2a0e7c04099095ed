"""Tables of several files as one, whatever engine reads them: columns by name, types alike."""

from collections.abc import Sequence
from typing import Final

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa
from ibis.expr import types as ir

from uncia.errors import UnciaError

# The record's types as Ibis has them; a partition column that is none of these stays text.
_DECLARED: Final = {
    "int64": "int64",
    "float64": "float64",
    "bool": "boolean",
    "utf8": "string",
    "dictionary<int32, utf8>": "string",
}

# Spark has no unsigned integers, and reads them from Parquet as the next wider ones.
_SIGNED: Final[dict[type, dt.DataType]] = {
    dt.UInt8: dt.int16,
    dt.UInt16: dt.int32,
    dt.UInt32: dt.int64,
    dt.UInt64: dt.int64,
}


def together(tables: Sequence[ir.Table], name: str) -> ir.Table:
    """The rows of all tables: their columns by name, null where a table has none of that name.

    A column that differs in type becomes the wider of the types; an unsigned integer is read as a
    signed one. A column without any type (Parquet's null type, all null) has that of the record, or
    is text.

    Raises:
        UnciaError: a column is of types that have nothing in common.
    """
    found: dict[str, list[dt.DataType]] = {}
    for table in tables:
        for column, dtype in table.schema().items():
            known = found.setdefault(column, [])
            if not _is_null(dtype):
                known.append(_SIGNED.get(type(dtype), dtype).copy(nullable=True))
    declared = _declared(name)
    types = {
        column: _common(column, known) if known else declared.get(column, dt.string)
        for column, known in found.items()
    }
    parts = [_as(table, types) for table in tables]
    return parts[0] if len(parts) == 1 else ibis.union(*parts, distinct=False)


def typed_keys(table: ir.Table, keys: Sequence[str], name: str) -> ir.Table:
    """Partition columns are text in folder names; those that the record has get its type."""
    declared = _declared(name)
    wanted = {
        key: table[key].cast(declared[key])
        for key in keys
        if key in declared and table.schema()[key] != declared[key]
    }
    return table.mutate(**wanted) if wanted else table


def with_types(data: pa.Table, name: str) -> pa.Table:
    """A table in memory as engines keep it: every column of a type that they know, and nullable.

    Columns of Arrow's null type get the record's type, or are text.
    """
    declared = _declared(name)
    fields = [
        field.with_nullable(True).with_type(
            declared.get(field.name, dt.string).to_pyarrow()
            if pa.types.is_null(field.type)
            else field.type
        )
        for field in data.schema
    ]
    return data.cast(pa.schema(fields))


def _declared(name: str) -> dict[str, dt.DataType]:
    from uncia.record import TABLES, columns

    if name not in TABLES:
        return {}
    return {
        column.name: dt.dtype(_DECLARED[column.type])
        for column in columns(name)
        if column.type in _DECLARED
    }


def _is_null(dtype: dt.DataType) -> bool:
    # Parquet's null type comes through DuckDB as a type that Ibis does not know.
    return bool(dtype.is_null() or (dtype.is_unknown() and "NULL" in str(dtype)))


def _common(column: str, known: Sequence[dt.DataType]) -> dt.DataType:
    try:
        return dt.highest_precedence(known)
    except ibis.common.exceptions.IbisTypeError as error:
        said = " and ".join(sorted({str(dtype) for dtype in known}))
        raise UnciaError(f"the column {column} is {said} in different files") from error


def _as(table: ir.Table, types: dict[str, dt.DataType]) -> ir.Table:
    schema = table.schema()
    if list(schema) == list(types) and all(
        schema[column].copy(nullable=True) == dtype for column, dtype in types.items()
    ):
        return table
    columns = {}
    for column, dtype in types.items():
        if column not in schema or _is_null(schema[column]):
            columns[column] = ibis.null(dtype)
        else:
            columns[column] = table[column].cast(dtype)
    return table.select(**columns)
