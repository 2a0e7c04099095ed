"""Advice: which sizes to take and which to avoid.

Durations fall in steps as sizes grow. Along a step a larger size costs more and is no faster; at
the next jump it may be faster for less money. So the bill has minima where a step begins, and
maxima just before a jump.

Durations that differ by less than the model's error count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

SPEED_TOLERANCE: Final = 0.05
"""If the model's error is unknown, a mean that is longer by at most this share is as fast."""

WORTH: Final = 0.01
"""Smaller savings, as a share, do not count."""

TURN: Final = 0.01
"""The bill must rise and fall by this share for an extremum to count."""

Reason: TypeAlias = Literal["as fast", "faster"]


@dataclass(frozen=True)
class Choice:
    """A size with its mean duration and its cost.

    Attributes:
        size: MB or micro-vCPU.
        mean_ms: expected duration.
        usd: of a million invocations.
    """

    size: int
    mean_ms: float
    usd: float


@dataclass(frozen=True)
class Instead:
    """A better size than another.

    Attributes:
        size: the size to take.
        saves: share of the cost.
        faster: share of the duration that is saved; below 0 it is longer, within the tolerance.
        reason: ``as fast``: it is smaller, and no slower; ``faster``: it is larger and costs less.
    """

    size: int
    saves: float
    faster: float
    reason: Reason


@dataclass(frozen=True)
class Step:
    """A minimum of the bill, and the maximum after it.

    Attributes:
        take: the minimum: the beginning of a step.
        avoid: the maximum before the next minimum: just before a jump; None at the last step.
    """

    take: Choice
    avoid: Choice | None

    @property
    def extra(self) -> float | None:
        """By what share `avoid` costs more than `take`."""
        if self.avoid is None or self.take.usd == 0:
            return None
        return self.avoid.usd / self.take.usd - 1


def ladder(choices: Sequence[Choice], tolerance: float = SPEED_TOLERANCE) -> list[Choice]:
    """List the sizes worth taking, cheapest first.

    Each is the cheapest of those that are faster than the one before it by more than `tolerance`.
    """
    result: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.usd, choice.mean_ms)):
        if not result or choice.mean_ms < result[-1].mean_ms * (1 - tolerance):
            result.append(choice)
    return result


def instead(choices: Sequence[Choice], tolerance: float = SPEED_TOLERANCE) -> list[Instead | None]:
    """Find, for each size, the cheapest one that is as fast; None if nothing is saved."""
    result: list[Instead | None] = []
    times = np.array([choice.mean_ms for choice in choices])
    costs = np.array([choice.usd for choice in choices])
    for choice in choices:
        allowed = times <= choice.mean_ms * (1 + tolerance)
        best = choices[int(np.argmin(np.where(allowed, costs, np.inf)))]
        saves = 1 - best.usd / choice.usd if choice.usd else 0.0
        if saves < WORTH:
            result.append(None)
            continue
        reason: Reason = "as fast" if best.size < choice.size else "faster"
        result.append(Instead(best.size, saves, 1 - best.mean_ms / choice.mean_ms, reason))
    return result


def steps(choices: Sequence[Choice], turn: float = TURN) -> list[Step]:
    """Find the minima of the bill over ascending sizes, each with the maximum that follows it.

    An extremum counts if the bill changes by more than `turn` before the next one, so that noise is
    not taken for a step.
    """
    result: list[Step] = []
    if not choices:
        return result
    low = high = choices[0]
    rising = False
    for choice in choices:
        if rising:
            if choice.usd > high.usd:
                high = choice
            elif choice.usd < high.usd / (1 + turn):
                result.append(Step(low, high))
                low, rising = choice, False
        elif choice.usd < low.usd:
            low = choice
        elif choice.usd > low.usd * (1 + turn):
            high, rising = choice, True
    result.append(Step(low, high if rising else None))
    return result
