"""What logs write, as exact integers: times, durations with a unit, names; None if it is no such.

Values come from JSON as `int` and `Decimal`, and from text as they stand. Nothing becomes a float.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from uncia.traces import cells
from uncia.units import NS_PER_MS, NS_PER_S

_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?"
    r"\s?(Z|UTC|[+-]\d\d:?\d\d)?"
)
_COMMON: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", re.ASCII)
_NAME: Final = re.compile(r"[!-~]{1,512}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = 60  # seconds
_HOUR: Final = 3600
_ENDINGS: Final = re.compile(
    r"(\.(json|jsonl|ndjson|csv|log|txt|out|pkl|pickle|gz|gzip|bz2|xz|zip))+$", re.IGNORECASE
)
# Folders and files that CloudWatch names when it exports to S3, which name no function.
_EXPORTED: Final = re.compile(
    r"\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d-.*\[.*\][0-9a-f]{32}"
)


def unix_ns(text: Any) -> int | None:
    """A time such as ``2025-05-12T20:24:06.154Z`` as Unix time in ns; UTC if it names no zone.

    What is finer than a nanosecond is rounded to the nearest, halves up. None if the zone is a
    day or more from UTC, or the time further from 1970 than a table can hold (127 years).
    """
    match = _TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    *parts, fraction, zone = match.groups()
    try:
        moment = datetime(*map(int, parts), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if zone and zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            return None
        # Whole numbers, as a datetime of the year 1 or 9999 cannot be moved across its end.
        shift = hours * _HOUR + minutes * _MINUTE
        seconds += -shift if zone[0] == "+" else shift
    part = cells.scaled(f"0.{fraction}", NS_PER_S) if fraction else 0
    return None if part is None else _bounded(seconds * NS_PER_S + part)


def unix_ms(value: Any) -> int | None:
    """A Unix time in ms, as number or text, in ns."""
    return _bounded(quantity(value, NS_PER_MS))


def quantity(value: Any, factor: int, unit: str = "") -> int | None:
    """A number from 0, in JSON or as text with or without ``unit`` behind, times ``factor``."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    text = str(value).strip()
    if unit and text.endswith(unit):
        text = text[: -len(unit)].rstrip()
    if match := _COMMON.fullmatch(text):  # the same as below, sooner
        whole, fraction = match.groups("")
        product, divisor = int(whole + fraction) * factor, int("1" + "0" * len(fraction))
        if product % divisor == 0:
            return product // divisor
    number = cells.scaled(text, factor)
    return number if number is not None and number >= 0 else None


def name(value: Any) -> str | None:
    """A name: text of printable ASCII without spaces."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def text(value: str) -> str:
    """A text that UTF-8 can write: halves of surrogate pairs become U+FFFD.

    JSON may hold such halves (``\\ud800``), where what wrote a log cut a text in the middle.
    """
    return _SURROGATE.sub("\ufffd", value)


def file_name(path: Path) -> str:
    """What a log is named after whose text names no function: its file, without endings.

    Of a file that CloudWatch exported, that is the folder above those that the export made.
    """
    stem = _ENDINGS.sub("", path.name)
    if not _EXPORTED.fullmatch(stem):
        return re.sub(r"[^!-~]", "_", stem) or "log"
    for folder in path.resolve().parents:
        if folder.name and not _EXPORTED.fullmatch(folder.name):
            return re.sub(r"[^!-~]", "_", folder.name)
    return stem


def _bounded(number: int | None) -> int | None:
    return number if number is not None and abs(number) <= cells.MAX_QUANTITY else None
