"""Containers of a Docker Engine on this machine: an image for each function, and no registry.

The Engine is asked by its API at a unix socket. A small server on the loopback interface stands
before the containers of each function; it starts, pauses and removes them, and passes one event at
a time to each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from uncia.errors import RunFailedError, UnciaError
from uncia.layouts import read_image
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
    docker_images,
    docker_left,
    docker_limits,
    docker_socket,
    groups,
    processes,
)
from uncia.platforms.bare import SETTINGS, SHIMS, language
from uncia.platforms.docker_left import LABEL as LABEL
from uncia.platforms.docker_left import clean as clean
from uncia.platforms.http import HttpPlatform
from uncia.platforms.journal import Resource
from uncia.platforms.shims.docker_engine import Engine, EngineError, RefusedError
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_S, Duration, format_cpu, format_size

_KIND: Final = "docker"
_LABEL_OF_RUN: Final = "uncia.run"
_PORT: Final = 8080
"""At which a container serves, within its network."""
_LEAST_MEMORY: Final = 6 * MIB
_DEFAULT_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 60.0
"""Of a server, and a second more for each container that it may have to remove."""
_LOAD_TIMEOUT_S: Final = 900.0
"""The Engine is silent while it unpacks an image."""


def _mistakes(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    memory, cpu = values.get("memory"), values.get("cpu")
    if memory is not None and memory < _LEAST_MEMORY:
        least = format_size(_LEAST_MEMORY)
        yield "memory", f"{format_size(memory)} is less than Docker takes, {least}"
    if cpu is not None and cpu < docker_limits.LEAST_CPU:
        least = format_cpu(docker_limits.LEAST_CPU)
        yield "cpu", f"{format_cpu(cpu)} is less than Docker takes, {least}"


def _groups(_run: str, prefix: str) -> list[str]:
    """Patterns of the containers' control groups, by either driver of groups."""
    name = f"{groups.PREFIX}{_KIND}-{prefix}-*"
    below = f"{name.replace('-', '_')}.slice/*"
    # The last one is of an Engine without root, by the user's own systemd. A pattern for any place
    # would have monitors go through all groups of the machine, each time.
    users = "/user.slice/user-*.slice/user@*.service"
    return [f"/{name}/*", f"/{below}", f"{users}/{below}"]


CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=True,
    settings=SETTINGS | {"memory", "cpu", "cpus", "root"},
    mistakes=_mistakes,
    languages=lambda _options: tuple(docker_images.SERVERS),
    groups=_groups,
    images=True,
)


class Options(PlatformForm):
    """Containers of a Docker Engine on this machine."""

    kind: Literal["docker"]
    socket: str | None = Field(
        None,
        description="The Engine's unix socket. Default: that of DOCKER_HOST, or"
        " /var/run/docker.sock",
    )
    concurrency: int = Field(
        1,
        ge=1,
        le=1024,
        description="Containers that run at once, of each function; other requests wait in order",
    )
    idle: Literal["live", "paused"] = Field(
        "live",
        description="paused: a container is paused after its answer, and goes on with the next"
        " request",
    )
    keep_alive: Duration | None = Field(
        None, ge=0, description="A container that is idle for longer is removed. Default: none is"
    )
    connect: Literal["port", "address"] = Field(
        "port",
        description="port: to a port of the loopback interface that the Engine publishes; address:"
        " to the container's address, without what stands between",
    )
    cpu_limit: Literal["memory", "none"] = Field(
        "memory",
        description="Of a function without cpu. memory: memory / 1769 MB, as on Lambda",
    )

    @field_validator("socket")
    @classmethod
    def _is_unix(cls, path: str | None) -> str | None:
        try:
            return None if path is None else docker_socket.chosen(path)
        except UnciaError as error:
            raise ValueError(error.message) from error


def _row(texts: str, numbers: str, *others: pa.Field) -> pa.Schema:
    named = [(name, pa.utf8()) for name in texts.split()]
    return pa.schema([*named, *((name, pa.int64()) for name in numbers.split()), *others])


_ALLOCATED: Final = "allocated_cpu allocated_memory"
_INVOCATION: Final = _row(
    "invocation function platform outcome start instance",
    "attempt started ended queued initialization execution cpu_user cpu_system " + _ALLOCATED,
)
_SPAN: Final = _row("invocation instance name clock", "start end")
_INTERVAL: Final = pa.struct([("start", pa.int64()), ("end", pa.int64())])
_INSTANCE: Final = _row(
    "function platform instance end_reason start cgroup",
    "started initialized ended invocations " + _ALLOCATED,
    pa.field("idle", pa.list_(_INTERVAL)),
)


