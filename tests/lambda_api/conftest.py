"""A real embedded platform per test, watched for what it leaves behind."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import control_groups
import pytest
from botocore.config import Config
from patience import FACTOR, scaled

from . import site_packages
from .workers import Worker

ROLE = "arn:aws:iam::000000000000:role/any"
START_TIMEOUT_S = scaled(30)
OK = "def handler(event, context):\n    return {'got': event}\n"


def names_below(folder: Path) -> set[str]:
    """Names of all files below a folder, as far as they stay; `Path.rglob` raises if one goes."""
    return {name for _, _, names in os.walk(folder) for name in names}


def package(files: dict[str, str] | str) -> bytes:
    """A zip of these files; of a text alone, as handler.py. The same bytes whenever it is made."""
    if isinstance(files, str):
        files = {"handler.py": files}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


class Platform:
    """``uncia-engine serve`` on a state folder, and a boto3 client for it."""

    def __init__(
        self,
        binary: Path,
        state: Path,
        config: dict[str, Any] | None = None,
        options: Sequence[str | Path] = (),
    ) -> None:
        self.state = state
        command = [str(binary), "serve", "--state", str(state)]
        command += ["--listen", "127.0.0.1:0"] if "--listen" not in options else []
        command += map(str, options)
        if FACTOR > 1:
            config = {"init_timeout_ms": round(scaled(10_000)), **(config or {})}
        if config is not None:
            file = state.with_suffix(".json")
            file.write_text(json.dumps(config))
            command += ["--config", str(file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise AssertionError(f"the engine did not start: {errors.decode()}")
        ready = json.loads(line)
        self.address: str = ready["address"]
        self.url: str = ready["url"]
        self.client = boto3.client(
            "lambda",
            endpoint_url=f"http://{self.address}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, read_timeout=scaled(60), proxies={}),
        )

    def create(self, name: str, source: dict[str, str] | str = OK, **settings: Any) -> Any:
        arguments = {
            "FunctionName": name,
            "Runtime": "python3.11",
            "Handler": "handler.handler",
            "Role": ROLE,
            "Code": {"ZipFile": package(source)},
            "MemorySize": 256,
            "Timeout": int(scaled(50)),
        }
        return self.client.create_function(**(arguments | settings))

    def invoke(self, name: str, event: Any = None, **settings: Any) -> tuple[Any, Any]:
        """The answer of boto3, and the payload read from JSON."""
        answer = self.client.invoke(
            FunctionName=name, Payload=json.dumps(event or {}).encode(), **settings
        )
        return answer, json.loads(answer["Payload"].read() or b"null")

    def headers(self, name: str, event: Any = None) -> dict[str, str]:
        answer, _ = self.invoke(name, event)
        headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it, and return its exit code; a second call returns the same."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=scaled(120))
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return self.process.returncode


def _group(state: Path) -> str:
    """The platform's name for its cgroup begins this one, which is made of its state folder."""
    return "uncia-" + hashlib.sha256(str(state.resolve()).encode()).hexdigest()


def cgroups(state: Path) -> list[Path]:
    """The cgroups of the platform on ``state``, in every hierarchy."""
    result = control_groups.named("uncia-*")
    return [path for path in result if path.is_dir() and _group(state).startswith(path.name)]


def instances(state: Path, *, made_ahead: bool = True) -> list[int]:
    """Process ids of the first processes of all instances of the platform on ``state``.

    With those that are kept for instances to come, unless they are not asked for.
    """
    result = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"__instance" in arguments[:2]:
                group, _, instance = arguments[2].decode().partition("/")
                kept = instance in ("prepared", "pool")
                if _group(state).startswith(group) and (made_ahead or not kept):
                    result.append(int(folder.name))
    return result


def mounts(state: Path) -> list[str]:
    """Mounts of this namespace that have to do with ``state``."""
    return [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(state) in line
    ]


Serve = Callable[..., Platform]


