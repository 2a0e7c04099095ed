"""Functions in containers of a real Docker Engine, which the tests start where there is one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from docker_engine import Daemon, daemon, lacking, small_root, within
from patience import scaled

from uncia.doctor import programs
from uncia.errors import RunFailedError
from uncia.layouts import Execution, Layer, LayerWriter, read_image, write_image
from uncia.platforms import Context, FunctionSpec, docker, groups
from uncia.platforms.journal import Journal
from uncia.platforms.shims.docker_engine import EngineError, remove_container

if reason := lacking():
    pytest.skip(reason, allow_module_level=True)

MB = 2**20
PYTHON = """
import os, sys, time

print("loaded")

def handler(event, context):
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "exit" in event:
        os._exit(event["exit"])
    if "hold" in event:
        return len(bytes(event["hold"]) + b"x" * event["hold"])
    if "raise" in event:
        raise ValueError(event["raise"])
    return {"pid": os.getpid(), "left": context.get_remaining_time_in_millis(), "event": event,
            "name": context.function_name, "variable": os.environ.get("VARIABLE")}
"""
NODE = """
exports.handler = async (event) => {
  console.log("an answer that is none");
  if (event.raise) throw new TypeError(event.raise);
  return { pid: process.pid, event };
};
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("engine")
    try:
        running = daemon(folder)
        started = running.__enter__()
    except EngineError as error:
        pytest.skip(str(error))
    try:
        with within(started.pid):
            yield started
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_root(tmp_path_factory.mktemp("root"), "python3")


