"""Starting instances: the processes that start them, and many at a time."""

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import Platform, Serve, cgroups, instances

WAITS = """
import os
import time

def handler(event, context):
    time.sleep(event.get("wait", 0))
    return os.listdir("/proc/self/fd"), os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME")
"""


def spawners(platform: Platform) -> list[int]:
    """The processes from which the platform starts instances, one for each CPU."""
    deadline = time.monotonic() + scaled(60)
    while True:
        pids = spawners_now(platform)
        # A copy that is being made has the name of the process that it is made from.
        if len(pids) == len(os.sched_getaffinity(0)) or time.monotonic() > deadline:
            return pids
        time.sleep(0.05)


def spawners_now(platform: Platform) -> list[int]:
    """Those of this moment, and copies of them that are being made."""
    pids = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if arguments[1:2] == [b"__spawner"] and int(parent) == platform.process.pid:
            pids.append(int(folder.name))
    return pids


def test_many_instances_start_at_once(serve: Serve) -> None:
    platform = serve()
    platform.create("f", WAITS)
    started_by = spawners(platform)
    assert len(started_by) == len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(20) as threads:
        # Longer than all of them take to come, so that none finds an instance that is free.
        answers = list(threads.map(lambda _: platform.invoke("f", {"wait": 5})[1], range(20)))
    assert len({name for _, name in answers}) == 20
    # The standard streams, the socket of the Runtime API's client, and the listing itself.
    assert {len(descriptors) for descriptors, _ in answers} == {5}
    assert set(spawners(platform)) == set(started_by)
    assert platform.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in started_by)


def test_a_platform_that_is_killed_leaves_no_process(serve: Serve) -> None:
    platform = serve()
    platform.create("f", WAITS)
    platform.invoke("f")
    started_by = spawners(platform)
    platform.stop(signal.SIGKILL)
    for pid in started_by:
        while Path(f"/proc/{pid}").exists():
            os.sched_yield()
    # The next one removes the control groups.
    assert serve().stop() == 0


NODE = {"handler.js": "exports.handler = async (event) => process.env.AWS_LAMBDA_FUNCTION_NAME;"}
PYTHON = """
import os

def handler(event, context):
    return os.environ["AWS_LAMBDA_FUNCTION_NAME"]
"""


def started_runtimes(platform: Platform, label: bytes = b"/pool") -> list[int]:
    """The first processes of the runtimes that wait, and their runtimes."""
    result = []
    for first in instances(platform.state):
        try:
            # Empty once it has ended and is not reaped yet.
            (name,) = Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0")[2:3]
            children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        except (OSError, ValueError):
            continue
        if name.endswith(label):
            result += [first, *map(int, children)]
    return result


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has zygotes")
def test_copies_of_a_zygote_are_there_before_their_function_is_called(serve: Serve) -> None:
    tags = {"uncia:start-from": "zygote", "uncia:keep-alive-ms": "1"}
    for created in (True, False):
        platform = serve()
        if created:
            platform.create("f", PYTHON, Runtime="python3.11", Tags=tags)
        # The platform knows of the first once it makes the second.
        while len(started_runtimes(platform, b"/prepared")) < 4:
            time.sleep(0.05)
        assert platform.headers("f")["x-uncia-start"] == "restored"
        assert platform.stop() == 0


@pytest.mark.parametrize("runtime", ["nodejs20.x", "python3.11"])
def test_rows_say_which_instances_were_started_runtimes(serve: Serve, runtime: str) -> None:
    source: dict[str, str] | str = PYTHON
    if runtime.startswith("nodejs"):
        if shutil.which("node") is None:
            pytest.skip("there is no Node.js")
        source = NODE
    platform = serve({"pool": 2})
    tags = {"uncia:start-from": "pool", "uncia:keep-alive-ms": "1"}
    for name in ("f", "g"):
        platform.create(name, source, Runtime=runtime, Tags=tags, MemorySize=128)
    first = platform.headers("f")
    assert first["x-uncia-start"] == "cold"
    while len(started_runtimes(platform)) < 4:
        time.sleep(0.05)
    starts = []
    for name in ("f", "g"):
        headers: dict[str, str] = {}
        while headers.get("x-uncia-start") != "restored":
            headers = platform.headers(name)
            starts.append(headers["x-uncia-start"])
            time.sleep(0.2)
        assert platform.invoke(name)[1] == name
    assert set(starts) <= {"cold", "restored", "warm"}
    assert len(started_runtimes(platform)) <= 4 + 2
    waiting = started_runtimes(platform)
    platform.stop(signal.SIGKILL)
    for pid in waiting:
        while Path(f"/proc/{pid}").exists():
            os.sched_yield()
    # The next one removes the control groups.
    assert serve().stop() == 0


def test_a_runtime_that_cannot_wait_refuses_the_pool(serve: Serve) -> None:
    platform = serve()
    with pytest.raises(ClientError, match=r"uncia:start-from .*provided.*in node, python or ruby"):
        platform.create(
            "f", {"bootstrap": ""}, Runtime="provided", Tags={"uncia:start-from": "pool"}
        )


def test_killed_spawners_are_started_again(serve: Serve) -> None:
    platform = serve()
    platform.create("f", WAITS)
    killed = spawners(platform)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # The first may be what finds one gone; none of them fails.
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: platform.invoke("f", {"wait": 3})[1], range(4)))
    assert len({name for _, name in answers}) == 4
    assert not set(killed) & set(spawners(platform))
    assert platform.stop() == 0


def test_a_state_folder_may_be_relative(
    engine_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    platform = Platform(engine_binary, Path("state"))
    try:
        for kind in ("fresh", "prepared", "zygote"):
            platform.create(kind, Tags={"uncia:start-from": kind})
            answer, _ = platform.invoke(kind)
            assert "FunctionError" not in answer
    finally:
        platform.stop()
    assert (instances(tmp_path / "state"), cgroups(tmp_path / "state")) == ([], [])
