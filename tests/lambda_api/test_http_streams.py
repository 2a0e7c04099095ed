"""What passes piece by piece between clients and functions that are HTTP servers."""

import base64
import concurrent.futures
import http.client
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import scaled

from .conftest import Platform, Serve
from .test_http_server import SERVING, _instances, _serving, ask, create, message
from .test_serving import log, wait_for

# /events sends what is posted to /say to all that listen; /socket is a websocket that echoes.
SERVER = (
    """
import base64, hashlib, http.server, json, os, queue, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    listeners, open_sockets, gone = [], [], threading.Event()

    def chunk(self, data):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
        self.wfile.flush()

    def begin(self, *headers, status=200):
        self.send_response(status)
        for name, value in headers or [("transfer-encoding", "chunked")]:
            self.send_header(name, value)
        self.end_headers()

    def pieces(self):
        # The body, whichever way it is framed.
        if self.headers["transfer-encoding"] == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers["content-length"] or 0)
            while left:
                piece = self.rfile.read1(min(left, 65536))
                left -= len(piece)
                yield piece

    def do_POST(self):
        if self.path == "/say":
            text = b"".join(self.pieces())
            for listener in self.listeners:
                listener.put(text)
            self.begin(("content-length", "0"))
        elif self.path == "/count":
            digest, count = hashlib.sha256(), 0
            for piece in self.pieces():
                digest.update(piece)
                count += len(piece)
            framing = [self.headers["content-length"], self.headers["transfer-encoding"]]
            text = json.dumps([count, digest.hexdigest(), framing]).encode()
            self.begin(("content-length", str(len(text))))
            self.wfile.write(text)
        elif self.path == "/echo":
            self.begin()
            for piece in self.pieces():
                self.chunk(piece)
            self.chunk(b"")
        elif self.path == "/early":
            self.begin(("content-length", "5"), ("connection", "close"))
            self.wfile.write(b"early")
            self.close_connection = True

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/events":
            mailbox = queue.Queue()
            self.listeners.append(mailbox)
            self.begin(("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
            while (text := mailbox.get()) != b"end":
                self.chunk(b"data: " + text + b"\\n\\n")
            self.chunk(b"")
        elif path == "/large":
            self.begin(("content-length", query))
            block, left = bytes(65536), int(query)
            try:
                while left:
                    left -= self.wfile.write(block[:min(left, 65536)])
            except OSError:
                self.gone.set()
        elif path == "/forever":
            self.begin()
            try:
                while True:
                    self.chunk(bytes(1024))
                    time.sleep(0.05)
            except OSError:
                self.gone.set()
        elif path == "/gone":
            text = json.dumps(self.gone.wait(30)).encode()
            self.begin(("content-length", str(len(text))))
            self.wfile.write(text)
        elif path == "/half":
            self.begin(*{"chunks": [], "length": [("content-length", "1000000")]}[query])
            self.chunk(b"half")
            self.close_connection = True
        elif path == "/garbage":
            self.begin()
            self.chunk(b"fine")
            self.wfile.write(b"zz\\r\\nno chunk\\r\\n")
            self.close_connection = True
        elif path == "/trailers":
            self.begin(("transfer-encoding", "chunked"), ("trailer", "x-uncia-billed-ns"))
            self.chunk(b"body")
            self.wfile.write(b"0\\r\\nX-Uncia-Billed-Ns: 1\\r\\nContent-Length: 3\\r\\n\\r\\n")
        elif path == "/both":
            self.begin(("content-length", "3"), ("transfer-encoding", "chunked"))
            self.chunk(b"chunks")
            self.chunk(b"")
        elif path == "/informs":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\\r\\nX-Uncia-Billed-Ns: 1\\r\\n\\r\\n")
            self.begin()
            self.chunk(b"final")
            self.chunk(b"")
        elif path == "/failed":
            self.begin(status=500)
            self.chunk(b"sorry")
            self.chunk(b"")
        elif path == "/switch":
            self.begin(("upgrade", query), ("connection", "upgrade"), status=101)
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 8\\r\\n\\r\\nsmuggled")
            self.close_connection = True
        elif path == "/socket":
            if "upgrade" not in self.headers:
                self.begin(("content-length", "0"), status=426)
                return
            key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.begin(("upgrade", "websocket"), ("connection", "upgrade"),
                ("sec-websocket-accept", accept), status=101)
            while piece := self.connection.recv(65536):
                self.connection.sendall(piece)
                if piece.endswith(b"bye"):
                    break
            self.gone.set()
            self.close_connection = True
"""
    + SERVING
)