@pytest.fixture
def connect(
    engine: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., docker.DockerPlatform]]:
    """Platforms of a run, which leave nothing behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journal = Journal("run", None)
    before = engine.names()
    platforms: list[docker.DockerPlatform] = []

    def make(**options: object) -> docker.DockerPlatform:
        form = docker.Options.model_validate({"kind": "docker", "socket": engine.socket, **options})
        platforms.append(docker.connect(form, Context("run", journal)))
        platforms[-1].start()
        return platforms[-1]

    yield make
    for platform in platforms:
        platform.close()
    assert engine.names() == before
    assert journal.outstanding == []
    journal.close()
    assert not journal.path.exists()


@pytest.fixture
def spec(root: Path, tmp_path: Path) -> Callable[..., FunctionSpec]:
    def make(name: str, source: str = PYTHON, **changes: Any) -> FunctionSpec:
        code = tmp_path / f"{name}.tar"
        ending = "js" if source == NODE else "py"
        with code.open("wb") as file, LayerWriter(file) as writer:
            writer.add_bytes(f"var/task/handler.{ending}", source.encode())
        base = small_root(tmp_path, "node") if source == NODE else root
        layers = [*read_image(base).layers, Layer(code)]
        execution = Execution((), (), {"PATH": "/usr/bin"}, "/var/task")
        image = write_image(tmp_path / f"{name}-image", layers, execution)
        given = {
            "runtime": "node" if source == NODE else "python",
            "timeout": round(scaled(20) * 1e9),
            "memory": 128 * MB,
            "settings": {"cpu": 1_000_000},
        }
        return FunctionSpec(name, image=image.folder, **{**given, **changes})

    return make


def left(name: str) -> list[Path]:
    return groups.folders(f"docker-{name}", every=True)


def test_a_container_serves_and_says_what_it_used(
    engine: Daemon, connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect()
    settings = {"cpu": 500_000, "cpus": "0"}
    function = spec("One", settings=settings, environment={"VARIABLE": "a value"})
    deployed = platform.deploy(function)
    cold = platform.invoke(deployed, {"n": 1})
    warm = platform.invoke(deployed, {"n": 2})
    answer = json.loads(cold.body)
    assert answer["event"] == {"n": 1}
    assert answer["pid"] == 1
    assert (answer["name"], answer["variable"]) == ("One", "a value")
    assert 0 < answer["left"] <= scaled(20) * 1e3
    assert (cold.headers["x-uncia-start"], warm.headers["x-uncia-start"]) == ("cold", "warm")
    assert int(cold.headers["x-uncia-initialization-ns"]) > 1_000_000
    assert "x-uncia-initialization-ns" not in warm.headers
    name = warm.headers["x-uncia-instance"]
    assert name == cold.headers["x-uncia-instance"]
    assert int(warm.headers["x-uncia-cpu-user-ns"]) + int(warm.headers["x-uncia-cpu-system-ns"]) > 0
    raised = platform.invoke(deployed, {"raise": "wrong"})
    assert (raised.status, json.loads(raised.body)) == (
        502,
        {"errorType": "ValueError", "errorMessage": "wrong"},
    )
    shown = engine.engine.ask("GET", f"/containers/{name}/json")
    limits = shown["HostConfig"]
    assert (limits["Memory"], limits["MemorySwap"]) == (128 * MB, 128 * MB)
    assert (limits["NanoCpus"], limits["CpusetCpus"]) == (500_000_000, "0")
    assert limits["LogConfig"]["Config"]["max-size"] == "16m"
    assert shown["Config"]["StopTimeout"] == 0
    assert shown["Config"]["Labels"][docker.LABEL] == "One"
    [instance] = platform.collect().instances.to_pylist()
    assert instance["instance"] == name
    assert (instance["invocations"], instance["ended"]) == (3, None)
    assert (instance["allocated_cpu"], instance["allocated_memory"]) == (500_000, 128 * MB)
    assert len(instance["idle"]) == 4
    # As monitors find it.
    members = [Path(f"{tree}/{name}/cgroup.procs") for tree in left("One")]
    assert instance["cgroup"] == f"/uncia-docker-One/{name}"
    assert any(str(shown["State"]["Pid"]) in it.read_text().split() for it in members)
    platform.remove(deployed)
    [ended] = platform.collect().instances.to_pylist()
    assert ended["end_reason"] == "shutdown"
    assert ended["ended"] > instance["started"]
    assert left("One") == []


def test_the_doctor_says_what_answers(engine: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
    check = programs._docker()
    assert (check.status, check.consequence) == ("ok", "")
    version = engine.engine.version()["Version"]
    assert f"answers at {engine.socket}: version {version}, storage " in check.finding


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_node_by_the_container_s_address(
    connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect(connect="address")
    deployed = platform.deploy(spec("node", NODE))
    for start in ("cold", "warm"):
        answer = platform.invoke(deployed, {"n": start})
        assert answer.headers["x-uncia-start"] == start
        assert json.loads(answer.body)["event"] == {"n": start}
    raised = platform.invoke(deployed, {"raise": "wrong"})
    assert json.loads(raised.body) == {"errorType": "TypeError", "errorMessage": "wrong"}


def state(engine: Daemon, name: str) -> str:
    return str(engine.engine.ask("GET", f"/containers/{name}/json")["State"]["Status"])


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + scaled(10)
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_idle_containers_are_paused_and_go_on(
    engine: Daemon, connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect(idle="paused")
    deployed = platform.deploy(spec("paused"))
    name = platform.invoke(deployed, {}).headers["x-uncia-instance"]
    assert eventually(lambda: state(engine, name) == "paused")
    again = platform.invoke(deployed, {"n": 1})
    assert again.headers["x-uncia-start"] == "thawed"
    assert again.headers["x-uncia-instance"] == name
    assert eventually(lambda: state(engine, name) == "paused")
    spans = platform.collect().spans.to_pylist()
    assert [it["name"] for it in spans] == ["create", "start", "runtime", "thaw"]
    took = {it["name"]: it["end"] - it["start"] for it in spans}
    assert 0 < took["thaw"] <= int(again.headers["x-uncia-queued-ns"])
    # One that is paused is removed with the rest; the fixture looks.


def test_requests_have_containers_of_their_own_until_they_are_idle_for_too_long(
    engine: Daemon, connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect(concurrency=2, keep_alive="100ms")
    deployed = platform.deploy(spec("two"))
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda _: platform.invoke(deployed, {"sleep": 0.5}), range(3)))
    assert [it.status for it in answers] == [200] * 3
    names = {it.headers["x-uncia-instance"] for it in answers}
    assert len(names) == 2
    starts = sorted(it.headers["x-uncia-start"] for it in answers)
    assert starts == ["cold", "cold", "warm"]
    waited = max(int(it.headers["x-uncia-queued-ns"]) for it in answers)
    assert waited > 400_000_000
    assert eventually(lambda: not any("uncia-two" in name for name in names_of(engine)))
    fresh = platform.invoke(deployed, {})
    assert fresh.headers["x-uncia-start"] == "cold"
    assert fresh.headers["x-uncia-instance"] not in names
    platform.remove(deployed)
    rows = platform.collect().instances.to_pylist()
    ends = [it["end_reason"] for it in sorted(rows, key=lambda it: it["started"])]
    assert ends[:2] == ["keep_alive"] * 2


def test_without_keep_alive_each_request_has_a_container_of_its_own(
    connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect(keep_alive="0s", idle="paused")
    deployed = platform.deploy(spec("fresh"))
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: platform.invoke(deployed, {}), range(5)))
    assert [it.headers["x-uncia-start"] for it in answers] == ["cold"] * 5
    assert len({it.headers["x-uncia-instance"] for it in answers}) == 5
    platform.remove(deployed)
    rows = platform.collect().instances.to_pylist()
    assert [it["invocations"] for it in rows] == [1] * 5


def names_of(engine: Daemon) -> set[str]:
    return {name for name in engine.names() if name.startswith("/")}


def test_what_ends_a_container_is_said_and_another_takes_its_place(
    connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect()
    # Long enough for the start, which is not in it.
    deployed = platform.deploy(spec("ends", timeout=round(scaled(1) * 1e9), memory=32 * MB))
    late = platform.invoke(deployed, {"sleep": 600})
    assert (late.status, late.headers["x-uncia-outcome"]) == (504, "timeout")
    left_early = platform.invoke(deployed, {"exit": 3})
    assert left_early.status == 502
    assert "exit code 3" in json.loads(left_early.body)["errorMessage"]
    killed = platform.invoke(deployed, {"hold": 64 * MB})
    assert "more than its memory" in json.loads(killed.body)["errorMessage"]
    assert platform.invoke(deployed, {}).headers["x-uncia-start"] == "cold"
    platform.remove(deployed)
    rows = platform.collect().instances.to_pylist()
    ends = [it["end_reason"] for it in sorted(rows, key=lambda it: it["started"])]
    assert ends == ["timeout", "exit", "out_of_memory", "shutdown"]


def test_a_function_that_cannot_be_loaded_is_an_answer_with_what_it_printed(
    connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect()
    deployed = platform.deploy(spec("broken", "raise RuntimeError('no such luck')\n"))
    answer = platform.invoke(deployed, {})
    assert answer.status == 503
    assert "no such luck" in json.loads(answer.body)["errorMessage"]
    # The Engine may have others, of its machine.
    assert any("no such luck" in it for it in platform.collect().warnings)


def test_an_image_that_the_engine_does_not_take(
    connect: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    platform = connect()
    function = spec("torn")
    layer = read_image(function.image).layers[-1].path
    layer.write_bytes(b"no archive" * 100)
    with pytest.raises(RunFailedError, match="torn: its image is not taken: "):
        platform.deploy(function)


def stranger(engine: Daemon, root: Path) -> str:
    """A container of somebody else, with an image that has no label; its name."""
    from uncia.platforms.docker_images import Archive

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/python3"]},
        "rootfs": {"type": "layers", "diff_ids": [read_image(root).layers[0].diff_id]},
    }
    made = Archive(
        "stranger:latest", json.dumps(config).encode(), (read_image(root).layers[0].path,)
    )
    engine.engine.ask("POST", "/images/load", blocks=made.blocks())
    body = {"Image": "stranger:latest"}
    engine.engine.ask("POST", "/containers/create", body, {"name": "uncia-stranger"})
    return "/uncia-stranger"


def test_a_run_of_an_experiment_file(
    engine: Daemon,
    root: Path,
    tmp_path: Path,
    state_home: Path,
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del state_home
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = engine.names()
    (tmp_path / "root").symlink_to(root)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"""
