"""The index of a history: what there is of each time, derived from the folders alone.

Figures are kept beside it in ``.figures``, a file for each time, as long as the files that they
come from stay as they are. ``index.json`` is for people and programs and is never read here; both
can be deleted at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Literal

from uncia import __version__
from uncia.errors import UnciaError
from uncia.report import data
from uncia.suites.history import figures, folders
from uncia.suites.history.folders import ForeignError, Repeat
from uncia.suites.perform import STATE, State, run_state, write_text

INDEX: Final = "index.json"

_KEPT: Final = ".figures"
_SOURCES: Final = ("run.yaml", "invocations.parquet", "invocations.arrows", "machine.parquet")
_AT_ONCE: Final = 40
"""Times whose rows are read and billed together."""

_ALONE: Final = 24
"""So few times are read by this process alone: starting another takes as long."""

Status = Literal["whole", "failed", "running", "foreign"]


@dataclass(frozen=True)
class EntryFigures:
    """The figures of one run of an entry.

    Attributes:
        entry: the entry's name.
        run: the run's name in it.
        digest: of the experiment file that it is of; figures of another are not compared.
        noise: CPU time that others took, percent by counter.
        figures: as `uncia.suites.history.figures` writes them.
    """

    entry: str
    run: str
    digest: str
    noise: Mapping[str, float]
    figures: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Time:
    """One time that the suite was carried out.

    Attributes:
        name: of its folder.
        status: whether its figures count.
        reason: why they do not; "" if they do.
        begun: when, in UTC; "" if unknown.
        conditions: that it is judged by.
        entries: figures of its runs; of a time that is not whole there are none.
    """

    name: str
    status: Status
    reason: str = ""
    begun: str = ""
    conditions: Sequence[str] = ()
    entries: Sequence[EntryFigures] = field(default_factory=tuple)


def read(folder: Path, tariffs: Sequence[str], *, is_locked: bool = True) -> list[Time]:
    """What there is of each time, in order; foreign folders last.

    Args:
        folder: of the history.
        tariffs: ids under which costs are wanted.
        is_locked: whether this process has locked the history. Otherwise the last time may go on,
            and nothing of it is kept.

    Raises:
        UnciaError: there is no history, or no such tariff.
    """
    suite = folders.suite_of(folder)
    paths = folders.numbered(folder)
    # After the listing: whatever begins from now on is not in it.
    is_live = not is_locked and folders.is_locked(folder)
    found: dict[Path, Time] = {}
    waiting: dict[Path, str] = {}
    for path in paths:
        kept = _read_kept(path, tariffs)
        if kept is None:
            # Before it is read: what changes meanwhile is not taken for what was read.
            waiting[path] = _fingerprint(path, tariffs)
        else:
            found[path] = kept
    for path, time in _derive_all(list(waiting), suite, tariffs):
        if time.status == "failed" and is_live and path == paths[-1] and _goes_on(path):
            time = Time(time.name, "running", "it goes on", time.begun, time.conditions)
        elif time.status in ("whole", "failed") and (is_locked or path != paths[-1]):
            _keep(path, time, tariffs, waiting[path])
        found[path] = time
    others = [
        Time(path.name, "foreign", "its name is not that of a time of this history")
        for path in folders.foreign(folder)
    ]
    return [*(found[path] for path in paths), *others]


def write(folder: Path, times: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``index.json``.

    Args:
        folder: of the history.
        times: what to say of each, as plain data.

    Raises:
        RunFailedError: it cannot be written.
    """
    path = folder / INDEX
    content = {"form": 1, "suite": folders.suite_of(folder), "times": list(times)}
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _derive_all(
    paths: Sequence[Path], suite: str, tariffs: Sequence[str]
) -> Iterator[tuple[Path, Time]]:
    if len(paths) <= _ALONE:
        yield from zip(paths, _derive(paths, suite, tariffs), strict=True)
        return
    batches = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
    # Fresh processes: those that are forked from one with threads may stand still.
    with ProcessPoolExecutor(
        min(len(batches), len(os.sched_getaffinity(0))), mp_context=get_context("spawn")
    ) as pool:
        futures = [pool.submit(_derive, batch, suite, tariffs) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            yield from zip(batch, future.result(), strict=True)


def _derive(paths: Sequence[Path], suite: str, tariffs: Sequence[str]) -> list[Time]:
    """Read some times from their folders."""
    times: list[Time] = []
    runs: list[tuple[int, str, str, str, data.RunData]] = []
    for path in paths:
        time, loaded = _examine(path, suite)
        runs += [(len(times), *item) for item in loaded]
        times.append(time)
    computed = figures.of_runs([run for *_, run in runs], tariffs)
    entries: dict[int, list[EntryFigures]] = {}
    for (index, entry, name, digest, run), items in zip(runs, computed, strict=True):
        noise = figures.disturbances(run)
        entries.setdefault(index, []).append(EntryFigures(entry, name, digest, noise, items))
    return [
        Time(time.name, time.status, time.reason, time.begun, time.conditions, entries.get(i, ()))
        for i, time in enumerate(times)
    ]


def _examine(path: Path, suite: str) -> tuple[Time, list[tuple[str, str, str, data.RunData]]]:
    """What there is in a folder, without figures; and the runs to compute them of."""
    try:
        repeat = Repeat.read(path)
    except ForeignError as error:
        return Time(path.name, "foreign", error.message), []
    if repeat.suite != suite:
        reason = f"it is of the suite {repeat.suite}, not of {suite}"
        return Time(path.name, "foreign", reason, repeat.begun), []
    reasons, loaded = [], []
    try:
        if not (path / STATE).exists():
            raise UnciaError("it was ended before anything was run")
        state = State.read(path)
        if state.suite != suite:
            reason = f"{STATE} is of the suite {state.suite}, not of {suite}"
            return Time(path.name, "foreign", reason, repeat.begun), []
        for key in repeat.runs:
            entry, _, name = key.partition("/")
            found = _load(state, entry, name)
            if isinstance(found, str):
                reasons.append(f"{key}: {found}")
            else:
                loaded.append((entry, name, state.files.get(key, ""), found))
    except UnciaError as error:
        reasons.append(error.message)
    if not reasons and not loaded:
        reasons.append("nothing was run")
    status: Status = "failed" if reasons else "whole"
    time = Time(path.name, status, "; ".join(reasons), repeat.begun, tuple(repeat.conditions))
    return time, [] if reasons else loaded


def _load(state: State, entry: str, name: str) -> data.RunData | str:
    """The tables of a run, or why they are no result, as a sentence."""
    there = run_state(state, entry, name)
    if there.status == "not run":
        return "it was ended before this was run"
    if there.status == "failed":
        return there.reason
    try:
        run = data.load(there.folder)
        figures.check(run)
    except UnciaError as error:
        return error.message
    return run


def _goes_on(path: Path) -> bool:
    try:
        return Repeat.read(path).ended is None
    except ForeignError:
        return False


def _fingerprint(path: Path, tariffs: Sequence[str]) -> str:
    """What the figures of a time depend on: its files, by size and moment of change."""
    files = [path / folders.REPEAT, path / STATE]
    for folder in sorted(path.glob("*/*/")):
        files += [folder / name for name in _SOURCES]
    parts = [__version__, *sorted(tariffs)]
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        parts.append(f"{file.relative_to(path)} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts)


def _read_kept(path: Path, tariffs: Sequence[str]) -> Time | None:
    """A time as it was derived before; None if it is to be derived anew."""
    try:
        kept = json.loads(_kept_path(path).read_text(encoding="utf-8"))
        if kept["fingerprint"] != _fingerprint(path, tariffs):
            return None
        content = kept["time"]
        # What was damaged or edited is derived anew, whatever it says.
        if kept["digest"] != _digest(content):
            return None
        entries = [EntryFigures(**item) for item in content.pop("entries")]
        return Time(**content, entries=entries)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _keep(path: Path, time: Time, tariffs: Sequence[str], fingerprint: str) -> None:
    """Keep a time for the next reader, unless its files changed since this fingerprint."""
    if _fingerprint(path, tariffs) != fingerprint:
        return
    kept = _kept_path(path)
    derived = asdict(time)
    content = {"fingerprint": fingerprint, "digest": _digest(derived), "time": derived}
    try:
        kept.parent.mkdir(exist_ok=True)
        write_text(kept, json.dumps(content))
    except (OSError, UnciaError):
        # A history that may only be read: its figures are computed each time.
        return


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _kept_path(path: Path) -> Path:
    return path.parent / _KEPT / f"{path.name}.json"
