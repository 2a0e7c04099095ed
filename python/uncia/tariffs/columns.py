"""Values computed step by step: as columns of a table, or as plain integers.

A step is a function of its inputs and of constants, so that the same step, of the same inputs, is
the same column by construction; much is alike from tariff to tariff, and is computed once. A
formula is written once, with ``+ - * %``, comparisons and the functions of `uncia.tariffs.exact`;
`Columns` renders it to SQL, `Numbers` to integers.

SQL has no names within one SELECT, so an expression that is used twice is written twice, and one
built from such expressions grows exponentially. Therefore `Columns` makes each step a column of a
subquery, its level one above the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
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
    """What steps are added to: `Columns` or `Numbers`."""

    def constant(self, value: int | None) -> T:
        """The same value in every row."""

    def add(self, step: Step, /, *inputs: T, **constants: Hashable) -> T:
        """The value that a step computes from others and from constants."""


@dataclass(frozen=True)
class Col:
    """A column to be: its name, and how many subqueries deep it stands."""

    name: str
    level: int


class Columns:
    """Collects columns over a table; `table` then puts them in, a subquery for each level."""

    def __init__(self, base: ir.Table | None = None) -> None:
        self._base = base
        self._columns: dict[tuple[Any, ...], Col] = {}

    def base(self, name: str) -> Col:
        """A column of the table itself."""
        return Col(name, 0)

    def constant(self, value: int | None) -> Col:
        """A column of one value."""
        return self.add(literal, value=value)

    def add(self, step: Step, /, *inputs: Col, **constants: Hashable) -> Col:
        """A column computed from others.

        Args:
            step: makes the expression from the inputs' expressions and the constants.
            inputs: the columns that it reads.
            constants: what else it depends on.

        Raises:
            TypeError: the step is a function within a function, which may depend on more than it is
                given and then be taken for another.
        """
        if isinstance(step, FunctionType) and "<" in step.__qualname__:
            raise TypeError(f"{step.__qualname__} is no function of a module")
        key = (step, inputs, tuple(sorted(constants.items())))
        level = 1 + max((column.level for column in inputs), default=0)
        return self._columns.setdefault(key, Col(f"x{len(self._columns)}", level))

    def table(self, base: ir.Table | None = None) -> ir.Table:
        """The table with every column added.

        Args:
            base: the table, where it was not known before the columns.
        """
        table = self._base if base is None else base
        assert table is not None, "columns are over a table"
        deepest = max((column.level for column in self._columns.values()), default=0)
        for level in range(1, deepest + 1):
            table = table.mutate(
                **{
                    column.name: step(*(table[name.name] for name in inputs), **dict(constants))
                    for (step, inputs, constants), column in self._columns.items()
                    if column.level == level
                }
            )
        return table


class Numbers:
    """Computes each step at once, of integers that may be null."""

    def constant(self, value: int | None) -> Number:
        """A number."""
        return Number(value)

    def add(self, step: Step, /, *inputs: Number, **constants: Hashable) -> Number:
        """The number that a step computes from others."""
        result = step(*inputs, **constants)
        return result if isinstance(result, Number) else Number(result)
