"""Shared parts of importers: reading JSON with line numbers, names, and exact times."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.units import NS_PER_S, format_duration

NAME_LENGTH: Final = 32

# A warning about an entry of a list begins with it: SubExperiments[3].Handler: ...
_ENTRY: Final = re.compile(r"\w+\[\d+\]")


@dataclass(frozen=True)
class Options:
    """What a file of another tool does not say.

    Attributes:
        platform: the kind of platform of an experiment file.
        openwhisk: the API host of a FaaSProfiler workload for a local OpenWhisk.
        runtime: of all functions, in place of runtimes that the platform does not have.
        skip: leave out what cannot be carried over, with a warning, instead of an error.
    """

    platform: str = "embedded"
    openwhisk: str | None = None
    runtime: str | None = None
    skip: bool = False


@dataclass
class Imported:
    """A file of another tool as Uncia's.

    Attributes:
        kind: which of Uncia's files it is.
        data: the file, as YAML holds it.
        warnings: what the original ignored, and what Uncia does otherwise: a sentence each.
    """

    kind: Literal["workload", "experiment"]
    data: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    def distinct_warnings(self) -> list[str]:
        """Return each warning once, with the number of entries of which it is the same."""
        entries: dict[str, list[str]] = {}
        for warning in self.warnings:
            match = _ENTRY.match(warning)
            text = warning if match is None else warning[match.end() :]
            entries.setdefault(text, []).append("" if match is None else match.group())
        lines = []
        for text, where in entries.items():
            more = f" ({len(where):,} times)" if len(where) > 1 else ""
            lines.append(f"{where[0]}{text}{more}")
        return lines


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    # The shortest decimal that reads back as the same double is what was written.
    return Fraction(repr(value))


Number = Annotated[Fraction, BeforeValidator(_number)]
"""A JSON number, exactly as it was written (up to the 17 digits that a double holds)."""


def read(path: Path) -> tuple[yamlio.Document, list[str]]:
    """Read a JSON file as a document that knows the line of every key.

    Returns:
        The document, and a warning about each key that is there twice: the last counts, as in Go
        and Python.

    Raises:
        UnciaError: it cannot be read, or is not JSON (RFC 8259; no comments, no NaN).
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnciaError(f"{path}: this is not UTF-8 text (byte {error.start})") from error
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UnciaError(
            f"{path}:{error.lineno}: this is not valid JSON: {error.msg} (column {error.colno})"
        ) from error
    except (RecursionError, ValueError) as error:
        raise UnciaError(f"{path}: this is not valid JSON: {error or 'nested too deep'}") from error
    # JSON is YAML but for tabs, which within JSON's strings are always escaped, and for control
    # characters such as U+007F.
    text = yamlio.NOT_IN_YAML.sub(" ", text.replace("\t", " "))
    repeated: list[tuple[yamlio.KeyPath, int]] = []
    lines = yamlio.load(text, name=str(path), repeated=repeated)
    warnings = [
        f"{yamlio.format_path(key_path)}: the key is there again on line {line}, which counts"
        for key_path, line in repeated
    ]
    return lines.with_data(data), warnings


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not a number in JSON")


def name_of(text: str, taken: Iterable[str] = ()) -> str:
    """Make a name for Uncia's files from a text, different from the names in ``taken``."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_") or "unnamed"
    if not base[0].isalnum():
        base = "x" + base
    name = base[:NAME_LENGTH]
    number = 2
    while name in taken:
        suffix = f"-{number}"
        name = base[: NAME_LENGTH - len(suffix)] + suffix
        number += 1
    return name


def nanoseconds(seconds: Fraction) -> int:
    """Convert seconds to whole nanoseconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


def duration(seconds: Fraction) -> str:
    """Write seconds as Uncia's files have them."""
    return format_duration(nanoseconds(seconds))


def rate(per_second: Fraction) -> str:
    """Write a rate as Uncia's files have it, exactly."""
    from uncia.units import format_rate

    return format_rate(per_second)
