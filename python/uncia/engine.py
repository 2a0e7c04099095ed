"""The engine: Uncia's Rust binary, run as a process.

It reads its configuration as JSON, writes tables as Arrow IPC or Parquet, and reports progress as
JSON lines on stderr. The message of an event ``error`` becomes an :class:`UnciaError`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from uncia.errors import UnciaError
from uncia.interrupt import end_with_parent

NAME = "uncia-engine"
_BAD_INPUT = 2

Event = dict[str, Any]


class Enough(Exception):
    """Raised by a callback for events: the engine has done enough, and ends cleanly."""


def binary() -> Path:
    """The engine's path: ``$UNCIA_ENGINE``, else beside the interpreter, else on the PATH.

    Raises:
        UnciaError: it is not installed, or ``$UNCIA_ENGINE`` names no executable file.
    """
    variable = os.environ.get("UNCIA_ENGINE")
    if variable:
        path = Path(variable)
        if not os.access(path, os.X_OK):
            raise UnciaError(
                f"UNCIA_ENGINE names {variable}, which is not an executable file",
                hint="Correct the variable, or unset it to use the installed engine.",
            )
        return path
    sibling = Path(sys.executable).with_name(NAME)
    if os.access(sibling, os.X_OK):
        return sibling
    installed = shutil.which(NAME)
    if installed is None:
        raise UnciaError(
            f"{NAME} is not installed",
            hint="Install both wheels from a checkout: pip install ./crates/engine .",
        )
    return Path(installed)


def run(
    arguments: Sequence[str],
    config: dict[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    stdout: int | None = None,
    *,
    ends_with_parent: bool = False,
) -> Event:
    """Run a subcommand to its end and return its last ``done`` event (empty if it has none).

    A SIGINT is forwarded once, so that the engine ends cleanly and keeps its rows; then
    KeyboardInterrupt is raised.

    Args:
        arguments: subcommand and options.
        config: sent as JSON on standard input.
        on_event: called with each event; may raise `Enough`, which ends the engine as SIGINT does,
            but is no interruption.
        on_start: called with the process id, before the configuration is sent.
        stdout: where the standard output of a subcommand that has one goes: a file descriptor.
        ends_with_parent: kill the engine when this process is gone, as nobody would have its rows.

    Raises:
        UnciaError: the engine reported an error (exit code 2 for bad input, else 1).
        KeyboardInterrupt: the engine was interrupted.
    """
    process = subprocess.Popen(
        [str(binary()), *arguments],
        stdin=subprocess.DEVNULL if config is None else subprocess.PIPE,
        # Most subcommands write nothing to stdout, and an engine that outlives a killed parent must
        # not keep the parent's pipe open.
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.PIPE,
        text=True,
        # In its own process group, a Ctrl-C reaches it only through us, once.
        process_group=0,
        # Its parent is this thread, which waits for it.
        preexec_fn=end_with_parent(os.getpid(), signal.SIGKILL) if ends_with_parent else None,
    )
    interrupted = enough = False
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
                # The engine promises to end at once on the second.
                interrupted = True
                process.send_signal(signal.SIGINT)
            except Enough:
                if not enough:
                    enough = True
                    process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if interrupted:
        raise KeyboardInterrupt
    if code != 0 and not (enough and code == 128 + signal.SIGINT):
        raise UnciaError(
            last_error or f"{NAME} {arguments[0]} ended with exit code {code}",
            exit_code=_BAD_INPUT if code == _BAD_INPUT else 1,
        )
    return done


def _events(process: "subprocess.Popen[str]") -> Iterator[Event]:
    """Yield the JSON lines of a process's stderr; other lines become errors."""
    assert process.stderr is not None, "stderr is a pipe"
    for line in iter(process.stderr.readline, ""):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        yield event if isinstance(event, dict) else {"event": "error", "message": line.strip()}
