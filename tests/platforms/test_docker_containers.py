"""Containers of one function and their answers, before an Engine that is a stand-in."""

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia.platforms import FunctionSpec, bare, docker_limits
from uncia.platforms.shims import docker_container, docker_host
from uncia.platforms.shims.docker_container import Container, Log, group_of
from uncia.platforms.shims.docker_engine import EngineError, RefusedError

ID = "4f" * 32


class StandIn:
    """An Engine that answers what it is told, else that all went well.

    Attributes:
        asked: the requests.
        answers: by the end of a path: what is answered, or the error.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}

    def ask(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        self.asked.append(f"{method} {path}")
        for ending, answer in self.answers.items():
            if path.endswith(ending):
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return {"Id": ID, "State": {"Running": False, "ExitCode": 1}}

    def count(self, method: str) -> int:
        return sum(it.startswith(f"{method} ") for it in self.asked)


def config(**changes: Any) -> dict[str, Any]:
    given = {"socket": "/none", "function": "f", "prefix": "p", "container": {}, "port": 1}
    given |= {"connect": "port", "concurrency": 1, "idle": "live", "keep_alive": None}
    return {**given, "timeout": scaled(20), "allocated": {}, **changes}


def good(order: dict[str, Any]) -> bytes:
    now = time.time_ns()
    times = {"started": now, "ended": now, "user": 1, "system": 1}
    return json.dumps({"result": order["event"], **times}).encode() + b"\n"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., docker_host.Pool]]:
    """A pool whose containers are threads of this process; ``says`` makes their answers."""
    pools: list[docker_host.Pool] = []

    def make(says: Callable[[dict[str, Any]], bytes] = good, **changes: Any) -> docker_host.Pool:
        def serve(far: socket.socket) -> None:
            with far, contextlib.suppress(OSError):
                for line in far.makefile():
                    far.sendall(says(json.loads(line)))

        def start(self: Container, _: str | None) -> None:
            self.socket, far = socket.socketpair()
            threading.Thread(target=serve, args=(far,), daemon=True).start()
            self.idle.append([time.time_ns()])

        monkeypatch.setattr(Container, "start", start)
        pools.append(docker_host.Pool(config(**changes)))
        pools[-1].engine = StandIn()  # type: ignore[assignment]
        return pools[-1]

    yield make
    for each in pools:
        each.end()


def starts(pool: docker_host.Pool, count: int, clients: int = 1) -> list[str]:
    with ThreadPoolExecutor(clients) as threads:
        answers = list(threads.map(lambda n: pool.serve({"n": n}, f"i{n}"), range(count)))
    assert [status for status, _, _ in answers] == [200] * count
    return [headers["x-uncia-start"] for _, headers, _ in answers]


@pytest.mark.parametrize("clients", [1, 3])
def test_without_keep_alive_each_request_has_a_fresh_container(
    pool: Callable[..., Any], clients: int
) -> None:
    made = pool(keep_alive=0.0)
    assert starts(made, 12, clients) == ["cold"] * 12
    made.end()
    rows = made.log.new()["instances"]
    assert len({it["instance"] for it in rows}) == 12
    assert [it["invocations"] for it in rows] == [1] * 12
    assert {it["end_reason"] for it in rows[:-1]} == {"keep_alive"}
    # No two at once, as there is one place.
    ends = [it["ended"] for it in rows]
    assert all(end <= row["started"] for end, row in zip(ends, rows[1:], strict=False))


def test_what_was_idle_for_too_long_is_not_taken_though_it_is_still_there(
    pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_host.Pool, "sweep", lambda _: None)
    made = pool(keep_alive=1000.0, concurrency=2)
    assert starts(made, 2) == ["cold", "warm"]
    made.idle[-1].idle_since -= 1000.0
    assert starts(made, 1) == ["cold"]
    assert starts(made, 1) == ["warm"]


def later(document: dict[str, Any], **changes: Any) -> Callable[[dict[str, Any]], bytes]:
    """Answers that are no good, when the event says so."""
    return lambda order: (
        json.dumps({**json.loads(good(order)), **document, **changes}).encode() + b"\n"
        if order["event"].get("bad")
        else good(order)
    )


@pytest.mark.parametrize(
    "document",
    [
        {"type": 404, "message": "x"},
        {"type": "Error"},
        {"type": "Error", "message": None},
        {"started": "now"},
        {"user": None},
        {"ended": True},
    ],
)
def test_an_answer_of_another_form_ends_its_container_and_is_a_row(
    pool: Callable[..., Any], document: dict[str, Any]
) -> None:
    made = pool(later(document))
    assert starts(made, 1) == ["cold"]
    status, headers, body = made.serve({"bad": True}, "bad")
    assert (status, headers["x-uncia-start"]) == (502, "warm")
    assert "no answer of its function" in json.loads(body)["errorMessage"]
    assert starts(made, 1) == ["cold"]
    news = made.log.new()
    assert [it["outcome"] for it in news["invocations"]] == ["ok", "function_error", "ok"]
    assert [it["end_reason"] for it in news["instances"]] == ["crash", None]


def test_what_goes_wrong_with_an_answer_leaves_no_container(
    pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pool()
    with monkeypatch.context() as patch:
        patch.setattr(docker_host, "response", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            made.serve({}, "i0")
    assert made.engine.count("DELETE") == 1
    assert made.places == 1
    assert starts(made, 1) == ["cold"]
    news = made.log.new()
    assert [it["outcome"] for it in news["invocations"]] == ["function_error", "ok"]
    assert [it["end_reason"] for it in news["instances"]] == ["crash", None]


def test_an_answer_without_an_end_is_not_held(
    pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_container, "MOST_BODY", 1 << 20)
    made = pool(lambda order: b"x" * (2 << 20) if order["event"].get("bad") else good(order))
    status, _, body = made.serve({"bad": True}, None)
    assert status == 502
    assert "longer than 1048576 bytes" in json.loads(body)["errorMessage"]
    assert starts(made, 1) == ["cold"]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_node_s_names_of_errors_are_texts() -> None:
    script = """
