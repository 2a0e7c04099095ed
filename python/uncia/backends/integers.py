"""Whole numbers of any type as 64-bit integers with a sign, which all expressions compute with."""

from __future__ import annotations

from typing import Any, Final

import ibis

_INT64_MAX: Final = (1 << 63) - 1


def signed(value: Any) -> Any:
    """A column as int64.

    An unsigned number that does not fit becomes the largest that does: that is absurd as well, and
    makes one row unpriced, where a cast would fail the whole query. Spark reads unsigned numbers of
    64 bits as decimals of 20 digits. `uncia.record.schema.signed` is the same of Arrow's columns.
    """
    dtype = value.type()
    if dtype.is_uint64() or dtype.is_decimal():
        largest = ibis.literal(_INT64_MAX, dtype)
        value = ibis.ifelse(value > largest, largest, value)
    return value.cast("int64")
