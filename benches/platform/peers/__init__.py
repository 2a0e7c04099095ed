"""Peers of the embedded platform: each file here installs one and serves ``hello`` with it.

All answer a POST with the same JSON. They are installed from what `uncia.platforms.frameworks`
pins.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from uncia.errors import UnciaError
from uncia.functions import frameworks

HELLO: Final = {"message": "hello"}
_READY_TIMEOUT_S: Final = 30.0
# Between two looks whether a port is open: a part of the shortest start, and little CPU time.
_POLL_S: Final = 0.001


class Peer(Protocol):
    """A module of this package."""

    NAME: str
    __name__: str

    def install(self, folder: Path) -> None:
        """Install the peer into ``folder``, if it is not there yet."""

    def serve(
        self, installed: Path, work: Path
    ) -> contextlib.AbstractContextManager[tuple[str, str]]:
        """Serve ``hello``, its files in ``work``; gives the address and the path to POST to."""


def framework(folder: Path, name: str) -> None:
    """Install a framework as the platform `server` has it, and link what it is made of here."""
    try:
        installed = frameworks.install(name)
    except UnciaError as error:
        raise SystemExit(f"{error.message}; leave it out by --peer") from error
    folder.mkdir(parents=True, exist_ok=True)
    for part in installed.iterdir():
        link = folder / part.name
        link.unlink(missing_ok=True)
        link.symlink_to(part)


def free_port() -> int:
    """A port of the loopback interface on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(
    command: Sequence[str], port: int, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Runs ``command`` until the block ends; ready when ``port`` accepts a connection."""
    with (cwd / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                message = (cwd / "server.log").read_text(errors="replace")[-2_000:]
                raise SystemExit(f"{command[0]} did not come up: {message}")
            time.sleep(_POLL_S)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check_hello(address: str, path: str) -> None:
    """Calls ``hello`` once; another answer ends the run."""
    connection = http.client.HTTPConnection(address, timeout=_READY_TIMEOUT_S)
    connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200 or json.loads(body) != HELLO:
        url = urllib.parse.urljoin(f"http://{address}", path)
        raise SystemExit(f"{url} answered {answer.status}: {body[:200].decode(errors='replace')}")


@dataclass(frozen=True)
class Start:
    """Until the first byte of a peer's first answer, in ms.

    Attributes:
        process_ms: since its process was started.
        request_ms: since the request, which was sent once its port was open.
    """

    process_ms: float
    request_ms: float


def start(peer: Peer, installed: Path) -> Start:
    """Start a peer, have it answer one request, and end it."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        began = time.perf_counter_ns()
        with peer.serve(installed, Path(work)) as (address, path):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), _READY_TIMEOUT_S) as connection:
                sent = time.perf_counter_ns()
                connection.sendall(
                    f"POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
                )
                answer = connection.recv(65_536)
                received = time.perf_counter_ns()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"{peer.NAME} answered {answer[:200].decode(errors='replace')}")
    return Start((received - began) / 1e6, (received - sent) / 1e6)
