"""The search for the highest rate that is sustained.

Rates double until one is not sustained, then the bracket between the highest sustained rate and the
lowest that is not is bisected until its ends are within `WIDTH`, or as close as chance lets them
be judged. Above the capacity c latency grows by (r - c) / c, so rates that are too high say about
where c is: tried next is what is just far enough from there to be judged; where that does not help,
the geometric mean. A rate of which it cannot be said stays within the bracket, and its two sides
are bisected. Last, both ends of the bracket are watched again, `SEEDS` times each with other seeds,
and count with all that was seen; an end that can no longer be judged then is watched on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uncia.errors import RunFailedError
from uncia.stats import columns, slopes
from uncia.stats.columns import pc
from uncia.stats.quantiles import Floats, Ints
from uncia.stats.slopes import Slope, Verdict

WIDTH: Final = 1.05
"""The ratio of its ends up to which a bracket is not bisected further."""

WIDEST: Final = 1.10
"""The same of what was found, if it is decided."""

WIDE: Final = WIDEST / (1 + slopes.TOLERANCE)
"""The same of a bracket with rates in it that cannot be judged, whose neighbours are this close.
The capacity may be below its lower end, by what latency may gain there."""

CLOSE: Final = 1.03
"""Closer to a rate that cannot be judged, others cannot be either."""

SEEDS: Final = 3
"""How often each end of the bracket is watched again."""

ROUNDS: Final = 4
"""How often ends are confirmed at most; when one is not, what the bracket became is bisected."""

LONGEST_S: Final = 220.0
"""Ends are confirmed as far as there is time for it before so much watching, all rates together."""

LOWEST: Final = 1.0
"""The lowest rate that is tried, a second."""

LONGER: Final = 4
"""A rate is watched so many times longer at most, until it can be judged."""

FIRST_LOOK_S: Final = 4.5
"""When it is first asked whether a rate can be judged."""

LOOKS: Final = 1.2
"""Each look at the rows is so much later than the one before."""

EARLY_LEVEL: Final = 0.99
"""The level of a verdict before the time for which a rate is to be watched."""

_AGAIN: Final = 2
"""So many times longer a rate is watched in any case while it cannot be judged: also again, where
it could be until the last answers came."""

_MOST_SEEDS: Final = 4
"""How often an end that cannot be judged then is watched again at most."""

_ABOVE: Final = 1.2
_BELOW: Final = 2.6
"""How far above and below the tolerance slopes can be judged, in what chance moves them by: below
the capacity the queue is empty at first, and its growth to what is usual counts as a slope."""

_STEP: Final = 1.02
"""The least ratio of rates of which one could not be judged."""

_SLACK: Final = 1.005
"""Rates closer to each other are the same."""

_WATCH_REQUESTS: Final = 2_400
"""Then chance moves the slope by 2 % (a standard deviation) where service times are exponential."""

_WATCH_S: Final = (6.0, 12.0)
_JUDGED_S: Final = LONGER * _WATCH_S[0]
"""How long a rate near the capacity is to be watched until it can be judged."""

_LIKELY: Final = 1.2
"""By how many standard deviations a slope may still move; by more is unlikely."""

_MAX_PROBES: Final = 60
_STARTS: Final = ("cold", "restored")


def watch_s(rate: float) -> float:
    """How long a rate is watched if it can be judged then, in seconds."""
    shortest, longest = _WATCH_S
    return min(max(_WATCH_REQUESTS / rate, shortest), longest)


@dataclass(frozen=True)
class Seen:
    """What was seen of a rate at one time.

    Attributes:
        gains: of latency, block by block (`uncia.stats.slopes.gains`).
        late: likewise, of how late the generator sent.
        requests: how many were sent.
        outcomes: of those that failed, how many by outcome.
    """

    gains: Floats
    late: Floats
    requests: int
    outcomes: dict[str, int]

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return sum(self.outcomes.values())


def see(rows: pa.Table, rate: float, share: float = 1.0) -> Seen:
    """What rows show of a rate: `COLUMNS` of those that have an end so far.

    Args:
        rows: of a probe. Hops and attempts that were preempted are no requests, and do not count.
        rate: of all requests, a second.
        share: of the stream with the most of them, whose gaps are the widest of the whole
            schedule: streams of constant arrivals begin together.

    Seconds before the first starts are over do not count, nor what is throttled in them: those of
    the time for which a rate is watched in any case. Of a load that goes on, nothing counts that
    was due after the first request without an answer: rows of those that are answered early would
    make later ones look fast.
    """
    is_due = pc.is_valid(columns.integers(rows, "scheduled"))
    rows = rows.filter(pc.and_(columns.is_request(rows), is_due))
    scheduled = columns.integers(rows, "scheduled").to_numpy()
    order = np.argsort(scheduled, kind="stable")
    scheduled = scheduled[order]
    latency, late = (
        columns.difference(rows, end, "scheduled").fill_null(0).to_numpy()[order]
        for end in ("received", "sent")
    )
    starts = np.isin(columns.words(rows, "start").to_numpy(zero_copy_only=False)[order], _STARTS)
    begin = _begin(starts, scheduled, latency, rate)
    outcomes = _failures(rows, _first_begin(starts, scheduled, latency))
    end = _answered(scheduled, rate * share)
    whole = slice(int(np.searchsorted(scheduled, begin)), end)
    scheduled, latency, late = (values[whole] for values in (scheduled, latency, late))
    return Seen(
        slopes.gains(scheduled, latency), slopes.gains(scheduled, late), rows.num_rows, outcomes
    )


COLUMNS: Final = ("parent", "open_loop", "outcome", "start", "scheduled", "sent", "received")
"""The columns that `see` reads."""


def _begin(starts: npt.NDArray[np.bool_], scheduled: Ints, latency: Ints, rate: float) -> int:
    """When the first starts are over, ns; the earliest time if there were none."""
    if not scheduled.size:
        return 0
    starts = starts & (scheduled < scheduled[0] + watch_s(rate) * slopes.BLOCK_NS)
    return int((scheduled + latency)[starts].max(initial=scheduled[0]))


def _first_begin(starts: npt.NDArray[np.bool_], scheduled: Ints, latency: Ints) -> int:
    """When the starts are over that began before one of them was, ns; earlier than all if none."""
    if not starts.any():
        return int(scheduled[0]) if scheduled.size else 0
    ends = (scheduled + latency)[starts]
    return int(ends[scheduled[starts] <= ends.min()].max())


def _failures(rows: pa.Table, begin: int) -> dict[str, int]:
    """How many requests failed, by outcome, but for those throttled before `begin`, ns."""
    is_early = pc.less(columns.integers(rows, "scheduled"), begin)
    is_throttled = pc.equal(columns.words(rows, "outcome"), "throttled")
    rows = rows.filter(pc.invert(pc.fill_null(pc.and_(is_early, is_throttled), False)))
    outcomes = columns.count_words(rows, "outcome")
    outcomes.pop("ok", None)
    return outcomes


def _answered(scheduled: Ints, rate: float) -> int:
    """How many were answered before the first one that was not, by gaps too wide for the rate."""
    if scheduled.size < 2:
        return int(scheduled.size)
    gaps = np.flatnonzero(np.diff(scheduled) > 1.5 * slopes.BLOCK_NS / rate)
    return int(gaps[0]) + 1 if gaps.size else int(scheduled.size)


@dataclass
class Rate:
    """A rate, and what was seen of it.

    Attributes:
        seeds: with how many others it was watched, to confirm it.
    """

    per_s: float
    seen: list[Seen] = field(default_factory=list)
    seeds: int = 0
    _slopes: dict[tuple[int, float], Slope | None] = field(default_factory=dict, repr=False)

    def slope(self, level: float = slopes.LEVEL) -> Slope | None:
        """Of latency, by all that was seen."""
        # Each is asked for many times, and its bounds take thousands of draws.
        key = (len(self.seen), level)
        if key not in self._slopes:
            self._slopes[key] = slopes.of_gains([seen.gains for seen in self.seen], level)
        return self._slopes[key]

    @property
    def watched_s(self) -> float:
        """How long it was watched, in seconds."""
        return sum(seen.requests for seen in self.seen) / self.per_s

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return sum(seen.failed for seen in self.seen)

    def verdict(self, tolerance: float, level: float = slopes.LEVEL) -> Verdict:
        """Whether it is sustained: nothing failed, and latency does not grow.

        Where requests failed at less than half of the times it was watched, and latency does not
        grow, it cannot be said.
        """
        slope = self.slope(level)
        verdict = "undecided" if slope is None else slope.verdict(tolerance)
        failing = sum(seen.failed > 0 for seen in self.seen)
        if not failing or verdict == "not":
            return verdict
        watched = sum(seen.failed > 0 or seen.gains.size > 0 for seen in self.seen)
        return "not" if 2 * failing >= watched else "undecided"

    def is_generators(self, tolerance: float) -> bool:
        """Whether latency grows because the generator is late, and not the server."""
        late = slopes.of_gains([seen.late for seen in self.seen])
        return not self.failed and late is not None and late.low > tolerance / 2


@dataclass(frozen=True)
class Expected:
    """About where the capacity is, by how fast latency grows above it.

    Attributes:
        per_s: the capacity.
        chance: by what chance moves a slope near it, the 95 % bound.
    """

    per_s: float
    chance: float

    @classmethod
    def of(cls, rates: Iterable[Rate]) -> Expected | None:
        """By all rates whose latency grows, each by how many requests there were; None: none do."""
        weights, capacities, variances = [], [], []
        for rate in rates:
            slope = rate.slope()
            if slope is None or rate.failed or slope.low <= 0:
                continue
            gains = np.concatenate([seen.gains for seen in rate.seen])
            weights.append(gains.size * rate.per_s)
            capacities.append(rate.per_s / (1 + slope.value))
            # Of a single request, whatever the rate.
            variances.append(float(gains.var(ddof=1)) * rate.per_s)
        if not weights:
            return None
        per_s = float(np.average(capacities, weights=weights))
        requests = per_s * _JUDGED_S
        deviation = math.sqrt(float(np.average(variances, weights=weights)) / requests)
        return cls(per_s, NormalDist().inv_cdf(slopes.LEVEL) * deviation)

    def ends(self, tolerance: float) -> tuple[float, float]:
        """The closest rates below and above it that can be judged."""
        below, above = (1 + tolerance + by * self.chance for by in (-_BELOW, _ABOVE))
        return self.per_s * below, self.per_s * above


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        low: the highest rate that is sustained, by what latency may at most gain there: a second.
        high: the lowest rate that is not.
        decided: whether both ends were confirmed, and are as close as they are to be.
    """

    low: float
    high: float
    decided: bool

    @property
    def capacity(self) -> float:
        """The middle of the bracket, a second."""
        return math.sqrt(self.low * self.high)


