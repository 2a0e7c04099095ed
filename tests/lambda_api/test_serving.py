"""Instances: their reuse and end, what is measured, what functions can do to the platform."""

import base64
import concurrent.futures
import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import OK, Platform, Serve, cgroups, instances, package


def log(platform: Platform, table: str = "invocations") -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/{table}") as answer:
        rows: list[dict[str, Any]] = pa.ipc.open_stream(answer.read()).read_all().to_pylist()
    return rows


def wait_for(condition: Any, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + scaled(timeout_s)
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def test_cold_warm_thawed_and_gone(serve: Serve) -> None:
    # Each far longer than a request takes on a busy machine.
    platform = serve({"pause_after_ms": 1_000, "keep_alive_ms": 5_000})
    platform.create("f", MemorySize=1769)
    cold = platform.headers("f")
    assert cold["x-uncia-start"] == "cold"
    assert int(cold["x-uncia-initialization-ns"]) > 0
    warm = platform.headers("f")
    assert (warm["x-uncia-start"], warm["x-uncia-instance"]) == ("warm", cold["x-uncia-instance"])
    assert "x-uncia-initialization-ns" not in warm

    def health() -> Any:
        with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
            return json.load(answer)["instances"]

    wait_for(lambda: health()["frozen"] == 1)
    thawed = platform.headers("f")
    assert thawed["x-uncia-start"] == "thawed"
    assert thawed["x-uncia-instance"] == cold["x-uncia-instance"]
    wait_for(lambda: health()["idle"] == 0)
    assert platform.headers("f")["x-uncia-instance"] != cold["x-uncia-instance"]
    first = log(platform, "instances")[0]
    assert (first["end_reason"], first["invocations"]) == ("keep_alive", 3)
    assert len(first["idle"]) == 4
    assert all(idle["start"] <= idle["end"] for idle in first["idle"])


def test_the_log_agrees_with_the_answers(platform: Platform) -> None:
    spin = "def handler(event, context):\n    sum(range(3_000_000))\n    return 1\n"
    platform.create("f", spin, MemorySize=1769)
    answers = [platform.headers("f") for _ in range(3)]
    rows = log(platform)
    assert [row["request_id"] for row in rows] == [it["x-amzn-requestid"] for it in answers]
    for row, headers in zip(rows, answers, strict=True):
        assert row["execution"] == int(headers["x-uncia-execution-ns"])
        assert row["execution"] == row["ended"] - row["started"]
        assert row["cpu_user"] + row["cpu_system"] <= row["execution"] + 20_000_000
        assert row["cpu_user"] > 1_000_000, "it computed for tens of milliseconds"
        assert 0 < row["memory_avg"] <= row["memory_peak"] <= 1769 * 2**20
        billable = row["execution"] + (row["initialization"] or 0)
        assert row["billed"] % 1_000_000 == 0
        assert 0 <= row["billed"] - billable < 1_000_000
        assert (row["allocated_cpu"], row["allocated_memory"]) == (1_000_000, 1769 * 2**20)
    spans = {span["name"] for span in log(platform, "spans")}
    assert {"spawn", "runtime", "handler"} <= spans


def test_the_client_names_its_invocations(platform: Platform) -> None:
    platform.create("f")
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    request = urllib.request.Request(url["FunctionUrl"], headers={"x-uncia-invocation": "my-1"})
    with urllib.request.urlopen(request):
        pass
    assert [row["invocation"] for row in log(platform)] == ["my-1"]


def test_one_request_per_instance_and_429_beyond_the_limit(serve: Serve) -> None:
    platform = serve({"max_instances": 3})
    platform.create("slow", "import time\ndef handler(e, c):\n    time.sleep(4)\n", MemorySize=512)

    def call(_: int) -> str:
        try:
            return str(platform.headers("slow")["x-uncia-instance"])
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return f"{status} {error.response['Error']['Code']}"

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        result = list(pool.map(call, range(5)))
    assert result.count("429 TooManyRequestsException") == 2
    assert len(set(result)) == 4, "three instances and the error"
    outcomes = sorted(row["outcome"] for row in log(platform))
    assert outcomes == ["ok", "ok", "ok", "throttled", "throttled"]


def test_events_are_run_and_tried_again(serve: Serve) -> None:
    platform = serve({"event_retry_ms": 50})
    source = """
def handler(event, context):
    if event.get("fail"):
        raise RuntimeError("no")
"""
    platform.create("f", source)
    for event in ({}, {"fail": True}):
        answer, _ = platform.invoke("f", event, InvocationType="Event")
        assert answer["StatusCode"] == 202
    wait_for(lambda: len(log(platform)) == 4)
    rows = log(platform)
    failed = [row["attempt"] for row in rows if row["outcome"] == "function_error"]
    assert failed == [1, 2, 3]
    assert [row["outcome"] for row in rows].count("ok") == 1


def test_a_chain_reaches_invoke_and_nothing_else(platform: Platform) -> None:
    source = """
import json, os, urllib.error, urllib.request

def call(path, data=None):
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL_LAMBDA"] + path, data)
    try:
        with urllib.request.urlopen(request, timeout=50) as answer:
            return [answer.status, json.load(answer)]
    except urllib.error.HTTPError as error:
        return [error.code, None]

def handler(event, context):
    return [call("/2015-03-31/functions/inner/invocations", b'{"n": 1}'),
            call("/2015-03-31/functions"), call("/uncia/v1/health")]
"""
    platform.create("inner")
    platform.create(
        "outer", source, MemorySize=1769, Timeout=60, Tags={"uncia:network": "platform"}
    )
    _, answer = platform.invoke("outer")
    assert answer == [[200, {"got": {"n": 1}}], [403, None], [403, None]]


def test_an_update_reaches_the_next_request(platform: Platform) -> None:
    platform.create("f", "def handler(e, c):\n    return 1\n")
    assert platform.invoke("f")[1] == 1
    code = package("def handler(e, c):\n    return 2\n")
    platform.client.update_function_code(FunctionName="f", ZipFile=code)
    assert platform.invoke("f")[1] == 2

    def reasons() -> list[str | None]:
        return sorted((row["end_reason"] for row in log(platform, "instances")), key=str)

    # The old one ends beside the next request.
    wait_for(lambda: reasons() == [None, "update"])


def test_node(platform: Platform) -> None:
    version = platform.state / "runtimes"
    if not any("node" in folder.name for folder in version.iterdir()):
        pytest.skip("no Node.js on this machine")
    source = {"index.js": "exports.handler = async (event) => ({ doubled: event.n * 2 });\n"}
    platform.create("f", source, Runtime="nodejs20.x", Handler="index.handler", MemorySize=512)
    assert platform.invoke("f", {"n": 21})[1] == {"doubled": 42}


HOSTILE: dict[str, tuple[str, str, str]] = {
    "raises": ("raise ValueError('no')", "function_error", "ValueError"),
    "exits": ("import os; os._exit(3)", "function_error", "Runtime.ExitError"),
    "leaves": ("import sys; sys.exit(4)", "function_error", "Runtime.ExitError"),
    "kills itself": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "function_error",
        "Runtime.ExitError",
    ),
    "kills the first process": (
        "import os, signal\n    os.kill(1, signal.SIGKILL); return 'still here'",
        "function_error",
        "PermissionError",
    ),
    "never returns": ("\n    while True: pass", "timeout", "Sandbox.Timedout"),
    "forks without end": (
        "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
        "timeout",
        "Sandbox.Timedout",
    ),
    "fills memory": (
        "x = []\n    while True: x.append(bytearray(10_000_000))",
        "function_error",
        "Runtime.OutOfMemory",
    ),
    "answers too much": (
        "return 'x' * 7_000_000",
        "function_error",
        "Function.ResponseSizeTooLarge",
    ),
    "answers no JSON": ("return {1, 2}", "function_error", "Runtime.MarshalError"),
    "closes everything": (
        "import os; os.closerange(0, 4096); return 1",
        "function_error",
        "Runtime.ExitError",
    ),
}


