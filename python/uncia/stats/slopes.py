"""Whether a rate is sustained: by how much latency grows along the schedule.

With offered rate r and capacity c, the backlog grows by r - c each second, and the latency of the
request that is due at time t by (r - c) / c seconds a second. That slope is estimated from the
latencies at the edges of blocks of a second, and its bounds by drawing blocks with replacement
(`uncia.stats.bootstrap`). Above capacity, chance adds up along the schedule: what latency gains
in a block is independent from block to block, and the mean gain has a standard deviation of about
``sqrt((ca^2 + cs^2) / (r T))``, with the coefficients of variation of gaps and service, and the
time T. So gains of blocks are drawn, and not the latencies, which are not independent. Below
capacity latencies only scatter around a level, and what one block gains the next one loses: that
part of the variance (by the covariance of neighbours) counts once, and not for each block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np

from uncia.stats import bootstrap, student
from uncia.stats.quantiles import Floats, Ints

Verdict = Literal["sustained", "not", "undecided"]

TOLERANCE: Final = 0.02
"""Seconds of latency a second up to which a rate counts as sustained."""

LEVEL: Final = 0.95
"""The probability with which the slope is below its upper bound, and above its lower bound."""

BLOCK_NS: Final = 1_000_000_000
"""A second: longer than the latencies of most functions, short enough for many in a probe."""

MIN_BLOCKS: Final = 4
"""With fewer, nothing is known of how much they differ."""

_EDGE_NS: Final = 125_000_000
"""The latency at an edge is the median of the requests that are due so close to it."""

_EDGE_ROWS: Final = 3
"""But of these nearest where there are fewer, so that one slow answer is no slope."""


@dataclass(frozen=True)
class Slope:
    """Seconds of latency a second, with its one-sided bounds."""

    value: float
    low: float
    high: float

    def verdict(self, tolerance: float = TOLERANCE) -> Verdict:
        """Whether a rate with this slope is sustained, if it can be said."""
        if self.high <= tolerance:
            return "sustained"
        return "not" if self.low > tolerance else "undecided"


def gains(scheduled: Ints, values: Ints) -> Floats:
    """What values gain in each block of the schedule, in seconds a second, shape (blocks,).

    Args:
        scheduled: when the requests were due, ns, ascending, shape (rows,).
        values: their latencies (or how late they were sent), ns, shape (rows,).

    Returns:
        As many as there are whole blocks; none of fewer than two requests.
    """
    if scheduled.size < 2:
        return np.empty(0)
    span = int(scheduled[-1] - scheduled[0])
    # A slower schedule has longer blocks, with two requests in each.
    block = max(BLOCK_NS, 2 * span // (scheduled.size - 1))
    # No edge is so close to an end that requests on one side of it alone would count.
    inner = max(0, span - 2 * _EDGE_NS)
    edges = scheduled[0] + _EDGE_NS + block * np.arange(inner // block + 1)
    at = np.array([_at(scheduled, values, int(edge)) for edge in edges])
    return np.diff(at) / block


def of_gains(parts: Sequence[Floats], level: float = LEVEL) -> Slope | None:
    """The slope of several pieces of watching; None of too few blocks.

    Args:
        parts: what each gained, block by block (`gains`).
        level: of each bound.
    """
    drawn = np.concatenate([np.empty(0), *parts])
    n = int(drawn.size)
    if n < MIN_BLOCKS:
        return None
    mean = float(drawn.mean())
    walk, noise = _variances(parts, mean)
    total = walk + 2 * noise
    if total == 0:
        return Slope(mean, mean, mean)
    means = bootstrap.means(drawn, bootstrap.generator(bootstrap.SEED, "slope"))
    low, high = (float(np.quantile(means, order)) - mean for order in (1 - level, level))
    # Of n blocks, resampling knows (n - 1) / n of the variance, and not how uncertain that is; the
    # scatter at the edges is in the first and the last one of each piece, not in all n.
    widening = student.quantile(level, n - 1) / NormalDist().inv_cdf(level)
    widening *= math.sqrt(n / (n - 1))
    widening *= math.sqrt((walk + 2 * noise * len(parts) / n) / total)
    return Slope(mean, mean + low * widening, mean + high * widening)


def of_rows(scheduled: Ints, latency: Ints, level: float = LEVEL) -> Slope | None:
    """The slope of latency over a schedule; None of too short a one. Arguments as of `gains`."""
    return of_gains([gains(scheduled, latency)], level)


def _at(scheduled: Ints, values: Ints, edge: int) -> float:
    first, last = np.searchsorted(scheduled, (edge - _EDGE_NS, edge + _EDGE_NS))
    if last - first < _EDGE_ROWS:
        middle = int(np.searchsorted(scheduled, edge))
        first = max(0, min(middle - _EDGE_ROWS // 2, scheduled.size - _EDGE_ROWS))
        last = first + _EDGE_ROWS
    return float(np.median(values[first:last]))


def _variances(parts: Sequence[Floats], mean: float) -> tuple[float, float]:
    """The variance of what stays of a block's gain, and that of what the next one takes back.

    Neighbouring gains of a walk are independent; those of scatter around a level, whose variance is
    v, have the variance 2 v and the covariance -v. A covariance within its standard error is none.
    """
    centred = [part - mean for part in parts if part.size]
    count = sum(part.size for part in centred)
    pairs = sum(part.size - 1 for part in centred)
    total = float(sum((part**2).sum() for part in centred)) / count
    if pairs < 1 or total == 0:
        return total, 0.0
    covariance = float(sum((part[1:] * part[:-1]).sum() for part in centred)) / pairs
    if -covariance < total / math.sqrt(pairs):
        return total, 0.0
    noise = min(-covariance, total / 2)
    return total - 2 * noise, noise
