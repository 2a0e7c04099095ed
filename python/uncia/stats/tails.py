"""Quantiles chosen by the user (``50,90,99,99.99``), each with its interval and required rows.

A quantile without enough rows has no value here, only the number of rows that it needs: the p99 of
40 rows is just their largest value, and would look like more.
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
"""Quantiles in the summary of a load by default."""

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
        rows: number of values.
        needs: number of values from which it has an interval.
        value: the quantile, in the values' unit; None if there are too few values.
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
    result: dict[Fraction, Order] = {}
    for part in text.split(","):
        word = part.strip().removeprefix("p")
        value = Fraction(word) / 100 if _PERCENT.fullmatch(word) else Fraction(0)
        if not 0 < value < 1:
            raise UnciaError(
                f"quantiles: {part.strip()!r} is not a percent between 0 and 100, such as 99.9"
            )
        result[value] = Order(f"p{_shortest(word)}", value)
    return tuple(result[value] for value in sorted(result))


def estimates(ordered: Ints, wanted: Sequence[Order]) -> list[Estimate]:
    """The quantiles of ascending values, each with its interval, or without both if too few rows.

    Args:
        ordered: shape (n,), ascending, any unit.
        wanted: the orders; see `orders`.
    """
    result = []
    rows = int(ordered.size)
    for order in wanted:
        needs = minimum_rows(order.value)
        is_supported = rows >= needs
        value = quantile(ordered, order.value) if is_supported else None
        interval = confidence_interval(ordered, order.value) if is_supported else None
        result.append(Estimate(order.name, rows, needs, value, interval))
    return result


def _shortest(word: str) -> str:
    whole, point, fraction = word.partition(".")
    fraction = fraction.rstrip("0")
    return f"{int(whole)}{point if fraction else ''}{fraction}"
