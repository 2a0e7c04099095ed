"""Whole numbers of any type as 64-bit integers with a sign, which all expressions compute with."""

from __future__ import annotations

from typing import Any, Final

import ibis

_INT64_MAX: Final = (1 << 63) - 1


def signed(value: Any) -> Any:
    """A column as int64.

    An unsigned number that does not fit becomes the largest that does: that is absurd as well, and
    makes one row unpriced, where a cast would fail the whole query.
    """
    if value.type().is_uint64():
        largest = ibis.literal(_INT64_MAX, "uint64")
        value = ibis.ifelse(value > largest, largest, value)
    return value.cast("int64")
