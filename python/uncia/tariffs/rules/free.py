"""A part of each request that costs nothing."""

from __future__ import annotations

from typing import Any

from uncia.tariffs.exact import at_least
from uncia.tariffs.rules.base import Rule


class Free(Rule):
    """The first so much of each request is not charged for: ``max(a - f, 0)``."""

    key = "free"
    position = 30

    def __call__(self, amount: Any) -> Any:
        return at_least(amount - self.bound, 0)

    def words(self, bound: str) -> str:
        return f"the first {bound} free"
