"""Code execution: WebAssembly components, which one host runs for all functions.

Only the first test runs without that host: ``make test-wasm`` builds it and runs the others.
"""

import concurrent.futures
import http.client
import io
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Platform, Serve, package
from .test_serving import log, wait_for

HELLO = Path(__file__).parents[2] / "crates" / "wasm" / "hello"

# What the code of hello begins with, and how it sends: to be replaced.
BEGIN = "(call $drop-request (local.get $request))"
SEND = """(call $send (local.get $stream) (i32.const 96) (i32.const 20) (i32.const 256))
    (drop (call $checked))"""
# A thousand pieces of 4 KiB: more than is collected, and than fits on its way.
SEND_MUCH = """(loop $on
      (call $send (local.get $stream) (i32.const 0) (i32.const 4096) (i32.const 256))
      (drop (call $checked))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $count) (i32.const 1000))))"""
# Some tenths of a second of computing.
COMPUTE = """(loop $on
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $count) (i32.const 400000000))))"""
# What the head of the answer is made with, and begins with: to be replaced.
HEAD = "(local.set $head (call $response (call $checked)))"
FIELDS = "(call $fields (i32.const 16) (i32.const 1) (i32.const 256))"
# As many headers as there may be, and one more.
SIXTY_FIVE = """(loop $on
      (memory.copy
        (i32.add (i32.const 1024) (i32.mul (local.get $count) (i32.const 16)))
        (i32.const 16) (i32.const 16))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $count) (i32.const 65))))
    (local.set $count (i32.const 0))
    (call $fields (i32.const 1024) (i32.const 65) (i32.const 256))"""
IMPORTS = '(import "wasi:http/types@0.2.0" "[resource-drop]incoming-request"'
STATUS = """(import "wasi:http/types@0.2.0" "[method]outgoing-response.set-status-code"
    (func $status (param i32 i32) (result i32)))
  """
STDOUT = '(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $stdout (result i32)))\n  '
# Prints 4 KiB of zeros, of which each is six bytes of a report.
PRINT = "(call $send (call $stdout) (i32.const 8192) (i32.const 4096) (i32.const 256))"
FOR_EVER = "(loop $on (br $on))"
GROW = "(loop $on (br_if $on (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable"


def zipped(component: bytes) -> bytes:
    """A package of a component."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("function.wasm", component)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def program() -> Path:
    """The host."""
    path = os.environ.get("UNCIA_WASM")
    if path is None:
        pytest.skip("runs with make test-wasm, which builds the WebAssembly host")
    return Path(path).resolve()


Assemble = Callable[..., bytes]


@pytest.fixture
def assemble(program: Path, tmp_path: Path) -> Assemble:
    """Makes components of hello's text with parts replaced."""

    def make(*replaced: tuple[str, str]) -> bytes:
        text = (HELLO / "function.wat").read_text()
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        if replaced:
            text = text.replace("(local $stream i32)", "(local $stream i32) (local $count i32)")
        source, target = tmp_path / "function.wat", tmp_path / "function.wasm"
        source.write_text(text)
        subprocess.run([program, "assemble", source, target], check=True)
        return target.read_bytes()

    return make


@pytest.fixture
def platform(serve: Serve, program: Path) -> Platform:
    return serve({"runtimes": {"wasm": str(program)}})


def create(platform: Platform, name: str, component: bytes, **settings: Any) -> None:
    arguments = {"Runtime": "wasm", "Handler": "function.wasm"}
    platform.create(name, Code={"ZipFile": zipped(component)}, **(arguments | settings))


def row_of(platform: Platform, function: str) -> dict[str, Any]:
    """The last row of a function, once it is there."""

    def rows() -> list[dict[str, Any]]:
        return [row for row in log(platform) if row["function"] == function]

    wait_for(lambda: bool(rows()))
    return rows()[-1]


