"""Streams that go wrong: clients that vanish, servers that break off, and others beside them."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import socket
import struct
import time

import pytest

from .conftest import Platform, Serve
from .test_http_server import SERVING, _serving, ask, create, message
from .test_http_streams import SERVER as STREAMS
from .test_http_streams import WebSocket, asked, rss
from .test_response_streams import CLIENT, INTEGRATION, streamed, url_of
from .test_serving import log, wait_for

# /wait answers when /go was asked for; /eof sends a body that ends with the connection.
SERVER = (
    """
import http.server, json, os, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    going = threading.Event()

    def answer(self, text, *headers):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        size = int(self.headers["content-length"] or 0)
        if size > 1_000_000:
            # Not read, and the connection stays open.
            self.answer(b"{}")
            time.sleep(3600)
        self.rfile.read(size)
        self.answer(json.dumps({name.lower(): it for name, it in self.headers.items()}).encode())

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/close":
            self.close_connection = True
        elif path == "/garbage":
            self.wfile.write(b"what do you want?\\r\\n\\r\\n")
            self.close_connection = True
        elif path == "/head":
            self.answer(b"", ("x-long", "a" * 200_000))
        elif path == "/headers":
            self.answer(b"", *(("x-many", str(n)) for n in range(5_000)))
        elif path == "/wait":
            self.going.wait(50)
            self.answer(b"waited")
        elif path == "/go":
            self.going.set()
            self.answer(b"gone")
        elif path == "/eof":
            self.wfile.write(b"HTTP/1.0 200 OK\\r\\n\\r\\nhalf")
            self.wfile.flush()
            if query == "exit":
                # As one that ends in order, and forgets its answers.
                self.server.socket.close()
                os._exit(3)
            elif query == "memory":
                hog = []
                while True:
                    hog.append(bytearray(b"x" * 2**20))
            self.close_connection = True
"""
    + SERVING
)


def reset(connection: socket.socket) -> None:
    """Close a connection as one whose client was killed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def opened(platform: Platform, request: str) -> socket.socket:
    """A connection with the head of a request."""
    host, port = platform.address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(f"{request}\r\nHost: localhost\r\n".encode())
    return connection


@pytest.mark.parametrize("path", ["/close", "/garbage", "/head", "/headers"])
def test_an_answer_that_is_none_is_one_requests_failure(platform: Platform, path: str) -> None:
    url = create(platform, SERVER)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, platform, f"{url}/wait")
        wait_for(lambda: _serving(platform) == 1)
        answer, text = ask(platform, f"{url}{path}")
        assert answer.status == 502, text
        assert "the server at port" in message(text)
        assert ask(platform, f"{url}/go")[1] == b"gone"
        assert waiting.result()[1] == b"waited"
    # Nor is it the end of one that has answered others before.
    assert ask(platform, f"{url}{path}")[0].status == 502
    assert ask(platform, f"{url}/go")[1] == b"gone"
    rows = log(platform)
    assert len({row["instance"] for row in rows}) == 1
    assert sorted(row["outcome"] for row in rows) == ["function_error"] * 2 + ["ok"] * 3


def test_nothing_waits_behind_a_body_that_was_not_read(platform: Platform) -> None:
    create(platform, SERVER, Timeout=20)
    answer, _ = platform.invoke("f", "x" * 6_000_000)
    assert "FunctionError" not in answer
    for _ in range(3):
        answer, _ = platform.invoke("f", "x")
        assert "FunctionError" not in answer
    assert {row["outcome"] for row in log(platform)} == {"ok"}


def test_an_empty_body_has_a_length(platform: Platform) -> None:
    url = create(platform, SERVER)
    _, text = ask(platform, f"{url}/", "POST", b"")
    assert json.loads(text)["content-length"] == "0"


def test_a_client_that_is_killed_between_two_pieces_is_named(platform: Platform) -> None:
    url = create(platform, STREAMS)
    for end in (reset, socket.socket.close):
        connection = opened(platform, f"POST {url}/echo HTTP/1.1")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        seen = b""
        while b"first" not in seen:
            seen += connection.recv(4096)
        end(connection)
    wait_for(lambda: len(log(platform)) == 2)
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["transport_error"] * 2, rows
    assert all("client" in row["error"] for row in rows)


@pytest.mark.parametrize("how", ["exit", "memory"])
def test_a_body_without_length_is_not_whole_if_its_server_ended(
    platform: Platform, how: str
) -> None:
    url = create(platform, SERVER, MemorySize=128)
    assert ask(platform, f"{url}/eof")[1] == b"half"
    with (
        asked(platform, f"{url}/eof?{how}") as answer,
        pytest.raises((http.client.IncompleteRead, ConnectionError)),
    ):
        answer.read()
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["ok", "function_error"]
    assert ("exit status 3" if how == "exit" else "Runtime.OutOfMemory") in rows[1]["error"]


