"""Which files a trace consists of: recognised by header, and held to it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.text import nearest
from uncia.traces.base import expand
from uncia.traces.lines import ends_in_newline, header

_LISTED: Final = 6  # columns that an error lists
_LIKE: Final = 0.5  # share of a kind's columns by which a file without its signature is known


@dataclass(frozen=True)
class Kind:
    """A kind of file of a trace.

    Attributes:
        name: what it holds.
        columns: the columns that every such file has.
        numbered: pattern of further columns, at least one of which it has; empty if none.
        signature: columns by which it is recognised, even if others are missing; by default the
            first two.
    """

    name: str
    columns: tuple[str, ...]
    numbered: str = ""
    signature: tuple[str, ...] = ()

    def recognises(self, names: Sequence[str]) -> bool:
        """Whether a file with these columns is meant to be of this kind."""
        if self.numbered and not any(re.fullmatch(self.numbered, name) for name in names):
            return False
        return set(self.signature or self.columns[:2]) <= set(names)

    def check(self, path: Path, names: Sequence[str]) -> list[str]:
        """Hold the columns of a file to what they should be, in any order.

        Returns:
            Columns that no such file has; they are not read.

        Raises:
            UnciaError: a column is missing, or stands where only numbered ones may.
        """
        known = set(self.columns)
        further = [name for name in names if name not in known]
        if self.numbered:
            further = [name for name in further if not re.fullmatch(self.numbered, name)]
        if missing := [name for name in self.columns if name not in names]:
            raise UnciaError(
                f"{path}, line 1: {_listed('missing', missing)}{_nearest(missing, further)}",
                hint=self._should(),
            )
        if self.numbered and further:
            raise UnciaError(f"{path}, line 1: {_listed('unknown', further)}", hint=self._should())
        return further

    def likeness(self, names: Sequence[str]) -> float:
        """The share of its columns that a file has."""
        return len(set(self.columns) & set(names)) / len(self.columns)

    def _should(self) -> str:
        return f"A file of {self.name} has: {', '.join(self.columns)}" + (
            ", and numbered columns." if self.numbered else "."
        )


@dataclass(frozen=True)
class Sources:
    """The files of an import, by kind, and what is to be said of them."""

    by_kind: dict[str, list[Path]]
    warnings: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Path]:
        """The files of one kind, in order."""
        return self.by_kind.get(kind, [])


def detect(paths: Iterable[Path], kinds: Sequence[Kind]) -> bool:
    """Whether each file is of one of the kinds, by its header.

    Raises:
        UnciaError: a file cannot be read.
    """
    return all(_kind(header(path), kinds) is not None for path in paths)


def sort(paths: Iterable[Path | str], kinds: Sequence[Kind], trace: str) -> Sources:
    """The files by kind, their headers checked.

    Raises:
        UnciaError: a file is missing, not of this trace, or has other columns than it should.
    """
    by_kind: dict[str, list[Path]] = {}
    warnings: list[str] = []
    for path in expand(paths):
        names = header(path)
        kind = _kind(names, kinds) or _likest(names, kinds)
        if kind is None:
            raise UnciaError(
                f"{path} is no file of the trace {trace}: {_listed('its', list(names))}",
                hint=f"Its files begin with {_starts(kinds)}.",
            )
        if further := kind.check(path, names):
            warnings.append(f"{path}: {_listed('further', further)} not read")
        by_kind.setdefault(kind.name, []).append(path)
        if not ends_in_newline(path):
            warnings.append(
                f"{path} does not end in a line break: if it was cut off, its last row is wrong"
            )
    return Sources(by_kind, warnings)


def _kind(names: Sequence[str], kinds: Sequence[Kind]) -> Kind | None:
    return next((kind for kind in kinds if kind.recognises(names)), None)


def _likest(names: Sequence[str], kinds: Sequence[Kind]) -> Kind | None:
    """The kind that a file was meant to be of, if most of the columns are there."""
    likest = max(kinds, key=lambda kind: kind.likeness(names))
    return likest if likest.likeness(names) > _LIKE and not likest.numbered else None


def _nearest(missing: list[str], further: list[str]) -> str:
    """Which of the columns that are there may be meant by those that are missing."""
    plain = {name.lower().replace("_", "").replace(" ", ""): name for name in further}
    hints = []
    for name in missing[:_LISTED]:
        wanted = name.lower().replace("_", "")
        if close := nearest(wanted, plain):
            hints.append(f"{plain[close]!r} is nearest to {name!r}")
    return f" ({', '.join(hints)})" if hints else ""


def _starts(kinds: Sequence[Kind]) -> str:
    return ", or ".join(",".join(kind.columns[:4]) for kind in kinds)


def _listed(what: str, names: list[str]) -> str:
    listed = ", ".join(map(repr, names[:_LISTED]))
    if len(names) > _LISTED:
        listed += f" and {len(names) - _LISTED} more"
    if what == "its":
        return f"its columns are {listed}"
    return f"{what} {'column' if len(names) == 1 else 'columns'} {listed}"
