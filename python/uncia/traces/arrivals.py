"""Counts of invocations a minute, from reading order to the table of arrivals."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uncia.traces.cells import NO_DATA
from uncia.traces.output import Names, Output

MINUTES_PER_DAY: Final = 1440

_SCHEMA: Final = {
    "function": pa.int32(),
    "minute": pa.int64(),
    "count": pa.int64(),
    "trigger": pa.int32(),
}
_MERGED: Final = """
    SELECT function, minute, sum(count)::BIGINT AS count,
           CASE WHEN min(trigger) = max(trigger) THEN min(trigger) END AS trigger
    FROM counts GROUP BY function, minute ORDER BY function, minute
"""
_SORTED: Final = "SELECT function, minute, count, trigger FROM counts ORDER BY function, minute"


class Arrivals:
    """Collects counts in any order, then writes them by function and minute."""

    def __init__(self, out: Output) -> None:
        self.functions = Names()
        self.triggers = Names()
        self._out = out
        self._stage = out.stage("counts", _SCHEMA)

    def add(
        self,
        functions: npt.NDArray[np.int32],
        minutes: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        triggers: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Add counts; zeros are dropped, because a minute without invocations has no row.

        Args:
            functions: numbers of :attr:`functions`; all arrays have one shape.
            minutes: minutes from the start of the trace.
            counts: invocations.
            triggers: numbers of :attr:`triggers`.
        """
        some = counts > 0
        rows = int(some.sum())
        self._stage.write(
            {
                "function": functions[some],
                "minute": minutes[some],
                "count": counts[some],
                "trigger": pa.nulls(rows, pa.int32()) if triggers is None else triggers[some],
            }
        )

    def finish(self, attributes: Mapping[str, Sequence[str | None]], *, merge: bool) -> None:
        """Write the table.

        Args:
            attributes: further columns of the table, with a text for each function.
            merge: whether counts of one function and minute may have been added several times,
                and are to be summed. A trigger that they do not agree on becomes null.
        """
        triggers = [None if name in NO_DATA else name for name in self.triggers]
        for batch in self._out.query(_MERGED if merge else _SORTED):
            function = batch.column("function")
            columns = {
                "function": self.functions.column(function),
                "minute": batch.column("minute"),
                "count": batch.column("count"),
                "trigger": self.triggers.column(batch.column("trigger"), triggers),
            }
            for name, texts in attributes.items():
                columns[name] = self.functions.column(function, texts)
            self._out.write("arrivals", columns)
