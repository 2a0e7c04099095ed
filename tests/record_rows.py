"""Rows that tests write as dictionaries, as tables of the record."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from uncia import record


def table(rows: Sequence[Mapping[str, Any]], name: str = "invocations") -> pa.Table:
    """Rows as a table of the record; what a row does not have is null."""
    columns = {}
    for column in record.schema(name):
        kind = pa.utf8() if pa.types.is_dictionary(column.type) else column.type
        columns[column.name] = pa.array([row.get(column.name) for row in rows], kind)
    return record.conform(pa.table(columns), name)


def write_invocations(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as a table of invocations, which has the columns that they have."""
    whole = [
        {"invocation": f"i{number}", "attempt": 1, "outcome": "ok", **row}
        for number, row in enumerate(rows)
    ]
    types = record.schema("invocations")
    columns = {
        name: pa.array([row.get(name) for row in whole], type=types.field(name).type)
        for name in dict.fromkeys(name for row in whole for name in row)
    }
    return record.write(pa.table(columns), path, "invocations")
