"""Functions as processes of this machine, without a sandbox: what `native` and `server` share.

A program of the folder ``shims`` stands before the processes of each function, in control groups of
its own. It takes its configuration as the first line of its input, says at which port of the
loopback interface the function is served, and ends with its input.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import (
    Collected,
    Context,
    Deployment,
    FunctionSpec,
    Response,
    SequenceSpec,
    Target,
    TriggerSpec,
    groups,
    processes,
)
from uncia.platforms.http import HttpPlatform
from uncia.platforms.journal import Resource
from uncia.units import NS_PER_S

SHIMS: Final = Path(__file__).with_name("shims")
SETTINGS: Final = frozenset({"runtime", "handler", "timeout", "environment", "filler", "replicas"})
"""The settings of functions that such a platform honours."""

_DEFAULT_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 10.0


def language(runtime: str | None) -> str:
    """``python3.11`` and ``nodejs20.x`` as ``python`` and ``node``."""
    text = runtime or "python"
    return "node" if text.startswith("node") else text.rstrip("0123456789.x")


def groups_of(kind: str) -> Callable[[str, str], Sequence[str]]:
    """Patterns of the control groups of a run's functions, as `Capabilities` has them."""
    return lambda _run, prefix: [f"/{groups.PREFIX}{kind}-{prefix}-*/*"]


@dataclass
class Host:
    """What stands before a function.

    Attributes:
        program: a file of `SHIMS`.
        config: its configuration, but for what all have.
        path: where it takes requests.
    """

    program: str
    config: Mapping[str, Any]
    path: str = "/"


@dataclass
class _Running:
    """A function's host, its folder and its groups."""

    process: subprocess.Popen[str]
    resources: list[Resource]
    target: Target


class BarePlatform(ABC):
    """The functions of one run; each kind says what stands before a function."""

    KIND: str

    def __init__(self, context: Context) -> None:
        self._context = context
        self._running: dict[str, _Running] = {}
        self._http = HttpPlatform()

    @abstractmethod
    def host(self, function: FunctionSpec, folder: Path, timeout_s: float) -> Host:
        """What stands before a function whose package is in ``folder``, where it may write."""

    @abstractmethod
    def check(self, function: FunctionSpec) -> None:
        """Check that a function can be served, before anything is made for it.

        Raises:
            UnciaError: it cannot.
        """

    def start(self) -> list[str]:
        return [
            "Functions are bare processes: nothing limits them, and nothing keeps them from this"
            " machine's files and network."
        ]

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if not isinstance(function, FunctionSpec):
            raise UnciaError(f"{function.name}: {self.KIND} has no state machines and no triggers")
        if function.package is None:
            raise UnciaError(f"{function.name}: {self.KIND} takes packages, and no images")
        self.check(function)
        resources: list[Resource] = []
        try:
            return self._start(function, resources)
        except BaseException:
            self._clear(resources)
            raise

    def _start(self, function: FunctionSpec, resources: list[Resource]) -> Deployment:
        journal = self._context.journal
        folder = Path(tempfile.gettempdir()) / f"uncia-{self.KIND}-{function.name}"
        made = Resource(self.KIND, "folder", str(folder))
        if folder.exists():
            raise UnciaError(
                f"{folder} is there already",
                hint="A run that was killed leaves it: `uncia clean` removes what it made.",
            )
        journal.created(made)
        resources.append(made)
        folder.mkdir(mode=0o700)
        with zipfile.ZipFile(io.BytesIO(function.package or b"")) as archive:
            archive.extractall(folder)
        group = f"{self.KIND}-{function.name}"
        noted = Resource(self.KIND, "group", group)
        journal.created(noted)
        resources.append(noted)
        folders = groups.make(group)
        timeout_ns = function.timeout or round(_DEFAULT_TIMEOUT_S * NS_PER_S)
        host = self.host(function, folder, timeout_ns / NS_PER_S)
        config = {
            "folder": str(folder),
            "timeout": timeout_ns / NS_PER_S,
            "groups": [str(each / "cgroup.procs") for each in folders],
            **host.config,
        }
        process = subprocess.Popen(
            [sys.executable, str(SHIMS / host.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A Ctrl-C is for the run, which ends it.
            start_new_session=True,
        )
        identity = processes.identify(process.pid)
        detail = {} if identity is None else identity.detail()
        server = Resource(self.KIND, "process", str(process.pid), detail)
        journal.created(server)
        resources.insert(0, server)
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        report = json.loads(line) if line else {"error": "the server before it did not start"}
        if "port" not in report:
            process.stdin.close()
            process.wait()
            process.stdout.close()
            raise RunFailedError(f"{function.name}: {report['error']}")
        url = f"http://127.0.0.1:{report['port']}{host.path}"
        target = Target(url, function.method, dict(function.headers))
        self._running[function.name] = _Running(process, resources, target)
        self._http.deploy(
            FunctionSpec(function.name, url=url, method=function.method, headers=function.headers)
        )
        return Deployment(function.name)

    def endpoint(self, deployment: Deployment) -> Target:
        return self._running[deployment.name].target

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        return self._http.invoke(deployment, event)

    def collect(self) -> Collected:
        return Collected()

    def is_settled(self) -> bool:
        return True

    def unserved_events(self) -> int:
        return 0

    def remove(self, deployment: Deployment) -> None:
        running = self._running.pop(deployment.name, None)
        if running is None:
            return
        process = running.process
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        line = process.stdout.readline()
        process.stdout.close()
        if ended := (json.loads(line)["ended"] if line else ""):
            self._context.warn(f"{deployment.name}: {ended} while the run went on.")
        self._clear(running.resources)

    def _clear(self, resources: Sequence[Resource]) -> None:
        for resource in clean(resources, self._context.log):
            self._context.journal.removed(resource)

    def close(self) -> None:
        for name in list(self._running):
            self.remove(Deployment(name))


def variables(function: FunctionSpec, folder: Path) -> dict[str, str]:
    """The environment of a function's processes; what they leave behind goes with the folder."""
    temporary = folder / ".uncia-tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary), **function.environment}


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End servers and processes, and remove their groups and folders; returns what is gone."""
    removed = []
    for resource in resources:
        if resource.kind == "process":
            identity = processes.named(resource)
            is_gone = identity is None or processes.end(identity)
        elif resource.kind == "group":
            # All, though one should fail.
            gone = [groups.remove(folder) for folder in groups.folders(resource.id)]
            is_gone = all(gone)
        else:
            shutil.rmtree(resource.id, ignore_errors=True)
            is_gone = not Path(resource.id).exists()
        if is_gone:
            removed.append(resource)
        else:
            log(f"{resource.sentence()} could not be removed")
    return removed
