"""Rounding up to whole steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uncia.tariffs.exact import round_up
from uncia.tariffs.rules.base import Rule


class Granularity(Rule):
    """Rounded up to whole steps: ``ceil(a / g) * g``."""

    key = "granularity"
    position = 10
    rounds = True
    part = "rounding"
    positive = True

    def __call__(self, amount: Any) -> Any:
        return round_up(amount, self.bound)

    def wide(self) -> WideSteps:
        """The same for DuckDB; see `round_up`."""
        return WideSteps(self.bound)

    def words(self, bound: str) -> str:
        return f"in steps of {bound}"


@dataclass(frozen=True)
class WideSteps:
    """A `Granularity` as DuckDB computes it quickly."""

    bound: int

    def __call__(self, amount: Any) -> Any:
        """What is billed of an amount, an expression."""
        return round_up(amount, self.bound, wide=True)
