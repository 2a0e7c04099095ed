"""Several workers behind one controller: real processes, joined, drained and killed."""

import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import Join, Platform, Serve, cgroups, instances, package
from .test_serving import log, wait_for
from .workers import workers

SLEEP = """
import time

def handler(event, context):
    time.sleep(event.get("seconds", 0))
    return {"n": event.get("n")}
"""
SERVER = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-path", self.path)
        self.end_headers()
        self.wfile.write(body[::-1])

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def uncia(controller: Platform, *command: str) -> dict[str, Any]:
    """What a command says of the controller, as JSON."""
    words = [sys.executable, "-m", "uncia", *command, "--json", "--endpoint", controller.address]
    process = subprocess.run(words, check=True, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def test_requests_are_spread_over_the_workers_that_joined(controller: Platform, join: Join) -> None:
    controller.create("f", SLEEP)
    with pytest.raises(ClientError) as refused:
        controller.invoke("f")
    assert "There is no worker" in str(refused.value)
    for name in ("a", "b"):
        assert join(controller, name).ready["name"] == name
    assert workers(controller) == {"a": "joined", "b": "joined"}
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda n: controller.invoke("f", {"n": n, "seconds": 1})[1], range(8))
        assert list(answers) == [{"n": n} for n in range(8)]
    table = log(controller)
    assert {row["worker"] for row in table if row["outcome"] == "ok"} == {"a", "b"}
    for row in table:
        if row["outcome"] == "ok":
            assert row["cpu_user"] is not None
            assert row["memory_peak"] is not None
            assert 1e9 <= row["execution"] < 1e9 + scaled(5e9)
            assert row["started"] - row["ended"] == -row["execution"]
    # People are told where, too.
    assert {row["worker"] for row in uncia(controller, "ps")["living"]} <= {"a", "b"}
    listed = uncia(controller, "logs", "--last", "1")
    assert (listed["request_id"], listed["worker"]) == (
        table[-1]["request_id"],
        table[-1]["worker"],
    )
    spans = log(controller, "spans")
    assert "package" in {span["name"] for span in spans}
    again, _ = controller.invoke("f", {"n": 9})
    assert again["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"] in ("warm", "thawed")


def test_chains_layers_and_servers_run_on_workers(controller: Platform, join: Join) -> None:
    join(controller, "a")
    controller.create("f", SLEEP)
    layer = controller.client.publish_layer_version(
        LayerName="l", Content={"ZipFile": package({"python/layered.py": "WORD = 'from a layer'"})}
    )
    controller.create(
        "g",
        "import layered\ndef handler(event, context): return layered.WORD",
        Layers=[layer["LayerVersionArn"]],
    )
    assert controller.invoke("g")[1] == "from a layer"
    source = (
        "import os, urllib.request\n"
        "def handler(event, context):\n"
        "    base = os.environ['AWS_ENDPOINT_URL_LAMBDA']\n"
        "    url = base + '/2015-03-31/functions/f/invocations'\n"
        "    request = urllib.request.Request(url, b'{\"n\": 7}', method='POST')\n"
        "    return urllib.request.urlopen(request).read().decode()\n"
    )
    controller.create("calls", source, Tags={"uncia:network": "platform"})
    answer, payload = controller.invoke("calls")
    assert "FunctionError" not in answer
    assert json.loads(payload) == {"n": 7}
    table = {row["function"]: row for row in log(controller)}
    assert table["f"]["parent"] == table["calls"]["invocation"]

    controller.create(
        "server",
        {"server.py": SERVER},
        Handler="server.py",
        Tags={"uncia:architecture": "http"},
    )
    url = controller.client.create_function_url_config(FunctionName="server", AuthType="NONE")
    path = url["FunctionUrl"].removeprefix(controller.url)
    body = b"0123456789" * 200_000
    connection = http.client.HTTPConnection(controller.address, timeout=scaled(60))
    connection.request("POST", path + "x?y=1", body)
    response = connection.getresponse()
    assert (response.status, response.headers["x-path"]) == (201, "/x?y=1")
    assert response.read() == body[::-1]


# Takes no connections any more once a GET came, and runs on. A connection is for one request.
DEAF = """
import http.server, os, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.shutdown()
        self.server.socket.close()
        self.answer(b"deaf")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
threading.Event().wait()
"""