def test_without_the_host_a_sentence_says_how_to_get_it(
    serve: Serve, engine_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is looked for beside the engine, too.
    engine = tmp_path / "uncia-engine"
    shutil.copy(engine_binary, engine)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    platform = serve(binary=engine)
    with pytest.raises(ClientError, match=r'needs WebAssembly host .* "make wasm"'):
        create(platform, "f", b"")


def test_each_request_has_an_instance_and_usage_of_its_own(platform: Platform) -> None:
    create(platform, "f", (HELLO / "function.wasm").read_bytes())
    starts = []
    for _ in range(3):
        answer, message = platform.invoke("f")
        assert message == {"message": "hello"}
        starts.append(answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"])
    assert starts == ["cold", "warm", "warm"]
    row = row_of(platform, "f")
    assert (row["outcome"], row["shared"], row["memory_peak"]) == ("ok", False, 65536)
    assert row["cpu_user"] + row["cpu_system"] > 0
    assert 0 < row["memory_avg"] <= 65536
    assert row["throttled_time"] is None
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    with urllib.request.urlopen(url["FunctionUrl"] + "any?x=1") as response:
        assert response.headers["content-type"] == "application/json"
        assert not [name for name in response.headers if name.startswith("uncia-")]
        assert response.read() == b'{"message": "hello"}'


def test_a_component_is_compiled_once(serve: Serve, program: Path) -> None:
    platform = serve({"runtimes": {"wasm": str(program)}})
    component = (HELLO / "function.wasm").read_bytes()
    create(platform, "f", component)
    platform.invoke("f")
    [compiled] = (platform.state / "components").iterdir()
    made = compiled.stat()
    create(platform, "g", component)
    platform.invoke("g")
    platform.stop()
    again = serve({"runtimes": {"wasm": str(program)}})
    again.invoke("f")
    [compiled] = (again.state / "components").iterdir()
    assert (compiled.stat().st_ino, compiled.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


def test_the_committed_component_is_what_its_text_makes(assemble: Assemble) -> None:
    assert assemble() == (HELLO / "function.wasm").read_bytes()


@pytest.mark.parametrize(
    ("component", "sentence"),
    [
        (b"\0asm\x01\0\0\0", "is a core module and no component"),
        (b"#!/bin/sh\necho hello\n", "is no WebAssembly file"),
        (b"\0asm", "ends after 4 bytes"),
    ],
    ids=["core module", "text", "header"],
)
def test_what_begins_as_no_component_is_no_package(
    platform: Platform, component: bytes, sentence: str
) -> None:
    with pytest.raises(ClientError, match=sentence):
        create(platform, "f", component)
    create(platform, "f", (HELLO / "function.wasm").read_bytes())
    with pytest.raises(ClientError, match=sentence):
        platform.client.update_function_code(FunctionName="f", ZipFile=zipped(component))
    assert platform.invoke("f")[1] == {"message": "hello"}


@pytest.mark.parametrize(
    ("component", "sentence"),
    [
        (b"\0asm\x0d\0\x01\0", "does not export wasi:http/incoming-handler"),
        ((HELLO / "function.wasm").read_bytes()[:900], "is not valid"),
    ],
    ids=["empty", "truncated"],
)
def test_what_is_no_component_is_said(platform: Platform, component: bytes, sentence: str) -> None:
    create(platform, "f", component)
    for _ in range(2):
        answer, error = platform.invoke("f")
        assert answer["FunctionError"]
        assert error["errorType"] == "Wasm.InvalidComponent"
        assert sentence in error["errorMessage"]
    assert not list((platform.state / "components").iterdir())


@pytest.mark.parametrize(
    ("code", "tags", "sentence"),
    [
        ("unreachable", {}, r"ended by itself: .*unreachable"),
        ("(return)", {}, r"ended without an answer"),
        (GROW, {}, r"wanted more memory than its limit of 256 MB"),
        (FOR_EVER, {}, r"timed out after 1\.00 seconds"),
        (FOR_EVER, {"uncia:cpu-time-ms": "50"}, r"stopped after 50 ms of CPU time"),
    ],
    ids=["trap", "silent", "memory", "time", "cpu time"],
)
def test_code_that_fails_ends_alone(
    platform: Platform, assemble: Assemble, code: str, tags: dict[str, str], sentence: str
) -> None:
    create(platform, "good", (HELLO / "function.wasm").read_bytes())
    create(platform, "bad", assemble((BEGIN, code)), Timeout=1, Tags=tags)
    platform.invoke("good")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        failing = pool.submit(platform.invoke, "bad")
        good = [pool.submit(platform.invoke, "good") for _ in range(20)]
        answer, error = failing.result()
        assert answer["FunctionError"]
        assert re.search(sentence, error["errorMessage"])
        assert all(answer.result()[1] == {"message": "hello"} for answer in good)
    assert {row["start"] for row in log(platform) if row["function"] == "good"} == {"cold", "warm"}
    row = row_of(platform, "bad")
    assert row["outcome"] in ("function_error", "timeout")
    assert row["cpu_user"] + row["cpu_system"] > (1_000_000 if code == FOR_EVER else 0)


def test_usage_is_of_the_request_alone_whatever_runs_beside_it(
    platform: Platform, assemble: Assemble
) -> None:
    create(platform, "computes", assemble((BEGIN, COMPUTE)))
    create(platform, "waits", (HELLO / "function.wasm").read_bytes())
    platform.invoke("waits")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        computing = [pool.submit(platform.invoke, "computes") for _ in range(2)]
        while not all(it.done() for it in computing):
            platform.invoke("waits")
    rows = log(platform)
    used = {
        name: [row["cpu_user"] + row["cpu_system"] for row in rows if row["function"] == name]
        for name in ("computes", "waits")
    }
    assert max(used["waits"]) < min(used["computes"]) / 4
    # The same instructions take about the same time.
    assert max(used["computes"]) < 3 * min(used["computes"])


def test_a_long_answer_passes_as_it_comes(platform: Platform, assemble: Assemble) -> None:
    create(platform, "long", assemble((SEND, SEND_MUCH)))
    create(platform, "breaks", assemble((SEND, SEND_MUCH + " unreachable")))
    urls = {
        name: platform.client.create_function_url_config(FunctionName=name, AuthType="NONE")
        for name in ("long", "breaks")
    }
    with urllib.request.urlopen(urls["long"]["FunctionUrl"]) as response:
        assert len(response.read()) == 4096 * 1000
    row = row_of(platform, "long")
    assert (row["outcome"], row["response_bytes"]) == ("ok", 4096 * 1000)
    assert row["cpu_user"] + row["cpu_system"] > 0
    with (
        pytest.raises(http.client.IncompleteRead),
        urllib.request.urlopen(urls["breaks"]["FunctionUrl"]) as response,
    ):
        response.read()
    row = row_of(platform, "breaks")
    assert row["outcome"] == "function_error"
    assert "unreachable" in row["error"]
    assert row["cpu_user"] + row["cpu_system"] > 0


def test_invoke_learns_how_an_answer_ended_that_came_in_pieces(
    platform: Platform, assemble: Assemble
) -> None:
    create(platform, "long", assemble((SEND, SEND_MUCH)), Timeout=60)
    create(platform, "breaks", assemble((SEND, SEND_MUCH + " unreachable")), Timeout=60)
    for name, is_good in (("long", True), ("breaks", False)):
        answer = platform.client.invoke(FunctionName=name)
        assert ("FunctionError" not in answer) is is_good
        row = row_of(platform, name)
        assert row["outcome"] == ("ok" if is_good else "function_error")
        assert row["cpu_user"] + row["cpu_system"] > 0


def with_status(code: int) -> list[tuple[str, str]]:
    """Parts of hello that have it answer with this status."""
    return [
        (IMPORTS, STATUS + IMPORTS),
        (HEAD, f"{HEAD} (drop (call $status (local.get $head) (i32.const {code})))"),
    ]


def answered(platform: Platform, function: str, method: str) -> int:
    """The status of an answer by function URL, to whose request the code has run to its end."""
    url = platform.client.create_function_url_config(FunctionName=function, AuthType="NONE")
    request = urllib.request.Request(url["FunctionUrl"], method=method)
    try:
        with urllib.request.urlopen(request) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("method", "code", "status"), [("HEAD", 200, 200), ("GET", 204, 204), ("GET", 304, 304)]
)
def test_code_whose_answer_has_no_body_runs_to_its_end(
    platform: Platform, assemble: Assemble, method: str, code: int, status: int
) -> None:
    for name, end, outcome in (("ends", "", "ok"), ("traps", " unreachable", "function_error")):
        create(platform, name, assemble(*with_status(code), (SEND, SEND_MUCH + end)))
        assert answered(platform, name, method) == (502 if end else status)
        row = row_of(platform, name)
        assert row["outcome"] == outcome
        assert row["cpu_user"] + row["cpu_system"] > 0
        assert row["memory_peak"] == 65536


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (with_status(103), "answered with the status 103, which ends no request"),
        ([(FIELDS, SIXTY_FIVE)], "answered with 65 headers of 1820 bytes: at most 64 of 32768"),
    ],
    ids=["informational", "headers"],
)
def test_heads_that_cannot_be_sent_are_no_answers(
    platform: Platform, assemble: Assemble, parts: list[tuple[str, str]], sentence: str
) -> None:
    create(platform, "f", assemble(*parts))
    answer, error = platform.invoke("f")
    assert answer["FunctionError"]
    assert error["errorType"] == "Wasm.NoAnswer"
    assert sentence in error["errorMessage"]
    row = row_of(platform, "f")
    assert row["outcome"] == "function_error"
    assert row["cpu_user"] + row["cpu_system"] > 0


