"""Shared by the tests of loads: a real HTTP server on sockets, and commands as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
ERROR = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy"
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this"


@dataclass(frozen=True)
class Request:
    """What came over a connection."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """A threaded HTTP/1.1 server: a thread per connection, an answer per request.

    ``answer`` gets each request and returns what is written; None ends the connection instead. It
    listens on a free port of this machine, or on the socket ``listen``.
    """

    answer: Callable[[Request], bytes | None] = lambda request: OK
    closes: bool = False
    listen: Path | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Server:
        if self.listen is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self.listen))
            self._listener.listen(1024)
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        # Closing alone would not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.listen is None:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, connection.makefile("rb") as stream:
                while (request := _read(stream)) is not None:
                    self.requests.append(request)
                    answer = self.answer(request)
                    if answer is None:
                        return
                    connection.sendall(answer)
                    if self.closes:
                        return
        except OSError:
            pass
        finally:
            self._open.discard(connection)


class Stall:
    """Answers nothing from ``after_s`` after the first request, for ``for_s``."""

    def __init__(self, after_s: float, for_s: float) -> None:
        self._after_s, self._for_s = after_s, for_s
        self._first: float | None = None
        self.met: list[Request] = []
        """The requests that came while it answered nothing."""

    def __call__(self, request: Request) -> bytes:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        since = now - self._first - self._after_s
        if 0 <= since < self._for_s:
            self.met.append(request)
            time.sleep(self._for_s - since)
        return OK


def _read(stream: Any) -> Request | None:
    line = stream.readline().decode("latin-1").strip()
    if not line:
        return None
    headers = {}
    while (header := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Request(line, headers, stream.read(int(headers.get("content-length", 0))))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.out)
        return result


Inside = Callable[..., Ended]
"""The fixture ``inside``: a command line in, and how it ended."""


def finish(process: subprocess.Popen[str], timeout_s: float = 240) -> Ended:
    """Wait for a command to end."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A Python process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


def wait_until(
    condition: Callable[[], bool],
    process: subprocess.Popen[str] | None = None,
    timeout_s: float = 150,
) -> None:
    """Wait until something holds, while a command runs."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def engines(folder: Path) -> list[int]:
    """The engine processes that write tables into a folder."""
    result = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "cmdline").read_bytes().split(b"\0")[1:2] != [b"load"]:
                continue
            links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
        except OSError:
            continue
        if any(link.startswith(f"{folder}/") for link in links):
            result.append(int(entry.name))
    return result
