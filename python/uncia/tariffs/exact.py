"""Exact integer arithmetic, on Ibis columns and on plain integers, without floating point.

Each function takes Ibis expressions of int64, or a `Number` instead of each. It avoids two traps:
Ibis's ``//`` compiles to a division of doubles, and a decimal literal to scientific notation, which
SQL reads as a double. DuckDB and Spark share what it uses: ``+ - * %``, comparisons, casts of text
and products of decimals.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.units import MICRO_PER_VCPU

if TYPE_CHECKING:
    from ibis.expr import types as ir

# Ibis takes a second to load; it is imported where an expression is built, as integers need none.

QUOTIENT_LIMIT: Final = 5 * 10**18
"""Largest numerator of `quotient`; see there."""

_HALF: Final = Fraction(1, 2)
_FACTOR_DIGITS: Final = 19
_RECIPROCAL_PLACES: Final = 19  # 19 digits of an int64 and 19 places fill DECIMAL(38)


@dataclass(frozen=True, eq=False)
class Number:
    """An integer or truth value that may be null, with a column's operators and SQL's nulls."""

    value: int | None

    def _with(self, other: Any, compute: Callable[[Any, Any], Any]) -> Number:
        right = other.value if isinstance(other, Number) else other
        return Number(None if self.value is None or right is None else compute(self.value, right))

    def __add__(self, other: Any) -> Number:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> Number:
        return self._with(other, operator.sub)

    def __mul__(self, other: Any) -> Number:
        return self._with(other, operator.mul)

    def __mod__(self, other: Any) -> Number:
        return self._with(other, operator.mod)

    def __lt__(self, other: Any) -> Number:
        return self._with(other, operator.lt)

    def __le__(self, other: Any) -> Number:
        return self._with(other, operator.le)

    def __gt__(self, other: Any) -> Number:
        return self._with(other, operator.gt)

    def __and__(self, other: Number) -> Number:
        if False in (self.value, other.value):
            return Number(False)
        return self._with(other, operator.and_)

    def __or__(self, other: Number) -> Number:
        if True in (self.value, other.value):
            return Number(True)
        return self._with(other, operator.or_)

    def __invert__(self) -> Number:
        return Number(None if self.value is None else not self.value)

    def cast(self, _dtype: str) -> Number:
        """This number: integers of Python have no width."""
        return self

    def fill_null(self, value: Number | int) -> Number:
        """This number, or `value` if it is null."""
        if self.value is not None:
            return self
        return value if isinstance(value, Number) else Number(value)

    def isnull(self) -> Number:
        """Whether this number is null."""
        return Number(self.value is None)


def ifelse(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition is true, `otherwise` where it is false or null."""
    return cases((condition, then), otherwise=otherwise)


def cases(*branches: tuple[Any, Any], otherwise: Any) -> Any:
    """The value of the first branch whose condition is true, else `otherwise`.

    Args:
        branches: pairs of condition and value; integers become int64.
        otherwise: likewise; may be None.
    """
    first = branches[0][0]
    if isinstance(first, bool):
        return next((value for condition, value in branches if condition), otherwise)
    if isinstance(first, Number):
        value = next((value for condition, value in branches if condition.value), otherwise)
        return value if isinstance(value, Number) else Number(value)
    import ibis

    return ibis.cases(
        *((condition, literal(value)) for condition, value in branches), else_=literal(otherwise)
    )


def literal(value: Any) -> Any:
    """An integer or None as an int64 expression; an expression is returned unchanged."""
    if value is None:
        import ibis

        return ibis.null("int64")
    return integer(value) if isinstance(value, int) else value


def integer(value: int) -> ir.IntegerScalar:
    """A literal that is int64 on every backend."""
    import ibis

    return ibis.literal(value, "int64")


def decimal(value: int | None, operand: Any, digits: int = 18) -> Any:
    """An integer or null as a decimal, for a formula with a column; a `Number` beside another."""
    if isinstance(operand, Number):
        return Number(value)
    import ibis

    dtype = f"decimal({digits}, 0)"
    return ibis.null(dtype) if value is None else integer(value).cast(dtype)


def round_up(value: Any, granularity: int, *, wide: bool = False) -> Any:
    """Equation (1)'s ``ceil(a / g) * g`` of an integer from 0: ``b - b % g``, b = a + g - 1.

    Args:
        value: a.
        granularity: g, above zero.
        wide: the engine is DuckDB, which divides whole numbers, or masks their last bits, in half
            the time of a remainder.
    """
    if granularity == 1:
        return value
    raised = value + (granularity - 1)
    if not wide:
        return raised - raised % granularity
    if granularity & (granularity - 1) == 0:
        return raised & integer(-granularity)
    return _whole_quotient()(raised, granularity) * granularity


