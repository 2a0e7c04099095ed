"""Formulas as steps, computed as columns of a table (`Columns`) or as plain integers (`Numbers`).

A step is a function of its inputs and constants, so the same step of the same inputs is the same
column by construction. Tariffs share many steps, and each is computed once. A formula is written
once, with ``+ - * %``, comparisons and the functions of `uncia.tariffs.exact`.

A SELECT cannot refer to its own columns, so an expression used twice would be written twice, and
nested uses would grow exponentially. Therefore `Columns` makes each step a column of a subquery,
one level above the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from uncia.tariffs.exact import Number, literal

if TYPE_CHECKING:
    from ibis.expr import types as ir

Step: TypeAlias = Callable[..., Any]
"""A function of a module, or a frozen dataclass that can be called: equal if it computes the same.
"""

T = TypeVar("T")


class Steps(Protocol[T]):
    """Where steps are added: `Columns` or `Numbers`."""

    def constant(self, value: int | None) -> T:
        """A constant value."""

    def add(self, step: Step, /, *inputs: T, **constants: Hashable) -> T:
        """The value that a step computes from its inputs and constants."""


@dataclass(frozen=True)
class Col:
    """A planned column: its name and the level of its subquery."""

    name: str
    level: int


class Columns:
    """Collects columns over a table; `table` then adds them, a subquery for each level.

    Args:
        base: the table; it may be given to `table` instead.
        wide: whether steps that have a form for DuckDB (a method ``wide``) are computed in it.
    """

    def __init__(self, base: ir.Table | None = None, *, wide: bool = False) -> None:
        self._base = base
        self._wide = wide
        self._columns: dict[tuple[Any, ...], Col] = {}

    def base(self, name: str) -> Col:
        """A column of the table itself."""
        return Col(name, 0)

    def constant(self, value: int | None) -> Col:
        """A column with the same value in every row."""
        return self.add(literal, value=value)

    def add(self, step: Step, /, *inputs: Col, **constants: Hashable) -> Col:
        """A column computed from others.

        Args:
            step: builds the expression from the inputs' expressions and the constants.
            inputs: the columns that it reads.
            constants: what else it depends on.

        Raises:
            TypeError: the step is a nested function, which may depend on more than its arguments,
                so that two different steps could be equal.
        """
        if isinstance(step, FunctionType) and "<" in step.__qualname__:
            raise TypeError(f"{step.__qualname__} is no function of a module")
        if self._wide and hasattr(step, "wide"):
            step = step.wide()
        key = (step, inputs, tuple(sorted(constants.items())))
        level = 1 + max((column.level for column in inputs), default=0)
        return self._columns.setdefault(key, Col(f"x{len(self._columns)}", level))

    def table(self, base: ir.Table | None = None) -> ir.Table:
        """Add every column to the table.

        Args:
            base: the table, unless it was given to the constructor.
        """
        table = self._base if base is None else base
        assert table is not None, "columns are over a table"
        deepest = max((column.level for column in self._columns.values()), default=0)
        for level in range(1, deepest + 1):
            table = table.mutate(
                **{
                    column.name: step(*(table[source.name] for source in inputs), **dict(constants))
                    for (step, inputs, constants), column in self._columns.items()
                    if column.level == level
                }
            )
        return table

    def numbers(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Compute every column for one row of the table, without the engine.

        Args:
            row: the table's columns; whole numbers, truth values, or None.

        Returns:
            The row and the columns, by name.
        """
        values = {name: Number(_plain(value)) for name, value in row.items()}
        for (step, inputs, constants), column in self._columns.items():
            if step is literal:
                result = dict(constants)["value"]
            else:
                result = step(*(values[source.name] for source in inputs), **dict(constants))
            values[column.name] = result if isinstance(result, Number) else Number(result)
        return {name: number.value for name, number in values.items()}


def _plain(value: Any) -> Any:
    """A whole number of any type as an integer of Python."""
    return int(value) if isinstance(value, Decimal) else value


class Numbers:
    """Computes each step immediately, on integers that may be null."""

    def constant(self, value: int | None) -> Number:
        """A number."""
        return Number(value)

    def add(self, step: Step, /, *inputs: Number, **constants: Hashable) -> Number:
        """The number that a step computes from its inputs and constants."""
        result = step(*inputs, **constants)
        return result if isinstance(result, Number) else Number(result)
