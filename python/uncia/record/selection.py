"""Selecting the rows of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def of_experiments(rows: pa.Table, experiments: Sequence[str]) -> pa.Table:
    """The rows of these experiments, in order of their scheduled times."""
    from pyarrow import compute

    pc: Any = compute
    names = rows.column("experiment").cast(pa.utf8())
    chosen = rows.filter(pc.is_in(names, value_set=pa.array(list(experiments), pa.utf8())))
    return chosen.sort_by([("scheduled", "ascending")])
