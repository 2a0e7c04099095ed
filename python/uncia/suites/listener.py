"""A listener outside of instances: what an instance does while it serves nothing, and how it ends.

Functions with the network of the host connect to it, send their name, and then a byte at regular
times. As many servers do, it closes a connection over which nothing came for a while. A function
that is stopped may send the number of the signal as a byte.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

VARIABLE: Final = "UNCIA_LISTENER"
"""The variable of functions with the listener's address."""

FILE: Final = "listener.json"
"""The file in a run's folder with what was heard."""

PATIENCE_S: Final = 1.5
"""A connection over which nothing came for so long is closed."""

_SIGTERM: Final = 15
_POLL_S: Final = 0.05


@dataclass
class Connection:
    """One connection, from its first byte to its end.

    Attributes:
        name: what the function calls itself; "" until it has said so.
        beats: bytes that came after that.
        heard: the time of the last byte, monotonic, s.
        end: ``silent`` (closed for want of bytes), ``closed`` (by the instance, or with it), or
            ``open`` until then.
        signalled: whether the number of SIGTERM came.
    """

    name: str = ""
    beats: int = 0
    heard: float = 0.0
    end: str = "open"
    signalled: bool = False


class Listener:
    """Accepts connections on a free loopback port, in a thread of its own.

    Used as a context manager. ``address`` is what functions are given.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience = patience_s
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        host, port = self._server.getsockname()
        self.address: Final = f"{host}:{port}"
        self._connections: list[Connection] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="uncia-listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def write(self, folder: Path) -> None:
        """Write what was heard into the folder of a run, if it is there; after the end."""
        if folder.is_dir():
            partial = folder / f"{FILE}.partial"
            partial.write_text(json.dumps(self.heard(), indent=2) + "\n", encoding="utf-8")
            partial.replace(folder / FILE)

    def heard(self) -> list[Mapping[str, Any]]:
        """What was heard, a mapping for each connection that gave its name."""
        return [
            {"name": it.name, "beats": it.beats, "end": it.end, "signalled": it.signalled}
            for it in self._connections
            if it.name
        ]

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector, self._server:
            selector.register(self._server, selectors.EVENT_READ)
            try:
                while not self._stop.is_set():
                    for key, _ in selector.select(_POLL_S):
                        if key.data is None:
                            self._accept(selector)
                        else:
                            self._receive(selector, key.fileobj, key.data)
                    self._close_silent(selector)
            finally:
                for key in list(selector.get_map().values()):
                    if isinstance(key.fileobj, socket.socket):
                        key.fileobj.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            accepted, _ = self._server.accept()
        except OSError:
            return  # it is gone already
        accepted.setblocking(False)
        connection = Connection(heard=time.monotonic())
        self._connections.append(connection)
        selector.register(accepted, selectors.EVENT_READ, connection)

    def _receive(self, selector: selectors.BaseSelector, peer: Any, connection: Connection) -> None:
        try:
            received = peer.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            connection.end = "closed"
            selector.unregister(peer)
            peer.close()
            return
        connection.heard = time.monotonic()
        if not connection.name:
            name, _, received = received.partition(b"\n")
            connection.name = name.decode(errors="replace")
        # Another thread of the function may still send a beat after it.
        connection.signalled = connection.signalled or _SIGTERM in received
        connection.beats += len(received)

    def _close_silent(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for key in list(selector.get_map().values()):
            if isinstance(key.data, Connection) and now - key.data.heard > self._patience:
                key.data.end = "silent"
                selector.unregister(key.fileobj)
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