@dataclass
class _Running:
    """A function's server, and what was journalled for it."""

    process: subprocess.Popen[str]
    resources: list[Resource]
    target: Target


@dataclass
class _Log:
    """What the servers of all functions logged, and nobody has fetched."""

    invocations: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, news: Mapping[str, Any]) -> None:
        self.invocations += news["invocations"]
        self.spans += news["spans"]
        self.instances |= {row["instance"]: row for row in news["instances"]}
        for sentence, count in news["problems"].items():
            times = "once" if count == 1 else f"{count:,} times"
            self.warnings.append(f"{name}: {sentence} ({times}).")


class DockerPlatform:
    """The functions of one run."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._context = context
        self._socket: Final = docker_socket.chosen(options.socket)
        self._engine: Final = Engine(self._socket)
        self._info: dict[str, Any] = {}
        self._running: dict[str, _Running] = {}
        self._log = _Log()
        # Functions whose image the Engine took, and never said what came of it.
        self._unsure: set[str] = set()
        self._http = HttpPlatform()

    def start(self) -> list[str]:
        self._info = docker_socket.ready(self._socket)
        return docker_limits.lacking(self._info)

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if not isinstance(function, FunctionSpec):
            raise UnciaError(f"{function.name}: {_KIND} has no state machines and no triggers")
        self._check(function)
        resources: list[Resource] = []
        try:
            return self._start(function, resources)
        except BaseException:
            self._clear(resources)
            raise

    def _check(self, function: FunctionSpec) -> None:
        """Check that a function can be served, before anything is made for it.

        Raises:
            UnciaError: it cannot.
        """
        if function.image is None:
            raise UnciaError(f"{function.name}: {_KIND} takes images, and no packages")
        known = language(function.runtime)
        if known not in docker_images.SERVERS:
            served = " and ".join(docker_images.SERVERS)
            raise UnciaError(f"{function.name}: containers are of {served}, not {known}")
        there = self._info.get("NCPU")
        cpu = function.settings.get("cpu")
        if cpu is not None and there is not None and int(cpu) > there * MICRO_PER_VCPU:
            raise UnciaError(
                f"{function.name}: {format_cpu(int(cpu))} is more than the Engine's machine has,"
                f" {format_cpu(there * MICRO_PER_VCPU)}"
            )

    def _start(self, function: FunctionSpec, resources: list[Resource]) -> Deployment:
        def noted(kind: str, name: str, **detail: Any) -> None:
            resource = Resource(_KIND, kind, name, detail)
            self._context.journal.created(resource)
            resources.insert(0, resource)

        name = self._parent(function)
        slices = {} if name.startswith("/") else {docker_left.SLICE: name}
        noted("group", f"{_KIND}-{function.name}", **slices)
        noted("function", function.name, socket=self._socket)
        self._load(function)
        process = subprocess.Popen(
            [sys.executable, str(SHIMS / "docker_host.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A Ctrl-C is for the run, which ends it.
            start_new_session=True,
        )
        identity = processes.identify(process.pid)
        noted("process", str(process.pid), **({} if identity is None else identity.detail()))
        line = _tell(process, self._config(function))
        if line is None:
            _close(process, _END_TIMEOUT_S)
            raise RunFailedError(f"{function.name}: the server before its containers did not start")
        url = f"http://127.0.0.1:{line['port']}/"
        target = Target(url, function.method, dict(function.headers))
        self._running[function.name] = _Running(process, resources, target)
        self._http.deploy(
            FunctionSpec(function.name, url=url, method=function.method, headers=function.headers)
        )
        return Deployment(function.name)

    def _labels(self, function: FunctionSpec) -> dict[str, str]:
        return {LABEL: function.name, _LABEL_OF_RUN: self._context.run}

    def _load(self, function: FunctionSpec) -> None:
        """Give the Engine a function's image.

        Raises:
            UnciaError: there is none, or the Engine does not take it.
        """
        assert function.image is not None, "it was checked"
        made = docker_images.archive(
            function.name,
            read_image(function.image),
            language(function.runtime),
            self._labels(function),
        )
        try:
            answer = Engine(self._socket, _LOAD_TIMEOUT_S).ask(
                "POST", "/images/load", blocks=made.blocks()
            )
            for entry in answer if isinstance(answer, list) else [answer]:
                if isinstance(entry, Mapping) and "error" in entry:
                    raise RefusedError(200, str(entry["error"]))
            self._engine.ask("GET", f"/images/{made.name}/json")
        except BaseException as error:
            # Also a Ctrl-C: the Engine goes on with what it has.
            if not isinstance(error, RefusedError):
                self._unsure.add(function.name)
            if not isinstance(error, EngineError):
                raise
            raise docker_socket.failed(error, f"{function.name}: its image is not taken") from error
        self._unsure.discard(function.name)

    def _config(self, function: FunctionSpec) -> dict[str, Any]:
        """The configuration of the server before a function's containers."""
        by_memory = self._options.cpu_limit == "memory"
        limits, allocated = docker_limits.limits(function, self._info, by_memory=by_memory)
        if self._options.connect == "port":
            limits["PortBindings"] = {f"{_PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
        handler = function.handler or "handler.handler"
        container = {
            "Image": docker_images.tag(function.name),
            "Cmd": [handler, function.name, str(_PORT)],
            "Env": [f"{name}={value}" for name, value in function.environment.items()],
            "Labels": self._labels(function),
            "ExposedPorts": {f"{_PORT}/tcp": {}},
            # Podman asks what it removes to end, too, which the first process does not hear.
            "StopTimeout": 0,
            "HostConfig": {"CgroupParent": self._parent(function), **limits},
        }
        options = self._options
        timeout_ns = function.timeout or round(_DEFAULT_TIMEOUT_S * NS_PER_S)
        return {
            "socket": self._socket,
            "function": function.name,
            "prefix": docker_images.tag(function.name).partition(":")[0].replace("/", "-"),
            "container": container,
            "port": _PORT,
            "connect": options.connect,
            "concurrency": options.concurrency,
            "idle": options.idle,
            "keep_alive": None if options.keep_alive is None else options.keep_alive / NS_PER_S,
            "timeout": timeout_ns / NS_PER_S,
            "allocated": allocated,
        }

    def _parent(self, function: FunctionSpec) -> str:
        """The control group that a function's containers are in."""
        name = f"{groups.PREFIX}{_KIND}-{function.name}"
        if self._info.get("CgroupDriver") == "systemd":
            # Of slices each hyphen is a level.
            return f"{name.replace('-', '_')}.slice"
        return f"/{name}"

    def endpoint(self, deployment: Deployment) -> Target:
        return self._running[deployment.name].target

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        return self._http.invoke(deployment, event)

    def collect(self) -> Collected:
        for name, running in self._running.items():
            news = _tell(running.process, {})
            if news is None:
                raise RunFailedError(f"{name}: the server before its containers has ended")
            self._log.add(name, news)
        log = self._log
        self._log = _Log(instances=log.instances)
        return Collected(
            pa.Table.from_pylist(log.invocations, _INVOCATION),
            pa.Table.from_pylist(log.spans, _SPAN),
            pa.Table.from_pylist(list(log.instances.values()), _INSTANCE),
            tuple(log.warnings),
        )

    def is_settled(self) -> bool:
        return True

    def unserved_events(self) -> int:
        return 0

    def remove(self, deployment: Deployment) -> None:
        running = self._running.pop(deployment.name, None)
        if running is None:
            return
        try:
            words = _close(running.process, _END_TIMEOUT_S + self._options.concurrency)
            self._add(deployment.name, words)
        finally:
            self._clear(running.resources)

    def _add(self, name: str, words: str) -> None:
        """Add a server's last words to the log: what had not been fetched, and what came since."""
        is_whole = words != ""
        for line in words.splitlines():
            try:
                self._log.add(name, json.loads(line))
            except ValueError:
                is_whole = False
        if not is_whole:
            self._log.warnings.append(
                f"{name}: the server before its containers did not end by itself: the last rows"
                " are missing."
            )

    def _clear(self, resources: Sequence[Resource]) -> None:
        for resource in clean(resources, self._context.log):
            if resource.kind == "function" and resource.id in self._unsure:
                sentence = "its image may still appear: `uncia clean` removes it"
                self._context.log(f"{resource.sentence()}: {sentence}")
                continue
            self._context.journal.removed(resource)

    def close(self) -> None:
        for name in list(self._running):
            self.remove(Deployment(name))


def _tell(process: subprocess.Popen[str], message: Mapping[str, Any]) -> Any:
    """Send a line to a server, and return what it answers; None if it has ended."""
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = process.stdout.readline()
    # One that is cut off is as good as none.
    return json.loads(line) if line.endswith("\n") else None


def _close(process: subprocess.Popen[str], timeout_s: float) -> str:
    """End a server, which removes its containers, and return its last words."""
    # They are read before its end is waited for: a pipe holds no more than 64 KiB.
    try:
        words, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        words, _ = process.communicate()
    return words


def connect(options: Options, context: Context) -> DockerPlatform:
    """Return the platform of one run; nothing is asked of the Engine yet.

    Raises:
        UnciaError: DOCKER_HOST names no unix socket.
    """
    return DockerPlatform(options, context)
