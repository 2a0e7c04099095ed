"""The least that is billed."""

from __future__ import annotations

from typing import Any

from uncia.tariffs.exact import at_least
from uncia.tariffs.rules.base import Rule


class Minimum(Rule):
    """At least so much: ``max(a, m)``."""

    key = "minimum"
    position = 20
    rounds = True

    def __call__(self, amount: Any) -> Any:
        return at_least(amount, self.bound)

    def words(self, bound: str) -> str:
        return f"at least {bound}"
