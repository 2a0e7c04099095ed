"""Sweeps: one simulation for each point of a grid over parameters of a simulation file.

Keys under ``sweep`` name parameters by their path in the file, with dots; their values are
combined with each other, or taken in step (``zip: true``). Each point is a process of its own that
writes the folder of a run, so that one that fails or is killed takes no other along.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import locks, yamlio
from uncia.errors import UnciaError
from uncia.experiment import simulation
from uncia.experiment.drawn_traces import WORK as TRACE_WORK
from uncia.experiment.progress import Reporter
from uncia.experiment.simulate import RESULT
from uncia.experiment.simulate import WORK as SIMULATE_WORK
from uncia.experiment.sweep_task import POINT, WORK, Task, content_digest, write_json
from uncia.runs.versions import versions

KEY: Final = "sweep"
SUMMARY: Final = "sweep.json"
IDENTITY: Final = "grid.json"
"""Which sweep a folder holds: its name and parameters."""

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


def contents(grid: list[Point], base: Path) -> dict[Path, str]:
    """Digests of the tables that points read, by path; those that several read are read once.

    Raises:
        UnciaError: a table cannot be read.
    """
    paths = {path for point in grid for path in point.inputs(base).values()}
    return {path: content_digest(path) for path in sorted(paths)}


def digests(
    grid: list[Point],
    base: Path,
    versions: Mapping[str, str],
    read: Mapping[Path, str] | None = None,
) -> dict[int, str]:
    """What identifies each point, by its number.

    Args:
        grid: the points.
        base: the folder from which paths in the file go out.
        versions: of what simulates them.
        read: digests of their tables as `contents` gives them, if they are known.

    Raises:
        UnciaError: a table cannot be read.
    """
    known = contents(grid, base) if read is None else read
    return {
        point.number: point.digest(
            {key: known[path] for key, path in point.inputs(base).items()}, versions
        )
        for point in grid
    }


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
        if not isinstance(values, list) or not values:
            raise document.error((KEY, name), "must be a list of values")
    lengths = {len(values) for values in grid.values()}
    if not grid or (in_step and len(lengths) > 1):
        raise document.error((KEY,), "there must be parameters, all with as many values in step")
    count = 1
    for values in [] if in_step else grid.values():
        count *= len(values)
    if count > _MOST:
        raise document.error((KEY,), f"{count:,} points are more than {_MOST:,}")
    _check_once(document, grid, in_step=in_step)
    combined: Iterator[tuple[Any, ...]]
    combined = zip(*grid.values(), strict=True) if in_step else itertools.product(*grid.values())
    result = []
    for number, values in enumerate(combined):
        chosen = dict(zip(grid, values, strict=True))
        content = _substitute(document, data, chosen)
        result.append(Point(number, copy.deepcopy(chosen), content))
    _check(document, result)
    return result


def _check_once(document: yamlio.Document, grid: Mapping[str, list[Any]], *, in_step: bool) -> None:
    """Check that no two points are written the same, of which the line is known.

    Raises:
        UnciaError: two are; with file, line and key.
    """
    if in_step:
        rows = list(zip(*grid.values(), strict=True))
        if (again := _repeated(rows)) is not None:
            words = _words(dict(zip(grid, rows[again], strict=True)))
            raise document.error((KEY,), f"two points in step are the same: {words}")
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
) -> dict[str, Any]:
    """The content of a file with these parameters; an item of a list is named by its position.

    Raises:
        UnciaError: a parameter names an item that is not there.
    """
    changed = copy.deepcopy(dict(data))
    for name, value in values.items():
        *parents, last = name.split(".")
        at: Any = changed
        for part in parents:
            key: Any = _key(document, name, at, part)
            inner = at[key] if isinstance(at, list) else at.get(key)
            if not isinstance(inner, (dict, list)):
                inner = at[key] = {}
            at = inner
        # A copy: other parameters may name what is inside of it.
        at[_key(document, name, at, last)] = copy.deepcopy(value)
    return changed


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


def _check(document: yamlio.Document, grid: Sequence[Point]) -> None:
    """Check each point, and that no two are the same, however their values are written.

    Raises:
        UnciaError: a point is no simulation, or the same as another.
    """
    seen: dict[str, Point] = {}
    for point in grid:
        name = f"{document.name}, {KEY} at {_words(point.values)}"
        file = simulation.validate(yamlio.load(yamlio.dump(point.data), name))
        content = hashlib.sha256(file.model_dump_json().encode()).hexdigest()
        other = seen.setdefault(content, point)
        if other is not point:
            raise document.error(
                (KEY,),
                f"two points are the same: {_words(other.values)}, and {_words(point.values)}",
            )


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def execute(
    grid: list[Point],
    out: Path,
    reporter: Reporter,
    *,
    base: Path = Path(),
    processes: int | None = None,
    master: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    with_report: bool = False,
) -> list[dict[str, Any]]:
    """Simulate all points of a sweep.

    Args:
        grid: the points.
        out: the folder of the sweep: a folder for each point, and ``sweep.json``.
        reporter: receives progress updates.
        base: the folder from which paths in the file go out.
        processes: how many points at the same time; by default as many as there are CPUs.
        master: of a Spark cluster that simulates the points; None: this machine does.
        resume: keep points in the folder that were simulated already with the same content, the
            same input and the same versions.
        overwrite: whether an earlier sweep in the folder may be deleted.
        with_report: write ``report.html`` of each point.

    Returns:
        The content of ``sweep.json``: a row a point and experiment, with ``values``, ``error``
        (null if there was none) and what ``simulation.json`` says.

    Raises:
        UnciaError: the folder holds another sweep, one that is going on, or something else, or
            cannot be written.
    """
    with _opened(grid, out, resume=resume, overwrite=overwrite):
        return _execute(grid, out, reporter, base, processes, master, resume, with_report)


def _executed(
    tasks: Sequence[Task], processes: int | None, master: str | None
) -> Generator[tuple[int, str | None]]:
    """Simulate points on this machine, or on a cluster."""
    if master is None:
        yield from _Processes(processes).run(tasks)
    elif tasks:
        # PySpark is an extra.
        from uncia.experiment import spark_sweep

        yield from spark_sweep.run(tasks, master)


def is_there(out: Path) -> bool:
    """Whether a folder holds a sweep, whole or not."""
    return _read(out / IDENTITY) is not None


def can_resume(grid: list[Point], out: Path) -> bool:
    """Whether a folder holds this sweep, with no points that it does not have."""
    return _read(out / IDENTITY) == _identity(grid) and not _others(grid, out)


def remove(out: Path) -> None:
    """Delete the sweep in a folder, and the folder if it holds nothing else.

    Raises:
        UnciaError: it is still going on, or cannot be deleted.
    """
    with _locked(out):
        try:
            _clear(out)
            if not any(out.iterdir()):
                out.rmdir()
        except OSError as error:
            raise UnciaError(f"cannot delete {out}: {error.strerror or error}") from error


def _identity(grid: list[Point]) -> dict[str, Any]:
    return {"name": grid[0].data["name"], "parameters": list(grid[0].values)}


def _others(grid: list[Point], out: Path) -> list[str]:
    """Points in a folder that are none of this sweep."""
    names = {point.folder for point in grid}
    return sorted(path.name for path in out.glob("point-*") if path.name not in names)


@contextlib.contextmanager
def _opened(grid: list[Point], out: Path, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """The folder of a sweep, which no other process writes to."""
    identity = _identity(grid)
    with _locked(out):
        if any(out.iterdir()):
            _check_earlier(grid, out, identity, resume=resume, overwrite=overwrite)
        if overwrite:
            _clear(out)
        write_json(out / IDENTITY, identity)
        _clear_work(out)
        try:
            yield
        finally:
            # Points that were killed left theirs; so did the executors of a cluster.
            _clear_work(out)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """A folder, made if there is none, locked against other processes."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise UnciaError(f"cannot write to {out}: {error.strerror or error}") from error
    try:
        if locks.AVAILABLE:
            try:
                locks.lock(folder)
            except BlockingIOError:
                raise UnciaError(f"the sweep in {out} is still going on") from None
        yield
    finally:
        os.close(folder)


