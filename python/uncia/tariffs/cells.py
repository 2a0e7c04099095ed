"""Cells: the rows of a group that every tariff treats alike, aggregated to one row with their sums.

The rows of a cell have the same allocation and the same gaps (columns that are null). Times and
used amounts are rounded row by row, then summed over the cell.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ibis.expr import types as ir

from uncia.tariffs.columns import Col, Columns, Step
from uncia.tariffs.exact import integer, product
from uncia.tariffs.facts import UNKNOWN, Facts
from uncia.tariffs.rows import MAX_VALUES, billing_columns, integers
from uncia.tariffs.state import COMMON_CODES, Flag, state_of

_ALLOCATION = ("v_allocated_cpu", "v_allocated_memory")


class Cells:
    """Collects the sums and keys of cells, then builds the aggregation; see `table`.

    Args:
        table: invocations.
        group_by: columns whose values separate cells, as ``g_<name>``.
        facts: what is known of the table's columns.
        wide: whether the engine sums and multiplies int64 in 128 bits.
        carried: columns that steps read as ``g_<name>``, and that do not separate cells.
    """

    def __init__(
        self,
        table: ir.Table,
        group_by: Sequence[str] = (),
        facts: Facts | None = None,
        wide: bool = False,
        carried: Sequence[str] = (),
    ) -> None:
        self.wide = wide
        self._table = table
        self._group_by = tuple(group_by)
        self._carried = tuple(carried)
        self._facts = facts or {}
        self._rows = Columns(wide=wide)
        self._flags: dict[str, Flag] = {}
        self._used: set[str] = set()
        self._sums: dict[str, Col] = {}
        self._keys: dict[str, Col] = {}

    def is_empty(self, name: str) -> bool:
        """Whether a column of the table is known to be null in every row."""
        return self._facts.get(name, UNKNOWN).empty

    def is_rare(self, name: str) -> bool:
        """Whether a column of the table is known to be null in nearly every row."""
        return self._facts.get(name, UNKNOWN).rare

    def row(self, name: str) -> Col:
        """A column of the rows, by its name in the table; or ``cpu_time``."""
        return self._base(f"v_{name}")

    def carried(self, name: str) -> Col:
        """A carried column."""
        return self._base(f"g_{name}")

    def _base(self, name: str) -> Col:
        self._used.add(name)
        return self._rows.base(name)

    def constant(self, value: int | None) -> Col:
        """A column with the same value in every row."""
        return self._rows.constant(value)

    def add(self, step: Step, /, *inputs: Col, **constants: Hashable) -> Col:
        """A column of the rows computed from others; see `Columns.add`."""
        return self._rows.add(step, *inputs, **constants)

    def product(self, first: Col, second: Col) -> Col:
        """The product of two columns from 0, of which only a sum can be made."""
        return self.add(product, first, second, wide=self.wide)

    def sum(self, column: Col) -> str:
        """Sum a column over each cell as DECIMAL(38, 0); return the name of the cells' column."""
        name = f"sum_{column.name}"
        self._sums[name] = column
        return name

    def key(self, name: str, column: Col) -> str:
        """Separate cells by a column; return the name of the cells' column."""
        self._keys[name] = column
        return name

    def flag(self, flag: Flag) -> str:
        """Separate cells by a flag; return the name of the cells' boolean column."""
        self._flags[flag.name] = flag
        return flag.name

    def _sum(self, value: Any) -> Any:
        # A sum of int64 is 64 bits wide on some engines; one of decimals has 38 digits on all.
        if not (self.wide or value.type().is_decimal()):
            value = value.cast("decimal(18, 0)")
        return value.sum().cast("decimal(38, 0)")

    def table(self) -> ir.Table:
        """Build the cells: `g_*`, allocation, keys, `common`, flags, sums, and ``n`` rows."""
        columns = billing_columns(self._table, (*self._group_by, *self._carried), self._facts)
        kept = [*(f"g_{name}" for name in self._group_by), *_ALLOCATION]
        used = [name for name in columns if name in self._used and name not in kept]
        values = {
            name: value for name in MAX_VALUES if (value := integers(self._table, name)) is not None
        }
        state, flags = state_of(self._table, values, columns, self._flags, MAX_VALUES, self._facts)
        base = self._table.select(**{name: columns[name] for name in (*kept, *used)}, state=state)
        rows = self._rows.table(base)
        cells = rows.aggregate(
            {"n": rows.count().cast("int64")}
            | {name: self._sum(rows[column.name]) for name, column in self._sums.items()},
            by=[
                *(rows[name] for name in kept),
                rows["state"],
                *(rows[column.name].name(name) for name, column in self._keys.items()),
            ],
        )
        return cells.mutate(
            common=(cells["state"] % integer(COMMON_CODES)).cast("int16"),
            **{name: read(cells["state"]) for name, read in flags.items()},
        )
