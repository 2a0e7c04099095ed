"""The listener outside of instances, asked by plain sockets."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from uncia.suites.listener import Listener


def connect(listener: Listener, name: str) -> socket.socket:
    host, _, port = listener.address.rpartition(":")
    peer = socket.create_connection((host, int(port)), timeout=60)
    peer.sendall(f"{name}\n".encode())
    return peer


def ends(listener: Listener) -> dict[str, Mapping[str, Any]]:
    return {item["name"]: item for item in listener.heard()}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def test_silence_is_told_from_an_end() -> None:
    # Patient beyond any delay of this test, but for the one that waits for its end.
    with Listener(patience_s=600) as listener:
        gone = connect(listener, "gone")
        message = connect(listener, "told")
        still = connect(listener, "still")
        gone.sendall(b"\x01\x01")
        gone.close()
        message.sendall(b"\x01\x0f\x01")
        message.close()
        wait(lambda: {"gone", "told", "still"} == set(ends(listener)))
        wait(lambda: ends(listener)["gone"]["end"] == ends(listener)["told"]["end"] == "closed")
        heard = ends(listener)
        still.close()
    assert (heard["gone"]["beats"], heard["gone"]["signalled"]) == (2, False)
    assert heard["told"]["signalled"] is True
    assert heard["still"]["end"] == "open"

    with Listener(patience_s=0.3) as listener, connect(listener, "silent") as silent:
        # It hears that the listener has closed the connection.
        assert silent.recv(1) == b""
        assert ends(listener)["silent"]["end"] == "silent"


def test_what_gives_no_name_is_not_counted() -> None:
    with Listener(patience_s=600) as listener:
        host, _, port = listener.address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=60).close()
        named = connect(listener, "named")
        wait(lambda: bool(ends(listener)))
        named.close()
    assert list(ends(listener)) == ["named"]
