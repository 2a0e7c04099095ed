"""Compiling queries with each step as a subquery, which engines merge by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import ibis


@contextmanager
def unfused_selects() -> Iterator[None]:
    """Compile queries without fusing their SELECTs.

    Ibis would fuse them by repeating an expression wherever it is used. For a bill under every
    tariff that takes longer than the rest of the compilation, and the engine then computes some
    expressions twice.
    """
    before = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = before
