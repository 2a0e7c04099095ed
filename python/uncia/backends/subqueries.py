"""How queries are written: each step a subquery of its own, which engines merge by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import ibis


@contextmanager
def step_by_step() -> Iterator[None]:
    """Compile queries without merging their steps.

    Ibis would merge them by writing an expression again wherever it is used. For a bill under
    every tariff that takes longer than all the rest of compiling it, and the engine then computes
    some expressions twice.
    """
    before = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = before
