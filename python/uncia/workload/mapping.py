"""Which function of a file stands for each recorded one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.forms import Form, Name
from uncia.workload.made import Made
from uncia.workload.replay import Replay, Replayed, name_some


class ByRule(Form):
    """Functions in turn, for the recorded ones by rank or by a hash of their names."""

    rule: Literal["popularity", "hash"] = Field(
        description="popularity: the recorded function with the most requests is the first of"
        " functions, the next the second, and so on, in turn; hash: SHA-256 of the name decides"
    )
    functions: list[Name] = Field(min_length=1, description="Of the file; one twice counts twice")


def _kind_of(value: Any) -> str:
    """Tell the forms of a mapping apart, by names as messages about unions expect them."""
    if isinstance(value, str):
        return "a name"
    rule = value.get("rule") if isinstance(value, dict) else getattr(value, "rule", None)
    return "names" if rule is None else Made.__name__ if rule == "made" else ByRule.__name__


def _of_rules(*rules: str) -> BeforeValidator:
    """Refuse a ``rule`` that is none of these, whatever its other keys are."""

    def check(value: object) -> object:
        rule = value.get("rule") if isinstance(value, dict) else None
        if rule is not None and rule not in rules:
            raise ValueError(f"{rule!r} is no rule (allowed: {', '.join(rules)})")
        return value

    return BeforeValidator(check)


_ToName = Annotated[Name, Tag("a name")]
_Each = Annotated[dict[str, Name], Tag("names")]
_ByRule = Annotated[ByRule, Tag(ByRule.__name__)]
_Made = Annotated[Made, Tag(Made.__name__)]
Map = Annotated[_ToName | _Each | _ByRule, Discriminator(_kind_of), _of_rules("popularity", "hash")]
MapOrMade = Annotated[
    _ToName | _Each | _ByRule | _Made,
    Discriminator(_kind_of),
    _of_rules("popularity", "hash", "made"),
]


class MappedReplay(Replay):
    """A replay, and the functions of this file that stand for the recorded ones."""

    map: Map | None = Field(
        None,
        description="A function for all; one for each; or {rule: popularity or hash, functions:"
        " [...]}. By default the one of the same name",
    )


class ReplayArrivals(Replay):
    """The arrivals of a recorded table, in an experiment file, whose functions can be made."""

    kind: Literal["replay"]
    map: MapOrMade | None = Field(
        None,
        description="A function for all; one for each; {rule: popularity or hash, functions:"
        " [...]}; or {rule: made, function: ...}. By default the one of the same name",
    )

    def sentence(self) -> str:
        """The replay in a few words."""
        return f"replay of {self.table}"


def check(
    document: yamlio.Document,
    key_path: yamlio.KeyPath,
    chosen: Name | dict[str, Name] | ByRule | Made | None,
    functions: Collection[str],
) -> None:
    """Check that a mapping names functions of the file.

    Args:
        document: the file, for errors that say where.
        key_path: of the mapping in it.
        chosen: the mapping.
        functions: names of the file's functions.

    Raises:
        UnciaError: it does not; with file, line and key.
    """
    names: list[tuple[yamlio.KeyPath, str]] = []
    if isinstance(chosen, str):
        names = [(key_path, chosen)]
    elif isinstance(chosen, Made):
        names = [((*key_path, "function"), chosen.function)]
    elif isinstance(chosen, ByRule):
        names = [
            ((*key_path, "functions", index), name) for index, name in enumerate(chosen.functions)
        ]
    elif chosen is not None:
        names = [((*key_path, recorded), name) for recorded, name in chosen.items()]
    for path, name in names:
        if name not in functions:
            raise document.error(path, f"there is no function {name!r}", tuple(functions))


def assign(
    chosen: Name | dict[str, Name] | ByRule | None,
    parts: Sequence[Replayed],
    functions: Collection[str],
    table: Path,
) -> list[tuple[str, Replayed]]:
    """Pair each recorded function with the function of the file that stands for it.

    By popularity, the function with rank r (from 0, by number of requests, then by name) gets the
    function of the file at index r mod n. By hash, it is the first 8 bytes, little-endian, of the
    SHA-256 of its name (UTF-8), mod n.

    Args:
        chosen: the mapping; None: by name.
        parts: the recorded functions.
        functions: names of the file's functions.
        table: the recorded table, for errors.

    Raises:
        UnciaError: some have no counterpart.
    """
    if isinstance(chosen, str):
        return [(chosen, part) for part in parts]
    if isinstance(chosen, ByRule):
        ranked = list(parts)
        if chosen.rule == "popularity":
            ranked.sort(key=lambda part: (-part.arrivals.expected_requests(), part.function))
        ranks = {part.function: rank for rank, part in enumerate(ranked)}
        count = len(chosen.functions)
        return [
            (
                chosen.functions[
                    (_hash(part.function) if chosen.rule == "hash" else ranks[part.function])
                    % count
                ],
                part,
            )
            for part in parts
        ]
    counterparts = {name: name for name in functions} if chosen is None else chosen
    missing = [part.function for part in parts if part.function not in counterparts]
    if missing:
        raise UnciaError(
            f"replay: no function here replaces {name_some(missing)} of {table}",
            hint="Write `map: NAME` to replay all of them on one function, or map each.",
        )
    return [(counterparts[part.function], part) for part in parts]


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
