"""Bare processes: what they answer, what rows are told, and that nothing is left of them."""

import io
import json
import os
import shutil
import signal
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import scaled

from uncia.errors import UnciaError
from uncia.platforms import Context, Deployment, FunctionSpec, groups, native, processes
from uncia.platforms.journal import Journal

PYTHON = """
import os, sys, time

print("loaded")

def handler(event, context):
    print("an answer that is none")
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "exit" in event:
        os._exit(event["exit"])
    if "raise" in event:
        raise ValueError(event["raise"])
    return {"pid": os.getpid(), "left": context.get_remaining_time_in_millis(), "event": event}
"""
NODE = """
exports.handler = async (event) => {
  console.log("an answer that is none");
  if (event.raise) throw new TypeError(event.raise);
  return { pid: process.pid, event };
};
"""


def spec(name: str, source: str, **settings: object) -> FunctionSpec:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.js" if source == NODE else "handler.py", source)
    runtime = "node" if source == NODE else "python"
    timeout = round(scaled(20) * 1e9)
    changes = {"runtime": runtime, "handler": "handler.handler", "timeout": timeout, **settings}
    return FunctionSpec(name, buffer.getvalue(), **changes)  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journal = Journal(f"native-{os.getpid()}", None)
    yield journal
    # Those of a test that failed half-way, too.
    while PLATFORMS:
        PLATFORMS.pop().close()
    journal.close()


PLATFORMS: list[native.NativePlatform] = []


def connect(journal: Journal, **options: object) -> native.NativePlatform:
    form = native.Options.model_validate({"kind": "native", **options})
    PLATFORMS.append(native.connect(form, Context("run", journal)))
    return PLATFORMS[-1]


def left(name: str) -> list[object]:
    folder = Path(f"/tmp/uncia-native-{name}")
    return [*groups.folders(f"native-{name}"), *([folder] if folder.exists() else [])]


def test_processes_that_stay_serve_events_and_say_what_they_used(journal: Journal) -> None:
    platform = connect(journal, processes=2)
    name = f"warm-{os.getpid()}"
    deployment = platform.deploy(spec(name, PYTHON))
    if os.geteuid() == 0:
        assert left(name)
    with ThreadPoolExecutor(2) as threads:
        ask = [{"sleep": 0.3, "number": number} for number in range(2)]
        both = list(threads.map(lambda event: platform.invoke(deployment, event), ask))
    answers = [json.loads(answer.body) for answer in both]
    assert [answer["event"]["number"] for answer in answers] == [0, 1]
    assert len({answer["pid"] for answer in answers}) == 2
    headers = both[0].headers
    assert headers["x-uncia-start"] == "warm"
    assert int(headers["x-uncia-execution-ns"]) >= 300_000_000
    assert int(headers["x-uncia-cpu-user-ns"]) < int(headers["x-uncia-execution-ns"])
    failed = platform.invoke(deployment, {"raise": "no"})
    assert (failed.status, failed.headers["x-uncia-outcome"]) == (502, "function_error")
    assert json.loads(failed.body) == {"errorType": "ValueError", "errorMessage": "no"}
    # One that ends is replaced.
    ended = platform.invoke(deployment, {"exit": 3})
    assert "ended without an answer" in json.loads(ended.body)["errorMessage"]
    assert platform.invoke(deployment, {}).status == 200
    platform.close()
    assert left(name) == []


