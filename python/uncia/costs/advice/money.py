"""Amounts of money as decimals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from uncia.costs.sizes import decimal

PLACES: Final = 12
"""Decimals of an amount here: a millionth of a millionth of a dollar for a million requests."""


def usd(amount: Fraction | None) -> Decimal | None:
    """An amount with `PLACES` decimals, rounded half to even; None stays None."""
    return decimal(amount, PLACES)