@contextmanager
def asked(platform: Platform, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a GET, of which nothing has been read."""
    connection = http.client.HTTPConnection(platform.address, timeout=scaled(60))
    connection.request("GET", path, headers=headers)
    yield connection.getresponse()
    connection.close()


def rss(platform: Platform, which: str = "VmHWM") -> int:
    """Memory of the platform's process in bytes."""
    status = Path(f"/proc/{platform.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


def test_each_event_reaches_the_client_at_once(platform: Platform) -> None:
    url = create(platform, SERVER)
    with asked(platform, f"{url}/events") as events:
        assert (events.status, events.headers["content-type"]) == (200, "text/event-stream")
        for text in (b"one", b"two", b"three"):
            # The next is only said once this one was heard.
            ask(platform, f"{url}/say", "POST", text)
            assert events.readline() + events.readline() == b"data: " + text + b"\n\n"
            name = events.headers["x-amzn-requestid"]
            assert name not in [row["request_id"] for row in log(platform)]
        ask(platform, f"{url}/say", "POST", b"end")
        assert events.read() == b""
        # The answer ends after its row is in the log.
        (row,) = [row for row in log(platform) if row["request_id"] == name]
    assert (row["outcome"], row["response_bytes"]) == ("ok", len("data: \n\n") * 3 + 11)
    assert row["shared"]
    assert "x-uncia-billed-ns" not in events.headers


def test_bodies_of_any_size_pass_in_little_memory(platform: Platform) -> None:
    url = create(platform, SERVER, Timeout=300)
    ask(platform, f"{url}/large?1")
    before = rss(platform)
    size = 64 * 2**20
    with asked(platform, f"{url}/large?{size}") as answer:
        assert answer.headers["content-length"] == str(size)
        assert sum(len(piece) for piece in iter(lambda: answer.read(65536), b"")) == size
    block = os.urandom(2**20)
    for chunked in (False, True):
        connection = http.client.HTTPConnection(platform.address, timeout=scaled(120))
        headers = {} if chunked else {"Content-Length": str(size)}
        blocks = (block for _ in range(size // len(block)))
        connection.request("POST", f"{url}/count", blocks, headers, encode_chunked=chunked)
        count, _, framing = json.loads(connection.getresponse().read())
        connection.close()
        assert (count, framing) == (size, [None, "chunked"] if chunked else [str(size), None])
    rows = log(platform)
    assert [row["response_bytes"] for row in rows[:2]] == [1, size]
    assert [row["request_bytes"] for row in rows[2:]] == [size, size]
    assert rss(platform) - before < 16 * 2**20


def test_a_slow_client_slows_the_server_down(platform: Platform) -> None:
    url = create(platform, SERVER, Timeout=300)
    ask(platform, f"{url}/large?1")
    before = rss(platform)
    size = 2**30
    with asked(platform, f"{url}/large?{size}") as answer:
        assert len(answer.read(65536)) == 65536
        time.sleep(1)
        assert rss(platform) - before < 16 * 2**20
    # The client has gone, and the server learns it.
    assert json.loads(ask(platform, f"{url}/gone")[1]) is True
    wait_for(lambda: len(log(platform)) == 3)
    row = next(row for row in log(platform) if row["outcome"] != "ok")
    assert (row["outcome"], "client" in row["error"]) == ("transport_error", True)
    assert 0 < row["response_bytes"] < size


def test_both_directions_flow_at_once(platform: Platform) -> None:
    url = create(platform, SERVER)
    host, port = platform.address.split(":")
    with socket.create_connection((host, int(port)), timeout=scaled(60)) as connection:
        head = f"POST {url}/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        seen = b""
        for text in (b"first", b"second"):
            connection.sendall(b"%x\r\n%s\r\n" % (len(text), text))
            while text not in seen:
                seen += connection.recv(4096)
        connection.sendall(b"0\r\n\r\n")
        while not seen.endswith(b"0\r\n\r\n"):
            seen += connection.recv(4096)
    (row,) = log(platform)
    assert (row["request_bytes"], row["response_bytes"], row["outcome"]) == (11, 11, "ok")


def test_a_client_that_breaks_off_its_body_is_no_failure_of_the_server(platform: Platform) -> None:
    url = create(platform, SERVER)
    host, port = platform.address.split(":")
    with socket.create_connection((host, int(port)), timeout=scaled(60)) as connection:
        head = f"POST {url}/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        connection.sendall(head.encode() + b"some")
        wait_for(lambda: _serving(platform) == 1)
    wait_for(lambda: len(log(platform)) == 1)
    (row,) = log(platform)
    assert row["outcome"] == "transport_error"
    assert "client" in row["error"]
    assert (ask(platform, f"{url}/large?1")[0].status, _instances(platform)) == (200, 1)


def test_an_answer_before_the_end_of_the_body_arrives(platform: Platform) -> None:
    url = create(platform, SERVER)
    host, port = platform.address.split(":")
    with socket.create_connection((host, int(port)), timeout=scaled(60)) as connection:
        head = f"POST {url}/early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        connection.sendall(head.encode() + b"some")
        seen = b""
        while b"early" not in seen:
            seen += connection.recv(4096)
    assert seen.startswith(b"HTTP/1.1 200")
    assert log(platform)[0]["outcome"] == "ok"


def test_a_stream_whose_time_is_up_is_cut_and_the_instance_lives(platform: Platform) -> None:
    url = create(platform, SERVER, Timeout=2)
    with (
        asked(platform, f"{url}/forever") as answer,
        pytest.raises((http.client.IncompleteRead, ConnectionError)),
    ):
        answer.read()
    with asked(platform, f"{url}/forever"):
        # Nothing is read: the connection ends all the same.
        wait_for(lambda: len(log(platform)) == 2)
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["timeout"] * 2
    assert all(row["response_bytes"] > 0 for row in rows)
    assert rows[0]["execution"] >= 2_000_000_000
    assert json.loads(ask(platform, f"{url}/gone")[1]) is True
    assert len({row["instance"] for row in log(platform)}) == 1


@pytest.mark.parametrize("path", ["/half?chunks", "/half?length", "/garbage"])
def test_half_an_answer_does_not_pass_for_a_whole_one(platform: Platform, path: str) -> None:
    url = create(platform, SERVER)
    with (
        asked(platform, f"{url}{path}") as answer,
        pytest.raises((http.client.IncompleteRead, ConnectionError)),
    ):
        answer.read()
    (row,) = log(platform)
    assert (row["outcome"], "broke off" in row["error"]) == ("function_error", True)
    # What fails in one answer leaves the others alone.
    assert ask(platform, f"{url}/large?1")[0].status == 200
    assert len({row["instance"] for row in log(platform)}) == 1


def test_streams_smuggle_nothing(platform: Platform) -> None:
    url = create(platform, SERVER)
    with asked(platform, f"{url}/trailers", TE="trailers") as answer:
        assert answer.read() == b"body"
        assert not {"x-uncia-billed-ns", "trailer"} & {name.lower() for name in answer.headers}
    with asked(platform, f"{url}/both") as answer:
        assert (answer.read(), answer.headers["content-length"]) == (b"chunks", None)
    with asked(platform, f"{url}/informs") as answer:
        assert (answer.status, answer.read()) == (200, b"final")
        assert "x-uncia-billed-ns" not in answer.headers
    with asked(platform, f"{url}/failed") as answer:
        assert (answer.status, answer.read()) == (500, b"sorry")
    assert log(platform)[-1]["outcome"] == "function_error"
    answer, text = ask(platform, f"{url}/switch?websocket")
    assert (answer.status, "unasked" in message(text)) == (502, True)


class WebSocket:
    """A connection that has been upgraded, as bytes: frames are the endpoints' affair."""

    def __init__(self, platform: Platform, path: str, *, protocol: str = "websocket") -> None:
        host, port = platform.address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=scaled(60))
        key = base64.b64encode(b"0123456789abcdef").decode()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n"
            f"Upgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            piece = self.socket.recv(1)
            if not piece:
                break
            self.head += piece

    def echo(self, text: bytes) -> bytes:
        self.socket.sendall(text)
        return self.read(len(text))

    def read(self, size: int) -> bytes:
        seen = b""
        while len(seen) < size and (piece := self.socket.recv(size - len(seen))):
            seen += piece
        return seen


def test_a_websocket_passes_bytes_both_ways(platform: Platform) -> None:
    url = create(platform, SERVER)
    connection = WebSocket(platform, f"{url}/socket")
    head = connection.head.decode().lower()
    assert head.startswith("http/1.1 101 ")
    assert "sec-websocket-accept: " in head
    assert "upgrade: websocket" in head
    assert connection.echo(b"hello") == b"hello"
    block = os.urandom(200_000)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        received = pool.submit(connection.read, len(block))
        connection.socket.sendall(block)
        assert received.result() == block
    assert log(platform) == []
    assert connection.echo(b"bye") == b"bye"
    # The server closes, and when the client sees it the row is there.
    assert connection.socket.recv(1) == b""
    (row,) = log(platform)
    size = 5 + len(block) + 3
    assert (row["outcome"], row["request_bytes"], row["response_bytes"]) == ("ok", size, size)


def test_a_websocket_ends_with_its_client(platform: Platform) -> None:
    url = create(platform, SERVER)
    connection = WebSocket(platform, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    connection.socket.close()
    wait_for(lambda: len(log(platform)) == 1)
    assert log(platform)[0]["outcome"] == "ok"
    assert json.loads(ask(platform, f"{url}/gone")[1]) is True


def test_only_websockets_are_switched_to(platform: Platform) -> None:
    url = create(platform, SERVER)
    connection = WebSocket(platform, f"{url}/socket", protocol="h2c")
    assert connection.head.startswith(b"HTTP/1.1 426 ")
    connection = WebSocket(platform, f"{url}/switch?h2c")
    assert connection.head.startswith(b"HTTP/1.1 502 ")


def test_a_websocket_whose_time_is_up_is_closed(platform: Platform) -> None:
    url = create(platform, SERVER, Timeout=2)
    connection = WebSocket(platform, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    assert connection.socket.recv(1) == b""
    (row,) = log(platform)
    assert (row["outcome"], row["response_bytes"]) == ("timeout", 5)
    assert json.loads(ask(platform, f"{url}/gone")[1]) is True


def test_a_websocket_held_open_for_ever_ends_with_the_platform(serve: Serve) -> None:
    platform = serve({"shutdown_grace_ms": 500})
    url = create(platform, SERVER, Timeout=900)
    connection = WebSocket(platform, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    assert platform.stop() == 0
    assert connection.socket.recv(1) == b""
    again = serve()
    (row,) = log(again)
    assert (row["outcome"], row["response_bytes"]) == ("transport_error", 5)
    assert "stopped" in row["error"]


def test_a_frame_of_a_websocket_waits_for_no_other(platform: Platform) -> None:
    """Small frames pass one by one, as a chat has them."""
    url = create(platform, SERVER)
    connection = WebSocket(platform, f"{url}/socket")
    for number in range(200):
        frame = struct.pack(">I", number)
        assert connection.echo(frame) == frame
