"""Which sizes to take and which to avoid.

Durations fall in steps as sizes grow. Along a step a larger size costs more and is no faster; at
the next jump it may be faster for less money. So the bill goes up and down with the size: its lows
are where a step begins, and its heights are just before a jump.

What the model cannot tell apart is treated as equal: durations that differ by less than its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

AS_FAST: Final = 0.05
"""A mean that is longer by no more than this share is as fast, where the error is not known."""

WORTH: Final = 0.01
"""A saving below this share is none."""

TURN: Final = 0.01
"""The bill has to rise and fall by this share to have turned."""

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
    """What to take instead of a size.

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
    """From a low of the bill to the next one.

    Attributes:
        take: where the bill is lowest: the beginning of a step.
        avoid: where it is highest before the next low: just before a jump; None at the last step.
    """

    take: Choice
    avoid: Choice | None

    @property
    def extra(self) -> float | None:
        """By what share `avoid` costs more than `take`."""
        if self.avoid is None or self.take.usd == 0:
            return None
        return self.avoid.usd / self.take.usd - 1


def ladder(choices: Sequence[Choice], as_fast: float = AS_FAST) -> list[Choice]:
    """The sizes worth taking, from the cheapest up: each the cheapest of those that are faster than
    the one before it by more than `as_fast`."""
    found: list[Choice] = []
    for one in sorted(choices, key=lambda one: (one.usd, one.mean_ms)):
        if not found or one.mean_ms < found[-1].mean_ms * (1 - as_fast):
            found.append(one)
    return found


def instead(choices: Sequence[Choice], as_fast: float = AS_FAST) -> list[Instead | None]:
    """For each size the cheapest one that is as fast; None if nothing is saved."""
    found: list[Instead | None] = []
    times = np.array([one.mean_ms for one in choices])
    costs = np.array([one.usd for one in choices])
    for one in choices:
        allowed = times <= one.mean_ms * (1 + as_fast)
        best = choices[int(np.argmin(np.where(allowed, costs, np.inf)))]
        saves = 1 - best.usd / one.usd if one.usd else 0.0
        if saves < WORTH:
            found.append(None)
            continue
        reason: Reason = "as fast" if best.size < one.size else "faster"
        found.append(Instead(best.size, saves, 1 - best.mean_ms / one.mean_ms, reason))
    return found


def steps(choices: Sequence[Choice], turn: float = TURN) -> list[Step]:
    """The lows of the bill over ascending sizes, each with the height that follows it.

    A low or a height counts if the bill changes by more than `turn` before it turns again, so that
    no noise is taken for a step.
    """
    found: list[Step] = []
    if not choices:
        return found
    low = high = choices[0]
    rising = False
    for one in choices:
        if rising:
            if one.usd > high.usd:
                high = one
            elif one.usd < high.usd / (1 + turn):
                found.append(Step(low, high))
                low, rising = one, False
        elif one.usd < low.usd:
            low = one
        elif one.usd > low.usd * (1 + turn):
            high, rising = one, True
    found.append(Step(low, high if rising else None))
    return found
