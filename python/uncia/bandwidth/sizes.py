"""Lists and ranges of sizes, as they are written on the command line, read exactly.

A list is items with commas between them; an item is one value, a range ``128..1769``, or a range
with a step: ``128..1769/64``, ``0.08..1/0.01``. A range holds its first value and every step from
there up to its last value, which belongs to it if a step meets it. Nothing here uses floating
point, so that ``0.08..1/0.01`` has 93 values and none of them is 0.29000000000000004.

| list      | what comes out      | written as                              | step by default |
|-----------|---------------------|-----------------------------------------|-----------------|
| memory    | MB (2^20 bytes)     | ``128..1769``, ``512MB,1GB``             | 1 MB            |
| vCPU      | micro-vCPU          | ``0.08..1/0.01``, ``0.5vCPU``            | 0.01 vCPU       |
| durations | ns                  | ``20ms,100ms``, ``5ms..20ms/5ms``        | none            |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from uncia.errors import UnciaError
from uncia.units import MIB, MICRO_PER_VCPU, UnitError, parse_cpu, parse_duration, parse_size

MOST: Final = 100_000
"""A list of more values than this is taken for a mistake."""

_PLAIN: Final = re.compile(r"[0-9][0-9_]*(?:\.[0-9]+)?")
_EXAMPLE: Final = {
    "memory": "128..1769/64 or 128,512,1769",
    "vcpu": "0.08..1/0.01 or 0.25,0.5,1",
    "durations": "20ms,100ms or 5ms..20ms/5ms",
}


def memory(text: str, option: str = "--memory") -> list[int]:
    """Memory sizes in MB (2^20 bytes), ascending, each once.

    Args:
        text: such as ``128..1769``, ``128..1769/64``, ``128,512,1769`` or ``512MB,1GB``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a size is 0, or there are more than `MOST`.
    """

    def one(part: str) -> int:
        size = parse_size(part if _has_unit(part) else f"{part}MB")
        if size % MIB:
            raise UnitError(f"{part!r} is no whole number of MB")
        return size // MIB

    return _values(text, option, one, 1, "memory")


def vcpu(text: str, option: str = "--vcpu") -> list[int]:
    """Shares of a CPU in micro-vCPU, ascending, each once.

    Args:
        text: such as ``0.08..1/0.01``, ``0.5`` or ``0.25vCPU,0.5vCPU``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a share is 0, or there are more than `MOST`.
    """

    def one(part: str) -> int:
        return parse_cpu(part if _has_unit(part) else f"{part}vCPU")

    return _values(text, option, one, MICRO_PER_VCPU // 100, "vcpu")


def durations(text: str, option: str) -> list[int]:
    """Durations in ns, ascending, each once; a range of them needs a step.

    Args:
        text: such as ``20ms,100ms`` or ``5ms..20ms/5ms``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a duration is 0, or there are more than `MOST`.
    """
    return _values(text, option, parse_duration, None, "durations")


def vcpu_text(micro: int) -> str:
    """A share as exact decimal text: ``72_357`` -> ``0.072357``."""
    text = format(Decimal(micro).scaleb(-6), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def ms_text(ns: int) -> str:
    """A duration as exact decimal text in ms: ``51_800_000`` -> ``51.8 ms``."""
    text = format(Decimal(ns).scaleb(-6), "f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} ms"


def _has_unit(part: str) -> bool:
    return _PLAIN.fullmatch(part) is None


def _values(
    text: str, option: str, one: Callable[[str], int], step: int | None, kind: str
) -> list[int]:
    try:
        found = {value for part in text.split(",") for value in _item(part.strip(), one, step)}
    except UnitError as error:
        raise UnciaError(f"{option}: {error}", f"Write {_EXAMPLE[kind]}.") from error
    if 0 in found:
        raise UnciaError(f"{option}: 0 is no size", f"Write {_EXAMPLE[kind]}.")
    if len(found) > MOST:
        raise UnciaError(f"{option}: {text!r} has more than {MOST:,} values", "Take a larger step.")
    return sorted(found)


def _item(part: str, one: Callable[[str], int], step: int | None) -> range:
    if not part:
        raise UnitError("a value is missing")
    first, dots, rest = part.partition("..")
    if not dots:
        value = one(part)
        return range(value, value + 1)
    last, slash, by = rest.partition("/")
    if not first or not last or (slash and not by):
        raise UnitError(f"{part!r} is no range: it has no {'step' if first and last else 'end'}")
    low, high = one(first.strip()), one(last.strip())
    if high < low:
        raise UnitError(f"{part!r} is an empty range: it ends below its beginning")
    own = one(by.strip()) if slash else step
    if own is None:
        raise UnitError(f"{part!r} has no step")
    if own == 0:
        raise UnitError(f"{part!r} has a step of 0")
    if (high - low) // own >= MOST:
        raise UnitError(f"{part!r} has more than {MOST:,} values")
    return range(low, high + 1, own)
