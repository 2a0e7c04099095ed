"""Logarithmic bins: distributions of any number of rows in one pass and little memory.

The ratio of a bin's edges is 2^(1/64), so it is 1.09 % wide; 2,048 bins span 32 octaves, from 1 us
to 71 min. Each bin keeps its largest value, and a cumulative distribution is exact at those values.
Where values are scaled and bins merged, F(v / 1.0109) <= share(v) <= F(v), with F the distribution
of the rows.
"""

from __future__ import annotations

import math
from typing import Any, Final

import ibis
import numpy as np
import numpy.typing as npt

PER_OCTAVE: Final = 64
"""Bins in each doubling of the value."""

WIDTH: Final = 2 ** (1 / PER_OCTAVE) - 1
"""Width of a bin, relative to its lower edge: 1.09 %."""

POINTS: Final = 2048
"""Maximum number of points of a distribution in a result."""

ZERO: Final = -(1 << 20)
"""The bin of zero, below all others."""

# No edge falls on a whole number, where engines whose logarithms differ in the last digit would
# put the same value into different bins.
_OFFSET: Final = math.sqrt(0.5)

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Curve = tuple[Floats, Floats]
"""Ascending values, and the share of rows at most each."""


def log_bin(value: Any, per_octave: int = PER_OCTAVE) -> Any:
    """The bin of each value of a numeric column, int32; null stays null.

    Args:
        value: non-negative.
        per_octave: bins in each doubling.
    """
    scale = ibis.literal(per_octave / math.log(2), "float64")
    number = value.cast("float64")
    # The logarithm of zero is an error on some engines and minus infinity on others.
    index = (ibis.ifelse(number > 0, number, 1.0).ln() * scale + _OFFSET).floor().cast("int32")
    return ibis.ifelse(number > 0, index, ibis.literal(ZERO, "int32"))


def bin_numbers(values: Floats, per_octave: int = PER_OCTAVE) -> Counts:
    """As `log_bin`, of an array."""
    result = np.full(values.shape, ZERO, np.int64)
    positive = values > 0
    scale = per_octave / math.log(2)
    result[positive] = np.floor(np.log(values[positive]) * scale + _OFFSET).astype(np.int64)
    return result


def cumulative(values: Floats, counts: Counts, points: int = POINTS) -> tuple[Floats, Floats]:
    """The cumulative distribution of weighted values: ascending values, and the share at most that.

    Thinned to the last point of each bin, and to `points`; the kept points are exact.

    Args:
        values: shape (n,), any order.
        counts: shape (n,), how often each occurs.
        points: maximum number of points.
    """
    keep = counts > 0
    values, counts = values[keep], counts[keep]
    if not values.size:
        return np.empty(0), np.empty(0)
    order = np.argsort(values, kind="stable")
    values, running = values[order], np.cumsum(counts[order])
    share = running / running[-1]
    bins = bin_numbers(values)
    last = np.append(bins[1:] != bins[:-1], True)
    values, share = values[last], share[last]
    if values.size > points:
        chosen = np.unique(np.linspace(0, values.size - 1, points).round().astype(np.int64))
        values, share = values[chosen], share[chosen]
    return values, share


def quantile(values: Floats, shares: Floats, probability: float) -> float | None:
    """The smallest value of a cumulative distribution whose share reaches a probability."""
    if not values.size:
        return None
    index = int(np.searchsorted(shares, probability * (1 - 1e-15), side="left"))
    return float(values[min(index, values.size - 1)])


def histogram(table: Any, by: dict[str, Any], largest: dict[str, Any]) -> Any:
    """Group rows by bins: ``n`` rows in each, and the largest value of some columns.

    Args:
        table: an Ibis table.
        by: the bins, by name.
        largest: the columns whose largest value is computed, by name.
    """
    keyed = table.select(**by, **{f"of_{name}": column for name, column in largest.items()})
    aggregates: dict[str, Any] = {"n": keyed.count().cast("int64")}
    aggregates |= {name: keyed[f"of_{name}"].max() for name in largest}
    return keyed.aggregate(aggregates, by=list(by))
