"""A point of a sweep as a process simulates it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from uncia import record
from uncia.errors import UnciaError
from uncia.interrupt import end_with_parent

POINT: Final = "point.json"
WORK: Final = ".uncia-sweep-"
"""What the names of folders begin with that last as long as the process of a point."""


_SETTLED_NS: Final = 10**9
"""A file that was changed that lately may be again without another time of its last change."""


def _begin(start: Callable[[], subprocess.Popen[str]]) -> subprocess.Popen[str] | None:
    return start()


@dataclass(frozen=True)
class Task:
    """A point as a process simulates it, on this machine or another.

    Attributes:
        number: the point's.
        values: of the parameters.
        text: the simulation file.
        folder: of the point's run, in the sweep's.
        base: the folder from which paths in the file go out.
        report: whether to write ``report.html``.
        digest: of what is simulated.
        inputs: digests of the tables that it reads, by path, where the sweep was started.
    """

    number: int
    values: Mapping[str, Any]
    text: str
    folder: Path
    base: Path
    report: bool
    digest: str
    inputs: Mapping[Path, str]

    def simulate(
        self,
        begin: Callable[
            [Callable[[], subprocess.Popen[str]]], subprocess.Popen[str] | None
        ] = _begin,
        end: Callable[[subprocess.Popen[str]], None] = lambda _: None,
    ) -> str | None:
        """Simulate the point in a process; returns why that failed, if it did.

        It fails, too, if the tables that it reads are others here than where the sweep was started,
        or become others meanwhile: its rows would pass for those of another trace.

        Args:
            begin: starts the process by what it is given; None if it is not to be started.
            end: called when the process has ended.
        """
        if (other := self._other_input()) is not None:
            return other
        with tempfile.TemporaryDirectory(prefix=WORK, dir=self.folder.parent) as work:
            file = Path(work) / "simulation.yaml"
            file.write_text(self.text, encoding="utf-8")
            process = begin(lambda: self._start(file))
            if process is None:
                return "not simulated"
            _, words = process.communicate()
            end(process)
        if process.returncode < 0:
            return f"ended by {signal.Signals(-process.returncode).name}"
        if process.returncode:
            # Its file is written for it alone: keys of the point say more than lines of that.
            words = re.sub(rf"{re.escape(str(file))}:\d+: ", "", words)
            return words.strip() or f"ended with exit code {process.returncode}"
        if (other := self._other_input()) is not None:
            return other
        write_json(self.folder / POINT, {"values": self.values, "digest": self.digest})
        return None

    def _other_input(self) -> str | None:
        """Why the tables here are none that the point is of; None if they are."""
        for path, digest in self.inputs.items():
            try:
                other = content_digest(path)
            except UnciaError as error:
                return error.message
            except OSError as error:
                return f"cannot read {path}: {error.strerror}"
            if other != digest:
                return (
                    f"{path} on {socket.gethostname()} is another table than when the sweep was"
                    " started"
                )
        return None

    def _start(self, file: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "uncia", "simulate", str(file), "--overwrite", "--quiet"]
        command += ["--out", str(self.folder), "--base", str(self.base)]
        command += ["--report" if self.report else "--no-report"]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A Ctrl-C reaches it by way of who started it, once.
            process_group=0,
            # Its parent is this thread, which waits for it.
            preexec_fn=end_with_parent(os.getpid(), signal.SIGTERM),
        )


def content_digest(path: Path) -> str:
    """SHA-256 of the names and bytes of the tables at a path; of nothing if there are none.

    Raises:
        UnciaError: one cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for suffix in record.SUFFIXES for file in path.rglob(f"*{suffix}"))
    digest = hashlib.sha256()
    for file in files:
        # What is not there fails each point that reads it, with a sentence of its own.
        with contextlib.suppress(FileNotFoundError):
            try:
                table = _table_digest(file)
            except PermissionError as error:
                raise UnciaError(f"cannot read {file}: {error.strerror}") from error
            digest.update(f"{file.relative_to(path)}\0{table}\n".encode())
    return digest.hexdigest()


def _table_digest(file: Path) -> str:
    status = file.stat()
    if time.time_ns() - status.st_ctime_ns < _SETTLED_NS:
        return _digest_of_version(file, time.monotonic_ns())
    version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return _digest_of_version(file, *version, status.st_ctime_ns)


# The points of a sweep read the same tables, which may have gigabytes.
@lru_cache(maxsize=1024)
def _digest_of_version(file: Path, *version: int) -> str:
    """SHA-256 of a file, whose version says when it is another."""
    del version
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    partial.replace(path)