@pytest.fixture(scope="session")
def runtimes(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtimes that a platform copies from this machine at its first start."""
    state = tmp_path_factory.mktemp("runtimes") / "state"
    Platform(engine_binary, state).stop()
    return state / "runtimes"


@pytest.fixture(scope="session")
def java(engine_binary: Path, runtimes: Path) -> None:
    """Has every platform find Java's runtime, which is built when the first function wants it.

    Skips the test where there is no Java with a compiler.
    """
    from uncia import functions
    from uncia.errors import UnciaError

    try:
        hello = functions.package("hello", "java")
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    platform = Platform(engine_binary, runtimes.parent)
    try:
        platform.create(
            "f", Code={"ZipFile": hello.read_bytes()}, Runtime="java21", Handler=hello.handler
        )
    finally:
        platform.stop()


@pytest.fixture(scope="session")
def numpy_layer() -> bytes:
    return site_packages.layer("numpy")


@pytest.fixture(scope="session")
def onnxruntime_layer() -> bytes:
    """Beside NumPy's."""
    if not site_packages.is_installed("onnxruntime"):
        pytest.skip("onnxruntime is not installed: pyproject.toml says for which Pythons it is")
    return site_packages.layer("onnxruntime", "flatbuffers")


@pytest.fixture
def own_python(serve: "Serve") -> Platform:
    """A platform whose functions run in the tests' Python, for which its packages are made."""
    return serve({"runtimes": {"python": sys.executable}})


@pytest.fixture
def serve(engine_binary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Starts platforms; afterwards nothing of them may be left.

    Each has its runtimes beforehand, as links to those of another, which spares it half a second of
    computing. Where a module says ``BARE = True``, platforms make their state folders themselves.
    """
    if os.getuid() != 0:
        pytest.skip("checks cgroups and other users' processes, which takes root")
    started: list[Platform] = []

    def start(
        config: dict[str, Any] | None = None,
        state: str = "state",
        binary: Path = engine_binary,
        options: Sequence[str | Path] = (),
    ) -> Platform:
        folder = tmp_path / state
        if not getattr(request.module, "BARE", False) and not folder.exists():
            folder.mkdir()
            (folder / "lock").touch()  # by which a platform knows it as one's
            ready = request.getfixturevalue("runtimes")
            subprocess.run(["cp", "-al", ready, folder], check=True)
        platform = Platform(binary, folder, config, options)
        started.append(platform)
        return platform

    yield start
    for platform in started:
        platform.stop()
    for state in {platform.state for platform in started}:
        assert (instances(state), cgroups(state), mounts(state)) == ([], [], [])


@pytest.fixture
def platform(serve: Serve) -> Platform:
    return serve()


Join = Callable[..., Worker]


@pytest.fixture
def controller(serve: Serve) -> Platform:
    """A platform of which workers are part once they have joined."""
    return serve({"policies": {"placement": "least-loaded"}}, options=["--controller"])


@pytest.fixture
def join(engine_binary: Path, tmp_path: Path, runtimes: Path, serve: Serve) -> Iterator[Join]:
    """Starts workers; afterwards nothing of them may be left."""
    workers: list[Worker] = []

    def start(controller: Platform, name: str, **config: Any) -> Worker:
        state = tmp_path / f"worker-{name}"
        if not state.exists():
            state.mkdir()
            (state / "lock").touch()
            subprocess.run(["cp", "-al", runtimes, state], check=True)
        worker = Worker(engine_binary, controller.url, state, name, config)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.stop()
    for state in {worker.state for worker in workers}:
        if any(it.state == state and it.process.returncode == -signal.SIGKILL for it in workers):
            # Who takes its state folder next removes what it left.
            again = Worker(engine_binary, "http://127.0.0.1:9", state, "sweeper")
            assert again.process.wait(timeout=scaled(60)) == 1
            again.stop()
        assert (instances(state), cgroups(state), mounts(state)) == ([], [], [])
