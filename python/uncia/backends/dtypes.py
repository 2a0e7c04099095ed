"""Types of columns: which hold nothing, and what to call them in messages."""

from __future__ import annotations

import re
from typing import Any, Final

_DUCKDB_NAME: Final = re.compile(r"\bType\.(\w+)")
"""The type in the words of Ibis for one that it does not know: ``DataType(this=Type.TIME_NS)``."""


def is_untyped(dtype: Any) -> bool:
    """Whether a column has no type, as all of it is null."""
    # Parquet's null type comes through DuckDB as a type that Ibis does not know.
    return bool(dtype.is_null() or (dtype.is_unknown() and "NULL" in str(dtype)))


def type_name(dtype: Any) -> str:
    """The name of a type for a message: ``timestamp(6)``, ``time_ns``."""
    named = _DUCKDB_NAME.search(str(dtype)) if dtype.is_unknown() else None
    return str(dtype) if named is None else named[1].lower()