def test_what_is_printed_has_room_behind_an_answer(platform: Platform, assemble: Assemble) -> None:
    create(platform, "f", assemble((IMPORTS, STDOUT + IMPORTS), (SEND, PRINT + SEND_MUCH)))
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    with urllib.request.urlopen(url["FunctionUrl"]) as response:
        assert len(response.read()) == 4096 * 1000
    assert row_of(platform, "f")["memory_peak"] == 65536


def test_machine_code_that_is_gone_is_made_again(platform: Platform) -> None:
    create(platform, "f", (HELLO / "function.wasm").read_bytes())
    platform.invoke("f")
    [compiled] = (platform.state / "components").iterdir()
    compiled.unlink()
    # A new version of the configuration is loaded anew.
    platform.client.update_function_configuration(
        FunctionName="f", Environment={"Variables": {"any": "thing"}}
    )
    assert platform.invoke("f")[1] == {"message": "hello"}
    assert compiled.is_file()


def test_after_the_hosts_end_there_is_another(platform: Platform) -> None:
    create(platform, "f", (HELLO / "function.wasm").read_bytes())
    platform.invoke("f")
    [host] = hosts(platform)
    os.kill(host, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while True:
        # The request that finds it ending may fail.
        answer, message = platform.invoke("f")
        if "FunctionError" not in answer:
            break
        assert time.monotonic() < deadline
    assert message == {"message": "hello"}
    assert hosts(platform) != [host]


def hosts(platform: Platform) -> list[int]:
    """The processes that run code for a platform."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                environment = (folder / "environ").read_bytes()
                groups = (folder / "cgroup").read_text()
            except OSError:
                continue
            name = b"K_SERVICE=uncia:code" in environment
            if name and arguments[0].endswith(b"uncia-wasm") and "code-host" in groups:
                pids.append(int(folder.name))
    return pids


def test_what_does_not_fit_is_refused(platform: Platform) -> None:
    component = (HELLO / "function.wasm").read_bytes()
    with pytest.raises(ClientError, match="architecture must be code for a function in wasm"):
        create(platform, "f", component, Tags={"uncia:architecture": "http"})
    with pytest.raises(ClientError, match="cannot be code for a function in python"):
        platform.create("f", Tags={"uncia:architecture": "code"})
    with pytest.raises(ClientError, match=r"cpu-time-ms is for functions .* \(wasm\)"):
        platform.create("f", Tags={"uncia:cpu-time-ms": "10"})
    with pytest.raises(ClientError, match=r'holds no component "function\.wasm"'):
        platform.create("f", Code={"ZipFile": package("")}, Runtime="wasm", Handler="any")
