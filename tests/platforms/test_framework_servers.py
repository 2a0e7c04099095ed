"""Functions behind frameworks: what is refused, and what serves where it is installed."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import scaled

from uncia.errors import UnciaError
from uncia.functions.package import package
from uncia.platforms import Context, FunctionSpec, framework_servers, frameworks, groups
from uncia.platforms.framework_servers import ServerPlatform
from uncia.platforms.journal import Journal
from uncia.platforms.shims import reaper

PYTHON = """
import os, time

def handler(event, context):
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "raise" in event:
        raise ValueError(event["raise"])
    return {"event": event, "name": context.function_name, "given": os.environ["GIVEN"]}
"""
NODE = """
exports.handler = async (event, context) => {
  if (event.sleep) await new Promise((resolve) => setTimeout(resolve, 1000 * event.sleep));
  if (event.raise) throw new RangeError(event.raise);
  return { event, name: context.functionName, given: process.env.GIVEN };
};
"""
SOURCES = {"python": ("handler.py", PYTHON), "node": ("handler.js", NODE)}
NAMES = {"python": "ValueError", "node": "RangeError"}


def spec(name: str, language: str) -> FunctionSpec:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(*SOURCES[language])
    return FunctionSpec(
        name,
        buffer.getvalue(),
        runtime=language,
        handler="handler.handler",
        timeout=round(scaled(20) * 1e9),
        environment={"GIVEN": "a {port} b"},
    )


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journal = Journal(f"server-{os.getpid()}", None)
    yield journal
    while PLATFORMS:
        PLATFORMS.pop().close()
    journal.close()


PLATFORMS: list[ServerPlatform] = []


def connect(journal: Journal, framework: str, **options: object) -> ServerPlatform:
    form = framework_servers.Options.model_validate(
        {"kind": "server", "framework": framework, **options}
    )
    for each in form.chain():
        if not each.place().is_dir():
            pytest.skip(f"{each.name} is not installed: make frameworks")
    if form.chain()[-1].isolated and os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    PLATFORMS.append(framework_servers.connect(form, Context("run", journal)))
    return PLATFORMS[-1]


def left(name: str) -> list[object]:
    folder = Path(f"/tmp/uncia-server-{name}")
    return [*groups.folders(f"server-{name}"), *([folder] if folder.exists() else [])]


CASES = [
    ("functions-framework-python", "python", {}),
    ("functions-framework-node", "node", {}),
    ("aws-emulator", "python", {"concurrency": 2}),
    ("workerd", "node", {}),
    ("queue-proxy", "python", {}),
    ("queue-proxy", "node", {"before": "functions-framework-node"}),
]


@pytest.mark.parametrize(("framework", "language", "options"), CASES)
def test_a_function_is_served_by_a_framework(
    journal: Journal, framework: str, language: str, options: dict[str, object]
) -> None:
    platform = connect(journal, framework, **options)
    platform.start()
    name = f"{framework}-{language}-{os.getpid()}"
    deployment = platform.deploy(spec(name, language))
    first = platform.invoke(deployment, {"a": 1})
    assert first.status == 200, first.body
    assert json.loads(first.body) == {"event": {"a": 1}, "name": name, "given": "a {port} b"}
    headers = {key.lower(): value for key, value in first.headers.items()}
    assert headers["x-uncia-instance"]
    assert headers["x-uncia-start"] == ("cold" if framework == "aws-emulator" else "warm")
    # Two at once are answered, whether they are served at once or wait.
    with ThreadPoolExecutor(2) as threads:
        events = [{"sleep": 0.2, "number": number} for number in range(2)]
        both = list(threads.map(lambda event: platform.invoke(deployment, event), events))
    assert [json.loads(answer.body)["event"]["number"] for answer in both] == [0, 1]
    if framework != "workerd":  # whose clocks stand still
        headers = {key.lower(): value for key, value in both[0].headers.items()}
        assert int(headers["x-uncia-execution-ns"]) >= 190_000_000
    failed = platform.invoke(deployment, {"raise": "no"})
    assert failed.status == 502
    assert json.loads(failed.body) == {"errorType": NAMES[language], "errorMessage": "no"}
    headers = {key.lower(): value for key, value in failed.headers.items()}
    assert headers["x-uncia-outcome"] == "function_error"
    assert platform.invoke(deployment, {}).status == 200
    platform.close()
    assert left(name) == []


@pytest.mark.parametrize("framework", ["functions-framework-node", "workerd"])
def test_a_function_of_the_catalogue_is_served(journal: Journal, framework: str) -> None:
    platform = connect(journal, framework)
    made = package("hello", runtime="node")
    name = f"hello-{framework}-{os.getpid()}"
    deployment = platform.deploy(
        FunctionSpec(name, made.path.read_bytes(), runtime="node", handler="index.handler")
    )
    answer = json.loads(platform.invoke(deployment, {}).body)
    assert answer["message"] == "hello"
    assert answer["uncia"]["valid"] is True
    # Whose clocks stand still says nothing of time.
    assert ("handler_start_ns" in answer["uncia"]) == (framework != "workerd")
    platform.close()


def test_a_framework_that_is_not_installed_says_what_to_install(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    form = framework_servers.Options(kind="server", framework="queue-proxy")
    platform = framework_servers.connect(form, Context("run", journal))
    with pytest.raises(UnciaError, match="functions-framework-python is not installed") as caught:
        platform.start()
    assert "python -m uncia.functions.frameworks functions-framework-python" in caught.value.hint


def test_the_installer_says_what_there_is_and_refuses_others() -> None:
    command = [sys.executable, "-m", "uncia.functions.frameworks"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "workerd" in shown.stdout
    refused = subprocess.run([*command, "none"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "none" in refused.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"framework": "rack"}, "'rack' is no framework: there are aws-emulator, "),
        ({"framework": "workerd", "before": "aws-emulator"}, "workerd stands before no other"),
        ({"framework": "queue-proxy", "before": "aws-emulator"}, "cannot stand before"),
        ({"framework": "workerd", "concurrency": 2}, "workerd has no bound of requests"),
    ],
)
def test_what_cannot_be_served_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        framework_servers.Options.model_validate({"kind": "server", **options})


def test_a_function_that_does_not_load_fails_with_what_the_framework_said(
    journal: Journal,
) -> None:
    platform = connect(journal, "functions-framework-python")
    name = f"broken-{os.getpid()}"
    broken = FunctionSpec(name, spec(name, "python").package, handler="absent.handler")
    with pytest.raises(UnciaError, match=r"(?s)functions-framework-python does not serve.*absent"):
        platform.deploy(broken)
    assert left(name) == []


def test_what_a_killed_run_left_is_cleaned(journal: Journal) -> None:
    platform = connect(journal, "functions-framework-python")
    name = f"killed-{os.getpid()}"
    deployment = platform.deploy(spec(name, "python"))
    address = urllib.parse.urlsplit(platform.endpoint(deployment).url)
    running = platform._running[name]
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    resources = list(running.resources)
    assert framework_servers.clean(resources, lambda _line: None) == resources
    assert left(name) == []
    if os.geteuid() == 0:  # without groups, workers of a server that was killed live on
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.hostname or "", address.port or 0), 5)


def test_a_server_that_ends_while_the_run_goes_on_is_in_its_warnings(journal: Journal) -> None:
    platform = connect(journal, "functions-framework-node")
    warnings: list[str] = []
    object.__setattr__(platform._context, "warn", warnings.append)
    name = f"ended-{os.getpid()}"
    deployment = platform.deploy(spec(name, "node"))
    (below,) = reaper.children(platform._running[name].process.pid)
    (server,) = reaper.children(below)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(UnciaError, match="does not answer"):
        platform.invoke(deployment, {})
    platform.close()
    (sentence,) = warnings
    assert "functions-framework-node ended with exit code -9 while the run went on" in sentence
    assert left(name) == []


def test_every_framework_is_pinned() -> None:
    for name in frameworks.names():
        framework = frameworks.get(name)
        assert framework.name == name
        install = framework.install
        assert (framework.folder / "requirements.txt").is_file() == (install.python is not None)
        assert (framework.folder / "package-lock.json").is_file() == (install.npm is not None)
        assert (framework.folder / "go.sum").is_file() == (install.go is not None)
        assert all((framework.folder / source).is_file() for source in framework.files.values())
