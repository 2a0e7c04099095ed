"""Fields of kind ``column``: a request carries a value of the row that it replays."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.text import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

_UNITS: Final[dict[str, dict[str, int]]] = {
    "ns": {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
    "bytes": {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30},
    "micro-vCPU": {"mvCPU": 10**3, "vCPU": 10**6},
}
"""How large each unit is, by the unit that a column of the table is in."""

_DIGITS: Final = 60
"""More than any 64-bit integer has once it is divided by a unit, so that no value is rounded."""


class ColumnField(Form):
    """The value of a column in the row that the request replays."""

    kind: Literal["column"]
    column: str = Field(description="A column of the invocation table, such as execution")
    unit: Literal["ns", "us", "ms", "s", "B", "KB", "MB", "GB", "mvCPU", "vCPU"] | None = Field(
        None, description="Write times, sizes and CPU in this unit instead of the table's"
    )
    default: int | float | str | None = Field(
        None,
        description="The value for rows in which the column is null; without it they are refused",
    )


def is_number(field: ColumnField) -> bool:
    """Whether the column holds numbers or lists, which JSON writes without quotes.

    Raises:
        UnciaError: the invocation table has no such column, or the unit is none of it.
    """
    from uncia import record
    from uncia.record.schema import columns

    declared = {column.name: column for column in columns("invocations")}
    if field.column not in declared:
        hint = did_you_mean(field.column, declared)
        raise UnciaError(f"the invocation table has no column {field.column!r}{hint}")
    column = declared[field.column]
    units = _UNITS.get(column.unit, {})
    if field.unit is not None and field.unit not in units:
        allowed = f" (allowed: {', '.join(units)})" if units else ""
        raise UnciaError(f"the column {field.column} is not measured in {field.unit}{allowed}")
    import pyarrow as pa

    kind = record.schema("invocations").field(field.column).type
    if pa.types.is_list(kind) and field.default is not None:
        raise UnciaError(f"the column {field.column} has lists, for which there is no default")
    return not _is_text(kind) and not isinstance(field.default, str)


def is_list(field: ColumnField) -> bool:
    """Whether the column holds lists, which are JSON in a request."""
    import pyarrow as pa

    from uncia import record

    schema = record.schema("invocations")
    return field.column in schema.names and bool(pa.types.is_list(schema.field(field.column).type))


def unit_of(field: ColumnField) -> str:
    """Return the unit that the values are written in; the empty text if they have none."""
    from uncia.record.schema import columns

    if field.unit is not None:
        return field.unit
    units = {column.name: column.unit for column in columns("invocations")}
    return {"bytes": "B"}.get(units[field.column], units[field.column])


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))


def engine(field: ColumnField, values: pa.Array, function: str, *, quoted: bool) -> dict[str, Any]:
    """Convert a field to the engine's form, with a value for each request.

    Args:
        field: the field.
        values: the column's, in the order of the requests.
        function: whose requests they are, for errors.
        quoted: whether texts stand within the quotes of JSON, and are escaped for it.

    Raises:
        UnciaError: a value is null and the field has no default.
    """
    if values.null_count and field.default is None:
        raise UnciaError(
            f"the field of the column {field.column}: {values.null_count:,} of {len(values):,} rows"
            f" of {function!r} have no value there",
            hint="Give the field a default, or take another column.",
        )
    unit = 1
    if field.unit is not None:
        unit = next(units[field.unit] for units in _UNITS.values() if field.unit in units)
    if is_list(field):
        # Compact, as each request carries its own.
        lists = [json.dumps(value, separators=(",", ":")) for value in values.to_pylist()]
        return {"kind": "column", "values": lists}
    # A column has few distinct texts, and often few distinct numbers.
    written: dict[Any, str] = {None: _write(field.default, 1, quoted=quoted)}
    texts = []
    for value in values.to_pylist():
        if value not in written:
            written[value] = _write(value, unit, quoted=quoted)
        texts.append(written[value])
    return {"kind": "column", "values": texts}


def _write(value: object, unit: int, *, quoted: bool) -> str:
    if isinstance(value, str):
        return json.dumps(value)[1:-1] if quoted else value
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal_text(value, unit)
    return json.dumps(value)


def decimal_text(value: int, unit: int) -> str:
    """Write ``value / unit`` in decimal, exactly: units have no factors but 2 and 5."""
    if unit == 1:
        return str(value)
    with localcontext() as context:
        context.prec = _DIGITS
        exact = Decimal(value) / unit
    text = f"{exact:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
