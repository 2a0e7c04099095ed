"""Servers that are started for a run: their ports, and how they begin and end."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Final

_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_LAST_LINES: Final = 5


def free_port() -> int:
    """Return a port of the loopback interface that is free, as yet."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until a server listens at ``HOST:PORT``; returns whether it does."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(_POLL_S)
        else:
            # Somebody else may listen there, and this one is about to end.
            return process.poll() is None
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server; may be called twice."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def last_lines(log: Path) -> str:
    """Return the end of a server's log, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-_LAST_LINES:]) or "it said nothing"
