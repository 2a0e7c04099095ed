"""What else could be changed, each with what it would save and what must hold for it."""

from __future__ import annotations

from uncia.costs.advice.gather import Study
from uncia.costs.advice.load import loading, sequence
from uncia.costs.advice.resize import resizing
from uncia.costs.advice.trials import Hint

__all__ = ["Hint", "hints_of"]


def hints_of(found: Study) -> list[Hint]:
    """Every hint for every function, by function and saving."""
    return sequence([*resizing(found), *loading(found)])
