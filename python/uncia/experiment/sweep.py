"""Sweeps: one simulation for each point of a grid over parameters of a simulation file.

Keys under ``sweep`` name parameters by their path in the file, with dots; their values are
combined with each other, or taken in step (``zip: true``). Each point is a process of its own that
writes the folder of a run, so that one that fails or is killed takes no other along.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.progress import Reporter
from uncia.experiment.simulate import RESULT
from uncia.experiment.simulation import SimulationFile

KEY: Final = "sweep"
POINT: Final = "point.json"
SUMMARY: Final = "sweep.json"
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

    def digest(self) -> str:
        """Identifies what is simulated, for ``--resume``."""
        text = json.dumps(self.data, sort_keys=True, default=str)
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
        raise UnciaError(
            f"{document.name}: {KEY}: must say which parameters have which values",
            hint="For example: sweep: {cluster.workers: [4, 8], prices.spot: [0.3, 0.5]}",
        )
    grid = dict(grid)
    in_step = grid.pop(_ZIP, False)
    if not isinstance(in_step, bool):
        raise UnciaError(f"{document.name}: {KEY}.{_ZIP}: must be true or false")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UnciaError(f"{document.name}: {KEY}.{name}: must be a list of values")
    lengths = {len(values) for values in grid.values()}
    if not grid or (in_step and len(lengths) > 1):
        raise UnciaError(
            f"{document.name}: {KEY}: there must be parameters, all with as many values in step"
        )
    count = 1
    for values in [] if in_step else grid.values():
        count *= len(values)
    if count > _MOST:
        raise UnciaError(f"{document.name}: {KEY}: {count:,} points are more than {_MOST:,}")
    combined: Iterator[tuple[Any, ...]]
    combined = zip(*grid.values(), strict=True) if in_step else itertools.product(*grid.values())
    found = []
    for number, values in enumerate(combined):
        chosen = dict(zip(grid, values, strict=True))
        found.append(Point(number, copy.deepcopy(chosen), _substitute(data, chosen)))
    for point in found:
        _check(document, point)
    return found


def _substitute(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file with these parameters."""
    changed = copy.deepcopy(dict(data))
    for name, value in values.items():
        *parents, last = name.split(".")
        at = changed
        for key in parents:
            inner = at.get(key)
            if not isinstance(inner, dict):
                inner = at[key] = {}
            at = inner
        # A copy: other parameters may name what is inside of it.
        at[last] = copy.deepcopy(value)
    return changed


def _check(document: yamlio.Document, point: Point) -> None:
    name = f"{document.name}, {KEY} at {_words(point.values)}"
    yamlio.validate(SimulationFile, yamlio.load(yamlio.dump(point.data), name))


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def execute(
    grid: list[Point],
    out: Path,
    reporter: Reporter,
    *,
    base: Path = Path(),
    processes: int | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Simulate all points of a sweep.

    Args:
        grid: the points.
        out: the folder of the sweep: a folder for each point, and ``sweep.json``.
        reporter: receives progress updates.
        base: the folder from which paths in the file go out.
        processes: how many points at the same time; by default as many as there are CPUs.
        resume: keep points in the folder that were simulated already with the same content.

    Returns:
        The content of ``sweep.json``: a row a point and experiment, with ``values``, ``error``
        (null if there was none) and what ``simulation.json`` says.

    Raises:
        UnciaError: the folder holds another sweep, or cannot be written.
    """
    if out.exists() and not resume and any(out.iterdir()):
        raise UnciaError(
            f"{out} is not empty",
            hint="Add --resume to go on with a sweep there, or name another folder.",
        )
    out.mkdir(parents=True, exist_ok=True)
    todo = [point for point in grid if not (resume and _is_done(point, out))]
    if kept := len(grid) - len(todo):
        reporter.note(f"{kept:,} of {len(grid):,} points are there already.")
    errors: dict[int, str] = {}
    running = _Running()
    pool = ThreadPoolExecutor(max_workers=processes or os.cpu_count() or 1)
    try:
        futures = {point.number: pool.submit(running.point, point, out, base) for point in todo}
        for count, point in enumerate(todo, 1):
            error = futures[point.number].result()
            if error is not None:
                errors[point.number] = error
            how = "failed" if error else "done"
            reporter.note(f"{count:,} of {len(todo):,}: {_words(point.values)}: {how}.")
    finally:
        running.stop()
        pool.shutdown(cancel_futures=True)
    rows = [row for point in grid for row in _rows(point, out, errors.get(point.number))]
    _write(out / SUMMARY, rows)
    return rows


class _Running:
    """The processes of the points that are being simulated."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def point(self, point: Point, out: Path, base: Path) -> str | None:
        """Simulate a point; why that failed, if it did."""
        folder = out / point.folder
        with tempfile.TemporaryDirectory(prefix=".uncia-sweep-", dir=out) as work:
            file = Path(work) / "simulation.yaml"
            file.write_text(yamlio.dump(point.data), encoding="utf-8")
            command = [sys.executable, "-m", "uncia", "simulate", str(file)]
            command += ["--out", str(folder), "--base", str(base.resolve())]
            command += ["--overwrite", "--no-report", "--quiet"]
            with self._lock:
                if self._is_stopped:
                    return "not simulated"
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    # A Ctrl-C reaches it by way of `stop`, once.
                    process_group=0,
                )
                self._processes.add(process)
            _, words = process.communicate()
            with self._lock:
                self._processes.discard(process)
        if process.returncode < 0:
            return f"ended by {signal.Signals(-process.returncode).name}"
        if process.returncode:
            return words.strip() or f"ended with exit code {process.returncode}"
        _write(folder / POINT, {"values": point.values, "digest": point.digest()})
        return None

    def stop(self) -> None:
        """End what still runs."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.send_signal(signal.SIGINT)


def _is_done(point: Point, out: Path) -> bool:
    try:
        known = json.loads((out / point.folder / POINT).read_text(encoding="utf-8"))
        return bool(known["digest"] == point.digest())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _rows(point: Point, out: Path, error: str | None) -> Iterator[dict[str, Any]]:
    row = {"point": point.number, "values": dict(point.values)}
    if error is not None:
        yield {**row, "experiment": None, "error": error}
        return
    result = json.loads((out / point.folder / RESULT).read_text(encoding="utf-8"))
    for experiment, values in result.items():
        yield {**row, "experiment": experiment, "error": None, **values}


def _write(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    partial.replace(path)
