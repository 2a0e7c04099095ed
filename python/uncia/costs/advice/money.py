"""Amounts of money as decimals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

PLACES: Final = 12
"""Decimals of an amount here: a millionth of a millionth of a dollar for a million requests."""


def usd(amount: Fraction | None) -> Decimal | None:
    """An amount as a decimal, rounded half to even at `PLACES`; built from digits, as Decimal
    arithmetic rounds."""
    if amount is None:
        return None
    scaled = round(amount * 10**PLACES)
    digits = tuple(int(digit) for digit in str(abs(scaled)))
    return Decimal((int(scaled < 0), digits, -PLACES))
