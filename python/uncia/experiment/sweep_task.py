"""A point of a sweep as a process simulates it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.interrupt import end_with_parent

POINT: Final = "point.json"
WORK: Final = ".uncia-sweep-"
"""What the names of folders begin with that last as long as the process of a point."""


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
    """

    number: int
    values: Mapping[str, Any]
    text: str
    folder: Path
    base: Path
    report: bool
    digest: str

    def simulate(
        self,
        begin: Callable[
            [Callable[[], subprocess.Popen[str]]], subprocess.Popen[str] | None
        ] = _begin,
        end: Callable[[subprocess.Popen[str]], None] = lambda _: None,
    ) -> str | None:
        """Simulate the point in a process; returns why that failed, if it did.

        Args:
            begin: starts the process by what it is given; None if it is not to be started.
            end: called when the process has ended.
        """
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
            return words.strip() or f"ended with exit code {process.returncode}"
        write_json(self.folder / POINT, {"values": self.values, "digest": self.digest})
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


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    partial.replace(path)