# Breaks an answer off, and sends another in its place.
AGAIN = """
import http.client, json, os, socket

host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")

while True:
    api = http.client.HTTPConnection(host, int(port))
    api.request("GET", "/2018-06-01/runtime/invocation/next")
    answer = api.getresponse()
    answer.read()
    request_id = answer.headers["Lambda-Runtime-Aws-Request-Id"]
    path = "/2018-06-01/runtime/invocation/%s/response" % request_id
    head = "POST %s HTTP/1.1\\r\\nLambda-Runtime-Function-Response-Mode: streaming\\r\\n" % path
    with socket.create_connection((host, int(port))) as broken:
        head += "Expect: 100-continue\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
        broken.sendall(head.encode())
        assert b"100" in broken.recv(100)
        broken.sendall(b"4\\r\\nhalf\\r\\n")
    status = 400
    while status == 400:
        # Until it is known that the first has broken off.
        api.request("POST", path, b'"whole"')
        answer = api.getresponse()
        answer.read()
        status = answer.status
    api.close()
"""


def test_an_answer_that_is_begun_again_is_no_success(platform: Platform) -> None:
    platform.create("f", AGAIN)
    for _ in range(2):
        pieces, end = streamed(platform, {})
        assert (pieces, end["ErrorCode"]) == ([b"half"], "Runtime.TruncatedResponse")
    assert [(row["outcome"], row["response_bytes"]) for row in log(platform)] == [
        ("function_error", 4)
    ] * 2


def test_an_answer_that_is_refused_ends_after_its_row(platform: Platform) -> None:
    platform.create("f", CLIENT, Timeout=2)
    url = url_of(platform, InvokeMode="RESPONSE_STREAM")
    event = {"pieces": ["{" + "\0" * 8, "hang"], "type": INTEGRATION}
    answer, text = ask(platform, f"{url}/", "POST", json.dumps(event).encode())
    assert (answer.status, text) == (502, b'{"Message":"Internal Server Error"}')
    assert [row["outcome"] for row in log(platform)] == ["timeout"]


def test_every_request_has_one_row_wherever_its_client_leaves(platform: Platform) -> None:
    url = create(platform, STREAMS, Timeout=40)
    names = [f"vanishing-{number}" for number in range(60)]

    def vanish(number: int) -> None:
        name = f"x-uncia-invocation: {names[number]}\r\n"
        stage = number % 6
        if stage < 2:
            connection = opened(platform, f"POST {url}/count HTTP/1.1")
            connection.sendall(f"{name}Content-Length: 200000\r\n\r\n".encode() + b"x" * stage)
        else:
            path = ["/forever", "/large?100000000", "/events", "/gone"][stage - 2]
            connection = opened(platform, f"GET {url}{path} HTTP/1.1")
            connection.sendall(f"{name}\r\n".encode())
            if stage < 4:
                assert connection.recv(100)
        time.sleep(number / 1_000)
        (reset if number % 2 else socket.socket.close)(connection)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(vanish, range(len(names))))
    # What was not read whole may be no request yet, and what waits for others ends by its time.
    wait_for(lambda: _serving(platform) == 0)
    rows = [row["invocation"] for row in log(platform)]
    assert len(rows) == len(set(rows))
    assert set(rows) <= set(names)
    whole = {name for number, name in enumerate(names) if number % 6 in (2, 3)}
    assert whole <= set(rows)
    assert ask(platform, f"{url}/large?1")[0].status == 200


def test_websockets_that_are_held_open_end_with_the_platform(serve: Serve) -> None:
    platform = serve({"shutdown_grace_ms": 300})
    url = create(platform, STREAMS)
    connections = [WebSocket(platform, f"{url}/socket") for _ in range(3)]
    assert [connection.echo(b"hello") for connection in connections] == [b"hello"] * 3
    assert platform.stop() == 0
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            assert connection.socket.recv(1) == b""
    again = serve()
    rows = log(again)
    assert [row["outcome"] for row in rows] == ["transport_error"] * 3
    assert all("the platform was stopped" in row["error"] for row in rows)
    assert [(row["request_bytes"], row["response_bytes"]) for row in rows] == [(5, 5)] * 3


def _stream(platform: Platform, url: str, count: int) -> None:
    """Have that many streams, one in ten of which its client leaves."""

    def some(_: int) -> None:
        connection = http.client.HTTPConnection(platform.address, timeout=60)
        for _ in range(9):
            connection.request("GET", f"{url}/trailers")
            assert connection.getresponse().read() == b"body"
        connection.close()
        with asked(platform, f"{url}/large?300000") as answer:
            assert answer.read(1)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(some, range(count // 10)))


def test_many_streams_leave_nothing_in_memory(platform: Platform) -> None:
    url = create(platform, STREAMS)
    _stream(platform, url, 400)
    before = rss(platform, "VmRSS")
    _stream(platform, url, STREAMS_COUNT)
    assert rss(platform, "VmRSS") - before < 8 * 2**20
    wait_for(lambda: _serving(platform) == 0)
    served = [row["invocations"] for row in log(platform, "instances")]
    assert served == [400 + STREAMS_COUNT]


STREAMS_COUNT = int(os.environ.get("UNCIA_TEST_STREAMS", "1000"))
"""More of them in the variable, such as ten thousand."""
