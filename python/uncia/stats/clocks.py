"""Transfer times between functions whose clocks may differ.

A hop has four timestamps: its call was ``sent`` and its answer ``received`` by the caller's clock,
its handler started and ended by its own. Clocks on one running kernel are one clock. Otherwise the
offset of the callee's clock, theta, is bounded by causality: no handler starts before it is called,
and no answer comes before it has ended (Cristian, 1989, "Probabilistic clock synchronization"):

    ended - received <= theta <= started - sent

The calls between two instances bound the same offset together. A transfer time is started - sent -
theta, with theta in the middle of its bounds, and half their distance is its bound. Of a payload it
is from before the caller sent or stored it until the function had it (STeLLAR, section V).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from uncia.units import NS_PER_MS, NS_PER_S

KERNEL: Final = "kernel-"
"""What the names of clocks of functions begin with whose kernel is known."""

SLACK_NS: Final = NS_PER_MS
"""Stamps of one machine are read one after the other; those that are farther off are of another."""

LONGEST_NS: Final = 365 * 24 * 3600 * NS_PER_S
"""What functions report of calls that took longer is no time."""


@dataclass(frozen=True)
class Stamps:
    """The timestamps of one hop, in ns.

    Attributes:
        pair: the two instances.
        sent, received: by the caller's clock.
        started, ended: by the clock of the function that was called.
        is_one_clock: whether both functions ran on one kernel.
        payload: of a call that hands on a payload: when that began, by the caller's clock, and when
            the function had it, by its own.
    """

    pair: tuple[str, str]
    sent: int
    received: int
    started: int
    ended: int
    is_one_clock: bool
    payload: tuple[int, int] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether some offset fits: the handler took no longer than the call, and that a year.

        A payload is sent before the call is, and is there while the handler runs.
        """
        given, taken = self.transfer
        is_within = given <= self.sent <= given + LONGEST_NS and self.started <= taken <= self.ended
        took = self.ended - self.started
        return is_within and 0 <= took <= self.received - self.sent <= LONGEST_NS

    @property
    def transfer(self) -> tuple[int, int]:
        """From when, by the caller's clock, until when, by the function's, the transfer took."""
        return (self.sent, self.started) if self.payload is None else self.payload

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest offset that this call allows."""
        return self.ended - self.received, self.started - self.sent


@dataclass(frozen=True)
class Transfer:
    """How long a payload took from the caller to the function that was called, in ns.

    Attributes:
        time: the estimate; None: it is withheld.
        bound: how far from it the true time may be; 0 of one clock. None if nothing is known.
        contradicts: the timestamps cannot be true, whatever the offset.
    """

    time: float | None
    bound: float | None
    contradicts: bool = False


def transfers(hops: Iterable[Stamps]) -> list[Transfer]:
    """The transfer time of each hop, in their order.

    One is withheld if its bound reaches it, since then no more is known than that it is not
    negative, as of the only call between two instances; or if its timestamps contradict each other:
    functions that claim one kernel and whose times are in the wrong order have lied about either.
    """
    stamps = list(hops)
    offsets = _offsets(stamps)
    return [_transfer(it, offsets) for it in stamps]


def _transfer(it: Stamps, offsets: Mapping[tuple[str, str], tuple[int, int]]) -> Transfer:
    if not it.is_possible:
        return Transfer(None, None, contradicts=True)
    given, taken = it.transfer
    if it.is_one_clock:
        low, high = it.bounds
        if not low <= 0 <= high:
            return Transfer(None, None, contradicts=True)
        return Transfer(float(taken - given), 0.0)
    low, high = offsets[it.pair]
    if low > high:
        # The clocks have drifted, or were set: each call bounds its own offset alone.
        low, high = it.bounds
    bound = (high - low) / 2
    time = taken - given - (low + high) / 2
    return Transfer(None if bound >= time else time, bound)


def _offsets(stamps: Iterable[Stamps]) -> dict[tuple[str, str], tuple[int, int]]:
    """The bounds that all calls between two instances leave of their offset."""
    offsets: dict[tuple[str, str], tuple[int, int]] = {}
    for it in stamps:
        if it.is_one_clock or not it.is_possible:
            continue
        low, high = it.bounds
        before = offsets.get(it.pair, (low, high))
        offsets[it.pair] = max(low, before[0]), min(high, before[1])
    return offsets
