"""The CPU time that a function needs, from a text or from rows at one vCPU."""

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
from uncia.text import plural
from uncia.units import NS_PER_MS, UnitError, parse_duration

if TYPE_CHECKING:
    Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
    Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

PIECES: Final = 200
"""Values of equal probability that stand for a row's distribution."""

_FORM: Final = re.compile(r"(normal|lognormal|uniform)\(([^,()]+),([^,()]+)\)")
_FORMS: Final = (
    "Write 16ms, normal(16ms, 1ms), lognormal(16ms, 2ms) (mean and standard deviation),"
    " uniform(14ms, 18ms), 10ms,20ms*3, p5=14.9ms,p50=17.3ms,p95=18.1ms, or name a measured table."
)

Source: TypeAlias = Literal["given", "one vCPU", "inverted"]


@dataclass(frozen=True)
class Work:
    """The CPU time of an invocation, and its source.

    Attributes:
        cpu: its distribution, without the parts of a reported duration that need no CPU.
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
    """Parse a distribution: a formula, or a form of `uncia.bandwidth.cpu_time`.

    Raises:
        UnciaError: the text has another form.
    """
    match = _FORM.fullmatch(text.strip().replace(" ", ""))
    if match is None:
        return cpu_time.parse(text)
    kind, first, second = match.groups()
    try:
        first_ns, second_ns = parse_duration(first), parse_duration(second)
    except UnitError as error:
        raise UnciaError(f"--cpu-time: {error}", _FORMS) from error
    shares = (np.arange(cpu_time.PIECES) + 0.5) / cpu_time.PIECES
    if kind == "uniform":
        if second_ns < first_ns:
            raise UnciaError("--cpu-time: uniform(a, b) needs a <= b", _FORMS)
        values = first_ns + (second_ns - first_ns) * shares
    else:
        values = _bell(kind, first_ns, second_ns, shares)
    if values[0] <= 0:
        raise UnciaError(
            f"--cpu-time: {text} reaches below 0, which no CPU time does",
            "Take a smaller spread, or lognormal.",
        )
    points = cpu_time.samples(int(value) for value in np.rint(values)).points
    return CpuTime(points, text)


def from_full(table: Table, preset: Preset) -> Work | None:
    """Derive the CPU time from the rows at one vCPU or more; None if there are none.

    There a single thread is not throttled, so the duration is the CPU time and what the platform
    adds outside the sandbox. The rows are pooled, weighted by their samples.

    Raises:
        UnciaError: a row is shorter than what the platform adds.
    """
    rows = [row for row in table.rows if row.size >= preset.whole]
    if not rows:
        return None
    values, weights = [], []
    for row in rows:
        row_values = _spread(row)
        values.append(row_values)
        weights.append(np.full(row_values.size, row.samples or 1))
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
    size = size_words(preset, rows[0].size)
    description = f"{plural(len(rows), 'row')} of {table.path.name} at {size} and more"
    return Work(CpuTime(cpu_time.weighted(pairs).points, description), "one vCPU", mean)


def values(cpu: CpuTime, count: int) -> Ints:
    """Choose `count` values of a distribution, in the middle of parts of equal probability.

    Returns:
        ns, ascending, shape (count,).
    """
    need = np.array([value for value, _ in cpu.points], dtype=np.int64)
    below = np.cumsum([weight for _, weight in cpu.points], dtype=np.float64)
    shares = (np.arange(count) + 0.5) / count * below[-1]
    chosen: Ints = need[np.minimum(np.searchsorted(below, shares), need.size - 1)]
    return chosen


def _bell(kind: str, mean: int, spread: int, shares: Floats) -> Floats:
    normal = np.array([NormalDist().inv_cdf(float(share)) for share in shares])
    if kind == "normal":
        return mean + spread * normal
    if mean == 0:
        raise UnciaError("--cpu-time: lognormal needs a mean above 0", _FORMS)
    variance = np.log1p((spread / mean) ** 2)
    drawn: Floats = np.exp(np.log(mean) - variance / 2 + np.sqrt(variance) * normal)
    return drawn


def _spread(row: Row) -> Floats:
    """Make `PIECES` values that have a row's quantiles and its mean.

    Between two quantiles they rise evenly, below the first as steeply as above it, and above the
    last so far that they have the measured mean. A row without quantiles is its mean.
    """
    if len(row.quantiles) < 2:
        return np.array([row.mean_ns])
    (share, low), (after, above) = row.quantiles[:2]
    last, high = row.quantiles[-1]
    points = list(row.quantiles)
    if share > 0:
        points.insert(0, (0.0, max(0.0, low - (above - low) * share / (after - share))))
    area = sum(
        (x1 - x0) * (left_value + right_value) / 2
        for (x0, left_value), (x1, right_value) in pairwise(points)
    )
    if last < 1:
        top = 2 * (row.mean_ns - area) / (1 - last) - high
        points.append((1.0, max(high, top)))
    positions = (np.arange(PIECES) + 0.5) / PIECES
    interpolated = np.interp(
        positions, [position for position, _ in points], [value for _, value in points]
    )
    return np.asarray(interpolated * (row.mean_ns / interpolated.mean()), dtype=np.float64)


def size_words(preset: Preset, size: int) -> str:
    """Write a size: ``512 MB`` or ``0.25 vCPU``."""
    from uncia.bandwidth.sizes import vcpu_text

    return f"{size:,} MB" if preset.by_memory else f"{vcpu_text(size)} vCPU"


def rows_below(table: Table, preset: Preset) -> Sequence[Row]:
    """Select the rows at less than one vCPU."""
    return [row for row in table.rows if row.size < preset.whole]
