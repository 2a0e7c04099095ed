"""How much CPU time a function needs: from a text, from rows at one vCPU, or by inversion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from uncia.bandwidth import cpu_time
from uncia.bandwidth.cpu_time import CpuTime
from uncia.bandwidth.predict.measured import Row, Table
from uncia.bandwidth.presets import Preset
from uncia.errors import UnciaError
from uncia.units import NS_PER_MS, UnitError, parse_duration

if TYPE_CHECKING:
    Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
    Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

PIECES: Final = 200
"""A row's distribution becomes so many values of equal probability."""

_FORM: Final = re.compile(r"(normal|lognormal|uniform)\(([^,()]+),([^,()]+)\)")
_FORMS: Final = (
    "Write 16ms, normal(16ms, 1ms), lognormal(16ms, 2ms) (mean and standard deviation),"
    " uniform(14ms, 18ms), 10ms,20ms*3, p5=14.9ms,p50=17.3ms,p95=18.1ms, or name a measured table."
)

Source: TypeAlias = Literal["given", "one vCPU", "inverted"]


@dataclass(frozen=True)
class Work:
    """The CPU time of one invocation, and where the figure comes from.

    Attributes:
        cpu: its distribution; what is part of a reported duration but needs no CPU is not in it.
        source: ``given`` by a text, from rows at ``one vCPU``, or ``inverted`` from smaller sizes.
        reported_ns: mean duration that would be reported at one vCPU.
        low_ns, high_ns: bounds of the mean CPU time (95 %) if it was inverted.
        notes: sentences for people.
    """

    cpu: CpuTime
    source: Source
    reported_ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    notes: tuple[str, ...] = ()


def parse(text: str) -> CpuTime:
    """The distribution that a text names: a formula here, else as `uncia.bandwidth.cpu_time`.

    Raises:
        UnciaError: it is no such text.
    """
    match = _FORM.fullmatch(text.strip().replace(" ", ""))
    if match is None:
        return cpu_time.parse(text)
    kind, first, second = match.groups()
    try:
        one, two = parse_duration(first), parse_duration(second)
    except UnitError as error:
        raise UnciaError(f"--cpu-time: {error}", _FORMS) from error
    shares = (np.arange(cpu_time.PIECES) + 0.5) / cpu_time.PIECES
    if kind == "uniform":
        if two < one:
            raise UnciaError("--cpu-time: uniform(a, b) needs a <= b", _FORMS)
        values = one + (two - one) * shares
    else:
        values = _bell(kind, one, two, shares)
    if values[0] <= 0:
        raise UnciaError(
            f"--cpu-time: {text} reaches below 0, which no CPU time does",
            "Take a smaller spread, or lognormal.",
        )
    found = cpu_time.samples(int(value) for value in np.rint(values))
    return CpuTime(found.points, text)


def from_full(table: Table, preset: Preset) -> Work | None:
    """The CPU time from the rows at one vCPU or more; None if there is none.

    There nothing holds a single thread back, so the duration is the CPU time, and what the platform
    adds outside the sandbox. The rows are pooled, weighted by their samples.

    Raises:
        UnciaError: a row is shorter than what the platform adds.
    """
    rows = [row for row in table.rows if row.size >= preset.whole]
    if not rows:
        return None
    values, weights = [], []
    for row in rows:
        own = _spread(row)
        values.append(own)
        weights.append(np.full(own.size, row.samples or 1))
    reported, weight = np.concatenate(values), np.concatenate(weights)
    need = np.rint(reported - preset.outside_ns).astype(np.int64)
    if need.min() <= 0:
        raise UnciaError(
            f"{table.path}: at one vCPU some invocations take {reported.min() / NS_PER_MS:.3f} ms,"
            f" no more than what {preset.title} adds by itself"
            f" ({preset.outside_ns / NS_PER_MS:.3f} ms)",
            "Such a function needs no CPU time that could be predicted from.",
        )
    pairs = zip(need.tolist(), weight.tolist(), strict=True)
    mean = float(np.average(reported, weights=weight))
    count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    said = f"{count} of {table.path.name} at {size_words(preset, rows[0].size)} and more"
    return Work(CpuTime(cpu_time.weighted(pairs).points, said), "one vCPU", mean)


def values(cpu: CpuTime, count: int) -> Ints:
    """`count` values of a distribution, one in the middle of each part of equal probability.

    Returns:
        ns, ascending, shape (count,).
    """
    need = np.array([value for value, _ in cpu.points], dtype=np.int64)
    below = np.cumsum([weight for _, weight in cpu.points], dtype=np.float64)
    shares = (np.arange(count) + 0.5) / count * below[-1]
    found: Ints = need[np.minimum(np.searchsorted(below, shares), need.size - 1)]
    return found


def _bell(kind: str, mean: int, spread: int, shares: Floats) -> Floats:
    normal = np.array([NormalDist().inv_cdf(float(share)) for share in shares])
    if kind == "normal":
        return mean + spread * normal
    if mean == 0:
        raise UnciaError("--cpu-time: lognormal needs a mean above 0", _FORMS)
    variance = np.log1p((spread / mean) ** 2)
    found: Floats = np.exp(np.log(mean) - variance / 2 + np.sqrt(variance) * normal)
    return found


def _spread(row: Row) -> Floats:
    """`PIECES` values of a row that have its quantiles and its mean.

    Between two quantiles they rise evenly, below the first as steeply as above it, and above the
    last so far that the mean is what was measured. A row without quantiles is its mean.
    """
    if len(row.quantiles) < 2:
        return np.array([row.mean_ns])
    (share, low), (after, above) = row.quantiles[:2]
    last, high = row.quantiles[-1]
    known = list(row.quantiles)
    if share > 0:
        known.insert(0, (0.0, max(0.0, low - (above - low) * share / (after - share))))
    area = sum(
        (right - left) * (here + there) / 2 for (left, here), (right, there) in pairwise(known)
    )
    if last < 1:
        top = 2 * (row.mean_ns - area) / (1 - last) - high
        known.append((1.0, max(high, top)))
    places = (np.arange(PIECES) + 0.5) / PIECES
    found = np.interp(places, [one for one, _ in known], [value for _, value in known])
    return np.asarray(found * (row.mean_ns / found.mean()), dtype=np.float64)


def size_words(preset: Preset, size: int) -> str:
    """A size for people: ``512 MB`` or ``0.25 vCPU``."""
    from uncia.bandwidth.sizes import vcpu_text

    return f"{size:,} MB" if preset.by_memory else f"{vcpu_text(size)} vCPU"


def rows_below(table: Table, preset: Preset) -> Sequence[Row]:
    """The rows at less than one vCPU."""
    return [row for row in table.rows if row.size < preset.whole]
