"""Whoever takes all the connections or descriptors that there are, takes them from nobody else."""

import concurrent.futures
import contextlib
import io
import json
import resource
import signal
import socket
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import Serve, instances, names_below, package
from .test_serving import wait_for

IDLE = 1000
FUNCTIONS = "/2015-03-31/functions"


def call(address: str, name: str) -> object:
    """Invokes over a connection of its own."""
    url = f"http://{address}{FUNCTIONS}/{name}/invocations"
    with urllib.request.urlopen(url, b'{"n": 1}', timeout=scaled(50)) as answer:
        return json.load(answer)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * IDLE
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"takes {wanted} open files, of which the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(address: str, idle: int = IDLE) -> Iterator[list[socket.socket]]:
    """Clients that keep a connection each: idle, or in the middle of a head or a body."""
    host, port = address.split(":")
    invoke = f"POST {FUNCTIONS}/calm/invocations HTTP/1.1\r\nHost: localhost\r\n".encode()
    beginnings = [b""] * idle
    beginnings += [invoke + b"X-A: "] * (idle // 20)
    beginnings += [invoke + b"Content-Length: 6000000\r\n\r\n" + b" " * 1000] * (idle // 20)
    beginnings += [invoke + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"] * (idle // 20)
    with contextlib.ExitStack() as stack:
        clients = []
        for beginning in beginnings:
            client = stack.enter_context(
                socket.create_connection((host, int(port)), timeout=scaled(50))
            )
            client.sendall(beginning)
            clients.append(client)
        yield clients


def test_a_crowd_of_slow_clients_keeps_nobody_out_of_a_restarted_worker_either(
    serve: Serve, many_files: None
) -> None:
    first = serve()
    first.create("calm")
    first.create("busy", "import time\ndef handler(e, c):\n    time.sleep(50)\n")
    with crowd(first.address):
        assert [call(first.address, "calm") for _ in range(5)] == [{"got": {"n": 1}}] * 5
        first.invoke("busy", InvocationType="Event")
        wait_for(lambda: len(instances(first.state, made_ahead=False)) == 2)
        left = set(instances(first.state))
        first.stop(signal.SIGKILL)
        # The old connections' clients are still there.
        second = serve()
        assert left.isdisjoint(instances(second.state))
        with crowd(second.address) as clients:
            assert [call(second.address, "calm") for _ in range(5)] == [{"got": {"n": 1}}] * 5
            # A client that was only slow is served.
            host = b"GET /uncia/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            for byte in host:
                clients[0].sendall(bytes([byte]))
            assert clients[0].recv(12) == b"HTTP/1.1 200"
    second.client.delete_function(FunctionName="busy")


# Connects as often as it has descriptors, and says how many of the connections were closed.
CONNECTS = """
import select, socket, time

def handler(event, context):
    host, port = event["address"].split(":")
    keep, closed = [], 0
    for _ in range(event["count"]):
        try:
            keep.append(socket.create_connection((host, int(port)), timeout=5))
        except OSError:
            closed += 1
    end = time.monotonic() + 20
    poll = select.poll()
    for connection in keep:
        poll.register(connection, select.POLLIN)
    while closed < event["count"] - 24 and time.monotonic() < end:
        for number, _ in poll.poll(100):
            poll.unregister(number)
            closed += 1
    return closed
"""


def test_a_function_on_the_hosts_network_keeps_few_connections(serve: Serve) -> None:
    platform = serve()
    platform.create("calm")
    # Its requests take their time, but are served: those of its URL, which it may call.
    url = platform.client.create_function_url_config(FunctionName="calm", AuthType="NONE")
    asks = "import urllib.request\ndef handler(event, context):\n"
    asks += "    return [urllib.request.urlopen(event).status for _ in range(3)]\n"
    host = {"Tags": {"uncia:network": "host"}}
    platform.create("asks", asks, **host)
    platform.create("greedy", CONNECTS, **host)
    event = {"address": platform.address, "count": 900}
    assert platform.invoke("greedy", event)[1] >= 900 - 24
    assert platform.invoke("asks", url["FunctionUrl"])[1] == [200] * 3
    # Nor can it use up what another function's Runtime API has, which is on the same network.
    says = "import os, time\ndef handler(event, context):\n    time.sleep(event)\n"
    says += "    return os.environ['AWS_LAMBDA_RUNTIME_API']\n"
    platform.create("victim", says, **host)
    event["address"] = platform.invoke("victim", 0.01)[1]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(platform.invoke, "victim", 1)
        for _ in range(3):
            assert platform.invoke("greedy", event)[1] >= 900 - 24
        assert waits.result()[1] == event["address"]


def with_few_descriptors(engine: Path, folder: Path) -> Path:
    path = folder / "engine"
    path.write_text(f'#!/bin/sh\nulimit -n 220\nexec {engine} "$@"\n')
    path.chmod(0o755)
    return path


def test_clients_leave_descriptors_for_instances(
    serve: Serve, engine_binary: Path, tmp_path: Path
) -> None:
    platform = serve({"pause_after_ms": 0}, binary=with_few_descriptors(engine_binary, tmp_path))
    platform.create("calm")
    platform.create("other")
    assert platform.invoke("calm")[1] == {"got": {}}
    # Clients cannot take all descriptors: over a connection that is there already, what is frozen
    # is thawed, and what does not run is started.
    with crowd(platform.address, 140):
        for name in ("calm", "calm", "other"):
            assert platform.invoke(name)[1] == {"got": {}}
    assert call(platform.address, "other") == {"got": {"n": 1}}
    assert platform.stop() == 0


def test_instances_that_take_all_descriptors_do_not_end_the_platform(
    serve: Serve, engine_binary: Path, tmp_path: Path
) -> None:
    platform = serve({"pause_after_ms": 0}, binary=with_few_descriptors(engine_binary, tmp_path))
    platform.create("calm")
    slow = "import time\ndef handler(event, context):\n    time.sleep(2)\n    return 'slow'\n"
    platform.create("slow", slow, MemorySize=1769)
    assert platform.invoke("calm")[1] == {"got": {}}

    def attempt(_: int) -> str:
        try:
            return str(platform.invoke("slow")[1])
        except ClientError as error:
            return str(error.response["Error"]["Message"])

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(attempt, range(30)))
    assert any("open files" in answer for answer in answers), answers
    assert call(platform.address, "calm") == {"got": {"n": 1}}
    assert attempt(0) == "slow"
    assert platform.stop() == 0


VERSIONED = """
import os, time
import part

def handler(event, context):
    wrong = []
    for place in ("/var/task/handler.py", "/var/task/link", "/var/task/part.py"):
        for attempt in (
            lambda: os.symlink("/etc/passwd", place), lambda: os.unlink(place),
            lambda: os.rename("/tmp/link", place), lambda: open(place, "a"),
        ):
            if not os.path.lexists("/tmp/link"):
                os.symlink("/etc/passwd", "/tmp/link")
            try:
                attempt()
                wrong.append(place)
            except OSError:
                pass
    time.sleep(0.01)
    with open("/var/task/part.py") as file:
        text = file.read()
    return [VERSION, part.VERSION, "VERSION = %d\\n" % VERSION == text, wrong]
"""


def test_a_package_that_unpacks_to_more_than_it_may_is_refused_and_leaves_nothing(
    serve: Serve,
) -> None:
    platform = serve()
    platform.create("f")
    before = names_below(platform.state / "code")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"{number}.py", bytes(100 << 20))
    assert bomb.tell() < 1 << 20
    attempts = (
        lambda: platform.create("bomb", Code={"ZipFile": bomb.getvalue()}),
        lambda: platform.client.update_function_code(FunctionName="f", ZipFile=bomb.getvalue()),
    )
    for attempt in attempts:
        with pytest.raises(ClientError, match="Unzipped size must be smaller") as refusal:
            attempt()
        assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert list((platform.state / "staging").iterdir()) == []
        assert names_below(platform.state / "code") == before
    assert call(platform.address, "f") == {"got": {"n": 1}}
    names = [it["FunctionName"] for it in platform.client.list_functions()["Functions"]]
    assert names == ["f"]


def test_an_update_while_functions_run_shows_each_of_them_one_package(serve: Serve) -> None:
    platform = serve()

    def files(version: int) -> dict[str, str]:
        line = f"VERSION = {version}\n"
        return {"handler.py": line + VERSIONED, "part.py": line}

    platform.create("f", files(0))
    over = False

    def invoke() -> set[int]:
        seen = set()
        while not over:
            selected, imported, read, wrong = platform.invoke("f")[1]
            assert (selected, read, wrong) == (imported, True, []), (
                selected,
                imported,
                read,
                wrong,
            )
            seen.add(selected)
        return seen

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(invoke) for _ in range(3)]
        try:
            for version in range(1, 13):
                # The third is the first again, whose package is on its way out.
                zipped = package(files(version % 3))
                platform.client.update_function_code(FunctionName="f", ZipFile=zipped)
                assert platform.invoke("f")[1][0] == version % 3
        finally:
            over = True
        assert set.union(*(caller.result() for caller in callers)) <= {0, 1, 2}
    assert list((platform.state / "staging").iterdir()) == []
