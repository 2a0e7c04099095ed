"""Bills of invocations that come batch after batch: exact, and without the rows being kept.

A batch becomes cells (`uncia.tariffs.cells`), of which there are few whatever the number of its
rows. All that a bill needs of a cell are sums, so those of the same cell in two batches are added
up, and the lines are the same as of one table with all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from uncia.backends.duckdb import open_backend
from uncia.backends.options import Options
from uncia.tariffs.bill import line_of
from uncia.tariffs.catalogue import resolve
from uncia.tariffs.equation import Query, query

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.tariffs.line import Line
    from uncia.tariffs.model import Tariff

_COLUMN: Final = "function"


class RunningBill:
    """The bills of all rows so far under some tariffs, of each function and as a whole.

    Attributes:
        tariffs: in the order of the lines.
        rows: how many rows there were.
    """

    def __init__(
        self, schema: pa.Schema, tariffs: Sequence[Tariff], max_functions: int = 1_000
    ) -> None:
        """Plan the bills.

        Args:
            schema: of the batches, which have the columns of the invocation table.
            tariffs: each bills by request.
            max_functions: functions with lines of their own; those that come later share the lines
                of the function None.

        Raises:
            UnciaError: a column is missing or not of whole numbers, or a tariff cannot bill.
        """
        self.tariffs: Final = resolve(tariffs)
        self.rows = 0
        self._max_functions: Final = max_functions
        self._backend: Final = open_backend(Options(threads=1))
        self._planned: Query | None = None
        try:
            self._cells_of: Final = self._backend.compile(schema, self._plan)
        except BaseException:
            self._backend.close()
            raise
        # By function, and in it by all that tells cells apart.
        self._cells: Final[dict[str | None, dict[tuple[Any, ...], dict[str, Any]]]] = {}
        self._sums: Final[dict[str | None, Mapping[str, Any]]] = {}

    def _plan(self, table: ir.Table) -> ir.Table:
        self._planned = query(table, self.tariffs, (_COLUMN,), wide=True)
        return self._planned.cells

    def add(self, batch: pa.Table) -> None:
        """Add rows.

        Raises:
            UnciaError: a sum is beyond 38 digits.
        """
        if batch.num_rows == 0:
            return
        for cell in self._cells_of(batch).to_pylist():
            function = cell[f"g_{_COLUMN}"]
            if function not in self._cells and len(self._cells) >= self._max_functions:
                function = None
            cell[f"g_{_COLUMN}"] = function
            cells = self._cells.setdefault(function, {})
            is_sum = {name: name == "n" or name.startswith("sum_") for name in cell}
            key = tuple(value for name, value in cell.items() if not is_sum[name])
            known = cells.setdefault(key, cell)
            if known is not cell:
                for name, value in cell.items():
                    if is_sum[name] and value is not None:
                        known[name] = (known[name] or 0) + value
            self._sums.pop(function, None)
        self.rows += batch.num_rows

    def lines(self) -> tuple[list[Line], dict[str | None, list[Line]]]:
        """The lines of all rows, and those of each function; a line for each tariff.

        Without rows there are none of either.
        """
        if not self._cells:
            return [], {}
        assert self._planned is not None, "the query was compiled"
        for function in self._cells.keys() - self._sums.keys():
            (self._sums[function],) = self._planned.add_up(self._cells[function].values())
        total: dict[str, Any] = {}
        for sums in self._sums.values():
            for name, value in sums.items():
                if not name.startswith("g_"):
                    total[name] = total.get(name, 0) + (value or 0)
        by_function = {
            function: self._lines(self._sums[function], (_COLUMN,)) for function in self._cells
        }
        return self._lines(total, ()), by_function

    def _lines(self, sums: Mapping[str, Any], group_by: Sequence[str]) -> list[Line]:
        assert self._planned is not None, "the query was compiled"
        return [
            line_of(plan, plan.tariff.sizes.rule, sums, group_by) for plan in self._planned.plans
        ]

    def close(self) -> None:
        """Release the engine."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
