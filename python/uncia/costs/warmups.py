"""Warm-up rows, which prepare an experiment and are no result of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncia.stats.summary import WARMUP_SUFFIX

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend


def without_warmups(backend: Backend, table: ir.Table) -> tuple[ir.Table, int]:
    """Leave out the rows of warm-ups, which are experiments of their own (``NAME.warmup``).

    Args:
        backend: where the table is.
        table: invocations.

    Returns:
        The other rows, and the number of rows left out; without any, the table as it is.
    """
    dtype = table.schema().get("experiment")
    if dtype is None or not dtype.is_string():
        return table, 0
    is_warmup = table["experiment"].cast("string").endswith(WARMUP_SUFFIX).fill_null(False)
    warmups = table.filter(is_warmup)
    counted = backend.collect(warmups.aggregate(n=warmups.count()))
    count = int(counted.column("n")[0].as_py())
    return (table.filter(~is_warmup), count) if count else (table, 0)


def warmup_note(count: int) -> str:
    """Say how many rows are left out."""
    rows = "1 warm-up row is" if count == 1 else f"{count:,} warm-up rows are"
    return f"{rows} left out (experiments named *{WARMUP_SUFFIX})."