const { call, response } = require(process.argv[1]);
const thrown = async () => { throw { name: 404, message: "x" }; };
call(thrown, {}, {}).then((it) => console.log(response(it).body));
"""
    shim = bare.SHIMS / "node_handler.cjs"
    done = subprocess.run(
        ["node", "-e", script, str(shim)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"errorType": "404", "errorMessage": "x"}


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture
def container(engine: StandIn) -> Container:
    return Container(engine, config(), Log("f", {}), 1)  # type: ignore[arg-type]


def test_a_pause_whose_answer_is_lost_may_have_been_one(
    engine: StandIn, container: Container
) -> None:
    engine.answers["/pause"] = EngineError("it broke off")
    with pytest.raises(EngineError):
        container.pause()
    assert container.thaw(None)
    assert engine.asked[-1].endswith("/unpause")
    # Or it may not.
    with pytest.raises(EngineError):
        container.pause()
    engine.answers["/unpause"] = RefusedError(500, f"Container {ID} is not paused")
    assert not container.thaw(None)
    assert not container.is_paused
    engine.answers["/pause"] = RefusedError(409, "Container x is not running")
    with pytest.raises(RefusedError):
        container.pause()
    assert not container.thaw(None)
    engine.answers["/pause"] = None
    container.pause()
    engine.answers["/unpause"] = RefusedError(500, "cannot thaw")
    with pytest.raises(RefusedError):
        container.thaw(None)


def test_what_the_engine_warns_of_is_told(engine: StandIn, container: Container) -> None:
    engine.answers["/create"] = {"Id": ID, "Warnings": ["Memory limited without swap."]}
    engine.answers["/start"] = RefusedError(500, "no")
    with pytest.raises(RefusedError):
        container.start(None)
    assert container.log.new()["problems"] == {"Memory limited without swap": 1}


@pytest.mark.parametrize(
    ("lines", "group"),
    [
        # Version 1, with a tree of version 2 that nobody counts in.
        ([f"12:memory:/uncia-docker-f/{ID}", "0::/system.slice/containerd.service"], "/{ID}"),
        ([f"0::/uncia-docker-f/{ID}"], "/{ID}"),
        ([f"0::/uncia-docker-f/libpod-{ID}/container"], "/libpod-{ID}"),
        ([f"0::/uncia-docker-f/docker-{ID}.scope/init"], "/docker-{ID}.scope"),
        # Somebody else's process, of a PID namespace that is not the Engine's.
        (["0::/user.slice/user-0.slice/session-1.scope"], None),
        ([f"0::/../uncia-docker-f/{ID}"], None),
        (["0::/"], None),
    ],
)
def test_the_group_of_a_container_has_its_id(
    lines: list[str], group: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cgroup"
    file.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(docker_container, "Path", lambda _: file)
    expected = None if group is None else "/uncia-docker-f" + group.replace("{ID}", ID)
    assert group_of(1, ID) == expected


MEMORY, CPU = {"Memory": 9, "MemorySwap": 9}, {"NanoCpus": 1_000_000_000}
LOGS = {"LogConfig": {"Type": "local", "Config": {"max-size": "16m"}}}


@pytest.mark.parametrize(
    ("info", "taken", "columns"),
    [
        ({}, {**MEMORY, **CPU}, {"allocated_memory", "allocated_cpu"}),
        ({"MemoryLimit": False, "CpuCfsQuota": True}, CPU, {"allocated_cpu"}),
        ({"MemoryLimit": True, "CpuCfsQuota": False}, MEMORY, {"allocated_memory"}),
        ({"MemoryLimit": False, "CpuCfsPeriod": False}, {}, set()),
        ({"LoggingDriver": "local"}, {**MEMORY, **CPU, **LOGS}, None),
        ({"LoggingDriver": "journald"}, {**MEMORY, **CPU}, None),
    ],
)
def test_limits_are_those_that_the_engine_has(
    info: dict[str, Any], taken: dict[str, Any], columns: set[str] | None
) -> None:
    function = FunctionSpec("f", memory=9, settings={"cpu": 1_000_000})
    given, allocated = docker_limits.limits(function, info, by_memory=True)
    assert given == taken
    assert columns is None or set(allocated) == columns
