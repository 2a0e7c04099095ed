"""The points of a sweep: the grid under ``sweep`` in a simulation file, each of them checked."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import yamlio
from uncia.experiment import simulation

KEY: Final = "sweep"
_ZIP: Final = "zip"
_MOST: Final = 100_000


@dataclass(frozen=True)
class Point:
    """One simulation of a sweep.

    Attributes:
        number: in the order of the grid, from 0.
        values: by parameter, as in the file.
        data: the content of its simulation file.
    """

    number: int
    values: Mapping[str, Any]
    data: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """The name of its folder within the sweep's."""
        return f"point-{self.number:05d}"

    def inputs(self, base: Path = Path()) -> dict[str, Path]:
        """Folders and files of tables that it reads, by the key that names them.

        Args:
            base: the folder from which paths in the file go out.
        """
        trace, starts = self.data.get("trace"), self.data.get("starts")
        return {
            key: base / part[name]
            for key, part, name in (("trace", trace, "path"), ("starts", starts, "run"))
            if isinstance(part, Mapping) and name in part
        }

    def digest(self, inputs: Mapping[str, str], versions: Mapping[str, str]) -> str:
        """Identifies what is simulated, for ``--resume``.

        Args:
            inputs: digests of the tables that it reads, by the key that names them.
            versions: of what simulates it.
        """
        content = {"data": self.data, "inputs": dict(inputs), "versions": dict(versions)}
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def points(document: yamlio.Document) -> list[Point]:
    """The points of a file with a key ``sweep``, each of them checked.

    Raises:
        UnciaError: the sweep is none, names an unknown parameter, or a point is no simulation: with
            the point's values.
    """
    data = dict(document.data)
    grid = data.pop(KEY)
    if not isinstance(grid, Mapping) or not grid:
        raise document.error(
            (KEY,),
            "must say which parameters have which values",
            hint="For example: sweep: {cluster.workers: [4, 8], prices.spot: [0.3, 0.5]}",
        )
    grid = dict(grid)
    in_step = grid.pop(_ZIP, False)
    if not isinstance(in_step, bool):
        raise document.error((KEY, _ZIP), "must be true or false")
    for name, values in grid.items():
        if not isinstance(values, list):
            raise document.error((KEY, name), "must be a list of values")
        if not values:
            raise document.error((KEY, name), "the list holds no value, so there would be no point")
    lengths = {len(values) for values in grid.values()}
    if not grid or (in_step and len(lengths) > 1):
        raise document.error((KEY,), "there must be parameters, all with as many values in step")
    count = 1
    for values in [] if in_step else grid.values():
        count *= len(values)
    if count > _MOST:
        raise document.error((KEY,), f"{count:,} points are more than {_MOST:,}")
    _check_once(document, grid, in_step=in_step)
    combined: Iterator[tuple[int, ...]]
    positions = [range(len(values)) for values in grid.values()]
    combined = zip(*positions, strict=True) if in_step else itertools.product(*positions)
    result = []
    documents = []
    for number, chosen in enumerate(combined):
        point = dict(zip(grid, chosen, strict=True))
        values = {name: grid[name][position] for name, position in point.items()}
        content, paths = _substitute(document, data, values)
        result.append(Point(number, copy.deepcopy(values), content))
        moved = {path: (KEY, name, point[name]) for name, path in paths.items()}
        documents.append(document.variant(content, moved, f"{KEY} at {words(values)}"))
    _check(document, result, documents)
    return result


def _check_once(document: yamlio.Document, grid: Mapping[str, list[Any]], *, in_step: bool) -> None:
    """Check that no two points are written the same, of which the line is known.

    Raises:
        UnciaError: two are; with file, line and key.
    """
    if in_step:
        rows = list(zip(*grid.values(), strict=True))
        if (again := _repeated(rows)) is not None:
            row = words(dict(zip(grid, rows[again], strict=True)))
            raise document.error((KEY,), f"two points in step are the same: {row}")
        return
    for name, values in grid.items():
        if (again := _repeated(values)) is not None:
            raise document.error(
                (KEY, name, again), f"{values[again]} is there twice: a sweep has each value once"
            )


def _repeated(values: Sequence[Any]) -> int | None:
    """The position of the first value that was there before; None if each is there once."""
    seen: set[str] = set()
    for position, value in enumerate(values):
        # As text: in Python 1, 1.0 and true are equal.
        text = json.dumps(value, sort_keys=True, default=str)
        if text in seen:
            return position
        seen.add(text)
    return None


def _substitute(
    document: yamlio.Document, data: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, yamlio.KeyPath]]:
    """The content of a file with these parameters, and the path in it of each.

    An item of a list is named by its position.

    Raises:
        UnciaError: a parameter names an item that is not there.
    """
    changed = copy.deepcopy(dict(data))
    paths: dict[str, yamlio.KeyPath] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        at: Any = changed
        path: yamlio.KeyPath = ()
        for part in parents:
            key: Any = _key(document, name, at, part)
            path += (key,)
            inner = at[key] if isinstance(at, list) else at.get(key)
            if not isinstance(inner, (dict, list)):
                inner = at[key] = {}
            at = inner
        # A copy: other parameters may name what is inside of it.
        key = _key(document, name, at, last)
        at[key] = copy.deepcopy(value)
        paths[name] = (*path, key)
    return changed, paths


def _key(document: yamlio.Document, parameter: str, at: Any, part: str) -> str | int:
    """What a part of a parameter's name stands for: a key of a mapping, a position in a list."""
    if not isinstance(at, list):
        return part
    if part.isdecimal() and int(part) < len(at):
        return int(part)
    there = f"from 0 to {len(at) - 1}" if at else "and it has none"
    raise document.error(
        (KEY, parameter),
        f"{part!r} is no item of a list: items are named by their positions, {there}",
    )


def _check(
    document: yamlio.Document, grid: Sequence[Point], documents: Sequence[yamlio.Document]
) -> None:
    """Check each point, and that no two are the same, however their values are written.

    Args:
        document: the file.
        grid: its points.
        documents: what each is checked as.

    Raises:
        UnciaError: a point is no simulation, or the same as another.
    """
    seen: dict[str, Point] = {}
    for point, checked in zip(grid, documents, strict=True):
        file = simulation.validate(checked)
        content = hashlib.sha256(file.model_dump_json().encode()).hexdigest()
        other = seen.setdefault(content, point)
        if other is not point:
            raise document.error(
                (KEY,),
                f"two points are the same: {words(other.values)}, and {words(point.values)}",
            )


def words(values: Mapping[str, Any]) -> str:
    """The parameters of a point, for a sentence."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())
