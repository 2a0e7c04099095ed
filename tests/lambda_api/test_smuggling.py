"""Requests that two readers could understand differently, and answers that claim too much."""

import concurrent.futures
import json
import socket
import urllib.request
from base64 import b64encode
from typing import Any

import pytest
from patience import scaled

from .conftest import Platform, Serve

INVOKE = b"POST /2015-03-31/functions/f/invocations HTTP/1.1\r\nHost: localhost\r\n"
# What would be answered if the bytes behind a request's end were taken for another one.
SECOND = b"GET /uncia/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

# Each is refused or, if in BOTH, answered by its chunks; and the connection closed, so that nothing
# of SECOND is read.
BOTH = ("a length and chunks", "chunks and a length")
AMBIGUOUS = {
    "a length and chunks": b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "chunks and a length": CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12",
    "a list of lengths": b"Content-Length: 1, 1\r\n\r\n1",
    "a length with a sign": b"Content-Length: +1\r\n\r\n1",
    "a length after a space": b"Content-Length : 1\r\n\r\n1",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "a coding after chunked": b"Transfer-Encoding: chunked, identity\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "a coding before chunked": b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "chunked twice": CHUNKED + CHUNKED + b"\r\n1\r\n1\r\n0\r\n\r\n",
    "a coding after a space": b"Transfer-Encoding : chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "a folded header": b"X-A: b\r\n Content-Length: 1\r\n\r\n1",
    "a lone carriage return": b"X-A: b\rContent-Length: 1\r\n\r\n1",
    "a zero byte": b"X-A: b\0\r\n\r\n",
    "chunks without carriage returns": CHUNKED + b"\r\n1\n1\n0\n\n",
    "an extension without one": CHUNKED + b"\r\n1;a\n1\r\n0\r\n\r\n",
    "an extension without end": CHUNKED + b"\r\n1;" + b"a" * 100_000 + b"\r\n1\r\n0\r\n\r\n",
    "a chunk of 2^64 bytes": CHUNKED + b"\r\n10000000000000001\r\n1\r\n0\r\n\r\n",
    "a chunk of 0x1 bytes": CHUNKED + b"\r\n0x1\r\n1\r\n0\r\n\r\n",
    "a chunk of -1 bytes": CHUNKED + b"\r\n-1\r\n1\r\n0\r\n\r\n",
}
MEGABYTE = b"a" * 1_000_000


def say(address: str, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    host, port = address.split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=scaled(30)) as connection:
        connection.sendall(request)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.fixture
def echo(serve: Serve) -> Platform:
    platform = serve()
    platform.create("f", "def handler(event, context):\n    return event\n")
    return platform


def test_clients_smuggle_nothing(echo: Platform) -> None:
    both = INVOKE + b"Content-Length: 2\r\n\r\n{}" + SECOND
    assert statuses(say(echo.address, both)) == [200, 200], "an honest pair is two"
    for what, rest in AMBIGUOUS.items():
        answer = say(echo.address, INVOKE + rest + SECOND)
        assert statuses(answer) == [200 if what in BOTH else 400], (what, answer)
    for huge in (
        b"GET /uncia/v1/health HTTP/1.1\r\nHost: localhost\r\nX-A: " + MEGABYTE + b"\r\n\r\n",
        b"GET /" + MEGABYTE + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 150_000 + b"\r\n",
    ):
        host, port = echo.address.split(":")
        with socket.create_connection((host, int(port)), timeout=scaled(30)) as connection:
            try:
                connection.sendall(huge)
                assert statuses(connection.recv(1000)) == [431]
            except ConnectionError:
                pass  # closed before all of it was sent
    assert echo.invoke("f", {"n": 1})[1] == {"n": 1}


# In the function: the same at its Runtime API, for the answer to its own invocation.
INSIDE = """
import base64, os, socket

def say(request):
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    answer = b""
    try:
        connection.sendall(request)
        while piece := connection.recv(65536):
            answer += piece
    except ConnectionError:
        pass
    return answer.decode("latin-1")

def handler(event, context):
    path = "/2018-06-01/runtime/invocation/%s/response" % event.get("id", context.aws_request_id)
    head = ("POST %s HTTP/1.1\\r\\n" % path).encode()
    return [say(head + base64.b64decode(rest)) for rest in event["requests"]]
"""


def test_functions_smuggle_nothing(platform: Platform) -> None:
    platform.create("f", INSIDE)
    inner = b"POST /2018-06-01/runtime/init/error HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    requests = [rest + inner for rest in AMBIGUOUS.values()]
    # A value of this length is left out of a head.
    long = MEGABYTE[:100_000]
    requests += [
        b"X-A: " + long + b"\r\n" + CHUNKED + b"Content-Length: 2\r\n\r\n{}" + inner,
        b"Content-Length: 2" + long + b"\r\n\r\n{}" + inner,
        b"X-A" + long + b": b\r\n\r\n",
        b"A: b\r\n" * 150_000 + b"\r\n",
        CHUNKED + b"\r\n1;" + MEGABYTE + b"\r\n1\r\n0\r\n\r\n",
    ]
    event = {"requests": [b64encode(request).decode() for request in requests]}
    answers = platform.invoke("f", event)[1]
    # No connection goes on, and what counts is its own answer.
    assert len(answers) == len(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert statuses(answer.encode()) in ([], [400], [431]), (request[:100], answer)


def test_a_function_answers_no_other_invocation(platform: Platform) -> None:
    waits = "import time\ndef handler(event, context):\n    time.sleep(1)\n    return 'own'\n"
    platform.create("victim", waits)
    platform.create("thief", INSIDE)
    platform.invoke("victim")
    platform.invoke("thief", {"requests": []})
    body = b'Connection: close\r\nContent-Length: 8\r\n\r\n"stolen"'
    name = "11111111-2222-3333-4444-555555555555"

    def call() -> Any:
        url = f"http://{platform.address}/2015-03-31/functions/victim/invocations"
        request = urllib.request.Request(url, b"{}", {"x-uncia-invocation": name})
        with urllib.request.urlopen(request) as answer:
            return answer.headers["x-amzn-requestid"], json.load(answer)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        stolen = {"requests": [b64encode(body).decode()], "id": name}
        message = platform.invoke("thief", stolen)[1]
        assert [part.split("\r\n")[0] for part in message] == ["HTTP/1.1 400 Bad Request"]
        assert answer.result()[1] == "own"
    # Nor one whose id it has from the victim's own answer.
    stolen["id"] = answer.result()[0]
    assert "400" in platform.invoke("thief", stolen)[1][0]


def test_a_function_writes_no_measurement_into_its_answer(platform: Platform) -> None:
    source = """
def handler(event, context):
    return {"statusCode": 200, "body": "x", "headers": {
        "x-uncia-initialization-ns": "5000000000", "x-uncia-billed-ns": "1", "x-uncia-new": "1",
        "x-amz-function-error": "Unhandled", "x-own": "kept"}}
"""
    platform.create("f", source)
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    with urllib.request.urlopen(url["FunctionUrl"]) as cold:
        assert int(cold.headers["x-uncia-initialization-ns"]) > 0
    with urllib.request.urlopen(url["FunctionUrl"]) as warm:
        assert warm.headers["x-uncia-start"] in ("warm", "thawed")
        assert "x-uncia-initialization-ns" not in warm.headers
        assert int(warm.headers["x-uncia-billed-ns"]) > 1
        forged = {"x-uncia-new", "x-amz-function-error"} & {name.lower() for name in warm.headers}
        assert forged == set()
        assert warm.headers["x-own"] == "kept"