def _check_earlier(
    grid: list[Point], out: Path, identity: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> None:
    """Check that what is in a folder may be gone on with, or deleted."""
    elsewhere = "name another folder with --out"
    known = _read(out / IDENTITY)
    if known is None:
        raise UnciaError(
            f"{out} is not empty and does not hold a sweep",
            hint=f"Nothing was deleted: {elsewhere}.",
        )
    if overwrite:
        return
    if not resume:
        raise UnciaError(
            f"{out} is not empty",
            hint="Add --resume to go on with the sweep there, --overwrite to delete it, or"
            f" {elsewhere}.",
        )
    if known != identity:
        words = f"{known.get('name')!r}, over {', '.join(known.get('parameters', []))}"
        raise UnciaError(
            f"{out} holds another sweep: {words}",
            hint=f"Add --overwrite to delete it, or {elsewhere}.",
        )
    if more := _others(grid, out):
        raise UnciaError(
            f"{out} holds points that this sweep does not have: {', '.join(more)}",
            hint=f"Delete them, add --overwrite to delete all, or {elsewhere}.",
        )


def _clear(out: Path) -> None:
    """Delete what sweeps write; the folder stays, as its lock does."""
    for path in out.glob("point-*"):
        shutil.rmtree(path)
    _clear_work(out)
    for name in (SUMMARY, IDENTITY):
        (out / name).unlink(missing_ok=True)


def _clear_work(out: Path) -> None:
    """Delete what sweeps and points that were killed worked in: they could not."""
    aside = ".point-*.old-*"  # what a point that was made again replaces (`RunFolder`)
    for pattern in (f"{WORK}*", f"{SIMULATE_WORK}*", f"{TRACE_WORK}*", aside):
        for path in out.glob(pattern):
            # A process whose executor was killed may be about to delete its own.
            shutil.rmtree(path, ignore_errors=True)


def _execute(
    grid: list[Point],
    out: Path,
    reporter: Reporter,
    base: Path,
    processes: int | None,
    master: str | None,
    resume: bool,
    with_report: bool,
) -> list[dict[str, Any]]:
    (out / SUMMARY).unlink(missing_ok=True)
    # Of inputs as they are now: what changes meanwhile is simulated again by --resume.
    base = base.resolve()
    read = contents(grid, base)
    known = digests(grid, base, versions(), read)
    todo = [point for point in grid if not (resume and _is_done(point, out, known))]
    if kept := len(grid) - len(todo):
        reporter.note(f"{kept:,} of {len(grid):,} points are there already.")
    tasks = [
        Task(
            point.number,
            dict(point.values),
            yamlio.dump(point.data),
            out.resolve() / point.folder,
            base,
            with_report,
            known[point.number],
            {path: read[path] for path in point.inputs(base).values()},
        )
        for point in todo
    ]
    values = {point.number: point.values for point in todo}
    errors: dict[int, str] = {}
    with contextlib.closing(_executed(tasks, processes, master)) as finished:
        for count, (number, error) in enumerate(finished, 1):
            if error is not None:
                errors[number] = error
            how = "failed" if error else "done"
            reporter.note(f"{count:,} of {len(todo):,}: {_words(values[number])}: {how}.")
    rows = [row for point in grid for row in _rows(point, out, errors.get(point.number))]
    write_json(out / SUMMARY, rows)
    return rows


class _Processes:
    """Processes of this machine that simulate points, some at the same time."""

    def __init__(self, count: int | None) -> None:
        self._count: Final = count or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, str | None]]:
        """Simulate points; yields the number of each, and why it failed, in their order."""
        pool = ThreadPoolExecutor(max_workers=self._count)
        try:
            futures = [(task.number, pool.submit(self._simulate, task)) for task in tasks]
            for number, future in futures:
                yield number, future.result()
        finally:
            self._stop()
            pool.shutdown(cancel_futures=True)

    def _simulate(self, task: Task) -> str | None:
        return task.simulate(self._begin, self._end)

    def _begin(self, start: Callable[[], subprocess.Popen[str]]) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._is_stopped:
                return None
            process = start()
            self._processes.add(process)
            return process

    def _end(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.discard(process)

    def _stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.send_signal(signal.SIGINT)


def _is_done(point: Point, out: Path, digests: Mapping[int, str]) -> bool:
    known = _read(out / point.folder / POINT)
    return known is not None and known.get("digest") == digests[point.number]


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file that a sweep wrote; None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _rows(point: Point, out: Path, error: str | None) -> Iterator[dict[str, Any]]:
    row = {"point": point.number, "values": dict(point.values)}
    if error is not None:
        yield {**row, "experiment": None, "error": error}
        return
    result = json.loads((out / point.folder / RESULT).read_text(encoding="utf-8"))
    for experiment, values in result.items():
        yield {**row, "experiment": experiment, "error": None, **values}
