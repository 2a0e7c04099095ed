"""What a sample lets one claim of a 95th percentile, whatever the distribution.

Of n independent values, the number B that lie at or below the true p95 is Binomial(n, 0.95). So the
p95 is at most the s-th smallest value with probability P(B <= s - 1) at least (David and Nagaraja,
"Order Statistics", 2003, section 7.1). If k of the values are within a bound, the bound is not
below the k-th smallest, and ``P(B <= k - 1)`` is the confidence that the p95 keeps it: a claim made
at confidence c or more is wrong in at most 1 - c of the samples of a function that does not. With
all n within the bound it is 1 - 0.95^n, which reaches c at n = ln(1 - c) / ln(0.95) rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from uncia.errors import UnciaError
from uncia.stats.quantiles import Ranks, binomial, confidence_ranks, rank

P95: Final = Fraction(95, 100)


@dataclass(frozen=True)
class Claim:
    """A p95, its interval, and what can be said of a bound.

    Attributes:
        rows: how many values it rests on.
        value: the p95, ns; None if there are no values.
        low, high: its distribution-free interval, ns; None if there are too few values.
        confidence: that the p95 keeps the bound, at least; None if there is no bound or there are
            too few values for the level asked for, whatever they are.
        meets: True if it keeps it with the confidence asked for; False if the p95 of these values
            exceeds it; None if it does not, but too few values say so, or there is no bound.
    """

    rows: int
    value: int | None
    low: int | None
    high: int | None
    confidence: float | None
    meets: bool | None


def level_of(confidence: float) -> Fraction:
    """A confidence level as a fraction of the digits it is written with.

    Raises:
        UnciaError: it does not lie between 0.5 and 1.
    """
    level = Fraction(str(confidence))
    if not Fraction(1, 2) <= level < 1:
        raise UnciaError(
            f"a confidence of {confidence} cannot be had: it lies from 0.5 to below 1, such as 0.95"
        )
    return level


def rows_needed(level: Fraction) -> int:
    """The least n with 1 - 0.95^n >= level: 59 at 95 %, 90 at 99 %."""
    n = max(1, math.ceil(math.log(1 - level) / math.log(P95)) - 1)
    while 1 - P95**n < level:
        n += 1
    return n


@lru_cache(maxsize=4096)
def kept(n: int, within: int) -> float:
    """P(B <= within - 1) of B ~ Binomial(n, 0.95): the confidence that the p95 keeps a bound.

    Args:
        n: values.
        within: how many of them are at most the bound.
    """
    first, mass = binomial(n, P95)
    count = within - first
    # Over the shorter tail, which loses no digits.
    if within <= n * P95:
        return float(mass[: max(count, 0)].sum())
    return 1.0 - float(mass[count:].sum())


def ranks_of(n: int, level: Fraction) -> tuple[int, Ranks | None]:
    """The rank of the p95 of n values, and those of its interval."""
    return rank(n, P95), confidence_ranks(n, P95, level)


def claim(
    n: int,
    values: dict[int, int],
    level: Fraction,
    bound: int | None,
    within: int | None,
) -> Claim:
    """What n values say.

    Args:
        n: how many there are.
        values: rank -> value, for the ranks of `ranks_of`.
        level: the confidence asked for.
        bound: ns; None for none.
        within: how many values are at most the bound.
    """
    if n == 0:
        return Claim(0, None, None, None, None, None)
    p95_rank, interval = ranks_of(n, level)
    value = values[p95_rank]
    low, high = (None, None) if interval is None else (values[i] for i in interval)
    if bound is None or within is None:
        return Claim(n, value, low, high, None, None)
    confidence = kept(n, within) if n >= rows_needed(level) else None
    meets: bool | None = None
    if value > bound:
        meets = False
    elif confidence is not None and confidence >= float(level):
        meets = True
    return Claim(n, value, low, high, confidence, meets)
