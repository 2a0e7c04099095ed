"""Functions as bare processes on this machine, without a sandbox: the baseline of everything else.

A small server on the loopback interface stands before the processes of each function, in control
groups of its own; it passes one event to a process at a time, as a line of JSON.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import (
    Capabilities,
    Collected,
    Context,
    Deployment,
    FunctionSpec,
    PlatformForm,
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

_SHIMS: Final = Path(__file__).with_name("shims")
_DEFAULT_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 10.0
_RUNTIMES: Final = {
    "python": (sys.executable, "python_handler.py"),
    "node": ("node", "node_handler.cjs"),
}
_NAME: Final = "native"


def _language(runtime: str | None) -> str:
    """``python3.11`` and ``nodejs20.x`` as ``python`` and ``node``."""
    text = runtime or "python"
    return "node" if text.startswith("node") else text.rstrip("0123456789.x")


def _mistakes(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    runtime = values.get("runtime")
    if runtime is not None and _language(runtime) not in _RUNTIMES:
        known = " and ".join(_RUNTIMES)
        yield "runtime", f"{runtime}: bare processes are of {known}"


CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=False,
    settings=frozenset({"runtime", "handler", "timeout", "environment", "filler", "replicas"}),
    mistakes=_mistakes,
)


class Options(PlatformForm):
    """Bare processes on this machine."""

    kind: Literal["native"]
    mode: Literal["start", "warm"] = Field(
        "warm",
        description="start: an interpreter is started for each request; warm: it goes to one that"
        " runs, and has loaded the function",
    )
    processes: int = Field(
        1, ge=1, le=256, description="How many run at once, of each function; others wait in order"
    )


@dataclass
class _Running:
    """A function's server, its folder and its groups."""

    process: subprocess.Popen[str]
    resources: list[Resource]
    target: Target


class NativePlatform:
    """The functions of one run."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._context = context
        self._running: dict[str, _Running] = {}
        self._http = HttpPlatform()

    def start(self) -> list[str]:
        return [
            "Functions are bare processes: nothing limits them, and nothing keeps them from this"
            " machine's files and network."
        ]

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if not isinstance(function, FunctionSpec):
            raise UnciaError(f"{function.name}: native has no state machines and no triggers")
        if function.package is None:
            raise UnciaError(f"{function.name}: native takes packages, and no images")
        language = _language(function.runtime)
        if language not in _RUNTIMES:
            known = " and ".join(_RUNTIMES)
            raise UnciaError(f"{function.name}: bare processes are of {known}, not {language}")
        program, shim = _RUNTIMES[language]
        if shutil.which(program) is None:
            raise UnciaError(
                f"{function.name}: there is no {program} here", hint=f"Install {program}."
            )
        resources: list[Resource] = []
        try:
            return self._start(function, [program, str(_SHIMS / shim)], resources)
        except BaseException:
            self._clear(resources)
            raise

    def _start(
        self, function: FunctionSpec, command: list[str], resources: list[Resource]
    ) -> Deployment:
        journal = self._context.journal
        folder = Path(tempfile.gettempdir()) / f"uncia-native-{function.name}"
        made = Resource(_NAME, "folder", str(folder))
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
        group = f"native-{function.name}"
        noted = Resource(_NAME, "group", group)
        journal.created(noted)
        resources.append(noted)
        folders = groups.make(group)
        timeout_ns = function.timeout or round(_DEFAULT_TIMEOUT_S * NS_PER_S)
        config = {
            "mode": self._options.mode,
            "processes": self._options.processes,
            "command": [*command, function.handler or "handler.handler", function.name],
            "environment": {**os.environ, **function.environment},
            "folder": str(folder),
            "timeout": timeout_ns / NS_PER_S,
            "groups": [str(each / "cgroup.procs") for each in folders],
        }
        process = subprocess.Popen(
            [sys.executable, str(_SHIMS / "native_host.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A Ctrl-C is for the run, which ends it.
            start_new_session=True,
        )
        identity = processes.identify(process.pid)
        detail = {} if identity is None else identity.detail()
        server = Resource(_NAME, "process", str(process.pid), detail)
        journal.created(server)
        resources.insert(0, server)
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise RunFailedError(f"the server before {function.name} did not start")
        url = f"http://127.0.0.1:{json.loads(line)['port']}/"
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
        process.stdout.close()
        self._clear(running.resources)

    def _clear(self, resources: Sequence[Resource]) -> None:
        for resource in clean(resources, self._context.log):
            self._context.journal.removed(resource)

    def close(self) -> None:
        for name in list(self._running):
            self.remove(Deployment(name))


def connect(options: Options, context: Context) -> NativePlatform:
    """Return the platform of one run; nothing runs before a function is deployed."""
    return NativePlatform(options, context)


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
