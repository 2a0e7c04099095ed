"""Cells of Huawei's trace of 2025 that may be empty, with the bounds of what is believed."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from uncia.traces.base import Issues
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.huawei.pods import MAX_MEMORY, Pods
from uncia.units import MIB

EMPTY: Final = "empty or NaN"
"""By which a cell without data is noted."""


class Cells:
    """Cells that may be empty, which is noted, with their bounds."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._there: dict[str, Bools] = {}

    def number(
        self, column: str, factor: int, expected: str, most: int | None = None, bound: str = ""
    ) -> tuple[Ints, Bools]:
        """A quantity from 0, and where there is one."""
        numbers, there = self._checks.quantity(column, factor, expected, optional=True)
        if most is not None:
            self._checks.require(
                column,
                numbers <= most,
                f"{expected}, and at most {bound}",
                f"{column}: above {bound}",
            )
        self._there[column] = there
        return numbers, there

    def whole(self, column: str, expected: str) -> tuple[Ints, Bools]:
        """A whole number from 0, and where there is one."""
        numbers, there = self._checks.whole(column, expected, optional=True)
        self._there[column] = there
        return numbers, there

    def pods(self, max_memory: int | None, *, optional: bool = True) -> Pods:
        """The pods, whose names and allocations are checked."""
        texts = self._checks.block.cells["podID"]
        there = ~self._checks.absent("podID")
        pods = Pods.of(texts, there)
        self._checks.names("podID", pods.names, pods.codes, optional=optional)
        self._there["podID"] = there
        most = MAX_MEMORY if max_memory is None else max_memory
        size = f"{most // MIB} MB" if most % MIB == 0 else f"{most} bytes"
        pods.require(self._checks, most, f"memory above {size}")
        return pods

    def note(self, issues: Issues, good: Bools) -> None:
        """Note what is empty in good rows, by column."""
        for column, there in self._there.items():
            if not there.all():
                issues.note(f"{column}: {EMPTY}", int((good & ~there).sum()))


def same(text: str, rows: int) -> pa.DictionaryArray:
    """A column that holds one text in all rows."""
    codes = pa.array(np.zeros(rows, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.utf8()))
