"""``uncia deploy``, ``invoke``, ``logs``, ``ps`` and ``rm`` on a real platform."""

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uncia import functions
from uncia.cli import deploy, invoke, ps
from uncia.errors import RunFailedError, UnciaError
from uncia.functions.dependencies import Target
from uncia.platforms import FunctionSpec, served
from uncia.platforms.boto import client
from uncia.platforms.inquiries import fetch_page
from uncia.platforms.served import Served
from uncia.platforms.server import Server

Command = Callable[..., tuple[int, str, str]]

GREETING = """
import os

def handler(event, context):
    print("called with", event["name"])
    return {"hello": event["name"], "word": os.environ.get("WORD")}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("platform") / "state", {})
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def endpoint(server: Server, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands go to the module's platform, which is empty before and after each test."""
    del state_home
    monkeypatch.setenv("UNCIA_ENDPOINT", server.address)
    yield
    for function in Served(server.address).functions():
        Served(server.address).remove(function["FunctionName"])


def write(folder: Path, text: str = GREETING) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "handler.py").write_text(text)
    return folder


def test_a_folder_is_deployed_invoked_and_removed(command: Command, tmp_path: Path) -> None:
    folder = write(tmp_path / "greet")
    code, out, _ = command("deploy", f"{folder}/")
    assert code == 0
    assert out.startswith("greet created: 512MB, 30s, ")
    code, out, err = command("invoke", "greet", '{"name": "you"}')
    assert (code, json.loads(out)) == (0, {"hello": "you", "word": None})
    lines = err.splitlines()
    assert lines[0] == "called with you"
    assert lines[1].split()[1:3] == ["greet", "cold"]
    code, out, err = command("invoke", "-q", "greet", "{}")
    assert (code, err) == (1, "")
    assert json.loads(out)["errorType"] == "KeyError"
    code, out, _ = command("logs")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == ["greet", "greet"]
    code, out, _ = command("logs", "--failed", "--json")
    (entry,) = map(json.loads, out.splitlines())
    assert (entry["outcome"], entry["error"]) == ("function_error", "KeyError: 'name'")
    code, out, _ = command("rm", "greet")
    assert (code, out) == (0, "greet removed\n")
    code, _, err = command("invoke", "greet")
    assert code == 1
    assert "there is no function greet at" in err