name: demo
platform: {{kind: docker, idle: paused}}
functions:
  hello: {{source: hello, memory: 128MB, root: root}}
experiments:
  one:
    function: hello
    closed: {{clients: 1, requests: 3, duration: {scaled(30):.0f}s, think: 200ms}}
"""
    )
    code, _, errors = command("run", file, "--out", tmp_path / "out")
    assert code == 0, errors
    rows = pq.read_table(tmp_path / "out" / "invocations.parquet").to_pylist()
    assert [it["outcome"] for it in rows] == ["ok"] * 3
    assert rows[0]["start"] == "cold"
    assert {it["start"] for it in rows[1:]} <= {"thawed", "warm"}
    assert {it["allocated_cpu"] for it in rows} == {72_357}
    [instance] = pq.read_table(tmp_path / "out" / "instances.parquet").to_pylist()
    assert {it["instance"] for it in rows} == {instance["instance"]}
    assert instance["cgroup"].endswith(instance["instance"])
    assert engine.names() == before


RUN = """
import sys, time
from pathlib import Path
from uncia.platforms import Context, FunctionSpec, docker
from uncia.platforms.journal import Journal

journal = Journal("killed", None)
options = docker.Options(kind="docker", socket=sys.argv[1], idle="paused")
platform = docker.connect(options, Context("killed", journal))
platform.start()
function = FunctionSpec("left", image=Path(sys.argv[2]), runtime="python")
print(platform.invoke(platform.deploy(function), {}).status, flush=True)
time.sleep(600)
"""


def test_what_a_killed_run_leaves_is_cleaned_and_nothing_else(
    engine: Daemon,
    root: Path,
    spec: Callable[..., FunctionSpec],
    state_home: Path,
    command: Callable[..., tuple[int, str, str]],
) -> None:
    del state_home
    name = stranger(engine, root)
    before = engine.names()
    arguments = [engine.socket, str(spec("left").image)]
    run = subprocess.Popen([sys.executable, "-c", RUN, *arguments], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"200\n"
    pids = [int(it.name) for it in Path("/proc").glob("[1-9]*")]
    servers = [pid for pid in pids if is_child(pid, run.pid, b"docker_host.py")]
    assert len(servers) == 1
    # The server would remove its containers, if it could.
    for pid in (*servers, run.pid):
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    assert len(engine.names() - before) == 2
    assert left("left") != []
    code, output, errors = command("clean")
    assert code == 0, output + errors
    assert engine.names() == before
    assert left("left") == []
    remove_container(engine.engine, name.removeprefix("/"))


def is_child(pid: int, parent: int, argument: bytes) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return int(status[status.rindex(")") + 2 :].split()[1]) == parent and argument in command
