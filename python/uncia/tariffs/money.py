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
    # As round(Fraction(value) * 10**places) does, without a fraction to be reduced.
    below = int(value.denominator)
    units, rest = divmod(int(value.numerator) * 10**places, below)
    if 2 * rest > below or (2 * rest == below and units % 2):
        units += 1
    return scaled(units, places)


def scaled(units: int, places: int = MONEY_PLACES) -> Decimal:
    """Return ``units`` x 10^-places; built from text, as Decimal's arithmetic would round."""
    return Decimal(f"{units}E{-places}")
