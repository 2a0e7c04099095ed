"""What passes between functions and services is counted by invocation, exactly."""

import socketserver
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_http_server import ask, create
from .test_serving import log
from .workers import Worker

# Asks the service for bytes, of which there are as many in an answer as the line says.
ASK = """
import os, socket
from urllib.parse import urlsplit

address = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"))
link = None

def ask(size, line=b""):
    global link
    link = link or socket.create_connection((address.hostname, address.port), 10)
    link.sendall(line or b"%d\\n" % size)
    got = 0
    while got < size:
        got += len(link.recv(65536))
    return got
"""
HANDLER = f"""{ASK}
if os.environ.get("AT_START"):
    ask(1000)

def handler(event, context):
    return ask(event["bytes"]) if "bytes" in event else None
"""
SERVER = f"""{ASK}
import http.server, threading, time

together = threading.Barrier(2)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/meet":
            together.wait(60)
        elif self.path == "/late":
            time.sleep(60)
        else:
            ask(int(self.path[1:]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


class _Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(bytes(int(line)))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def address() -> Iterator[str]:
    """A service that answers as many bytes as it is asked for."""
    with _Server(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "{}:{}".format(*server.server_address)
        server.shutdown()


def services(address: str) -> dict[str, Any]:
    return {"services": {name: {"address": address} for name in ("store", "documents")}}


def passed(platform: Platform) -> list[Any]:
    """Of each row, what passed: the service, the bytes sent and received."""
    lists = [row["services"] for row in log(platform)]
    return [it and [tuple(service.values()) for service in it] for it in lists]


def test_each_invocation_has_what_passed_while_it_ran(serve: Serve, address: str) -> None:
    platform = serve(services(address))
    tags = {"uncia:reach": "documents store"}
    variables = {"Variables": {"AT_START": "yes"}}
    platform.create("f", HANDLER, Tags=tags, Environment=variables)
    # Who asks for nothing waits for nothing, and may have answered before the question has passed.
    sizes = [1, 7, 3_000_000]
    for size in sizes:
        assert platform.invoke("f", {"bytes": size})[1] == size
    platform.invoke("f")
    # Not what it fetched when it started, and nothing of what it did not use.
    documents = ("documents", 0, 0)
    asked = [[documents, ("store", len(f"{size}\n"), size)] for size in sizes]
    assert passed(platform) == [*asked, [documents, ("store", 0, 0)]]


def test_others_say_nothing_of_services(serve: Serve, address: str) -> None:
    platform = serve(services(address))
    platform.create("f", HANDLER)
    platform.invoke("f")
    platform.create("broken", "raise OSError", Tags={"uncia:reach": "store"})
    platform.invoke("broken")
    assert passed(platform) == [None, None]


def test_what_several_requests_had_together_is_no_single_ones(serve: Serve, address: str) -> None:
    platform = serve(services(address))
    url = create(platform, SERVER, Tags={"uncia:reach": "store", "uncia:concurrency": "2"})
    ask(platform, f"{url}/500")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: ask(platform, f"{url}/meet"), range(2)))
    ask(platform, f"{url}/30")
    assert [row["shared"] for row in log(platform)] == [False, True, True, False]
    assert passed(platform) == [[("store", 4, 500)], None, None, [("store", 3, 30)]]


def test_a_server_that_was_left_at_work_counts_for_nobody(serve: Serve, address: str) -> None:
    platform = serve(services(address))
    url = create(platform, SERVER, Tags={"uncia:reach": "store"}, Timeout=1)
    ask(platform, f"{url}/500")
    ask(platform, f"{url}/late")
    ask(platform, f"{url}/30")
    outcomes = [row["outcome"] for row in log(platform)]
    assert [outcomes[0], outcomes[2]] == ["ok", "ok"]
    assert outcomes[1] != "ok"
    assert len({row["instance"] for row in log(platform)}) == 1
    assert passed(platform) == [[("store", 4, 500)], [("store", 0, 0)], None]


def test_workers_that_joined_count_too(
    serve: Serve, address: str, engine_binary: Path, tmp_path: Path, runtimes: Path
) -> None:
    controller = serve(services(address), options=["--controller"])
    state = tmp_path / "worker"
    state.mkdir()
    (state / "lock").touch()
    subprocess.run(["cp", "-al", runtimes, state], check=True)
    worker = Worker(engine_binary, controller.url, state, "a", services(address))
    try:
        assert worker.ready["name"] == "a"
        controller.create("f", HANDLER, Tags={"uncia:reach": "store"})
        assert controller.invoke("f", {"bytes": 80_000})[1] == 80_000
        assert passed(controller) == [[("store", len("80000\n"), 80_000)]]
    finally:
        worker.stop()