def test_a_process_outlives_the_connection_for_which_it_was_started(journal: Journal) -> None:
    platform = connect(journal)
    deployment = platform.deploy(spec(f"again-{os.getpid()}", PYTHON))
    assert platform.invoke(deployment, {"exit": 3}).status == 502
    # The thread of that connection is gone by then, and the only process must not be.
    time.sleep(scaled(0.3))
    answers = [platform.invoke(deployment, {}) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert len({json.loads(answer.body)["pid"] for answer in answers}) == 1
    platform.close()


def test_temporary_files_go_with_the_function(journal: Journal) -> None:
    platform = connect(journal)
    name = f"temporary-{os.getpid()}"
    source = (
        "import tempfile\ndef handler(event, context):\n    return tempfile.mkstemp('.uncia')[1]\n"
    )
    deployment = platform.deploy(spec(name, source))
    file = Path(json.loads(platform.invoke(deployment, {}).body))
    assert file.exists()
    platform.close()
    assert not file.exists()
    assert left(name) == []


def test_a_process_for_each_request_is_a_start(journal: Journal) -> None:
    platform = connect(journal, mode="start")
    deployments = [platform.deploy(spec(f"start-{os.getpid()}", PYTHON))]
    if shutil.which("node"):
        deployments.append(platform.deploy(spec(f"node-{os.getpid()}", NODE)))
    for deployment in deployments:
        answers = [platform.invoke(deployment, {"a": number}) for number in range(2)]
        bodies = [json.loads(answer.body) for answer in answers]
        assert [body["event"] for body in bodies] == [{"a": 0}, {"a": 1}]
        assert bodies[0]["pid"] != bodies[1]["pid"]
        assert answers[0].headers["x-uncia-start"] == "cold"
        assert int(answers[0].headers["x-uncia-initialization-ns"]) > 0
        assert platform.invoke(deployment, {"raise": "no"}).status == 502
    platform.close()
    assert not any(left(deployment.name) for deployment in deployments)


def test_a_function_is_loaded_before_it_is_served_and_its_limit_is_of_requests(
    journal: Journal,
) -> None:
    platform = connect(journal)
    slow = f"import time\ntime.sleep({scaled(1.5)})\n{PYTHON}"
    limit_ns = round(scaled(1) * 1e9)
    deployment = platform.deploy(spec(f"slow-{os.getpid()}", slow, timeout=limit_ns))
    for _ in range(2):
        answer = platform.invoke(deployment, {})
        assert answer.status == 200, answer.body
    # What another process takes to load it, once this one has ended, is waiting for a process.
    assert platform.invoke(deployment, {"exit": 3}).status == 502
    answer = platform.invoke(deployment, {})
    assert answer.status == 200
    assert int(answer.headers["x-uncia-queued-ns"]) > limit_ns


def test_what_a_function_starts_reads_no_events_and_long_errors_are_answers(
    journal: Journal,
) -> None:
    platform = connect(journal)
    source = """
import subprocess

def handler(event, context):
    if event:
        raise ValueError("x" * 60000)
    return subprocess.run(["head", "-c", "1"], capture_output=True, check=True).stdout.decode()
"""
    deployment = platform.deploy(spec(f"child-{os.getpid()}", source))
    assert json.loads(platform.invoke(deployment, {}).body) == ""
    failed = platform.invoke(deployment, {"a": 1})
    assert (failed.status, failed.headers["x-uncia-outcome"]) == (502, "function_error")
    assert len(json.loads(failed.body)["errorMessage"]) == 60_000
    assert len(failed.headers["x-uncia-error"]) < 1_000
    platform.close()


def test_an_invocation_that_takes_too_long_is_ended(journal: Journal) -> None:
    platform = connect(journal)
    deployment = platform.deploy(spec(f"late-{os.getpid()}", PYTHON, timeout=300_000_000))
    late = platform.invoke(deployment, {"sleep": 60})
    assert (late.status, late.headers["x-uncia-outcome"]) == (504, "timeout")
    platform.close()


@pytest.mark.parametrize("mode", ["warm", "start"])
def test_what_a_function_starts_in_other_sessions_ends_with_it(
    journal: Journal, tmp_path: Path, mode: str
) -> None:
    platform = connect(journal, mode=mode)
    source = """
import os, pathlib, subprocess, time

def handler(event, context):
    pids = pathlib.Path(os.environ["PIDS"])
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, file=pids.open("a"))
    # One whose parent has ended, too.
    subprocess.run(["sh", "-c", f"setsid sleep 600 & echo $! >> {pids}"])
    if "sleep" in event:
        time.sleep(event["sleep"])
    os._exit(0)
"""
    pids = tmp_path / "pids"
    name = f"sessions-{mode}-{os.getpid()}"
    settings = {"timeout": round(scaled(2) * 1e9), "environment": {"PIDS": str(pids)}}
    deployment = platform.deploy(spec(name, source, **settings))
    late = platform.invoke(deployment, {"sleep": 600})
    assert (late.status, late.headers["x-uncia-outcome"]) == (504, "timeout")
    assert platform.invoke(deployment, {}).status == 502
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 4
    assert [pid for pid in started if processes.identify(pid) is not None] == []
    platform.close()
    assert left(name) == []


def test_what_a_killed_run_left_is_cleaned(journal: Journal) -> None:
    platform = connect(journal)
    name = f"killed-{os.getpid()}"
    deployment = platform.deploy(spec(name, PYTHON))
    pid = json.loads(platform.invoke(deployment, {}).body)["pid"]
    running = platform._running[name]
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    resources = list(running.resources)
    assert native.clean(resources, lambda _line: None) == resources
    assert left(name) == []
    # Whoever waits for orphans may not have done so yet.
    assert processes.identify(pid) is None
    platform.remove(Deployment(name))


def test_what_is_no_bare_process_is_told(journal: Journal) -> None:
    platform = connect(journal)
    with pytest.raises(UnciaError, match="bare processes are of python and node, not ruby"):
        platform.deploy(spec("f", PYTHON, runtime="ruby3.2"))
    with pytest.raises(UnciaError, match="takes packages, and no images"):
        platform.deploy(FunctionSpec("f"))