@pytest.fixture(scope="module")
def lasting(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    platform = Platform(engine_binary, tmp_path_factory.mktemp("platform") / "state")
    platform.create("good", MemorySize=1769)
    yield platform
    assert platform.stop() == 0
    assert (instances(platform.state), cgroups(platform.state)) == ([], [])


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_handlers_harm_only_themselves(lasting: Platform, what: str) -> None:
    body, outcome, kind = HOSTILE[what]
    name = what.replace(" ", "-")
    limit = 2 if outcome == "timeout" else 30
    lasting.create(name, f"def handler(event, context):\n    {body}\n", Timeout=limit)
    answer, payload = lasting.invoke(name)
    assert answer["StatusCode"] == 200
    assert answer["FunctionError"] == "Unhandled"
    assert payload["errorType"] == kind, payload
    assert answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-outcome"] == outcome
    assert lasting.invoke("good", {"n": 1})[1] == {"got": {"n": 1}}
    rows = [row for row in log(lasting) if row["function"] == name]
    assert [row["outcome"] for row in rows] == [outcome]
    assert rows[0]["error"]


def test_a_talkative_handler_is_heard_to_its_end(lasting: Platform) -> None:
    lasting.create(
        "prints", "def handler(e, c):\n    print('x' * 20_000_000)\n    print('the end')\n"
    )
    answer, _ = lasting.invoke("prints", LogType="Tail")
    assert "FunctionError" not in answer
    tail = base64.b64decode(answer["LogResult"])
    assert len(tail) <= 4096
    assert b"the end" in tail


def test_tmp_is_private_and_bounded(lasting: Platform) -> None:
    source = """
import os
def handler(event, context):
    if event.get("fill"):
        with open("/tmp/fill", "wb") as file:
            while True:
                file.write(b"x" * 1_000_000)
    return sorted(os.listdir("/tmp"))
"""
    lasting.create("tmp", source, MemorySize=1769)
    _, payload = lasting.invoke("tmp", {"fill": True})
    assert payload["errorType"] == "OSError", payload
    assert "No space left" in payload["errorMessage"]
    lasting.create("other", source)
    assert lasting.invoke("other")[1] == []


def test_the_host_is_out_of_sight(lasting: Platform) -> None:
    source = """
import os, socket
def handler(event, context):
    found = {path: os.path.exists(path) for path in event["paths"]}
    try:
        socket.create_connection(tuple(event["address"]), 1).close()
        found["network"] = True
    except OSError:
        found["network"] = False
    try:
        open("/var/task/new", "w").close()
        found["writable"] = True
    except OSError:
        found["writable"] = False
    found["processes"] = sum(name.isdigit() for name in os.listdir("/proc"))
    found["uid"] = os.getuid()
    return found
"""
    host, port = lasting.address.split(":")
    paths = ["/root", "/home", "/etc/shadow", str(lasting.state), "/sys/fs/cgroup", "/usr/bin/apt"]
    lasting.create("peek", source)
    _, result = lasting.invoke("peek", {"paths": paths, "address": [host, int(port)]})
    assert result["processes"] <= 2
    assert result["uid"] != 0
    assert not any(result[key] for key in [*paths, "network", "writable"]), result


def test_functions_survive_a_restart(serve: Serve) -> None:
    first = serve()
    first.create("kept", Tags={"a": "1"})
    url = first.client.create_function_url_config(FunctionName="kept", AuthType="NONE")
    first.invoke("kept")
    assert first.stop() == 0
    second = serve()
    assert second.client.get_function(FunctionName="kept")["Tags"] == {"a": "1"}
    assert second.invoke("kept", {"n": 2})[1] == {"got": {"n": 2}}
    kept = second.client.get_function_url_config(FunctionName="kept")["FunctionUrl"]
    assert kept.split("/")[-2] == url["FunctionUrl"].split("/")[-2]
    assert len(log(second)) == 2, "the log goes on"


def test_killed_and_started_again_it_leaves_nothing_and_forgets_nothing(serve: Serve) -> None:
    first = serve({"pause_after_ms": 0})
    first.create("f", OK, MemorySize=512)
    first.create("busy", "import time\ndef handler(e, c):\n    time.sleep(60)\n", Timeout=90)
    answered = [first.headers("f")["x-amzn-requestid"] for _ in range(20)]
    first.invoke("busy", InvocationType="Event")
    wait_for(lambda: len(instances(first.state, made_ahead=False)) == 2)
    left = set(instances(first.state))
    assert cgroups(first.state)
    first.stop(signal.SIGKILL)
    second = serve()
    assert left.isdisjoint(instances(second.state))
    logged = [row["request_id"] for row in log(second)]
    assert [request for request in logged if request in answered] == answered
    ended = {row["function"]: row["end_reason"] for row in log(second, "instances")}
    assert ended["f"] == "crash"
    # The event that was accepted is run again.
    wait_for(lambda: len(instances(second.state, made_ahead=False)) == 1)
    second.client.delete_function(FunctionName="busy")
