"""Quantities written as text with a unit, parsed exactly.

Every figure in a file or on the command line has a unit: ``100/s``, ``200ms``, ``1769MB``; a
duration may have several, from the largest to the smallest: ``8h1min``. A bare number is an
error, because ``3`` could mean seconds or minutes. Nothing here uses floating point: ``0.1s`` is
exactly 100,000,000 ns, and text without an exact value in the base unit (``0.5ns``) is an error.

| quantity | base unit       | units                                             |
|----------|-----------------|---------------------------------------------------|
| duration | int nanoseconds | ns, us, ms, s, min, h                             |
| rate     | Fraction per s  | /s, /min, /h                                      |
| size     | int bytes       | B, KB = KiB = 2^10, MB = MiB = 2^20, GB = GiB = 2^30 |
| CPU      | int micro-vCPU  | vCPU, mvCPU                                       |

Sizes are binary because the platforms' are: Lambda's ``MemorySize`` of 1769 MB is 1769 x 2^20
bytes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
NS_PER_MIN: Final = 60 * NS_PER_S
NS_PER_H: Final = 60 * NS_PER_MIN
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
MICRO_PER_VCPU: Final = 1_000_000

MAX_TIME: Final = 366 * 24 * NS_PER_H
"""Longest plausible duration, ns: a year. No platform runs an invocation for that long."""

# Times and sizes are int64 in every table; a quantity that does not fit is an input error.
INT64_MAX: Final = (1 << 63) - 1

_DURATION: Final[dict[str, int]] = {
    "ns": 1,
    "µs": NS_PER_US,  # read, never written
    "us": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": NS_PER_MIN,
    "h": NS_PER_H,
}
_SIZE: Final[dict[str, int]] = {
    "B": 1,
    "KB": KIB,
    "KiB": KIB,
    "MB": MIB,
    "MiB": MIB,
    "GB": GIB,
    "GiB": GIB,
}
_CPU: Final[dict[str, int]] = {"vCPU": MICRO_PER_VCPU, "mvCPU": MICRO_PER_VCPU // 1_000}

_RATE: Final[dict[str, int]] = {"/s": 1, "/min": 60, "/h": 3_600}

_NUMBER = r"(?:0|[1-9][0-9_]*)(?:\.[0-9]+)?"
_QUANTITY: Final = re.compile(rf"({_NUMBER})\s*(/?)\s*([A-Za-zµ]+)")
_DAYS: Final = re.compile(r"([0-9]+)\s*d(.*)")
_DURATION_PART: Final = re.compile(rf"({_NUMBER})\s*([A-Za-zµ]+)\s*")


class UnitError(ValueError):
    """Text that is no quantity of the expected kind; the message lists the allowed units."""


def parse_duration(text: object) -> int:
    """Parse ``"200ms"`` or ``"8h1min"`` to nanoseconds.

    :raises UnitError: no unit, unknown unit, units that do not go from large to small, negative,
        finer than a nanosecond, or beyond int64.
    """
    parts = _duration_parts(text)
    if len(parts) < 2:
        return _parse(text, "a duration", _DURATION, "5s", "nanosecond")
    factors = [_read(part, "a duration", _DURATION, "5s")[1] for part in parts]
    if factors != sorted(set(factors), reverse=True):
        raise UnitError(
            f"{text!r} is not a duration: write its units from the largest to the smallest, each"
            " once, for example '8h1min'"
        )
    total = sum(_parse(part, "a duration", _DURATION, "5s", "nanosecond") for part in parts)
    if total > INT64_MAX:
        raise UnitError(f"{text!r} is beyond the range of a 64-bit nanosecond count")
    return total


def parse_interval(text: str) -> int:
    """Parse ``"7d"`` or ``"1d12h"`` to nanoseconds: a duration that may begin with days, above 0.

    :raises UnitError: as `parse_duration`, or 0.
    """
    match = _DAYS.fullmatch(text.strip())
    days, rest = (int(match[1]), match[2].strip()) if match else (0, text)
    total = days * 24 * NS_PER_H + (parse_duration(rest) if rest else 0)
    if not 0 < total <= INT64_MAX:
        raise UnitError(f"{text!r} is no interval: write one above 0, for example '7d' or '12h'")
    return total


def parse_size(text: object) -> int:
    """Parse ``"1769MB"`` to bytes (KB, MB and GB are powers of 1024, as on Lambda).

    :raises UnitError: no unit, unknown unit, negative, a fraction of a byte, or beyond int64.
    """
    return _parse(text, "a size", _SIZE, "128MB", "byte")


def parse_cpu(text: object) -> int:
    """Parse ``"0.5vCPU"`` to micro-vCPU.

    :raises UnitError: no unit, unknown unit, negative, finer than a micro-vCPU, or beyond int64.
    """
    return _parse(text, "a CPU allocation", _CPU, "0.5vCPU", "micro-vCPU")


def parse_vcpu(written: object) -> int:
    """Parse a number of vCPU, with or without the unit (``0.5``, ``"0.5vCPU"``), to micro-vCPU.

    :raises UnitError: as `parse_cpu`.
    """
    if isinstance(written, int | float) and not isinstance(written, bool):
        written = str(written)
    if isinstance(written, str) and re.fullmatch(r"[0-9_.]+", written.strip()):
        written = f"{written.strip()}vCPU"
    return parse_cpu(written)


def parse_rate(text: object) -> Fraction:
    """Parse ``"6/min"`` to an exact number per second (here 1/10).

    :raises UnitError: no unit, unknown unit, zero or negative.
    """
    rate = parse_rate_or_zero(text)
    if rate == 0:
        raise UnitError(f"{text!r} is no rate: it must be above zero")
    return rate


def parse_rate_or_zero(text: object) -> Fraction:
    """Parse a rate that may be ``"0/s"``, such as the first rate of a ramp.

    :raises UnitError: no unit, unknown unit, or negative.
    """
    number, seconds = _read(text, "a rate", _RATE, "100/s")
    return number / seconds


def format_duration(ns: int) -> str:
    """Write nanoseconds in the largest unit that keeps the number whole: ``1500`` -> ``1500ns``."""
    return _format(ns, tuple(reversed(_DURATION.items())))


def format_size(size: int) -> str:
    """Write bytes in the largest unit that keeps the number whole: ``2**20`` -> ``1MB``."""
    return _format(size, (("GB", GIB), ("MB", MIB), ("KB", KIB), ("B", 1)))


def format_cpu(micro: int) -> str:
    """Write micro-vCPU as an exact decimal number of vCPU: ``500_000`` -> ``0.5vCPU``."""
    return f"{_point(micro, 6)}vCPU"


def format_rate(rate: Fraction) -> str:
    """Write a rate so that :func:`parse_rate` gives back the same fraction: ``1/10`` -> ``0.1/s``.

    :raises UnitError: the fraction has no finite decimal form per second, minute or hour.
    """
    for per, seconds in _RATE.items():
        if number := _finite_decimal(rate * seconds):
            return f"{number}{per}"
    raise UnitError(f"{rate}/s cannot be written exactly per second, minute or hour")


def format_like(text: str, value: int) -> str:
    """Write a value in a unit of the kind that `text` is in: ``"10us"``, 10**6 -> ``"1ms"``.

    :raises UnitError: `text` is no duration, size or CPU allocation.
    """
    for parse, write in (
        (parse_duration, format_duration),
        (parse_size, format_size),
        (parse_cpu, format_cpu),
    ):
        with suppress(UnitError):
            parse(text)
            return write(value)
    raise UnitError(f"{text!r} is no duration, size or CPU allocation")


def rate_per_second_text(rate: Fraction) -> str:
    """The rate per second as the engine reads it: exact decimal text, else ``"1/360"``."""
    return _finite_decimal(rate) or f"{rate.numerator}/{rate.denominator}"


def _duration_parts(text: object) -> list[str]:
    """Split ``"8h1min"`` into its quantities; empty if the text is no sequence of them."""
    if not isinstance(text, str):
        return []
    matches = list(_DURATION_PART.finditer(text.strip()))
    whole = "".join(match[0] for match in matches)
    return [match[0].strip() for match in matches] if whole == text.strip() else []


def _parse(text: object, kind: str, units: dict[str, int], example: str, base: str) -> int:
    number, factor = _read(text, kind, units, example)
    value = number * factor
    if value.denominator != 1:
        raise UnitError(f"{text!r} is finer than one {base}")
    if value > INT64_MAX:
        raise UnitError(f"{text!r} is beyond the range of a 64-bit {base} count")
    return int(value)


def _read(text: object, kind: str, units: dict[str, int], example: str) -> tuple[Fraction, int]:
    """The number of a quantity, and how many base units its unit stands for."""
    allowed = f"one of {', '.join(unit for unit in units if unit != 'µs')}, for example {example!r}"
    if not isinstance(text, str):
        raise UnitError(f"{text!r} has no unit: {kind} is written with {allowed}")
    match = _QUANTITY.fullmatch(text.strip())
    factor = units.get(match[2] + match[3]) if match else None
    if match is None or factor is None:
        if text.strip().startswith("-"):
            raise UnitError(f"{text!r} is not {kind}: it is negative")
        raise UnitError(f"{text!r} is not {kind}: write a number and {allowed}")
    return Fraction(match[1].replace("_", "")), factor


def _format(value: int, units: tuple[tuple[str, int], ...]) -> str:
    if value == 0:
        return f"0{units[-1][0]}"
    unit, factor = next((u, f) for u, f in units if value % f == 0)
    return f"{value // factor}{unit}"


def _finite_decimal(value: Fraction) -> str | None:
    """The exact decimal text of a fraction, or None when its expansion does not end."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    return _point(value.numerator * 10**places // value.denominator, places)


