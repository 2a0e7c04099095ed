"""A table whose columns are built from one another, level by level.

SQL has no names within one SELECT, so an expression that is used twice is written twice, and one
built from such expressions grows exponentially. Here each step becomes a column of a subquery, its
level one above the columns that it reads; a step that was added before is shared, as much is alike
from tariff to tariff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ibis.expr import types as ir


@dataclass(frozen=True)
class Col:
    """A column to be: its name, and how many subqueries deep it stands."""

    name: str
    level: int


class Columns:
    """Collects columns over a table; `table` then puts them in, a subquery for each level."""

    def __init__(self, base: ir.Table | None = None) -> None:
        self._base = base
        self._known: dict[tuple[str, tuple[str, ...]], Col] = {}
        self._steps: list[tuple[Col, Callable[..., Any], tuple[Col, ...]]] = []

    def base(self, name: str) -> Col:
        """A column of the table itself."""
        return Col(name, 0)

    def add(self, label: str, build: Callable[..., Any], *inputs: Col) -> Col:
        """A column computed from others.

        Args:
            label: says what is computed, constants included: the same label over the same inputs
                is the same column.
            build: makes the expression from the inputs' expressions.
            inputs: the columns that it reads.
        """
        key = (label, tuple(column.name for column in inputs))
        if key not in self._known:
            level = 1 + max((column.level for column in inputs), default=0)
            column = Col(f"x{len(self._known)}", level)
            self._known[key] = column
            self._steps.append((column, build, inputs))
        return self._known[key]

    def table(self, base: ir.Table | None = None) -> ir.Table:
        """The table with every column added.

        Args:
            base: the table, where it was not known before the columns.
        """
        table = self._base if base is None else base
        assert table is not None, "columns are over a table"
        deepest = max((column.level for column, _, _ in self._steps), default=0)
        for level in range(1, deepest + 1):
            table = table.mutate(
                **{
                    column.name: build(*(table[one.name] for one in inputs))
                    for column, build, inputs in self._steps
                    if column.level == level
                }
            )
        return table
