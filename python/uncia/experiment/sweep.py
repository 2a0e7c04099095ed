"""Sweeps: one simulation for each point of a grid over parameters of a simulation file.

Keys under ``sweep`` name parameters by their path in the file, with dots; their values are
combined with each other, or taken in step (``zip: true``). Each point is a process of its own that
writes the folder of a run, so that one that fails or is killed takes no other along.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from uncia import locks, yamlio
from uncia.errors import UnciaError
from uncia.experiment.drawn_traces import WORK as TRACE_WORK
from uncia.experiment.progress import Reporter
from uncia.experiment.simulate import RESULT
from uncia.experiment.simulate import WORK as SIMULATE_WORK
from uncia.experiment.sweep_points import KEY, Point, points, words
from uncia.experiment.sweep_task import POINT, WORK, Task, content_digest, write_json
from uncia.runs.versions import versions

__all__ = ["IDENTITY", "KEY", "SUMMARY", "Point", "contents", "digests", "execute", "points"]

SUMMARY: Final = "sweep.json"
IDENTITY: Final = "grid.json"
"""Which sweep a folder holds: its name and parameters."""


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
            reporter.note(f"{count:,} of {len(todo):,}: {words(values[number])}: {how}.")
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