class Search:
    """Says which rate to try next, by what was seen so far."""

    def __init__(
        self, start: float, tolerance: float = slopes.TOLERANCE, *, may_wait: bool = False
    ) -> None:
        """Begin at a rate (a second).

        Args:
            start: the first rate.
            tolerance: by how much latency may grow, in seconds a second.
            may_wait: whether requests wait for a free connection before they are sent: then they
                are late because of the server, and not of the generator.
        """
        self.tolerance: Final = tolerance
        self._may_wait: Final = may_wait
        self.rates: dict[float, Rate] = {}
        self._start = max(LOWEST, _rounded(start))
        self._ends: tuple[float, float] | None = None
        self._last: Rate | None = None
        self._rounds = 0
        self._count = 0

    def add(self, per_s: float, seen: Seen) -> None:
        """Take what was seen of a rate.

        Raises:
            RunFailedError: the generator cannot keep up with it.
        """
        rate = self.rates.setdefault(per_s, Rate(per_s))
        rate.seen.append(seen)
        rate.seeds += self.is_confirming
        self._last = rate
        self._count += 1
        is_suspect = not self._may_wait and rate.verdict(self.tolerance) != "sustained"
        if is_suspect and rate.is_generators(self.tolerance):
            best = max(self._judged("sustained"), default=None)
            known = "" if best is None else f"; {best:g}/s is sustained"
            raise RunFailedError(
                f"the load generator itself does not keep up with {per_s:g}/s: the capacity is"
                f" beyond what it can send{known}",
                hint="Generate the load on another machine (`uncia load --share`), or give this one"
                " less to do.",
            )

    def next(self) -> float | None:
        """The rate to try next; None: the search is over.

        Raises:
            RunFailedError: no capacity can be determined; the message says why.
        """
        if self._count >= _MAX_PROBES:
            raise RunFailedError(
                f"after {self._count} probes it cannot be said which rates are sustained: latencies"
                " differ too much from second to second",
                hint="See the report, and whether the machine was noisy.",
            )
        if not self.is_confirming and self._is_unfinished():
            assert self._last is not None
            return self._last.per_s
        while True:
            end = self._to_confirm()
            if end is not None:
                return end
            self._ends = None
            # Also after the last round: an end that did not hold leaves a gap.
            rate = self._unconfirmed()
            if rate is not None:
                return rate
            ends = self._next_ends()
            if ends is None or (self._rounds and self._is_too_long(ends)):
                return None
            self._ends = ends
            self._rounds += 1

    def is_enough(self, per_s: float, seen: Seen, elapsed_s: float) -> bool:
        """Whether a rate that is being watched has been watched enough.

        When the ends are confirmed, each seed is watched for half the time: they count together.
        The last one is watched on while it cannot be said what they come to.
        """
        if seen.failed:
            return True
        rate = self.rates.get(per_s, Rate(per_s))
        together = Rate(per_s, [*rate.seen, seen])
        all_s = rate.watched_s + elapsed_s
        longest_s = LONGER * watch_s(per_s)
        level = slopes.LEVEL
        if self.is_confirming:
            if elapsed_s < watch_s(per_s) / 2:
                return False
            if rate.seeds < SEEDS - 1 or self._watched_s() + elapsed_s >= LONGEST_S:
                return True
            longest_s += rate.watched_s
        elif all_s < watch_s(per_s):
            level = EARLY_LEVEL
        if together.verdict(self.tolerance, level) != "undecided":
            return True
        return all_s >= _AGAIN * watch_s(per_s) and not self._is_likely(together, all_s / longest_s)

    def _is_likely(self, rate: Rate, share: float) -> bool:
        """Whether a rate may be judged after all of the time, of which a share is over."""
        slope = rate.slope()
        if slope is None or share >= 1:
            return share < 1
        bound = (slope.high - slope.low) / 2
        moves = _LIKELY * bound / NormalDist().inv_cdf(slopes.LEVEL) * math.sqrt(1 - share)
        return abs(slope.value - self.tolerance) + moves > bound * math.sqrt(share)

    def found(self) -> Found:
        """The result, once the search is over."""
        low, high = self._bracket()
        decided = self._is_confirmed(low, high) and self._is_close(low, high)
        return Found(self._least(low), high, decided)

    def _is_close(self, low: float, high: float) -> bool:
        """Whether a bracket is close enough; a tolerance of more than 2 % does not count."""
        return bool(high / low <= WIDE or high / self._least(low) <= WIDEST)

    def _least(self, low: float) -> float:
        """The capacity if a rate is sustained: less what latency may gain there."""
        slope = self.rates[low].slope()
        # With half as much again, since some error is the same in every block.
        gain = 0.0 if slope is None else max(0.0, min(1.5 * slope.high, self.tolerance))
        return low / (1 + gain)

    def _watched_s(self) -> float:
        return sum(rate.watched_s for rate in self.rates.values())

    def _is_too_long(self, ends: tuple[float, float]) -> bool:
        """Whether there is no time left to confirm the ends."""
        left_s = sum(max(0, SEEDS - self.rates[end].seeds) * watch_s(end) / 2 for end in ends)
        return self._rounds >= ROUNDS or self._watched_s() + left_s > LONGEST_S

    def _is_unfinished(self) -> bool:
        """Whether the last rate is to be watched on: its last answers made it undecided."""
        rate = self._last
        return (
            rate is not None
            and not rate.failed
            and len(rate.seen) <= _AGAIN
            and rate.watched_s < _AGAIN * watch_s(rate.per_s)
            and rate.verdict(self.tolerance) == "undecided"
        )

    def _is_confirmed(self, *ends: float) -> bool:
        return all(self.rates[end].seeds >= SEEDS for end in ends)

    def _to_confirm(self) -> float | None:
        """Which end is to be watched again; None: both were, or one is none."""
        if self._ends is None:
            return None
        open_ends = []
        for end, wanted in zip(self._ends, ("sustained", "not"), strict=True):
            rate = self.rates[end]
            verdict = rate.verdict(self.tolerance)
            if verdict not in (wanted, "undecided"):
                return None
            if rate.seeds < SEEDS:
                open_ends.append(rate)
            elif verdict == "undecided":
                if rate.seeds >= _MOST_SEEDS or self._watched_s() >= LONGEST_S:
                    return None
                open_ends.append(rate)
        return min(open_ends, key=lambda rate: rate.seeds).per_s if open_ends else None

    def _next_ends(self) -> tuple[float, float] | None:
        """What to confirm: the bracket, or a closer end of one that is too wide; None: nothing."""
        low, high = self._bracket()
        if not self._is_confirmed(low, high):
            return low, high
        if self._is_close(low, high):
            return None
        # Of the rates in between that which is the least likely to stay undecided.
        closer: dict[float, tuple[float, float]] = {}
        for per_s, rate in self.rates.items():
            slope = rate.slope()
            if low < per_s < high and not rate.seeds and slope is not None and not rate.failed:
                by = slope.value - self.tolerance
                doubt = (slope.high - slope.low) / 2
                closer[abs(by) / doubt] = (low, per_s) if by > 0 else (per_s, high)
        return closer[max(closer)] if closer else None

    @property
    def is_confirming(self) -> bool:
        """Whether the ends of the bracket are watched again."""
        return self._ends is not None

    def _judged(self, verdict: Verdict) -> Iterator[float]:
        return (
            per_s for per_s, rate in self.rates.items() if rate.verdict(self.tolerance) == verdict
        )

    def _bracket(self) -> tuple[float, float]:
        """The highest sustained rate below the lowest that is not, and the latter.

        Raises:
            RunFailedError: one of them is missing.
        """
        high = min(self._judged("not"), default=None)
        low = max((it for it in self._judged("sustained") if high and it < high), default=None)
        if low is None or high is None:
            raise self._none_sustained()
        return low, high

    def _is_bracketed(self) -> bool:
        """Whether some rate is sustained below the lowest that is not."""
        high = min(self._judged("not"), default=None)
        return high is not None and any(it < high for it in self._judged("sustained"))

    def _unconfirmed(self) -> float | None:
        if not self.rates:
            return self._start
        high = min(self._judged("not"), default=None)
        if high is None:
            return _rounded(2 * max(self.rates))
        if not self._is_bracketed():
            lowest = min(self.rates)
            if lowest <= LOWEST:
                raise self._none_sustained()
            return max(LOWEST, _rounded(lowest / 2))
        return self._within(*self._bracket())

    def _within(self, low: float, high: float) -> float | None:
        """Where the bracket is bisected: beside one of its ends; None if it is narrow enough."""
        if high / low <= WIDTH:
            return None
        between = sorted(it for it in self.rates if low <= it <= high)
        gaps = [(above / below, below, above) for below, above in pairwise(between)]
        expected = Expected.of(self.rates.values())
        if expected is not None:
            below, above = expected.ends(self.tolerance)
            if high / low <= min(WIDE, above / below * _SLACK):
                return None
            if len(between) > 2:
                below, above = min(below, between[1] / _STEP), max(above, between[-2] * _STEP)
            if between[-2] * _SLACK < above < high / _SLACK**2:
                return _rounded(above)
            if low * _SLACK**2 < below < between[1] / _SLACK:
                return _rounded(below)
        ratio, below, above = max(gaps[0], gaps[-1])
        # Where some rate cannot be judged, closer ones on either side can.
        if ratio <= WIDTH and (high / low <= WIDE or ratio <= CLOSE):
            return None
        return _rounded(math.sqrt(below * above))

    def _all_failed(self) -> bool:
        return all(rate.failed for rate in self.rates.values())

    def _none_sustained(self) -> RunFailedError:
        lowest = self.rates[min(self.rates)]
        if lowest.failed:
            outcomes: dict[str, int] = {}
            for seen in lowest.seen:
                for word, count in seen.outcomes.items():
                    outcomes[word] = outcomes.get(word, 0) + count
            words = ", ".join(f"{count:,} {word}" for word, count in outcomes.items())
            requests = sum(seen.requests for seen in lowest.seen)
            where = "at every rate" if self._all_failed() else "already at the lowest rate"
            return RunFailedError(
                f"requests fail {where}: of {requests:,} at {lowest.per_s:g}/s {words}",
                hint="A rate is sustained if nothing fails. The errors are in the report.",
            )
        if lowest.verdict(self.tolerance) == "not":
            return RunFailedError(
                f"the capacity is below {lowest.per_s:g}/s: already there latency grows from"
                " request to request",
                hint="Make the function's work smaller, or send single requests.",
            )
        return RunFailedError(
            f"it cannot be said whether {lowest.per_s:g}/s is sustained: latencies differ too much"
            " from second to second",
            hint="See the report, and whether the machine was noisy.",
        )


def _rounded(rate: float) -> float:
    """A rate with four digits, as people write it."""
    return float(f"{rate:.4g}")
