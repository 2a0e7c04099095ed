"""Parsers of lists and ranges of sizes on the command line, without rounding.

A list is items with commas between them; an item is one value, a range ``128..1769``, or a range
with a step: ``128..1769/64``, ``0.08..1/0.01``. A range holds its first value and every step from
there up to its last value, which belongs to it if a step meets it. Nothing here uses floating
point, so that ``0.08..1/0.01`` has 93 values and none of them is 0.29000000000000004.

| list      | result              | written as                              | step by default |
|-----------|---------------------|-----------------------------------------|-----------------|
| memory    | MB (2^20 bytes)     | ``128..1769``, ``512MB,1GB``             | 1 MB            |
| vCPU      | micro-vCPU          | ``0.08..1/0.01``, ``0.5vCPU``            | 0.01 vCPU       |
| durations | ns                  | ``20ms,100ms``, ``5ms..20ms/5ms``        | none            |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from uncia.errors import UnciaError
from uncia.units import MIB, MICRO_PER_VCPU, UnitError, parse_cpu, parse_duration, parse_size

MAX_VALUES: Final = 100_000
"""Longer lists are errors."""

_PLAIN: Final = re.compile(r"[0-9][0-9_]*(?:\.[0-9]+)?")
_EXAMPLE: Final = {
    "memory": "128..1769/64 or 128,512,1769",
    "vcpu": "0.08..1/0.01 or 0.25,0.5,1",
    "durations": "20ms,100ms or 5ms..20ms/5ms",
}


def memory(text: str, option: str = "--memory") -> list[int]:
    """Parse memory sizes in MB (2^20 bytes), ascending, each once.

    Args:
        text: such as ``128..1769``, ``128..1769/64``, ``128,512,1769`` or ``512MB,1GB``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a size is 0, or there are more than `MAX_VALUES`.
    """
    return _values(text, option, _megabytes, partial(Item.values, step=1), "memory")


def memory_spread(text: str, count: int, option: str = "--memory") -> list[int]:
    """Parse memory sizes in MB like `memory`, but with the last value of every range.

    A range without a step is ``count`` sizes, evenly spaced.

    Raises:
        UnciaError: it is no such list, a size is 0, there are more than `MAX_VALUES`, or a range of
            less than 2 sizes is wanted.
    """

    def spread(item: Item) -> Iterable[int]:
        if item.step is not None:
            return [*item.values(), item.high]
        if item.low == item.high:
            return [item.low]
        if count < 2:
            raise UnciaError("--sizes: a range has at least 2 sizes")
        return [
            item.low + round((item.high - item.low) * index / (count - 1)) for index in range(count)
        ]

    return _values(text, option, _megabytes, spread, "memory")


def vcpu(text: str, option: str = "--vcpu") -> list[int]:
    """Parse shares of a CPU in micro-vCPU, ascending, each once.

    Args:
        text: such as ``0.08..1/0.01``, ``0.5`` or ``0.25vCPU,0.5vCPU``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a share is 0, or there are more than `MAX_VALUES`.
    """
    return _values(text, option, _micro, partial(Item.values, step=MICRO_PER_VCPU // 100), "vcpu")


def durations(text: str, option: str) -> list[int]:
    """Parse durations in ns, ascending, each once; a range of them needs a step.

    Args:
        text: such as ``20ms,100ms`` or ``5ms..20ms/5ms``.
        option: where the text stands, for the message.

    Raises:
        UnciaError: it is no such list, a duration is 0, or there are more than `MAX_VALUES`.
    """
    return _values(text, option, parse_duration, Item.values, "durations")


def vcpu_text(micro: int) -> str:
    """Write a share as exact decimal text: ``72_357`` -> ``0.072357``."""
    text = format(Decimal(micro).scaleb(-6), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def ms_text(ns: int) -> str:
    """Write a duration as exact decimal text in ms: ``51_800_000`` -> ``51.8 ms``."""
    text = format(Decimal(ns).scaleb(-6), "f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} ms"


def _megabytes(part: str) -> int:
    size = parse_size(part if _has_unit(part) else f"{part}MB")
    if size % MIB:
        raise UnitError(f"{part!r} is no whole number of MB")
    return size // MIB


def _micro(part: str) -> int:
    return parse_cpu(part if _has_unit(part) else f"{part}vCPU")


def _has_unit(part: str) -> bool:
    return _PLAIN.fullmatch(part) is None


@dataclass(frozen=True)
class Item:
    """One item of a list: a value, or a range of them.

    Attributes:
        text: the item as written.
        low: the value, or the first of the range.
        high: the value, or the last of the range.
        step: the step as written; None without one.
    """

    text: str
    low: int
    high: int
    step: int | None = None

    def values(self, step: int | None = None) -> range:
        """List every step from the first value up to the last one.

        Args:
            step: the step if none was written.

        Raises:
            UnitError: it has no step, or more than `MAX_VALUES` values.
        """
        if self.low == self.high:
            return range(self.low, self.low + 1)
        step = self.step or step
        if step is None:
            raise UnitError(f"{self.text!r} has no step")
        if (self.high - self.low) // step >= MAX_VALUES:
            raise UnitError(f"{self.text!r} has more than {MAX_VALUES:,} values")
        return range(self.low, self.high + 1, step)


def _values(
    text: str,
    option: str,
    parse: Callable[[str], int],
    spread: Callable[[Item], Iterable[int]],
    kind: str,
) -> list[int]:
    try:
        values = {value for part in text.split(",") for value in spread(_item(part.strip(), parse))}
    except UnitError as error:
        raise UnciaError(f"{option}: {error}", f"Write {_EXAMPLE[kind]}.") from error
    if 0 in values:
        raise UnciaError(f"{option}: 0 is no size", f"Write {_EXAMPLE[kind]}.")
    if len(values) > MAX_VALUES:
        raise UnciaError(
            f"{option}: {text!r} has more than {MAX_VALUES:,} values", "Take a larger step."
        )
    return sorted(values)


def _item(part: str, parse: Callable[[str], int]) -> Item:
    if not part:
        raise UnitError("a value is missing")
    first, dots, tail = part.partition("..")
    if not dots:
        value = parse(part)
        return Item(part, value, value)
    last, slash, step_text = tail.partition("/")
    if not first or not last or (slash and not step_text):
        raise UnitError(f"{part!r} is no range: it has no {'step' if first and last else 'end'}")
    low, high = parse(first.strip()), parse(last.strip())
    if high < low:
        raise UnitError(f"{part!r} is an empty range: it ends below its beginning")
    step = parse(step_text.strip()) if slash else None
    if step == 0:
        raise UnitError(f"{part!r} has a step of 0")
    return Item(part, low, high, step)
