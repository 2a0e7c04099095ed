"""Amounts of money as decimals: the only module that rounds fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

MONEY_PLACES: Final = 18
"""Decimals of an amount of money, rounded half to even; prices have at most ten."""


def money(value: Fraction | int, places: int = MONEY_PLACES) -> Decimal:
    """Round a number to so many decimals, half to even.

    >>> money(Fraction(1, 3), 4), money(Fraction(5, 2))
    (Decimal('0.3333'), Decimal('2.500000000000000000'))
    """
    return scaled(round(Fraction(value) * 10**places), places)


def scaled(units: int, places: int = MONEY_PLACES) -> Decimal:
    """Return ``units`` x 10^-places; built from digits, as Decimal's arithmetic would round."""
    digits = tuple(int(digit) for digit in str(abs(units)))
    return Decimal((int(units < 0), digits, -places))
