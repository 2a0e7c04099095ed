"""How much CPU time a task needs: one value, or a distribution, as weighted whole nanoseconds."""

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
"""A distribution that is known by quantiles is cut into so many parts of equal probability."""

_MOST_WEIGHT: Final = (1 << 64) - 1
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
        words: what it is, for a heading.
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
        """The smallest value in ns that at least `share` (0 to 1) of the weight is at or below."""
        below, wanted = 0, share * self.weight
        for value, weight in self.points:
            below += weight
            if below >= wanted:
                return value
        raise ValueError(f"{share} is no share of 1")


def constant(ns: int) -> CpuTime:
    """Always the same."""
    return _of([(ns, 1)], ms_text(ns))


def samples(values: Iterable[int]) -> CpuTime:
    """Measured values in ns, each as likely as another."""
    found = [(value, 1) for value in values]
    return _of(found, f"{len(found):,} values")


def weighted(points: Iterable[tuple[int, int]]) -> CpuTime:
    """Values in ns with whole weights.

    Raises:
        UnciaError: there is none with a weight above 0, or one is negative.
    """
    found = list(points)
    return _of(found, f"{len(found):,} weighted values")


def quantiles(points: Sequence[tuple[Fraction, int]]) -> CpuTime:
    """A distribution that is known by some quantiles.

    Between two quantiles its values rise evenly; below the first and above the last they are these
    two. So the tails beyond the outermost quantiles are not made up, and are missing.

    Args:
        points: share (0 to 1) and value in ns; the values must not fall as the shares rise.

    Returns:
        `PIECES` points of equal weight: the values in the middle of each part, rounded to ns.

    Raises:
        UnciaError: there is none, a share stands twice, or the values fall.
    """
    known = sorted(points)
    if not known:
        raise UnciaError("the CPU time has no quantile", _FORMS)
    for (low, below), (high, above) in pairwise(known):
        if low == high:
            raise UnciaError(f"the CPU time's p{float(low * 100):g} is given twice")
        if above < below:
            raise UnciaError(
                f"the CPU time's p{float(high * 100):g} is below its p{float(low * 100):g}"
            )
    values = [_between(known, Fraction(2 * piece + 1, 2 * PIECES)) for piece in range(PIECES)]
    words = ", ".join(f"p{float(share * 100):g} {ms_text(value)}" for share, value in known)
    return _of([(value, 1) for value in values], words)


def parse(text: str, option: str = "--cpu-time") -> CpuTime:
    """The distribution that a text names; see the sentence that errors end with.

    Raises:
        UnciaError: it is no such text, or the file cannot be read.
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
    if sum(joined.values()) > _MOST_WEIGHT:
        raise UnciaError("the weights of the CPU times add up to more than 2^64")
    return CpuTime(tuple(sorted(joined.items())), words)


def _between(known: Sequence[tuple[Fraction, int]], share: Fraction) -> int:
    if share <= known[0][0]:
        return known[0][1]
    for (low, below), (high, above) in pairwise(known):
        if share <= high:
            return round(below + (above - below) * (share - low) / (high - low))
    return known[-1][1]


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
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UnciaError(f"{option}: cannot read {path}: {why}", _FORMS) from error
    points = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        value, _, weight = line.partition(",")
        try:
            own = parse_duration(value)
        except UnitError as error:
            raise UnciaError(f"{option}: {path}, line {number}: {error}", _FORMS) from error
        if weight.strip() and not weight.strip().isdecimal():
            raise UnciaError(f"{option}: {path}, line {number}: {weight!r} is no whole weight")
        points.append((own, int(weight) if weight.strip() else 1))
    if not points:
        raise UnciaError(f"{option}: {path} has no value", _FORMS)
    return _of(points, f"{path.name}, {len(points):,} values")