def _point(digits: int, places: int) -> str:
    """``digits`` / 10^``places`` as decimal text without trailing zeros."""
    whole, fraction = divmod(digits, 10**places)
    text = str(fraction).rjust(places, "0").rstrip("0") if fraction else ""
    return f"{whole}.{text}" if text else str(whole)


def _schema(description: str, pattern: str, examples: list[str]) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "description": description, "pattern": pattern, "examples": examples}
    )


# Types for pydantic: they parse text to an exact number, and serialise it to text that parses back.
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    _schema(
        "A duration with its unit, or several from the largest to the smallest",
        rf"^({_NUMBER} *(ns|us|µs|ms|s|min|h) *)+$",
        ["200ms", "5s", "8h1min"],
    ),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str),
    _schema(
        "A size with its unit; MB = MiB = 2^20 bytes",
        rf"^{_NUMBER} *(B|[KMG]i?B)$",
        ["128MB", "1769MB", "1GB"],
    ),
]
Cpu = Annotated[
    int,
    BeforeValidator(parse_cpu),
    PlainSerializer(format_cpu, return_type=str),
    _schema("A CPU allocation with its unit", rf"^{_NUMBER} *m?vCPU$", ["0.5vCPU", "250mvCPU"]),
]
Vcpu = Annotated[
    int,
    BeforeValidator(parse_vcpu),
    PlainSerializer(format_cpu, return_type=str),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "description": "A number of vCPU, with or without its unit",
            "examples": [0.5, "250mvCPU"],
        }
    ),
]
Rate = Annotated[
    Fraction,
    BeforeValidator(parse_rate),
    PlainSerializer(format_rate, return_type=str),
    _schema(
        "A rate: a number per second, minute or hour",
        rf"^{_NUMBER} */ *(s|min|h)$",
        ["100/s", "6/min"],
    ),
]
RateOrZero = Annotated[
    Fraction,
    BeforeValidator(parse_rate_or_zero),
    PlainSerializer(format_rate, return_type=str),
    _schema(
        "A rate that may be zero: a number per second, minute or hour",
        rf"^{_NUMBER} */ *(s|min|h)$",
        ["0/s", "100/s"],
    ),
]
