"""The journal: a run records what it creates, so that ``uncia clean`` can remove it after a crash.

One file of JSON lines per run, in ``$XDG_STATE_HOME/uncia/journal``; each line is on the disk
(fsync) before the resource that it names is created. The running process holds a lock on its file,
so ``uncia clean`` can tell a running run from a crashed one without trusting a process number. A
journal whose resources are all removed is deleted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from uncia import locks
from uncia.errors import RunFailedError, UnciaError

VERSION: Final = 1


@dataclass(frozen=True)
class Resource:
    """Something that was created, or was about to be when the run died.

    Attributes:
        platform: the kind of platform whose adapter can remove it.
        kind: what it is: ``engine``, ``folder``, ``function``, ``process``.
        id: its name, unique among resources of its kind in one journal.
        detail: what is needed to find and remove it.
    """

    platform: str
    kind: str
    id: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def sentence(self) -> str:
        """For example ``embedded: function demo-1-hello``."""
        return f"{self.platform}: {self.kind} {self.id}"


@dataclass(frozen=True)
class Story:
    """A journal's contents: the run, its folder, and the resources that are not removed yet."""

    path: Path
    run: str
    folder: Path | None
    outstanding: list[Resource]


class Journal:
    """The journal of a run that goes on; locked until :meth:`close`."""

    def __init__(self, run: str, folder: Path | None) -> None:
        """Create the journal of ``run``, whose results go to ``folder``.

        Raises:
            UnciaError: the state folder cannot be written.
        """
        self.path: Final = journal_folder() / f"{run}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Locked before it has the name that `orphans` looks for, so never seen unlocked.
            unseen = self.path.with_suffix(".new")
            self._file = unseen.open("x", encoding="utf-8")
            locks.lock(self._file)
            unseen.rename(self.path)
        except OSError as error:
            raise UnciaError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                hint="Set XDG_STATE_HOME to a folder that you may write to.",
            ) from error
        self._outstanding: dict[tuple[str, str, str], Resource] = {}
        self._write(
            {
                "event": "run",
                "version": VERSION,
                "run": run,
                "folder": None if folder is None else str(folder.resolve()),
                "pid": os.getpid(),
                "time_unix_ns": time.time_ns(),
            }
        )
        _sync_folder(self.path.parent)

    def created(self, resource: Resource) -> None:
        """Record a resource; call this before creating it, and again when more is known of it."""
        self._outstanding[(resource.platform, resource.kind, resource.id)] = resource
        self._write(
            {
                "event": "created",
                "platform": resource.platform,
                "kind": resource.kind,
                "id": resource.id,
                "detail": dict(resource.detail),
            }
        )

    def removed(self, resource: Resource) -> None:
        """Record that a resource is removed."""
        self._outstanding.pop((resource.platform, resource.kind, resource.id), None)
        self._write(
            {
                "event": "removed",
                "platform": resource.platform,
                "kind": resource.kind,
                "id": resource.id,
            }
        )

    @property
    def outstanding(self) -> list[Resource]:
        """The resources that were created and not removed."""
        return list(self._outstanding.values())

    def close(self) -> None:
        """Delete the journal unless something is outstanding (for ``uncia clean``); unlock it."""
        if self._file.closed:
            return
        if not self._outstanding:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunFailedError(
                f"the journal {self.path} cannot be written: {error.strerror or error}"
            ) from error


def state_home() -> Path:
    """Return the folder for what outlives a process: ``uncia`` in ``$XDG_STATE_HOME``.

    By the XDG specification that is ``~/.local/state`` unless set.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "uncia"


def journal_folder() -> Path:
    """Return the folder of the journals."""
    return state_home() / "journal"


def read(path: Path) -> Story:
    """Read a journal; a last line that a crash cut short is ignored.

    The resource of such a line was never created.

    Raises:
        UnciaError: the file is not a journal, or of a newer version.
    """
    run: dict[str, Any] | None = None
    outstanding: dict[tuple[str, str, str], Resource] = {}
    for number, entry in _entries(path):
        match entry.get("event"):
            case "run":
                if entry["version"] > VERSION:
                    raise UnciaError(f"{path} was written by a newer version of uncia")
                run = entry
            case "created":
                resource = Resource(
                    entry["platform"], entry["kind"], entry["id"], entry.get("detail", {})
                )
                outstanding[(resource.platform, resource.kind, resource.id)] = resource
            case "removed":
                outstanding.pop((entry["platform"], entry["kind"], entry["id"]), None)
            case other:
                raise UnciaError(f"{path}:{number}: {other!r} is not an event of a journal")
    if run is None:
        return Story(path, path.stem, None, [])
    folder = run.get("folder")
    return Story(path, run["run"], Path(folder) if folder else None, list(outstanding.values()))


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            raise UnciaError(f"{path}:{number}: this is not a line of a journal") from error


class Orphan:
    """The journal of a crashed run, locked while it is being cleaned up."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._file = file
        self.path = path
        self.story = read(path)
        # A line that the crash cut short would swallow the first one written after it.
        complete_length = path.read_bytes().rfind(b"\n") + 1
        self._file.truncate(complete_length)
        self._file.seek(0, os.SEEK_END)

    def settle(self, removed: list[Resource]) -> bool:
        """Record removed resources; deletes the journal and returns True if none remains."""
        removed_keys = {(r.platform, r.kind, r.id) for r in removed}
        if all((r.platform, r.kind, r.id) in removed_keys for r in self.story.outstanding):
            self.path.unlink(missing_ok=True)
            return True
        for platform, kind, name in sorted(removed_keys):
            entry = {"event": "removed", "platform": platform, "kind": kind, "id": name}
            self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return False

    def close(self) -> None:
        """Unlock the journal."""
        self._file.close()


def orphans() -> Iterator[Orphan]:
    """Yield the journals of crashed runs, each locked until the caller closes it."""
    for path in sorted(journal_folder().glob("*.jsonl")):
        file = _locked(path)
        if file is not None:
            yield Orphan(path, file)


def living() -> list[Path]:
    """Return the paths of the journals of runs that still go on."""
    paths: list[Path] = []
    for path in sorted(journal_folder().glob("*.jsonl")):
        file = _locked(path)
        if file is not None:
            file.close()
        elif path.exists():
            paths.append(path)
    return paths


def _locked(path: Path) -> TextIO | None:
    """Open and lock a journal; None if its run holds the lock or has just deleted it."""
    try:
        file = path.open("r+", encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        locks.lock(file)
    except BlockingIOError:
        file.close()
        return None
    # Between opening and locking, the run may have ended and deleted its journal.
    if not path.exists():
        file.close()
        return None
    return file


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
