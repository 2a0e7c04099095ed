"""Devices with a switch each, such as the lights of a home: a small HTTP service.

``PUT /NAME`` with ``{"switch": "ON"}`` or ``OFF`` switches a device, which is there from then on,
``GET /NAME`` says how it stands, ``GET /`` how all do, and how often each was switched. They stand
in the memory of the run's own process, and are gone with it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from uncia.forms import Form
from uncia.platforms import Context, ServiceEndpoint
from uncia.platforms.journal import Resource

POSITIONS: Final = ("ON", "OFF")

_NAME: Final = re.compile(r"/[a-z0-9][a-z0-9-]{0,63}")
_MOST_BYTES: Final = 1024
_MOST_DEVICES: Final = 1000


class Options(Form):
    """There is nothing to choose: the devices are the run's own."""


class _Devices:
    """How devices stand, and how often each was switched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._positions: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def switch(self, name: str, position: str) -> dict[str, Any] | None:
        with self._lock:
            if name not in self._positions and len(self._positions) >= _MOST_DEVICES:
                return None
            self._positions[name] = position
            self._counts[name] = self._counts.get(name, 0) + 1
            return self._of(name)

    def get(self, name: str) -> dict[str, Any] | None:
        with self._lock:
            return self._of(name) if name in self._positions else None

    def all(self) -> dict[str, Any]:
        with self._lock:
            return {name: self._of(name) for name in sorted(self._positions)}

    def _of(self, name: str) -> dict[str, Any]:
        return {"switch": self._positions[name], "times": self._counts[name]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A burst of functions connects at once.
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.devices: Final = _Devices()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An instance may be killed in the middle of a request: that is no fault of the run's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A connection that sends nothing does not keep its thread.
    timeout = 30
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(HTTPStatus.OK, self.server.devices.all())
            return
        if not _NAME.fullmatch(self.path):
            self._refuse(HTTPStatus.NOT_FOUND, "a device's name is of a-z, 0-9 and -")
            return
        device = self.server.devices.get(self.path[1:])
        if device is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such device yet: switch it first")
        else:
            self._answer(HTTPStatus.OK, device)

    def do_PUT(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.close_connection = True
            self._refuse(HTTPStatus.BAD_REQUEST, f"send content-length, {_MOST_BYTES} at most")
            return
        body = self.rfile.read(int(length))
        if not _NAME.fullmatch(self.path):
            self._refuse(HTTPStatus.NOT_FOUND, "a device's name is of a-z, 0-9 and -")
            return
        try:
            position = json.loads(body)["switch"]
        # The last: of lists in lists.
        except (ValueError, KeyError, TypeError, RecursionError):
            position = None
        if position not in POSITIONS:
            self._refuse(HTTPStatus.BAD_REQUEST, 'the body must be {"switch": "ON"} or "OFF"')
            return
        device = self.server.devices.switch(self.path[1:], position)
        if device is None:
            self._refuse(HTTPStatus.INSUFFICIENT_STORAGE, f"{_MOST_DEVICES} devices are the most")
        else:
            self._answer(HTTPStatus.OK, device)

    def _refuse(self, status: HTTPStatus, error: str) -> None:
        self._answer(status, {"error": error})

    def _answer(self, status: HTTPStatus, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged: rows of functions say what was asked."""


class Switches:
    """One run's devices."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> ServiceEndpoint:
        self._server = _Server()
        self._thread = threading.Thread(target=self._server.serve_forever, name="switches")
        self._thread.daemon = True
        self._thread.start()
        return ServiceEndpoint(f"127.0.0.1:{self._server.server_address[1]}", {})

    def close(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = None


def require() -> None:
    """Nothing has to be installed."""


def connect(_options: Options, _context: Context) -> Switches:
    """Return the devices of one run; they do not listen yet."""
    return Switches()


def clean(resources: Sequence[Resource], _log: Callable[[str], None]) -> list[Resource]:
    """A run that crashed leaves none: they ended with it."""
    return list(resources)
