"""What functions and clients may send: bounded in memory and time, and not believed."""

import concurrent.futures
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Platform, Serve
from .test_serving import log, wait_for

MIB = 1 << 20


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def test_functions_do_not_name_themselves_or_their_parents(platform: Platform) -> None:
    source = """
import os, urllib.request

def handler(event, context):
    url = os.environ["AWS_ENDPOINT_URL_LAMBDA"] + "/2015-03-31/functions/inner/invocations"
    forged = {"x-uncia-invocation": "forged", "x-uncia-parent": "forged"}
    request = urllib.request.Request(url, b"{}", forged)
    return urllib.request.urlopen(request, timeout=30).status
"""
    platform.create("inner")
    platform.create("outer", source, MemorySize=1769, Tags={"uncia:network": "platform"})
    url = f"http://{platform.address}/2015-03-31/functions/outer/invocations"
    request = urllib.request.Request(url, b"{}", {"x-uncia-invocation": "mine"})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == 200
    rows = {row["function"]: row for row in log(platform)}
    assert (rows["outer"]["invocation"], rows["outer"]["parent"]) == ("mine", None)
    assert rows["inner"]["invocation"] == rows["inner"]["request_id"]
    assert rows["inner"]["parent"] == "mine"


def test_answers_that_no_url_can_give_are_502(platform: Platform) -> None:
    source = """
def handler(event, context):
    count = int(event["queryStringParameters"].get("headers", 0))
    status = int(event["queryStringParameters"].get("status", 200))
    return {"statusCode": status, "headers": {f"x-{n}": "y" for n in range(count)}}
"""
    platform.create("f", source)
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")

    def status(query: str) -> int:
        try:
            with urllib.request.urlopen(f"{url['FunctionUrl']}?{query}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert status("headers=20") == 200
    assert [status("headers=32768"), status("status=101"), status("status=100")] == [502] * 3
    assert status("status=204") == 204


def test_stopping_lets_the_last_answers_out(serve: Serve) -> None:
    platform = serve()
    sleeps = "import time\ndef handler(e, c):\n    time.sleep(3)\n    return 'late'\n"
    platform.create("slow", sleeps)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(platform.invoke, "slow") for _ in range(4)]
        wait_for(lambda: len(log(platform, "instances")) == 4)
        platform.process.send_signal(signal.SIGTERM)
        assert [answer.result()[1] for answer in answers] == ["late"] * 4
    assert platform.stop() == 0


def test_a_second_signal_waits_for_nobody(serve: Serve) -> None:
    platform = serve({"shutdown_grace_ms": 600_000})
    sleeps = "import time\ndef handler(e, c):\n    time.sleep(500)\n"
    platform.create("slow", sleeps, Timeout=600)
    platform.create("quick")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(platform.invoke, "slow")
        wait_for(lambda: len(log(platform, "instances")) == 1)
        platform.process.send_signal(signal.SIGINT)
        # Two at once are one.
        wait_for(lambda: platform.process.poll() is not None or refuses(platform))
        platform.process.send_signal(signal.SIGINT)
        with pytest.raises(ClientError, match="shutting down"):
            answer.result()
    assert platform.stop() == 0


def refuses(platform: Platform) -> bool:
    """Whether the platform takes no new requests."""
    try:
        platform.invoke("quick")
    except ClientError:
        return True
    return False


def test_unfinished_bodies_of_functions_take_little_memory(platform: Platform) -> None:
    # All stop at the same time and only then let go: what one gives back, another would be given.
    source = """
import os, socket, time

def handler(event, context):
    host, port = os.environ["AWS_ENDPOINT_URL_LAMBDA"].removeprefix("http://").split(":")
    head = "POST /2015-03-31/functions/f/invocations HTTP/1.1\\r\\nHost: x\\r\\n"
    head += "Content-Length: 6000000\\r\\n\\r\\n"
    keep = []
    for _ in range(8):
        connection = socket.socket()
        # What the kernel has of it, the worker has not.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, event["buffer"])
        connection.connect((host, int(port)))
        connection.setblocking(False)
        keep.append([connection, head.encode() + b"[" + b" " * 5_900_000, 0])
    while time.time() < event["until"]:
        for pair in keep:
            try:
                count = pair[0].send(pair[1])
                pair[1], pair[2] = pair[1][count:], pair[2] + count
            except OSError:
                pass
        time.sleep(0.001)
    sent = [count for _, _, count in keep]
    time.sleep(1)
    return sent
"""
    platform.create("calm")
    for name in ("f", "g"):
        platform.create(
            name, source, MemorySize=1769, Timeout=60, Tags={"uncia:network": "platform"}
        )
    platform.invoke("calm")
    before = resident_bytes(platform.process.pid)
    event = {"until": time.time() + 5, "buffer": 64 << 10}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        greedy = [pool.submit(platform.invoke, name, event) for name in ("f", "g")]
        most = before
        while not all(future.done() for future in greedy):
            most = max(most, resident_bytes(platform.process.pid))
            assert platform.invoke("calm", {"n": 1})[1] == {"got": {"n": 1}}
            time.sleep(0.05)
    # The 16 bodies are 94 MB.
    assert most - before < 64 * MIB
    sent = [count for future in greedy for count in future.result()[1]]
    # The worker has room for 40 MiB, and the kernel, of each connection, for two of the sender's
    # buffers and two of 128 KiB at the receiver.
    assert sum(sent) <= 40 * MIB + len(sent) * (2 * event["buffer"] + 2 * (128 << 10) + 64 * 1024)


def test_an_endless_body_of_chunks_harms_only_its_function(platform: Platform) -> None:
    source = """
import os, socket, threading

def flood(id):
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
    path = "/2018-06-01/runtime/invocation/%s/response" % id
    connection = socket.create_connection((host, int(port)))
    head = "POST %s HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" % path
    connection.sendall(head.encode())
    while True:
        connection.sendall(b"1\\r\\nx\\r\\n" * 10_000)

def handler(event, context):
    flood(context.aws_request_id if event.get("own") else "other")
"""
    platform.create("calm")
    platform.create("flood", source, Timeout=3, MemorySize=1769)

    def flood(selected: bool) -> Any:
        return platform.invoke("flood", {"own": selected})[1]["errorType"]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        floods = [pool.submit(flood, item) for item in (True, False)]
        while not all(future.done() for future in floods):
            assert platform.invoke("calm", {"n": 1})[1] == {"got": {"n": 1}}
    assert [future.result() for future in floods] == ["Sandbox.Timedout"] * 2


def test_a_slow_client_is_answered_when_its_head_is_too_long(platform: Platform) -> None:
    host, port = platform.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 32_768)
        connection.settimeout(30)
        assert connection.recv(100).startswith(b"HTTP/1.1 431")
