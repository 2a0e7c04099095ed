"""Unions of tables by column name, with types widened where files disagree."""

from collections.abc import Sequence
from typing import Final

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends.dtypes import is_untyped, type_name
from uncia.backends.integers import signed
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


def union_tables(tables: Sequence[ir.Table], name: str) -> ir.Table:
    """Union tables by column name; a column that a table lacks is null there.

    Types that differ are widened to a common one, and unsigned integers become signed. A column of
    Parquet's null type gets the type that the record declares, or text.

    Raises:
        UnciaError: the types of a column have no common type.
    """
    types_by_column: dict[str, list[dt.DataType]] = {}
    for table in tables:
        for column, dtype in table.schema().items():
            dtypes = types_by_column.setdefault(column, [])
            if not is_untyped(dtype):
                dtypes.append(_SIGNED.get(type(dtype), dtype).copy(nullable=True))
    declared = _declared(name)
    types = {
        column: _common(column, dtypes) if dtypes else declared.get(column, dt.string)
        for column, dtypes in types_by_column.items()
    }
    parts = [_as(table, types) for table in tables]
    return parts[0] if len(parts) == 1 else ibis.union(*parts, distinct=False)


def typed_keys(table: ir.Table, keys: Sequence[str], name: str) -> ir.Table:
    """Cast partition columns, which are text in folder names, to the declared types."""
    declared = _declared(name)
    wanted = {
        key: table[key].cast(declared[key])
        for key in keys
        if key in declared and table.schema()[key] != declared[key]
    }
    return table.mutate(**wanted) if wanted else table


def with_types(data: pa.Table, name: str) -> pa.Table:
    """Make the columns of a table in memory nullable, and of types that engines know.

    A column of Arrow's null type gets the type that the record declares, or text. Durations of ns
    become their numbers, as engines read them from Parquet, and bytes of one length, bytes.
    """
    declared = _declared(name)

    def known(field: pa.Field) -> pa.DataType:
        if pa.types.is_null(field.type):
            return declared.get(field.name, dt.string).to_pyarrow()
        if pa.types.is_fixed_size_binary(field.type):
            return pa.binary()
        return pa.int64() if field.type == pa.duration("ns") else field.type

    fields = [field.with_nullable(True).with_type(known(field)) for field in data.schema]
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


def _common(column: str, dtypes: Sequence[dt.DataType]) -> dt.DataType:
    try:
        return dt.highest_precedence(dtypes)
    except ibis.common.exceptions.IbisTypeError as error:
        types = " and ".join(sorted({type_name(dtype) for dtype in dtypes}))
        raise UnciaError(f"the column {column} is {types} in different files") from error


def _as(table: ir.Table, types: dict[str, dt.DataType]) -> ir.Table:
    schema = table.schema()
    if list(schema) == list(types) and all(
        schema[column].copy(nullable=True) == dtype for column, dtype in types.items()
    ):
        return table
    columns = {}
    for column, dtype in types.items():
        if column not in schema or is_untyped(schema[column]):
            columns[column] = ibis.null(dtype)
        else:
            value = table[column]
            columns[column] = signed(value) if dtype.is_int64() else value.cast(dtype)
    return table.select(**columns)
