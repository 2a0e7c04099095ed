"""Distributions of the CPU time that a task needs, as weighted whole nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Final

from uncia.bandwidth.sizes import ms_text
from uncia.errors import UnciaError
from uncia.units import UnitError, parse_duration

PIECES: Final = 1_000
"""Parts of equal probability that a distribution given by quantiles is divided into."""

_MAX_WEIGHT: Final = (1 << 64) - 1
_WEIGHTED: Final = re.compile(r"(?P<value>[^*=]+?)\s*(?:\*\s*(?P<weight>[0-9]+))?")
_QUANTILE: Final = re.compile(r"p(?P<percent>[0-9]{1,2}(?:\.[0-9]{1,4})?|100)\s*=\s*(?P<value>.+)")
_FORMS: Final = (
    "Write 51.8ms, or 10ms,20ms*3 (a value and its weight), or p5=14.9ms,p50=17.3ms,p95=18.1ms,"
    " or name a file with a value, or a value, a comma and a weight, on each line."
)


@dataclass(frozen=True)
class CpuTime:
    """A distribution of CPU time.

    Attributes:
        points: (ns, weight), ascending, each value once, weights above 0.
        words: a description, for headings.
    """

    points: tuple[tuple[int, int], ...]
    words: str

    @property
    def weight(self) -> int:
        """Sum of the weights."""
        return sum(weight for _, weight in self.points)

    @property
    def mean(self) -> Fraction:
        """The mean in ns, exactly."""
        return Fraction(sum(value * weight for value, weight in self.points), self.weight)

    def quantile(self, share: Fraction) -> int:
        """Return the smallest value in ns with at least `share` (0 to 1) of the weight up to it."""
        below, target = 0, share * self.weight
        for value, weight in self.points:
            below += weight
            if below >= target:
                return value
        raise ValueError(f"{share} is no share of 1")


def constant(ns: int) -> CpuTime:
    """Make the distribution of a single value."""
    return _of([(ns, 1)], ms_text(ns))


def samples(values: Iterable[int]) -> CpuTime:
    """Make the distribution of measured values in ns with equal weights."""
    weighted_values = [(value, 1) for value in values]
    return _of(weighted_values, f"{len(weighted_values):,} values")


def weighted(points: Iterable[tuple[int, int]]) -> CpuTime:
    """Make the distribution of values in ns with whole weights.

    Raises:
        UnciaError: there is no value with a weight above 0, or a weight is negative.
    """
    weighted_values = list(points)
    return _of(weighted_values, f"{len(weighted_values):,} weighted values")


def quantiles(points: Sequence[tuple[Fraction, int]]) -> CpuTime:
    """Make a distribution from some of its quantiles.

    Between two quantiles, values rise evenly; below the first and above the last, they are
    constant, because nothing is known of the tails.

    Args:
        points: share (0 to 1) and value in ns; the values must not fall as the shares rise.

    Returns:
        `PIECES` points of equal weight: the values in the middle of each part, rounded to ns.

    Raises:
        UnciaError: there are no points, a share occurs twice, or the values fall.
    """
    ordered = sorted(points)
    if not ordered:
        raise UnciaError("the CPU time has no quantile", _FORMS)
    for (low, below), (high, above) in pairwise(ordered):
        if low == high:
            raise UnciaError(f"the CPU time's p{float(low * 100):g} is given twice")
        if above < below:
            raise UnciaError(
                f"the CPU time's p{float(high * 100):g} is below its p{float(low * 100):g}"
            )
    values = [_between(ordered, Fraction(2 * piece + 1, 2 * PIECES)) for piece in range(PIECES)]
    words = ", ".join(f"p{float(share * 100):g} {ms_text(value)}" for share, value in ordered)
    return _of([(value, 1) for value in values], words)


def parse(text: str, option: str = "--cpu-time") -> CpuTime:
    """Parse a distribution, in one of the forms that the hint of errors lists.

    Raises:
        UnciaError: the text has another form, or the file cannot be read.
    """
    path = Path(text)
    if text and ("/" in text or path.suffix in (".csv", ".txt") or path.is_file()):
        return _read(path, option)
    parts = [part.strip() for part in text.split(",")]
    try:
        if any(part.startswith("p") for part in parts):
            return quantiles([_quantile(part) for part in parts])
        points = [_point(part) for part in parts]
    except UnitError as error:
        raise UnciaError(f"{option}: {error}", _FORMS) from error
    return _of(points, ms_text(points[0][0]) if len(points) == 1 else text)


def _of(points: Iterable[tuple[int, int]], words: str) -> CpuTime:
    joined: dict[int, int] = {}
    for value, weight in points:
        if value < 0 or weight < 0:
            raise UnciaError(f"a CPU time is not {value} ns with the weight {weight}", _FORMS)
        if weight:
            joined[value] = joined.get(value, 0) + weight
    if not joined:
        raise UnciaError("there is no CPU time with a weight above 0", _FORMS)
    if sum(joined.values()) > _MAX_WEIGHT:
        raise UnciaError("the weights of the CPU times add up to more than 2^64")
    return CpuTime(tuple(sorted(joined.items())), words)


def _between(ordered: Sequence[tuple[Fraction, int]], share: Fraction) -> int:
    if share <= ordered[0][0]:
        return ordered[0][1]
    for (low, below), (high, above) in pairwise(ordered):
        if share <= high:
            return round(below + (above - below) * (share - low) / (high - low))
    return ordered[-1][1]


def _point(part: str) -> tuple[int, int]:
    match = _WEIGHTED.fullmatch(part)
    if match is None:
        raise UnitError(f"{part!r} is no CPU time")
    return parse_duration(match["value"]), int(match["weight"] or 1)


def _quantile(part: str) -> tuple[Fraction, int]:
    match = _QUANTILE.fullmatch(part)
    if match is None:
        raise UnitError(f"{part!r} is no quantile")
    return Fraction(match["percent"]) / 100, parse_duration(match["value"])


def _read(path: Path, option: str) -> CpuTime:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UnciaError(f"{option}: cannot read {path}: {reason}", _FORMS) from error
    points = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        value, _, weight = line.partition(",")
        try:
            ns = parse_duration(value)
        except UnitError as error:
            raise UnciaError(f"{option}: {path}, line {number}: {error}", _FORMS) from error
        if weight.strip() and not weight.strip().isdecimal():
            raise UnciaError(f"{option}: {path}, line {number}: {weight!r} is no whole weight")
        points.append((ns, int(weight) if weight.strip() else 1))
    if not points:
        raise UnciaError(f"{option}: {path} has no value", _FORMS)
    return _of(points, f"{path.name}, {len(points):,} values")
