"""Formats of numbers for readers: few digits, thousands separated, a dash for what is unknown."""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

ABSENT: Final = "–"
"""Shown where there is no value; a 0 would be a claim."""


Number: TypeAlias = float | Fraction | Decimal


def text(value: Any) -> str:
    """A name, or any other value as Python writes it."""
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else str(value)


def fact(value: Any) -> str:
    """A value of any type: ``yes``, ``1,024``, ``a, b`` for a list."""
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, int):
        return count(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(str(item) for item in value)
    return text(value)


def figure(value: Number | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, never in scientific notation.

    >>> figure(1001.06), figure(0.07894), figure(None)
    ('1,001', '0.0789', '–')
    """
    if value is None or math.isnan(value):
        return ABSENT
    value = float(value)
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


figure4: Final = partial(figure, digits=4)
"""A number with four significant digits."""


def general(value: Number | None) -> str:
    """As `figure4`, without zeros at the end of decimals.

    >>> general(1.5), general(123456), general(0.00001234)
    ('1.5', '123,456', '0.00001234')
    """
    shown = figure4(value)
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def share(value: Number | None) -> str:
    """A share as a percentage with one decimal."""
    return ABSENT if value is None else f"{float(value):.1%}"


def count(value: int | None) -> str:
    """A count with separated thousands."""
    return ABSENT if value is None else f"{value:,}"


def whole(value: Number | None) -> str:
    """A number without decimals."""
    return ABSENT if value is None else f"{float(value):,.0f}"


def percent(value: Number | None, digits: int = 3) -> str:
    """A share as a percentage."""
    return ABSENT if value is None else f"{figure(100 * value, digits)} %"


def times(value: Number | None) -> str:
    """A ratio: ``12.3×``."""
    return ABSENT if value is None else f"{figure(value)}×"


def change(ratio: float | None) -> str:
    """A ratio as a change: 1.1 is ``+10 %``."""
    if ratio is None or math.isnan(ratio):
        return ABSENT
    if math.isinf(ratio):
        return "+∞"
    percent = 100 * (ratio - 1)
    if abs(percent) < 0.05:
        return "±0 %"
    return f"{percent:+,.1f} %" if abs(percent) < 100 else f"{percent:+,.0f} %"


def relative(share: Number | None) -> str:
    """A relative change: 0.1 is ``+10 %``."""
    return ABSENT if share is None else change(1 + float(share))


def yes_no(value: bool | None) -> str:
    """``yes`` or ``no``."""
    return ABSENT if value is None else "yes" if value else "no"


def span(bounds: Sequence[float] | None) -> str:
    """An interval: ``0.76 to 0.81``."""
    if bounds is None:
        return ABSENT
    return f"{figure(bounds[0])} to {figure(bounds[1])}"


_SCALES: Final[dict[str, tuple[tuple[int, str], ...]]] = {
    "bytes": ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"), (1, "B")),
    "ns": ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns")),
    "us": ((10**6, "s"), (10**3, "ms"), (1, "µs")),
}


def quantity(value: Number | None, unit: str) -> str:
    """A value in the largest unit that leaves at least 1: ``22.4 GB``, ``1.5 ms``, ``12.3 %``.

    Args:
        value: in `unit`.
        unit: ``bytes`` (a KB has 2**10), ``ns``, ``us`` or ``percent``; any other is not written.
    """
    if value is None:
        return ABSENT
    if unit == "percent":
        return f"{figure(value)} %"
    scales = _SCALES.get(unit)
    if scales is None:
        return figure(value)
    amount = float(value)
    factor, name = next((scale for scale in scales if abs(amount) >= scale[0]), scales[-1])
    return f"{figure(amount / factor)} {name}"


def usd(value: Number | None) -> str:
    """An amount of US dollars."""
    return ABSENT if value is None else f"${figure(value)}"


def megabytes(size: int) -> str:
    """A memory size as platforms write it, with 2**20 bytes in an MB."""
    return f"{size / 2**20:,.0f} MB"
