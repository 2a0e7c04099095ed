"""Streams and websockets that pass over a worker of several: whole, and until one side ends."""

import contextlib
import http.client
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import scaled

from .conftest import Join, Platform
from .test_http_server import ask, create
from .test_http_streams import SERVER as STREAMS
from .test_http_streams import WebSocket
from .test_response_streams import CLIENT, INTEGRATION, PRELUDE, streamed, url_of
from .test_serving import log, wait_for
from .workers import workers

ENDLESS = """
import http.server, os, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"x" * 4096)
            self.wfile.flush()
            time.sleep(0.01)

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_answers_pass_from_workers_while_they_are_made(controller: Platform, join: Join) -> None:
    a = join(controller, "a")
    controller.create("f", CLIENT, Timeout=round(scaled(5)))
    pieces, end = streamed(controller, {"pieces": ["a", 8 << 20, "b"]})
    assert b"".join(pieces) == b"a" + bytes(8 << 20) + b"b"
    assert end == {}
    failed = {"pieces": ["c"], "error": {"errorMessage": "half-way", "errorType": "X"}}
    pieces, end = streamed(controller, failed)
    assert (pieces, end["ErrorCode"]) == ([b"c"], "X")
    url = url_of(controller, InvokeMode="RESPONSE_STREAM")
    event = {"pieces": [PRELUDE, "\0" * 8, "body"], "type": INTEGRATION}
    answer, text = ask(controller, f"{url}/", "POST", json.dumps(event).encode())
    assert (answer.status, answer.headers["x-own"], text) == (201, "1", b"body")
    table = log(controller)
    assert [row["outcome"] for row in table] == ["ok", "function_error", "ok"]
    assert table[0]["response_bytes"] == (8 << 20) + 2
    assert {row["worker"] for row in table} == {"a"}

    # The first piece is there long before the end, and before the worker is killed.
    payload = json.dumps({"pieces": ["first", "hang"]}).encode()
    begun = controller.client.invoke_with_response_stream(FunctionName="f", Payload=payload)
    events = iter(begun["EventStream"])
    assert next(events)["PayloadChunk"]["Payload"] == b"first"
    assert len(log(controller)) == 3
    a.stop(signal.SIGKILL)
    with pytest.raises(Exception, match=r"."):
        list(events)
    wait_for(lambda: len(log(controller)) == 4)
    row = log(controller)[-1]
    assert (row["outcome"], row["billed"]) == ("transport_error", 0)
    assert "the worker a is gone" in row["error"]


def test_clients_that_do_not_read_hold_up_nobody(controller: Platform, join: Join) -> None:
    join(controller, "a")
    limit = round(scaled(3))
    controller.create("f", CLIENT, Timeout=limit, MemorySize=128)
    url = url_of(controller, InvokeMode="RESPONSE_STREAM")
    event = json.dumps({"pieces": [64 << 20]})
    deaf = []
    for _ in range(9):
        connection = http.client.HTTPConnection(controller.address, timeout=scaled(60))
        connection.request("POST", f"{url}/", event)
        deaf.append(connection)
    wait_for(lambda: len(log(controller, "instances")) == 9)
    time.sleep(1)
    began = time.monotonic()
    controller.create("g", "def handler(event, context):\n    return 1\n")
    assert controller.invoke("g")[1] == 1
    assert time.monotonic() - began < limit
    wait_for(lambda: len(log(controller)) == 10)
    outcomes = sorted(row["outcome"] for row in log(controller))
    assert outcomes == ["ok", *["timeout"] * 9]
    for connection in deaf:
        connection.close()


def test_a_server_on_a_worker_ends_with_its_client(controller: Platform, join: Join) -> None:
    join(controller, "a")
    tags = {"uncia:architecture": "http"}
    controller.create("f", {"server.py": ENDLESS}, Handler="server.py", Timeout=300, Tags=tags)
    connection = http.client.HTTPConnection(controller.address, timeout=scaled(60))
    connection.request("GET", url_of(controller) + "/")
    assert connection.getresponse().read(10_000) == b"x" * 10_000
    assert log(controller) == []
    connection.close()
    wait_for(lambda: len(log(controller)) == 1)
    row = log(controller)[0]
    assert (row["outcome"], row["worker"]) == ("transport_error", "a")
    assert "the client closed the connection" in row["error"]


def test_websockets_pass_to_a_worker_and_back(controller: Platform, join: Join) -> None:
    join(controller, "a")
    url = create(controller, STREAMS)
    connection = WebSocket(controller, f"{url}/socket")
    head = connection.head.decode().lower()
    assert head.startswith("http/1.1 101 ")
    assert "upgrade: websocket" in head
    assert "sec-websocket-accept: " in head
    assert connection.echo(b"hello") == b"hello"
    for number in range(50):
        frame = f"{number:04}".encode()
        assert connection.echo(frame) == frame
    block = os.urandom(3_000_000)
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(connection.read, len(block))
        connection.socket.sendall(block)
        assert received.result() == block
    assert log(controller) == []
    assert connection.echo(b"bye") == b"bye"
    # The server closes, and when the client sees it the row is there.
    assert connection.socket.recv(1) == b""
    (row,) = log(controller)
    size = 5 + 50 * 4 + len(block) + 3
    assert (row["outcome"], row["request_bytes"], row["response_bytes"]) == ("ok", size, size)
    assert row["worker"] == "a"
    # The client closes, and the server sees it.
    connection = WebSocket(controller, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    connection.socket.close()
    wait_for(lambda: len(log(controller)) == 2)
    assert log(controller)[-1]["outcome"] == "ok"
    assert json.loads(ask(controller, f"{url}/gone")[1]) is True
    # What the server refuses is an answer like all others.
    refused = WebSocket(controller, f"{url}/switch?h2c")
    assert refused.head.startswith(b"HTTP/1.1 502 ")
    assert {row["worker"] for row in log(controller)} == {"a"}


def test_a_websocket_on_a_worker_ends_with_its_time_and_with_the_worker(
    controller: Platform, join: Join
) -> None:
    a = join(controller, "a")
    url = create(controller, STREAMS, Timeout=round(scaled(3)))
    connection = WebSocket(controller, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    assert connection.socket.recv(1) == b""
    (row,) = log(controller)
    assert (row["outcome"], row["response_bytes"]) == ("timeout", 5)
    controller.client.update_function_configuration(FunctionName="f", Timeout=900)
    connection = WebSocket(controller, f"{url}/socket")
    assert connection.echo(b"hello") == b"hello"
    # A worker that leaves waits for it to end, and takes nothing new meanwhile.
    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(a.stop)
        wait_for(lambda: workers(controller).get("a") == "draining")
        b = join(controller, "b")
        assert connection.echo(b"still") == b"still"
        other = WebSocket(controller, f"{url}/socket")
        assert connection.echo(b"bye") == b"bye"
        assert connection.socket.recv(1) == b""
        assert left.result() == 0
    wait_for(lambda: workers(controller) == {"b": "joined"})
    assert other.echo(b"hello") == b"hello"
    # One that is killed takes it along.
    b.stop(signal.SIGKILL)
    assert other.socket.recv(1) == b""
    table = log(controller)
    assert [(row["outcome"], row["worker"]) for row in table[1:]] == [
        ("ok", "a"),
        ("transport_error", "b"),
    ]
    assert "the worker b is gone" in table[-1]["error"]


# Takes each websocket, reads nothing of it, and sends without end if asked to.
DEAF = """
import base64, hashlib, http.server, os, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "upgrade")
        self.end_headers()
        while self.path == "/talks":
            self.wfile.write(bytes(65536))
        threading.Event().wait()

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_servers_that_read_no_websockets_hold_up_nobody(controller: Platform, join: Join) -> None:
    join(controller, "a")
    url = create(controller, DEAF, Timeout=900)
    deaf = [WebSocket(controller, f"{url}/") for _ in range(12)]
    for connection in deaf:
        # Until nothing more is taken on the way, or more than the worker's connection takes of all.
        connection.socket.settimeout(scaled(1))
        with contextlib.suppress(TimeoutError):
            for _ in range(12):
                connection.socket.sendall(bytes(1 << 20))
    controller.create("g", "def handler(event, context):\n    return len(event)\n")
    assert controller.invoke("g", "x" * 1_000_000)[1] == 1_000_000
    # As on a platform alone, nobody sees before the function's timeout that they have gone...
    for connection in deaf:
        connection.socket.close()
    # ... unless something is to be sent to them.
    connection = WebSocket(controller, f"{url}/talks")
    connection.socket.settimeout(scaled(1))
    with contextlib.suppress(TimeoutError):
        for _ in range(12):
            connection.socket.sendall(bytes(1 << 20))
    connection.socket.close()
    wait_for(lambda: len(log(controller)) == 2)
    row = log(controller)[-1]
    assert (row["function"], row["outcome"], row["worker"]) == ("f", "ok", "a")
    assert row["response_bytes"] > 0
