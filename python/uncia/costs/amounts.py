"""Rounding parts of an amount of money so that the rounded parts sum to the rounded total."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from uncia.tariffs.money import MONEY_PLACES
from uncia.tariffs.money import scaled as scaled_money

_ULP: Final = 10**MONEY_PLACES


def usd_parts(parts: Mapping[str, Fraction]) -> tuple[dict[str, Decimal], Decimal]:
    """Round parts and their total to `MONEY_PLACES` decimals; the parts sum to the total exactly.

    Each is rounded half to even. The difference to the rounded total, less than 1e-18 dollars for
    each part, is added to the part that is largest in magnitude (the first of several).

    >>> third = Fraction(1, 3)
    >>> parts, total = usd_parts({"a": third, "b": third, "c": third})
    >>> print(parts["a"], parts["b"], total)
    0.333333333333333334 0.333333333333333333 1.000000000000000000
    """
    total = round(sum(parts.values(), Fraction(0)) * _ULP)
    scaled = {name: round(value * _ULP) for name, value in parts.items()}
    if scaled:
        largest = max(parts, key=lambda name: abs(parts[name]))
        scaled[largest] += total - sum(scaled.values())
    return {name: scaled_money(value) for name, value in scaled.items()}, scaled_money(total)
