"""Quantiles as a person asks for them (``50,90,99,99.99``), each with what supports it.

A quantile that the sample is too small for has no value here, only the number of rows it needs: a
p99 of 40 rows is the second largest of 40 values, and reads as much more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.stats.quantiles import Ints, confidence_interval, minimum_rows, quantile

DEFAULT: Final = "50,90,95,99,99.9,99.99"
"""What the summary of a load gives unless others are asked for."""

_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?")


@dataclass(frozen=True)
class Order:
    """A quantile's order and its name: ``p99.9`` is 999/1000."""

    name: str
    value: Fraction


@dataclass(frozen=True)
class Estimate:
    """A quantile of a sample.

    Attributes:
        name: ``p99.9``.
        rows: how many values there are.
        needs: the least number of values with which it has an interval.
        value: the quantile, in the values' unit; None when there are too few values.
        interval: its distribution-free interval at 95 %, two of the values; None likewise.
    """

    name: str
    rows: int
    needs: int
    value: int | None
    interval: tuple[int, int] | None

    def sentence(self) -> str:
        """Why it has no value: ``p99: 40 rows are too few, it needs 299``."""
        rows = "1 row is" if self.rows == 1 else f"{self.rows:,} rows are"
        return f"{self.name}: {rows} too few, it needs {self.needs:,}"

    def plain(self, unit: float) -> dict[str, Any]:
        """As JSON values, in units of ``unit`` base units."""
        return {
            "value": None if self.value is None else self.value / unit,
            "ci95": None if self.interval is None else [end / unit for end in self.interval],
            "rows_needed": self.needs,
        }


def orders(text: str) -> tuple[Order, ...]:
    """Read ``"50,90,99.99"``, percents separated by commas, ascending and each once.

    :raises UnciaError: a part is no percent between 0 and 100, with at most six decimals.
    """
    found: dict[Fraction, Order] = {}
    for part in text.split(","):
        word = part.strip().removeprefix("p")
        value = Fraction(word) / 100 if _PERCENT.fullmatch(word) else Fraction(0)
        if not 0 < value < 1:
            raise UnciaError(
                f"quantiles: {part.strip()!r} is not a percent between 0 and 100, such as 99.9"
            )
        found[value] = Order(f"p{_shortest(word)}", value)
    return tuple(found[value] for value in sorted(found))


def estimates(ordered: Ints, wanted: Sequence[Order]) -> list[Estimate]:
    """The quantiles of ascending values, each with its interval, or with what it lacks.

    Args:
        ordered: shape (n,), ascending, any unit.
        wanted: which, see `orders`.
    """
    result = []
    rows = int(ordered.size)
    for order in wanted:
        needs = minimum_rows(order.value)
        held = rows >= needs
        value = quantile(ordered, order.value) if held else None
        interval = confidence_interval(ordered, order.value) if held else None
        result.append(Estimate(order.name, rows, needs, value, interval))
    return result


def _shortest(word: str) -> str:
    whole, point, fraction = word.partition(".")
    fraction = fraction.rstrip("0")
    return f"{int(whole)}{point if fraction else ''}{fraction}"