def test_a_body_that_went_to_an_instance_that_ended_is_not_taken_for_an_empty_one(
    controller: Platform, join: Join
) -> None:
    join(controller, "a")
    controller.create(
        "f", {"server.py": DEAF}, Handler="server.py", Tags={"uncia:architecture": "http"}
    )
    url = controller.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    path = url["FunctionUrl"].removeprefix(controller.url)

    def ask(method: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(controller.address, timeout=scaled(60))
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()

    body = b"0123456789" * 20_000
    assert ask("POST", body) == (200, body)
    assert ask("GET") == (200, b"deaf")
    # A small body is kept, and goes to another instance.
    assert ask("POST", b"small") == (200, b"small")
    assert ask("GET") == (200, b"deaf")
    status, text = ask("POST", body)
    assert status == 502, text[:100]
    assert b"the request's body went to an instance that ended" in text
    row = log(controller)[-1]
    assert (row["outcome"], row["worker"]) == ("function_error", "a")
    assert "the request's body went to an instance that ended" in row["error"]
    # The instance that could not be sent it is none the worse.
    assert ask("POST", body) == (200, body)
    assert {row["end_reason"] for row in log(controller, "instances")} == {"exit", None}


def is_frozen(state: Path) -> bool:
    """Whether one of the instances is, in whichever hierarchy the kernel freezes."""
    groups = cgroups(state)
    return any(
        "FROZEN" in it.read_text() for g in groups for it in g.rglob("freezer.state")
    ) or any("frozen 1" in it.read_text() for g in groups for it in g.rglob("cgroup.events"))


# Shares its code from its first event on, and takes two seconds for that.
SHARES = """
const { Script } = require("vm");
module.exports.handler = async () => {
  Script.prototype.createCachedData = () => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
    return Buffer.alloc(0);
  };
  return 1;
};
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_a_pause_that_an_instance_on_a_worker_refuses_comes_once_it_can(
    controller: Platform, join: Join
) -> None:
    a = join(controller, "a")
    controller.create(
        "f",
        Code={"ZipFile": package({"index.js": SHARES})},
        Runtime="nodejs20.x",
        Handler="index.handler",
        MemorySize=512,
        Tags={"uncia:share-state": "code", "uncia:share-after": "1"},
    )
    assert controller.invoke("f")[1] == 1

    wait_for(lambda: is_frozen(a.state))
    answer, payload = controller.invoke("f")
    assert (payload, answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"]) == (1, "thawed")


def test_a_worker_that_is_killed_ends_its_requests_and_no_others(
    controller: Platform, join: Join
) -> None:
    a, _b = join(controller, "a"), join(controller, "b")
    controller.create("f", SLEEP)
    results: list[tuple[int, str]] = []

    def ask(n: int) -> None:
        try:
            _, payload = controller.invoke("f", {"n": n, "seconds": 3})
            results.append((n, "ok" if payload == {"n": n} else str(payload)))
        except ClientError as error:
            results.append((n, error.response["Error"]["Code"]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(instances(a.state, made_ahead=False)) >= 3)
    time.sleep(scaled(1))
    a.stop(signal.SIGKILL)
    wait_for(lambda: workers(controller) == {"b": "joined"})
    for thread in threads:
        thread.join(scaled(60))
    assert sorted(n for n, _ in results) == list(range(8)), "each has one answer"
    table = log(controller)
    lost = [row for row in table if row["outcome"] == "transport_error"]
    assert {row["worker"] for row in lost} == {"a"}
    assert all("the worker a" in row["error"] for row in lost)
    assert all((row["execution"], row["billed"]) == (None, 0) for row in lost)
    assert len(lost) == sum(result == "ServiceException" for _, result in results) >= 1
    assert sum(row["outcome"] == "ok" for row in table) == sum(it == "ok" for _, it in results)
    assert len({row["invocation"] for row in table}) == len(table) == 8
    ended = {row["instance"]: row["end_reason"] for row in log(controller, "instances")}
    assert all(ended[row["instance"]] == "worker_gone" for row in lost)
    # The other goes on, and the dead one's name is free.
    assert controller.invoke("f", {"n": 9})[1] == {"n": 9}
    join(controller, "a")
    assert workers(controller) == {"a": "joined", "b": "joined"}


def test_a_worker_that_leaves_ends_what_it_serves_first(controller: Platform, join: Join) -> None:
    a = join(controller, "a")
    controller.create("f", SLEEP)
    controller.invoke("f", {})
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(controller.invoke, "f", {"n": 1, "seconds": 4})
        wait_for(lambda: len(instances(a.state, made_ahead=False)) >= 1)
        time.sleep(scaled(1))
        left = pool.submit(a.stop)
        wait_for(lambda: workers(controller).get("a") == "draining")
        join(controller, "b")
        assert controller.invoke("f", {"n": 2})[1] == {"n": 2}
        assert running.result()[1] == {"n": 1}
        assert left.result() == 0
    wait_for(lambda: workers(controller) == {"b": "joined"})
    by_worker = {(row["worker"], row["outcome"]) for row in log(controller)}
    assert by_worker == {("a", "ok"), ("b", "ok")}
    reasons = {row["end_reason"] for row in log(controller, "instances") if row["worker"] == "a"}
    assert reasons == {"drained"}


def test_accepted_events_outlive_the_last_worker(controller: Platform, join: Join) -> None:
    a = join(controller, "a")
    controller.create("f", SLEEP, MemorySize=512)
    for n in range(4):
        answer, _ = controller.invoke("f", {"n": n, "seconds": 2}, InvocationType="Event")
        assert answer["StatusCode"] == 202
    wait_for(lambda: instances(a.state, made_ahead=False))
    a.stop()
    join(controller, "b")
    wait_for(lambda: sum(row["outcome"] == "ok" for row in log(controller)) == 4)
    done = [row["request_id"] for row in log(controller) if row["outcome"] == "ok"]
    assert len(set(done)) == 4


def test_events_that_no_worker_can_hold_wait_for_a_larger_one(
    controller: Platform, join: Join
) -> None:
    controller.create("large", SLEEP, MemorySize=1024)
    controller.create("small", SLEEP, MemorySize=128)
    # Without a worker nobody knows: one may join.
    early, _ = controller.invoke("large", {"n": 1}, InvocationType="Event")
    assert early["StatusCode"] == 202
    join(controller, "a", capacity_memory_bytes=512 << 20, capacity_cpu_micro=2_000_000)
    # So soon after the controller's start a larger one may be on its way.
    soon, _ = controller.invoke("large", {"n": 2}, InvocationType="Event")
    assert soon["StatusCode"] == 202
    # Whoever waits for an answer has it at once.
    with pytest.raises(ClientError) as refused:
        controller.invoke("large", {"n": 0})
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValueException"
    assert "larger than the platform's capacity" in str(refused.value)
    controller.invoke("small", {"n": 3}, InvocationType="Event")
    wait_for(lambda: "ok" in [row["outcome"] for row in log(controller)])
    # What was accepted waits on, until there is room.
    join(controller, "b")
    wait_for(lambda: [row["outcome"] for row in log(controller)].count("ok") == 3)
    rows = [(row["function"], row["worker"]) for row in log(controller) if row["outcome"] == "ok"]
    assert rows == [("small", rows[0][1]), ("large", "b"), ("large", "b")]


def test_functions_with_the_hosts_network_reach_no_controller(
    controller: Platform, join: Join
) -> None:
    join(controller, "a")
    source = (
        "import urllib.error, urllib.request\n"
        "def handler(event, context):\n"
        "    try:\n"
        "        return urllib.request.urlopen(event['url']).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
    )
    controller.create("f", source, Tags={"uncia:network": "host"})
    for path in ("/2015-03-31/functions", "/uncia/v1/workers", "/uncia/v1/workers/join"):
        assert controller.invoke("f", {"url": controller.url + path})[1] == 403


def test_a_controller_stops_though_functions_run_on(serve: Serve, join: Join) -> None:
    controller = serve({"shutdown_grace_ms": 500}, options=["--controller"])
    a = join(controller, "a")
    controller.create("f", SLEEP)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(controller.invoke, "f", {"seconds": scaled(45)})
        wait_for(lambda: instances(a.state, made_ahead=False))
        time.sleep(scaled(1))
        began = time.monotonic()
        assert controller.stop() == 0
        assert time.monotonic() - began < scaled(30)
        with pytest.raises(Exception, match=r"."):
            running.result()


def test_workers_join_again_when_their_controller_is_back(serve: Serve, join: Join) -> None:
    controller = serve(options=["--controller"])
    a = join(controller, "a")
    controller.create("f", SLEEP)
    controller.invoke("f", {})
    assert instances(a.state, made_ahead=False)
    controller.stop(signal.SIGKILL)
    # Nobody needs what it asked for.
    wait_for(lambda: not instances(a.state, made_ahead=False))
    again = serve(options=["--controller", "--listen", controller.address])
    wait_for(lambda: workers(again) == {"a": "joined"})
    assert a.process.stdout is not None
    assert json.loads(a.process.stdout.readline()) == a.ready
    assert again.invoke("f", {"n": 3})[1] == {"n": 3}


def test_what_cannot_join_is_told_why(
    controller: Platform, join: Join, serve: Serve, engine_binary: Path, tmp_path: Path
) -> None:
    join(controller, "a")
    alone = serve(state="alone")
    for url, name, code, message in [
        (controller.url, "a", 1, "A worker named a has joined already"),
        (controller.url, "c d/é", 2, "letters, digits and _.-, not"),
        (alone.url, "c", 1, "This platform is no controller"),
        ("http://127.0.0.1:9", "c", 1, "cannot be reached"),
        ("http://192.0.2.1:9001", "c", 2, "https://"),
        ("nowhere", "c", 2, "must be http://HOST:PORT"),
    ]:
        command = [engine_binary, "serve", "--join", url, "--name", name, "--messages", "text"]
        refused = subprocess.run(
            [*command, "--state", tmp_path / "other"], capture_output=True, text=True
        )
        assert refused.returncode == code, refused.stderr
        assert message in refused.stderr
    version = json.load(urllib.request.urlopen(f"{controller.url}/uncia/v1/health"))["version"]
    for about, message in [
        ({"name": "x", "version": "0.0.0"}, "is of version 0.0.0"),
        ({"name": "a b", "version": version}, "letters, digits and _.-, not"),
    ]:
        text = json.dumps({**about, "cpu": 1, "memory": 1, "max_instances": 1})
        request = urllib.request.Request(
            f"{controller.url}/uncia/v1/workers/join", headers={"x-uncia-worker": text}
        )
        with pytest.raises(urllib.error.HTTPError) as stranger:
            urllib.request.urlopen(request)
        assert message in stranger.value.read().decode()
    assert instances(tmp_path / "other") == []


def test_each_request_has_one_answer_and_one_row_whatever_becomes_of_workers(
    controller: Platform, join: Join
) -> None:
    # Instances end in the moments in which the next requests come.
    controller.create("f", SLEEP, Tags={"uncia:keep-alive-ms": "1"})
    answers: dict[str, str] = {}
    unnamed: list[int] = []

    def ask(n: int) -> None:
        try:
            answer, payload = controller.invoke("f", {"n": n, "seconds": n % 3 * 0.02})
            outcome = "ok" if payload == {"n": n} else "function_error"
        except ClientError as error:
            answer, outcome = error.response, "transport_error"
        request = answer["ResponseMetadata"].get("RequestId")
        if request is None:
            # Of an error alone may nobody know which request it was.
            assert outcome == "transport_error"
            unnamed.append(n)
            return
        assert request not in answers
        answers[request] = outcome

    sent = 0
    for turn in range(5):
        # Each takes the folder over that the one before left as it was killed.
        worker = join(controller, "a")
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask, sent + n) for n in range(30)]
            sent += len(asked)
            if turn % 2 == 0:
                wait_for(lambda least=sent - 20: len(answers) + len(unnamed) > least)
                worker.stop(signal.SIGKILL)
            for it in asked:
                it.result()
        worker.stop(signal.SIGKILL)
        wait_for(lambda: workers(controller) == {})
    assert len(answers) + len(unnamed) == sent
    rows = {row["request_id"]: row["outcome"] for row in log(controller)}
    assert len(rows) == len(log(controller)), "no request has two rows"
    for request, outcome in answers.items():
        # Without a worker there is none to ask, and no row.
        assert rows.get(request, "transport_error") == outcome
    others = [outcome for request, outcome in rows.items() if request not in answers]
    assert len(others) <= len(unnamed)
    assert "ok" not in others
    assert list(rows.values()).count("ok") >= 60
    lost = [row for row in log(controller) if row["outcome"] != "ok"]
    # In it, or on the way to an instance that was being made.
    assert {row["error"] for row in lost if "the worker a" not in row["error"]} == set()
    ended = [row["end_reason"] for row in log(controller, "instances")]
    assert None not in ended
