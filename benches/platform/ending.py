"""SIGTERM ends a bench as Ctrl-C does: what it has started is stopped, and its folders go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from uncia.interrupt import end_with_parent


def stop_on_sigterm() -> None:
    """Have SIGTERM end this process by SystemExit, which every ``finally`` sees, once."""

    def stop(number: int, frame: object) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)


def start_program(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a program, which is asked to end when this process is gone: even before it is ready."""
    end = end_with_parent(os.getpid(), signal.SIGTERM)
    return subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=end)


def run(command: Sequence[str], *, cwd: Path | None = None, quiet: bool = False) -> None:
    """Run a program that starts others, which it stops if it is asked to.

    ``subprocess.run`` would kill it, so that it could not.

    Raises:
        CalledProcessError: it failed.
    """
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output)
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code:
        raise subprocess.CalledProcessError(code, command)
