"""Exact integer arithmetic as Ibis expressions; nothing here passes through floating point.

Two traps are avoided throughout: Ibis's ``//`` compiles to a division of doubles, and a decimal
literal compiles to a number in scientific notation, which SQL reads as a double. Only ``+ - * %``,
comparisons, casts of text and products of decimals are used, which DuckDB and Spark share.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.units import MICRO_PER_VCPU

QUOTIENT_LIMIT: Final = 5 * 10**18
"""Largest numerator of `quotient`; see there."""

_FACTOR_DIGITS: Final = 19
_RECIPROCAL_PLACES: Final = 19  # 19 digits of an int64 and 19 places fill DECIMAL(38)


def integer(value: int) -> ir.IntegerScalar:
    """A literal that is int64 on every backend."""
    return ibis.literal(value, "int64")


def round_up(value: Any, granularity: int) -> Any:
    """Equation (1)'s ``ceil(a / g) * g`` of an integer from 0: ``b - b % g``, b = a + g - 1."""
    if granularity == 1:
        return value
    raised = value + integer(granularity - 1)
    return raised - raised % integer(granularity)


def at_least(value: Any, bound: int) -> Any:
    """The larger of the two; null stays null (SQL's GREATEST would return the bound)."""
    return ibis.ifelse(value < integer(bound), integer(bound), value)


def at_most(value: Any, bound: int) -> Any:
    """The smaller of the two; null stays null."""
    return ibis.ifelse(value > integer(bound), integer(bound), value)


def larger(first: Any, second: Any) -> Any:
    """The larger of two columns; null if either is."""
    return ibis.ifelse(second > first, second, ibis.ifelse(second.isnull(), second, first))


def product(first: Any, second: Any) -> Any:
    """The product of two integers below 10^18, as DECIMAL(38, 0).

    Bytes x ns overflows int64 after 0.9 s at 10 GB. 19 x 18 digits are 37, so the product never
    overflows; a sum that grows beyond 38 digits is an error on DuckDB, not a wrapped number. The
    19 matters: DuckDB keeps DECIMAL(18) x DECIMAL(18) in 64 bits, and fails where it overflows.
    """
    return (first.cast("decimal(19, 0)") * second.cast("decimal(18, 0)")).cast("decimal(38, 0)")


def times(value: Any, factor: Fraction) -> Any:
    """``value x factor`` of a column of at most 13 digits, rounded half up, as DECIMAL(38, 0).

    The factor, below 10^19, is kept to 19 significant digits (19 decimals where it is below 0.1).
    """
    with localcontext(prec=60):
        digits = Decimal(factor.numerator) / Decimal(factor.denominator)
    places = min(max(_FACTOR_DIGITS - 1 - digits.adjusted(), 0), _FACTOR_DIGITS)
    text = format(digits, f".{places}f")
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
    if divisor == 1:
        return value
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