@functools.cache
def _whole_quotient() -> Callable[[Any, int], Any]:
    """DuckDB's ``//``, which Ibis does not have: its own is of doubles."""
    import ibis

    @ibis.udf.scalar.builtin(name="divide")  # type: ignore[untyped-decorator]
    def divide(value: int, divisor: int) -> int: ...  # type: ignore[empty-body]

    quotient_of: Callable[[Any, int], Any] = divide
    return quotient_of


def at_least(value: Any, bound: int) -> Any:
    """The larger of the two; null stays null (SQL's GREATEST would return the bound)."""
    return ifelse(value < bound, bound, value)


def at_most(value: Any, bound: int) -> Any:
    """The smaller of the two; null stays null."""
    return ifelse(value > bound, bound, value)


def larger(first: Any, second: Any) -> Any:
    """The larger of two columns; null if either is."""
    return ifelse(second > first, second, ifelse(second.isnull(), second, first))


def product(first: Any, second: Any, *, wide: bool = False) -> Any:
    """The product of two integers below 10^18, as DECIMAL(38, 0).

    Bytes x ns overflows int64 after 0.9 s at 10 GB. 19 x 18 digits are 37, so the product never
    overflows; a sum that grows beyond 38 digits is an error on DuckDB, not a wrapped number. The
    19 matters: DuckDB keeps DECIMAL(18) x DECIMAL(18) in 64 bits, and fails where it overflows.

    Args:
        first: from 0 and no literal, if the product is wide.
        second: likewise; DuckDB takes a literal for uint64, whose products overflow.
        wide: compute it in DuckDB's integers of 128 bits, the type of int64 x uint64 there, which
            takes a quarter of the time. Ibis has no such type and holds it for a narrower one, so
            only a sum can be made of it.
    """
    if wide:
        return first.cast("uint64") * second
    return (first.cast("decimal(19, 0)") * second.cast("decimal(18, 0)")).cast("decimal(38, 0)")


def times(value: Any, factor: Fraction) -> Any:
    """``value x factor`` of a column of at most 13 digits, rounded half up, as DECIMAL(38, 0).

    The factor, below 10^19, is kept to 19 significant digits (19 decimals where it is below 0.1).
    """
    import ibis

    with localcontext(prec=60):
        digits = Decimal(factor.numerator) / Decimal(factor.denominator)
    places = min(max(_FACTOR_DIGITS - 1 - digits.adjusted(), 0), _FACTOR_DIGITS)
    text = format(digits, f".{places}f")
    if isinstance(value, Number):
        known = value.value
        return Number(None if known is None else math.floor(known * Fraction(text) + _HALF))
    exact = ibis.literal(text).cast(f"decimal({_FACTOR_DIGITS}, {places})")
    # From decimal to decimal both DuckDB and Spark round half up; to int64 only one rounds at all.
    return (value.cast("decimal(13, 0)") * exact).cast("decimal(38, 0)")


def quotient(value: Any, divisor: int) -> Any:
    """``value / divisor`` of an exact multiple with 0 <= value <= `QUOTIENT_LIMIT`, as int64.

    The value is multiplied by the reciprocal rounded to 19 decimals, whose error is at most
    0.5e-19; up to 5e18 the product is off by at most 0.25. A quarter is added, so that it lies in
    [n, n + 0.5] and becomes n whether the backend's cast rounds (DuckDB) or truncates (Spark).
    The bound itself is never met, as `QUOTIENT_LIMIT` is above what the callers can reach.
    """
    if isinstance(value, int):
        return value // divisor
    if isinstance(value, Number):
        return Number(None if value.value is None else value.value // divisor)
    if divisor == 1:
        return value
    import ibis

    with localcontext(prec=60):
        exact = Decimal(1) / Decimal(divisor)
        reciprocal = format(round(exact, _RECIPROCAL_PLACES), "f")
    factor = ibis.literal(reciprocal).cast(f"decimal({_RECIPROCAL_PLACES}, {_RECIPROCAL_PLACES})")
    quarter = ibis.literal("0.25").cast("decimal(3, 2)")
    return (value.cast("decimal(19, 0)") * factor + quarter).cast("int64")


def share_up(part: Any, whole: Any) -> Any:
    """``ceil(part x 10^6 / whole)`` of int64 columns, both from 0 to 9 x 10^16, as DECIMAL(38, 0).

    Null where the whole is zero; exact up to a ratio of 10^8, and above it beyond every allocation.

    An exact multiple is divided as doubles, and the nearest whole number taken: numerator,
    denominator and quotient are each off by at most 2^-53 of themselves, so that a quotient below
    10^14 is off by less than 0.04.
    """
    divisor = whole.nullif(integer(0)).cast("decimal(19, 0)")
    raised = product(part, integer(MICRO_PER_VCPU)) + divisor - integer(1).cast("decimal(19, 0)")
    multiple = raised - raised % divisor
    return (multiple.cast("float64") / divisor.cast("float64")).cast("decimal(38, 0)")
