"""How far another machine's clock is from this one's, by round trips over a connection.

A question leaves at t1 and its answer comes at t4, by the clock here; there it came at t2 and left
at t3. The clock there is ahead by ((t2 - t1) + (t3 - t4)) / 2, and whatever the ways took, that is
wrong by no more than half the time on them, ((t4 - t1) - (t3 - t2)) / 2. Of several round trips the
shortest says most.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_SAMPLES: Final = 16


@dataclass(frozen=True)
class Exchange:
    """The four times of a question and its answer, in Unix nanoseconds.

    Attributes:
        sent: when the question left, by the clock here (t1).
        received: when it came, by the clock there (t2).
        answered: when the answer left, by the clock there (t3).
        returned: when that came, by the clock here (t4).
    """

    sent: int
    received: int
    answered: int
    returned: int

    @property
    def way_ns(self) -> int:
        """How long question and answer were on their ways, in nanoseconds."""
        return (self.returned - self.sent) - (self.answered - self.received)


@dataclass(frozen=True)
class Offset:
    """How far the clock there is ahead.

    Attributes:
        offset_ns: by how many nanoseconds; behind if negative.
        error_ns: by how many the offset may be wrong, either way.
        round_trips: of how many the shortest was taken.
    """

    offset_ns: int
    error_ns: int
    round_trips: int

    @property
    def data(self) -> dict[str, Any]:
        """As ``run.yaml`` has it."""
        return dict(vars(self))


def offset(exchanges: Sequence[Exchange]) -> Offset | None:
    """The offset by the shortest of round trips; None without any.

    Args:
        exchanges: all of the same two clocks; one whose answer left before its question came says
            nothing, as a clock was set meanwhile.
    """
    possible = [each for each in exchanges if each.answered >= each.received and each.way_ns >= 0]
    if not possible:
        return None
    best = min(possible, key=lambda each: each.way_ns)
    twice = (best.received - best.sent) + (best.answered - best.returned)
    # Rounded up: the true offset is within the bound.
    return Offset(twice // 2, -(-best.way_ns // 2) + twice % 2, len(exchanges))


def bound_ns(before: Offset, after: Offset) -> int:
    """By how much times that `before` corrects may be wrong until `after`, in nanoseconds.

    Clocks drift steadily from one measurement to the next, so the correction is worst at one of
    the two. A clock that is slewed may be back at the end: what was measured meanwhile counts, too.
    """
    drift = abs(after.offset_ns - before.offset_ns)
    return max(before.error_ns, drift + after.error_ns)


class Clock:
    """Unix time that does not jump: the monotonic clock from a moment on, as for all rows."""

    def __init__(self) -> None:
        readings = []
        for _ in range(_SAMPLES):
            start = time.monotonic_ns()
            unix = time.time_ns()
            end = time.monotonic_ns()
            readings.append((end - start, unix - (start + end) // 2))
        self._shift = min(readings)[1]

    def unix_ns(self) -> int:
        """Now, in nanoseconds."""
        return time.monotonic_ns() + self._shift
