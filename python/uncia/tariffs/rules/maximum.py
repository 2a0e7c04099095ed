"""The most that is billed."""

from __future__ import annotations

from typing import Any

from uncia.tariffs.exact import at_most
from uncia.tariffs.rules.base import Rule


class Maximum(Rule):
    """At most so much: ``min(a, m)``."""

    key = "maximum"
    position = 40
    of = frozenset({"amount"})

    def __call__(self, amount: Any) -> Any:
        return at_most(amount, self.bound)

    def words(self, bound: str) -> str:
        return f"at most {bound}"
