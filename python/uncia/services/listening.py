"""Servers that are started for a run: their ports, and how they begin and end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.platforms import Context, processes

_ATTEMPTS: Final = 3
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_LAST_LINES: Final = 5


def start(
    begin: Callable[[str], subprocess.Popen[bytes]], log: Path, name: str
) -> tuple[str, subprocess.Popen[bytes]]:
    """Start a server on a free port of the loopback interface, and wait until it listens.

    Args:
        begin: starts its process for an address (``HOST:PORT``).
        log: what it writes.
        name: the server's, for an error message.

    Returns:
        The address, and the process.

    Raises:
        UnciaError: it does not listen; the message ends with its log.
    """
    for _ in range(_ATTEMPTS):
        # Somebody else may take the port meanwhile.
        address = f"127.0.0.1:{free_port()}"
        process = begin(address)
        try:
            if wait(process, address):
                return address, process
        except BaseException:
            stop(process)
            raise
        stop(process)
    raise UnciaError(f"{name} does not start: {last_lines(log)}")


def begin(
    program: Path, arguments: list[str], folder: Path, log: Path, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Begin a server's process in its folder; returns it.

    Args:
        program: to run.
        arguments: after its name.
        folder: the server's.
        log: takes what it writes, at the end.
        variables: of its environment, beside PATH alone: others of the machine's could change it.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(program), *arguments],
            env={"PATH": os.environ.get("PATH", ""), **variables},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Out of reach of the terminal's Ctrl-C: the run ends it, after its functions.
            start_new_session=True,
        )


def end(argument: Path, folder: Path, program: str, name: str, log: Callable[[str], None]) -> bool:
    """End what serves a folder, and remove it.

    Args:
        argument: what the server's command line names: a run may have been interrupted before it
            knew the process.
        folder: the server's.
        program: the name of what runs: others may name the file, such as an editor.
        name: the service's.
        log: receives a line for each process that is ended.

    Returns:
        Whether the folder is gone.
    """
    for identity in processes.with_argument(str(argument), program):
        log(f"ending the {name}, process {identity.pid}")
        processes.end(identity)
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


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


def stop(process: subprocess.Popen[bytes]) -> str:
    """End a server; may be called twice.

    Returns:
        How it had ended before, such as ``by signal 9``; "" if it ran.
    """
    code = process.poll()
    if code is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    if code is None:
        return ""
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def tell(how: str, service: str, context: Context) -> None:
    """Say in the run's description that a server had ended before the run did, if so.

    Args:
        how: what `stop` returned.
        service: its name.
        context: the run's.
    """
    if how:
        context.warn(
            f"The server of the service {service} ended {how} while the run went on: what functions"
            " asked of it since has failed."
        )


def last_lines(log: Path) -> str:
    """Return the end of a server's log, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-_LAST_LINES:]) or "it said nothing"