def test_requirements_are_the_platforms_pythons(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if this command ran on another Python than the platform's functions.
    other = SimpleNamespace(
        version_info=SimpleNamespace(major=3, minor=9), executable=sys.executable
    )
    monkeypatch.setattr("uncia.functions.dependencies.sys", other)
    assert Target.of(None, None).python_version == "3.9"
    code, _, err = command("deploy", "resize")
    assert code == 0, err
    function = client(server.address).get_function(FunctionName="resize")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert Served(server.address).python_version == version
    assert function["Configuration"]["Runtime"] == f"python{version}"
    with urllib.request.urlopen(function["Code"]["Location"]) as answer:
        names = zipfile.ZipFile(io.BytesIO(answer.read())).namelist()
    compiled = [name for name in names if name.startswith("PIL/_imaging.cpython-")]
    assert [name.split("-")[1] for name in compiled] == [version.replace(".", "")]


def test_only_what_is_given_changes(command: Command, server: Server, tmp_path: Path) -> None:
    folder = write(tmp_path / "greet")

    def state(*options: str) -> str:
        code, out, err = command("deploy", folder, "--json", *options)
        assert code == 0, err
        return str(json.loads(out)["state"])

    assert (
        state("--memory", "256MB", "--env", "WORD=first", "--set", "keep_alive=5min") == "created"
    )
    assert state() == "unchanged"
    assert state("--timeout", "7s") == "updated"
    write(folder, GREETING + "\n# another\n")
    assert state() == "updated"
    function = client(server.address).get_function(FunctionName="greet")
    configuration = function["Configuration"]
    assert (configuration["MemorySize"], configuration["Timeout"]) == (256, 7)
    assert configuration["Environment"] == {"Variables": {"WORD": "first"}}
    assert function["Tags"] == {"uncia:keep-alive-ms": "300000"}
    assert configuration["CodeSize"] == functions.package(folder).size
    assert state("--set", "keep-alive=10s", "--env", "WORD=second") == "updated"
    _, out, _ = command("invoke", "greet", '{"name": 1}')
    assert json.loads(out)["word"] == "second"
    # The variables that are not named stay, too.
    assert state("--env", "OTHER=third") == "updated"
    assert state("--env", "OTHER=third") == "unchanged"
    configuration = client(server.address).get_function(FunctionName="greet")["Configuration"]
    assert configuration["Environment"] == {"Variables": {"WORD": "second", "OTHER": "third"}}


def test_a_url_passes_answers_on_as_is_asked(
    command: Command, server: Server, tmp_path: Path
) -> None:
    folder = write(tmp_path / "stream")

    def deployed(*options: str) -> tuple[str, str]:
        code, out, err = command("deploy", folder, "--json", *options)
        assert code == 0, err
        url = client(server.address).get_function_url_config(FunctionName="stream")
        return json.loads(out)["state"], url["InvokeMode"]

    assert deployed("--stream") == ("created", "RESPONSE_STREAM")
    assert deployed() == ("unchanged", "RESPONSE_STREAM")
    assert deployed("--no-stream") == ("updated", "BUFFERED")
    assert deployed("--no-stream") == ("unchanged", "BUFFERED")
    assert command("rm", "stream")[0] == 0
    assert deployed() == ("created", "BUFFERED")


def test_a_change_that_is_refused_in_part_is_said(
    command: Command, server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "js"
    folder.mkdir()
    file = folder / "index.mjs"
    file.write_text("export const handler = async () => 1;\n")
    assert command("deploy", folder)[0] == 0
    file.write_text("export const handler = async () => 2;\n")
    code, _, err = command("deploy", folder, "--memory", "256MB", "--set", "start_from=zygote")
    assert code == 1
    assert "js is changed in part: its configuration and code, and then the platform refused" in err
    assert client(server.address).get_function(FunctionName="js")["Tags"] == {}
    assert command("deploy", folder)[1].startswith("js unchanged: 256MB")
    # What is wrong with the package is found before anything changes.
    with pytest.raises(RunFailedError, match="cannot deploy the function js"):
        Served(server.address).deploy(
            FunctionSpec(
                "js",
                b"no zip",
                runtime="node",
                handler="index.handler",
                memory=512 * 1024 * 1024,
            )
        )
    assert command("deploy", folder)[1].startswith("js unchanged: 256MB")


def test_files_and_functions_of_the_catalogue(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "alone.py"
    file.write_text("def lambda_handler(event, context):\n    return 'alone'\n")
    assert command("deploy", file)[0] == 0
    (tmp_path / "empty.mjs").write_text("export const handler = async () => 'node';\n")
    assert command("deploy", tmp_path / "empty.mjs", "--name", "js")[0] == 0
    assert command("deploy", "hello")[0] == 0
    assert command("invoke", "-q", "alone")[:2] == (0, '"alone"\n')
    code, out, _ = command("ps", "--json")
    document = json.loads(out)
    assert code == 0
    assert [it["function"] for it in document["functions"]] == ["alone", "hello", "js"]
    assert [it["instances"] for it in document["functions"]] == [1, 0, 0]
    assert [it["function"] for it in document["living"]] == ["alone"]
    code, out, _ = command("ps", "-i")
    rows = [line.split() for line in out.splitlines()]
    assert rows[1] == ["function", "runtime", "memory", "instances", "url"]
    assert rows[2][0::3] == ["alone", "1"]
    assert rows[-1][1:3] == ["alone", "cold"]


def test_an_event_is_read_from_a_file_or_accepted_for_later(
    command: Command, server: Server, tmp_path: Path
) -> None:
    command("deploy", write(tmp_path / "greet"))
    (tmp_path / "event.json").write_text('{"name": "file"}')
    _, out, _ = command("invoke", "-q", "greet", f"@{tmp_path / 'event.json'}")
    assert json.loads(out)["hello"] == "file"
    code, request_id, _ = command("invoke", "--async", "greet", '{"name": "later"}')
    assert code == 0
    log = Served(server.address).log(print)
    deadline = time.monotonic() + 60
    while not log.last(1, lambda row: row["request_id"] == request_id.strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        log.new()


def test_the_row_of_an_answer_is_that_of_the_attempt_that_was_answered() -> None:
    rows = [
        {"request_id": "other", "outcome": "ok", "attempt": 1},
        {"request_id": "this", "outcome": "preempted", "attempt": 1},
        {"request_id": "this", "outcome": "ok", "attempt": 2},
    ]
    log: Any = SimpleNamespace(new=lambda: rows)
    assert invoke._row(log, "this") == rows[2]


@pytest.mark.parametrize(("worker", "where"), [("a", ["i-1", "a"]), (None, ["i-1"])])
def test_instances_are_shown_with_their_workers(
    worker: str | None, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    living = {"instance": "i-1", "worker": worker, "function": "f", "start": "cold"}
    states = {"frozen": 0, "scaled_down": 0, "starting": 0, "busy": 1, "idle": 0, "stopping": 0}
    function = {"function": "f", "runtime": None, "memory_bytes": 1, "instances": 1, "url": None}
    ps._print(
        SimpleNamespace(address="here"),
        {"instances": states, "waiting": 0},
        [function],
        [{**living, "started": 0, "invocations": 3}],
    )
    header, row = (line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert ("worker" in header) == (worker is not None)
    assert row[: len(where) + 2] == [*where, "f", "cold"]


def test_the_newest_rows_are_found_however_far_back(
    command: Command, server: Server, tmp_path: Path
) -> None:
    command("deploy", write(tmp_path / "rare"))
    command("deploy", "hello")
    api = client(server.address)
    api.invoke(FunctionName="rare", Payload=b'{"name": 1}')
    before = len(Served(server.address).log(print).last(10**6, lambda row: True))
    for _ in range(1_100):
        api.invoke(FunctionName="hello")
    log = Served(server.address).log(print)
    assert [row["function"] for row in log.last(1, lambda row: row["function"] == "rare")] == [
        "rare"
    ]
    rows = log.last(10**6, lambda row: True)
    assert len(rows) == before + 1_100
    assert [row["ended"] for row in rows] == sorted(row["ended"] for row in rows)
    assert len(log.last(7, lambda row: True)) == 7
    assert log.last(0, lambda row: True) == []
    assert log.new() == []


def test_a_function_is_deployed_again_when_it_changes(
    uncia: Callable[..., "subprocess.Popen[str]"], command: Command, tmp_path: Path
) -> None:
    folder = write(tmp_path / "greet", "def handler(event, context):\n    return 1\n")
    process = uncia("deploy", folder, "--watch", "--json")
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["state"] == "created"
        # What cannot be deployed is said, and what was deployed stays.
        write(folder, "def handler(event, context)\n")
        assert "not valid Python" in process.stderr.readline()
        assert command("invoke", "-q", "greet")[:2] == (0, "1\n")
        write(folder, "def handler(event, context):\n    return 2\n")
        assert json.loads(process.stdout.readline())["state"] == "updated"
        assert command("invoke", "-q", "greet")[:2] == (0, "2\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("deploy", "./missing"), "there is no folder missing"),
        (("deploy", "handler.txt"), "handler.txt is no file with a handler"),
        (("deploy", "hello", "--set", "keep_alive=soon"), "--set: keep_alive: 'soon' is not a"),
        (("deploy", "hello", "--set", "speed=9"), "functions have no setting speed"),
        (("deploy", "hello", "--set", "keep_alive"), "'keep_alive' is not NAME=VALUE"),
        (("deploy", "hello", "--env", "AB=1", "--env", "AB=2"), "AB is given twice"),
        (("deploy", "hello", "--memory", "much"), "--memory: 'much'"),
        (("deploy", "hello", "--memory", "50MB"), "memory 50MB is not between"),
        (("invoke", "nothing"), "there is no function nothing"),
        (("invoke", "nothing", "{"), "the event is no JSON"),
        (("invoke", "nothing", "@missing.json"), "missing.json cannot be read"),
        (("logs", "nothing"), "there is no function nothing"),
        (("rm", "nothing"), "there is no function nothing"),
        (("ps", "--endpoint", "127.0.0.1:1"), "no platform answers at 127.0.0.1:1"),
        (("ps", "--endpoint", "ftp://there"), "ftp://there is no address"),
        (("ps", "--endpoint", "127.0.0.1:port"), "127.0.0.1:port is no address"),
        (("ps", "--endpoint", "[::1"), "[::1 is no address"),
    ],
)
def test_mistakes_are_sentences(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handler.txt").write_text("")
    code, out, err = command(*arguments)
    assert code != 0
    assert out == ""
    assert message in err


def test_nothing_is_removed_if_a_name_is_wrong(command: Command, server: Server) -> None:
    command("deploy", "hello")
    assert command("rm", "hello", "helo")[0] == 1
    assert Served(server.address).exists("hello")


def test_a_change_during_the_first_deployment_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy, "_POLL_S", 0.01)
    folder = write(tmp_path / "greet")
    changes = deploy._Changes(folder, "greet")
    write(folder, GREETING + "\n# another\n")
    assert next(iter(changes)) == ["handler.py"]


def test_rows_that_the_log_has_removed_are_not_replaced_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    # The log is read in small steps, of which one begins before its oldest row.
    monkeypatch.setattr(served, "_LEAST_SPAN", 1)
    server = Server(tmp_path / "state", {"log_rows": 20})
    try:
        command("deploy", "hello", "--endpoint", server.address)
        api = client(server.address)
        deadline = time.monotonic() + 60
        count = 0
        while count < 60 or fetch_page(server.address, "invocations", 0, print)[0].num_rows > 30:
            assert time.monotonic() < deadline
            api.invoke(FunctionName="hello")
            count += 1
        kept = fetch_page(server.address, "invocations", 0, print)[0].to_pylist()
        rows = Served(server.address).log(print).last(31, lambda row: True)
        assert [row["request_id"] for row in rows] == [row["request_id"] for row in kept]
    finally:
        server.stop()


def test_what_speaks_no_http_is_no_platform() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"220 mail\r\n")

        threading.Thread(target=greet).start()
        with pytest.raises(UnciaError, match="is no platform of Uncia's"):
            Served(f"127.0.0.1:{other.getsockname()[1]}")


def test_another_server_is_no_platform(tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request).start()
        with pytest.raises(UnciaError, match="is no platform of Uncia's"):
            Served(f"127.0.0.1:{other.server_port}")
