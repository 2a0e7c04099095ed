"""The folder of a run: its files, written so that none is ever incomplete under its name.

``run.yaml`` is written first and says ``status: running``; tables grow as Arrow IPC streams, one
part per experiment, and become Parquet files at the end; every other file appears under its name
when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from uncia import record, yamlio
from uncia.errors import RunFailedError, UnciaError

RUN: Final = "run.yaml"
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"

# Written in C where PyYAML was built with libyaml: descriptions of runs are long.
_SafeLoader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TABLES: Final = ("invocations", "spans", "instances", "machine")
"""The tables of every run that is complete; those of bills are made of them."""

Status = Literal["running", "complete", "failed", "interrupted", "crashed"]

_STREAM: Final = ".arrows"
# Of the same length, as one overwrites the other in place.
_RUNNING: Final = b"\nstatus: running\n"
_FAILED: Final = b"\nstatus: failed \n"


class RunFolder:
    """A run's folder, open for writing."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @classmethod
    def create(cls, path: Path, *, overwrite: bool) -> RunFolder:
        """Create the folder, or empty that of an earlier run.

        Args:
            path: of the folder.
            overwrite: whether an earlier run in it may be deleted.

        Raises:
            UnciaError: the folder holds something else, or a run that is still going on or may not
                be overwritten, or cannot be created.
        """
        check_free(path, overwrite=overwrite)
        try:
            if path.exists():
                _make_room(path)
            path.mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UnciaError(f"cannot write to {path}: {error.strerror or error}") from error
        return cls(path)

    def remove(self) -> None:
        """Delete the folder: nothing was measured, and it would be in the way of the next run."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write_run(self, description: Mapping[str, Any]) -> None:
        """Write ``run.yaml``, replacing an earlier one."""
        self.write_text(RUN, yamlio.dump(description))

    def mark_failed(self) -> None:
        """Set ``status: failed`` in ``run.yaml`` in place, which works on a full disk."""
        path = self.path / RUN
        try:
            with path.open("r+b") as file:
                position = file.read().find(_RUNNING)
                if position >= 0:
                    file.seek(position)
                    file.write(_FAILED)
        except OSError:
            # The folder is out of reach, as the error that led here says.
            return

    def write_text(self, name: str, text: str) -> Path:
        """Write a file atomically: it gets its name once it is complete and on the disk."""
        path = self.path / name
        partial = self.path / f"{name}.partial"
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error
        return path

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a JSON file, as `write_text`."""
        return self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def part(self, table: str, number: int, experiment: str) -> Path:
        """The stream into which the engine writes the rows of one experiment during the run."""
        return self.path / f"{table}.{number:03d}-{experiment}{_STREAM}"

    def parts(self, table: str) -> list[Path]:
        """The streams of a table, in order of their experiments."""
        return sorted(self.path.glob(f"{table}.*{_STREAM}"))

    def drop_parts(self) -> None:
        """Delete the streams, once the tables made from them are complete."""
        for table in record.TABLES:
            for part in self.parts(table):
                part.unlink()


def recover(path: Path) -> dict[str, int]:
    """Convert a dead run's streams to Parquet tables, and mark the run as crashed.

    Returns:
        Rows by stream; see :func:`uncia.record.recover_folder`.

    Raises:
        UnciaError: the head of a stream is damaged, or the folder cannot be written.
    """
    recovered = record.recover_folder(path)
    try:
        description = read_run(path)
    except UnciaError:
        # The tables are there nonetheless; whoever reads the run is told of its description.
        return recovered
    if description.get("status") == "running":
        RunFolder(path).write_run({**description, "status": "crashed"})
    return recovered


def read_run(path: Path) -> dict[str, Any]:
    """Read ``run.yaml`` as plain data; empty if it is missing.

    :raises UnciaError: it cannot be read, or describes no run.
    """
    file = path / RUN
    if not file.exists():
        return {}
    if file.is_dir():
        raise UnciaError(f"{file} is a folder, not the description of a run")
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), _SafeLoader)
    except OSError as error:
        raise UnciaError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnciaError(f"{file} is damaged: it is not UTF-8 text (byte {error.start})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnciaError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        what = "the description of a run is a mapping of keys"
        raise UnciaError(f"{file} is {'empty' if data is None else 'damaged'}: {what}")
    return data


def check_tables(
    path: Path, description: Mapping[str, Any], tables: Sequence[str] = TABLES
) -> None:
    """Check that a run that is complete has its tables, of which figures would be of no rows.

    Args:
        path: the run's folder.
        description: what its ``run.yaml`` says; one without experiments is no run of requests.
        tables: which.

    Raises:
        UnciaError: a table is missing.
    """
    if description.get("status") != "complete" or not description.get("experiments"):
        return
    for name in tables:
        if not record.is_there(path, name):
            raise UnciaError(f"{path / name}.parquet is missing, and the run in {path} is complete")


def check_complete(path: Path, table: str) -> dict[str, Any]:
    """Check that a run's table is whole, and read its ``run.yaml``.

    A run that goes on, failed or was cut off has a part of its rows, which would be taken for all.

    Args:
        path: the run's folder; what is none of a run is taken as it is.
        table: which table.

    Returns:
        What ``run.yaml`` says; empty without one.

    Raises:
        UnciaError: the run's status is not ``complete``, or a stream has no end.
    """
    description = read_run(path) if path.is_dir() else {}
    status = description.get("status", "complete")
    if status != "complete":
        raise UnciaError(
            f"the run in {path} is not complete: its status is {status!r}",
            hint=f"To take the rows that it has, name {path / table}.parquet, if that is there.",
        )
    if path.is_dir() and not (path / f"{table}.parquet").exists():
        for part in RunFolder(path).parts(table):
            record.check_whole(part)
    elif path.is_file():
        record.check_whole(path)
    return description


def check_free(path: Path, *, overwrite: bool) -> None:
    """Check that a run may be written to ``path``: it is free, or an earlier run may be deleted.

    :raises UnciaError: it may not.
    """
    if not path.exists():
        return
    if not path.is_dir():
        raise UnciaError(f"{path} is a file; a run is written to a folder")
    try:
        if not any(path.iterdir()):
            return
    except OSError as error:
        raise UnciaError(f"cannot write to {path}: {error.strerror or error}") from error
    if not (path / RUN).exists():
        raise UnciaError(
            f"{path} is not empty and does not hold a run",
            hint="Choose another folder with --out; nothing was deleted.",
        )
    if not overwrite:
        raise UnciaError(
            f"{path} already holds a run",
            hint="Choose another folder with --out, or add --overwrite to replace it.",
        )
    check_over(path)


def _make_room(path: Path) -> None:
    """Delete an earlier run at ``path``, which was checked."""
    if not any(path.iterdir()):
        return
    # A rename first, so that the folder never holds a mixture of two runs.
    aside = path.with_name(f".{path.name}.old-{os.getpid()}")
    path.rename(aside)
    shutil.rmtree(aside)


def check_over(path: Path) -> None:
    """Check that no process writes into this folder: neither a run nor what a dead run started.

    :raises UnciaError: one does.
    """
    from uncia.platforms import journal, processes

    living = journal.living()
    for file in sorted(journal.journal_folder().glob("*.jsonl")):
        story = journal.read(file)
        if story.folder != path.resolve():
            continue
        if file in living:
            raise UnciaError(f"the run in {path} is still going on")
        identities = map(processes.named, story.outstanding)
        if any(processes.alive(identity) for identity in identities if identity):
            raise UnciaError(
                f"the run in {path} died, but what it had started still goes on",
                hint="`uncia clean` ends it and closes the tables.",
            )
