"""The folder of a history: a folder of results for each time, numbered in the order of starts.

``history.json`` says of which suite it is. The folder ``000007-20261125T170000Z`` is its seventh
time; the number gives the order and the date is for people, so that a clock that jumps changes no
order. In it, ``repeat.json`` says when it began and what was chosen; all else is as ``uncia suite
run`` leaves it. A folder appears under its name with its ``repeat.json``, and what was carried out
follows from it, so that a kill at any moment leaves a time that says how far it came.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from uncia import locks
from uncia.errors import UnciaError
from uncia.stats import gates
from uncia.suites import described
from uncia.suites.perform import write_text

HISTORY: Final = "history.json"
REPEAT: Final = "repeat.json"

_FORM: Final = 1
_REPEAT_KEYS: Final = {
    "suite": str,
    "begun": str,
    "quick": bool,
    "runs": list,
    "conditions": list,
}
_LOCK: Final = ".lock"
_INDEX_LOCK: Final = ".index.lock"
_GLANCES: Final = 20
_GLANCE_S: Final = 0.05
_NAME: Final = re.compile(r"(?P<number>[0-9]{6,})-(?P<moment>[0-9]{8}T[0-9]{6}Z)")
_MOMENT: Final = "%Y%m%dT%H%M%SZ"


class ForeignError(UnciaError):
    """A folder that is no time of this history."""


@dataclass(frozen=True)
class Repeat:
    """``repeat.json``: one time that a suite is carried out.

    Attributes:
        suite: its name, or its folder.
        begun: in UTC, as RFC 3339 writes it.
        quick: whether experiments are shortened.
        runs: what is to be carried out, each as ``ENTRY/RUN``.
        conditions: the gates that it is judged by.
        ended: as `begun`; None while it goes on, or if it was killed.
    """

    suite: str
    begun: str
    quick: bool
    runs: Sequence[str]
    conditions: Sequence[str]
    ended: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Repeat:
        """Read the file in a folder.

        Raises:
            ForeignError: it is missing or damaged.
        """
        content = _read(folder / REPEAT, _REPEAT_KEYS)
        ended = content.get("ended")
        conditions = [str(text) for text in content["conditions"]]
        try:
            for text in conditions:
                gates.parse(text)
        except UnciaError as error:
            raise ForeignError(f"{folder / REPEAT} is damaged: {error.message}") from error
        return cls(
            content["suite"],
            content["begun"],
            content["quick"],
            [str(name) for name in content["runs"]],
            conditions,
            None if ended is None else str(ended),
        )

    def write(self, folder: Path) -> None:
        """Write the file atomically.

        Raises:
            RunFailedError: it cannot be written.
        """
        write_text(folder / REPEAT, json.dumps({"form": _FORM, **asdict(self)}, indent=2) + "\n")


def utc_now() -> datetime:
    """The moment, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def written(moment: datetime) -> str:
    """A moment as RFC 3339 writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def open_history(folder: Path, suite: str) -> None:
    """Make a history, or check that the one in a folder is of this suite.

    Args:
        folder: of the history.
        suite: its name, or its folder.

    Raises:
        UnciaError: the folder holds something else, or the history of another suite.
    """
    if (folder / HISTORY).exists():
        if (known := suite_of(folder)) != suite:
            raise UnciaError(
                f"{folder} is the history of {known}, not of {suite}",
                hint="A history is of one suite: choose another folder with --history.",
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnciaError(
            f"{folder} is not empty and holds no history",
            hint="Choose another folder with --history; nothing was deleted.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot write to {folder}: {error.strerror or error}") from error
    content = {"form": _FORM, "suite": suite}
    write_text(folder / HISTORY, json.dumps(content, indent=2) + "\n")


def suite_of(folder: Path) -> str:
    """The suite that a history is of: its name, or its folder.

    Raises:
        UnciaError: there is no history in the folder, or its description is damaged.
    """
    if not (folder / HISTORY).is_file():
        raise UnciaError(
            f"{folder} holds no history of a suite",
            hint="One is made by: uncia suite repeat SUITE --history DIR",
        )
    return str(_read(folder / HISTORY, {"suite": str})["suite"])


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from adding to a history, while the context lasts.

    The kernel releases the lock with the process, however that ends.

    Raises:
        UnciaError: another process does.
    """
    with (folder / _LOCK).open("a+") as file:
        try:
            _lock(file)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip()
            by = f" (process {holder})" if holder else ""
            raise UnciaError(
                f"another `uncia suite repeat` goes on in {folder}{by}",
                hint="End it, wait for it, or choose another folder with --history.",
            ) from error
        except OSError as error:
            raise UnciaError(f"cannot lock {folder}: {error.strerror or error}") from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock(file: IO[str]) -> None:
    """Take a lock that `is_locked` may have for a moment, to see whether it is free.

    Raises:
        BlockingIOError: another process keeps it.
        OSError: there are no locks.
    """
    for _ in range(_GLANCES):
        with suppress(BlockingIOError):
            locks.lock(file)
            return
        time.sleep(_GLANCE_S)
    locks.lock(file)


@contextmanager
def indexing(folder: Path) -> Iterator[None]:
    """Keep other processes from writing what is derived from a history, while the context lasts.

    It waits for them. This lock is another than that of `locked`, so that who draws a history keeps
    nobody from adding to it.

    Raises:
        UnciaError: the history cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context((folder / _INDEX_LOCK).open("a"))
            locks.lock(file, wait=True)
        except OSError as error:
            raise UnciaError(f"cannot lock {folder}: {error.strerror or error}") from error
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process adds to a history now."""
    try:
        with (folder / _LOCK).open("r+") as file:
            locks.lock(file)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def numbered(folder: Path) -> list[Path]:
    """The folders of its times, in order."""
    found = [path for path in folder.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (number(path), path.name))


def foreign(folder: Path) -> list[Path]:
    """Folders in a history whose names are not those of times."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and not _NAME.fullmatch(path.name)
    )


def number(path: Path) -> int:
    """The number in the name of a time's folder."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, "its callers know the name"
    return int(match["number"])


def begin(folder: Path, repeat: Repeat, moment: datetime) -> Path:
    """Make the folder of the next time.

    Args:
        folder: of the history, which this process has locked.
        repeat: its description.
        moment: the present.

    Raises:
        UnciaError: it cannot be written.
    """
    for rest in folder.glob(".new-*"):  # of a process that was killed right here
        shutil.rmtree(rest, ignore_errors=True)
    times = numbered(folder)
    following = number(times[-1]) + 1 if times else 1
    path = folder / f"{following:06d}-{moment.strftime(_MOMENT)}"
    partial = folder / f".new-{path.name}"
    try:
        partial.mkdir()
        repeat.write(partial)
        partial.rename(path)
    except OSError as error:
        raise UnciaError(f"cannot write to {folder}: {error.strerror or error}") from error
    return path


def _read(path: Path, keys: Mapping[str, type]) -> dict[str, Any]:
    """A JSON file of this form with these keys.

    Raises:
        ForeignError: it is missing, damaged, or of another form.
    """
    if not path.exists():
        raise ForeignError(f"{path} is missing")
    try:
        content = described.read(path, {"form": int, **keys})
    except UnciaError as error:
        raise ForeignError(error.message) from error
    if content["form"] != _FORM:
        form = content["form"]
        raise ForeignError(f"{path} was written by another version of uncia (form {form})")
    return content
