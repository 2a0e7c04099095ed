"""The engine: Uncia's Rust binary, run as a process.

Configuration goes in as JSON, tables come out as Arrow IPC or Parquet, progress comes as JSON
lines on stderr. An event ``error`` carries the sentence that becomes an :class:`UnciaError`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uncia.errors import UnciaError

NAME = "uncia-engine"
_BAD_INPUT = 2

Event = dict[str, Any]


def binary() -> Path:
    """The engine's path: ``$UNCIA_ENGINE``, else beside the interpreter, else on the PATH.

    Raises:
        UnciaError: it is in none of these places.
    """
    named = os.environ.get("UNCIA_ENGINE")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise UnciaError(
                f"UNCIA_ENGINE names {named}, which is not an executable file",
                hint="Correct the variable, or unset it to use the installed engine.",
            )
        return path
    beside = Path(sys.executable).with_name(NAME)
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(NAME)
    if found is None:
        raise UnciaError(
            f"{NAME} is not installed",
            hint="Install both wheels from a checkout: pip install ./crates/engine .",
        )
    return Path(found)


def run(
    arguments: Sequence[str],
    config: dict[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Event:
    """Run a subcommand to its end and return its last ``done`` event (empty if it has none).

    SIGINT while it runs is passed on once, so that the engine ends cleanly and keeps its rows;
    the interruption is then raised again here.

    Args:
        arguments: subcommand and options.
        config: sent as JSON on standard input when given.
        on_event: called with every event as it comes.
        on_start: called with the process number once the engine runs, before it has its
            configuration.

    Raises:
        UnciaError: the engine reported an error (exit code 2 for bad input, else 1).
        KeyboardInterrupt: the engine was interrupted.
    """
    process = subprocess.Popen(
        [str(binary()), *arguments],
        stdin=subprocess.DEVNULL if config is None else subprocess.PIPE,
        # Nothing of a subcommand that is run comes on stdout; and an engine that outlives a killed
        # parent must not keep the parent's pipe open.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A process group of its own: a Ctrl-C reaches it only through us, once.
        process_group=0,
    )
    interrupted = False
    last_error: str | None = None
    done: Event = {}
    try:
        if on_start is not None:
            on_start(process.pid)
        if config is not None and process.stdin is not None:
            try:
                json.dump(config, process.stdin)
                process.stdin.close()
            except BrokenPipeError:
                pass  # it ended before it had read everything, and says why on stderr
        while True:
            try:
                for event in _events(process):
                    if event.get("event") == "error":
                        last_error = str(event.get("message"))
                    elif event.get("event") == "done":
                        done = event
                    if on_event is not None:
                        on_event(event)
                code = process.wait()
                break
            except KeyboardInterrupt:
                # The second one ends the engine at once, as the engine itself promises.
                interrupted = True
                process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if interrupted:
        raise KeyboardInterrupt
    if code != 0:
        raise UnciaError(
            last_error or f"{NAME} {arguments[0]} ended with exit code {code}",
            exit_code=_BAD_INPUT if code == _BAD_INPUT else 1,
        )
    return done


def _events(process: "subprocess.Popen[str]") -> "_EventLines":
    return _EventLines(process)


class _EventLines:
    """Iterates over the JSON lines of a process's stderr; other lines become errors."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._lines = process.stderr

    def __iter__(self) -> "_EventLines":
        return self

    def __next__(self) -> Event:
        line = self._lines.readline() if self._lines is not None else ""
        if not line:
            raise StopIteration
        try:
            event = json.loads(line)
        except ValueError:
            return {"event": "error", "message": line.strip()}
        return event if isinstance(event, dict) else {"event": "error", "message": line.strip()}
