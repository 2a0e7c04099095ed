"""A container that serves a function, and what is to be known of all of them afterwards."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

# As part of a program it stands beside what it imports.
if TYPE_CHECKING or __package__:
    from uncia.platforms.shims.docker_engine import (
        Engine,
        EngineError,
        RefusedError,
        remove_container,
    )
    from uncia.platforms.shims.native_host import MOST_BODY
else:
    from docker_engine import Engine, EngineError, RefusedError, remove_container
    from native_host import MOST_BODY

READY_TIMEOUT_S = 60.0
POLL_S = 0.005
"""Between two attempts to reach a function that is being loaded."""
LAST_LINES = 20
MOST_MESSAGE = 500
EXIT_S = 2.0
"""Until the Engine knows of the end of a process whose connections are closed."""
KILLED = 137
"""The exit code of what SIGKILL ended."""


class NotServedError(OSError):
    """A container does not serve; says why."""


class Log:
    """What happened: invocations, spans, the lives of containers, and what went wrong."""

    def __init__(self, function: str, allocated: Mapping[str, int]) -> None:
        self.columns = {"function": function, "platform": "docker", **allocated}
        self.lock = threading.Lock()
        self.invocations: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.problems: dict[str, int] = {}
        self.containers: list[Container] = []

    def living(self) -> list["Container"]:
        """The containers that are not removed."""
        with self.lock:
            return [it for it in self.containers if it.ended is None]

    def span(self, name: str, start: int, instance: str, invocation: str | None = None) -> int:
        """Note that something took from ``start`` until now, which is returned."""
        end = time.time_ns()
        row = {"name": name, "start": start, "end": end, "instance": instance, "clock": "platform"}
        with self.lock:
            self.spans.append(row | {"invocation": invocation})
        return end

    def problem(self, error: OSError | str) -> None:
        """Count a sentence on what went wrong."""
        sentence = str(error).rstrip(".")
        with self.lock:
            self.problems[sentence] = self.problems.get(sentence, 0) + 1

    def invocation(self, name: str | None, headers: Mapping[str, Any], outcome: str) -> None:
        """Note an invocation, unless nobody measures it: then it has no name."""
        if name is None:
            return
        times = {
            "queued": "queued-ns",
            "initialization": "initialization-ns",
            "execution": "execution-ns",
            "cpu_user": "cpu-user-ns",
            "cpu_system": "cpu-system-ns",
            "started": "started-unix-ns",
            "ended": "ended-unix-ns",
            "start": "start",
            "instance": "instance",
        }
        row = {column: headers.get(f"x-uncia-{header}") for column, header in times.items()}
        row |= {"invocation": name, "attempt": 1, "outcome": outcome}
        with self.lock:
            self.invocations.append({**self.columns, **row})

    def new(self) -> dict[str, Any]:
        """What happened since the last time; of containers all whose rows have changed."""
        with self.lock:
            changed = [it for it in self.containers if it.has_changed]
            result = {
                "invocations": self.invocations,
                "spans": self.spans,
                "instances": [self.columns | it.row() for it in changed],
                "problems": self.problems,
            }
            self.invocations, self.spans, self.problems = [], [], {}
        return result


class Container:
    """A container of the function: it answers events, one after the other.

    Attributes:
        lock: held by whoever pauses, thaws, makes or removes it.
        idle_since: when it was given back, by the monotonic clock in s.
    """

    def __init__(self, engine: Engine, config: Mapping[str, Any], log: Log, number: int) -> None:
        self.engine, self.config, self.log = engine, config, log
        self.name = f"{config['prefix']}-{number}"
        self.id = self.name
        self.lock = threading.RLock()
        self.idle_since = 0.0
        self.is_paused = self.is_removed = False
        """Whether it is paused: or may be, when nothing is known of what came of the request."""
        self.began = time.time_ns()
        self.initialized: int | None = None
        self.ended: int | None = None
        self.reason: str | None = None
        self.group: str | None = None
        self.fault: str | None = None
        """What was wrong with its last answer, if there was one."""
        self.served = 0
        self.idle: list[list[int]] = []
        """From when until when it served nothing; the last one may go on, and has no end."""
        self.has_changed = True
        self.socket: socket.socket | None = None
        with log.lock:
            log.containers.append(self)

    def row(self) -> dict[str, Any]:
        """Its row of the table of instances."""
        self.has_changed = self.ended is None
        now = time.time_ns() if self.ended is None else self.ended
        return {
            "instance": self.id,
            "started": self.began,
            "initialized": self.initialized,
            "ended": self.ended,
            "end_reason": self.reason,
            "start": "cold",
            "invocations": self.served,
            "idle": [{"start": it[0], "end": it[1] if len(it) > 1 else now} for it in self.idle],
            "cgroup": self.group,
        }

    def start(self, invocation: str | None) -> None:
        """Make the container for an invocation and start it, and wait until it serves.

        Raises:
            EngineError: the Engine does not start it.
            NotServedError: it does not serve.
        """
        with self.lock:
            if self.is_removed:
                raise NotServedError("the platform ends")
            query = {"name": self.name}
            body = self.config["container"]
            created = self.engine.ask("POST", "/containers/create", body, query)
            self.id = created["Id"]
        # Such as of a limit that the kernel does not have, and that is left out.
        for warning in created.get("Warnings") or []:
            self.log.problem(str(warning))
        at = self.log.span("create", self.began, self.id, invocation)
        self.engine.ask("POST", f"/containers/{self.id}/start")
        at = self.log.span("start", at, self.id, invocation)
        self.connect()
        self.initialized = self.log.span("runtime", at, self.id, invocation)
        self.idle.append([self.initialized])

    def connect(self) -> None:
        """Connect to the function as soon as it is loaded.

        Raises:
            NotServedError: it has ended, or is not loaded in time.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        address: tuple[str, int] | None = None
        while time.monotonic() < deadline:
            if address is None:
                shown = self.engine.ask("GET", f"/containers/{self.id}/json")
                self.group = group_of(shown["State"].get("Pid") or 0, self.id)
                address = self.address(shown)
            if address is not None and self.reach(address, deadline):
                return
            # Each time, since what has ended will not serve any more.
            if not self.state().get("Running"):
                break
            time.sleep(POLL_S)
        output = self.output()
        raise NotServedError(f"the container does not serve: {output or 'it printed nothing'}")

    def address(self, state: Mapping[str, Any]) -> tuple[str, int] | None:
        """Where it is reached, as far as the Engine says so."""
        network = state.get("NetworkSettings") or {}
        port: int = self.config["port"]
        if self.config["connect"] == "port":
            published = (network.get("Ports") or {}).get(f"{port}/tcp") or []
            return ("127.0.0.1", int(published[0]["HostPort"])) if published else None
        addresses = [network.get("IPAddress")]
        addresses += [it.get("IPAddress") for it in (network.get("Networks") or {}).values()]
        return next(((it, port) for it in addresses if it), None)

    def reach(self, address: tuple[str, int], deadline: float) -> bool:
        """Whether the function answers there that it is loaded."""
        rest = max(0.001, deadline - time.monotonic())
        try:
            self.socket = socket.create_connection(address, rest)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            return False
        # What publishes the port takes connections before the function does, and ends them.
        if self.line(rest) is not None:
            return True
        self.socket.close()
        self.socket = None
        return False

    def ask(self, order: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """The answer; None if none comes in time, or the container has ended."""
        assert self.socket is not None, "it has started"
        self.fault = None
        self.socket.settimeout(timeout_s)
        try:
            self.socket.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            return None
        answer = self.line(timeout_s)
        # What a function may have written to the connection itself is none.
        if answer is not None and not is_answer(answer):
            self.fault = "the container wrote what is no answer of its function"
            return None
        return answer

    def line(self, timeout_s: float) -> dict[str, Any] | None:
        """What it says next; None as in `ask`."""
        assert self.socket is not None, "it is connected"
        deadline, parts, length = time.monotonic() + timeout_s, [b""], 0
        while not parts[-1].endswith(b"\n"):
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                part = self.socket.recv(1 << 16)
            except OSError:
                return None
            if not part or time.monotonic() > deadline:
                return None
            parts.append(part)
            length += len(part)
            # What never ends its line would be held until this process has no memory.
            if length > MOST_BODY:
                self.fault = f"the container's answer is longer than {MOST_BODY} bytes"
                return None
        try:
            document = json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return document
        self.fault = "the container wrote a line that is no object of JSON"
        return None

    def begins(self) -> None:
        """An invocation begins."""
        self.idle[-1].append(time.time_ns())

    def ends(self, *, is_answered: bool) -> None:
        """An invocation ends."""
        self.served += 1
        if is_answered:
            self.idle.append([time.time_ns()])

    def pause(self) -> None:
        """Pause it, if it is not.

        Raises:
            EngineError: the Engine does not.
        """
        if self.is_paused or self.is_removed:
            return
        # Before the request: if its answer is lost, the container may be paused all the same.
        self.is_paused = True
        try:
            self.engine.ask("POST", f"/containers/{self.id}/pause")
        except RefusedError as error:
            self.is_paused = "already paused" in error.message
            raise

    def thaw(self, invocation: str | None) -> bool:
        """Let it go on for an invocation, if it is paused; returns whether it was.

        Raises:
            EngineError: the Engine does not.
        """
        if not self.is_paused:
            return False
        began = time.time_ns()
        try:
            self.engine.ask("POST", f"/containers/{self.id}/unpause")
        except RefusedError as error:
            # The pause whose answer was lost may have come to nothing; the status is Docker's, or
            # Podman's.
            if error.status not in (409, 500) or "not paused" not in error.message:
                raise
            self.is_paused = False
            return False
        self.is_paused = False
        self.log.span("thaw", began, self.id, invocation)
        return True

    def remove(self, reason: str) -> None:
        """Remove it with what is in it, and note why; the first reason counts.

        Raises:
            EngineError: the Engine does not.
        """
        self.is_removed = True
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        with self.lock:
            if self.ended is not None:
                return
            remove_container(self.engine, self.id)
            if self.socket is not None:
                self.socket.close()
            self.reason, self.ended = reason, time.time_ns()
            if self.idle and len(self.idle[-1]) == 1:
                self.idle[-1].append(self.ended)

    def ending(self) -> tuple[str, str]:
        """Why it gave no answer: the end's reason, and a sentence."""
        if self.fault is not None:
            return "crash", self.fault
        deadline = time.monotonic() + EXIT_S
        try:
            state = self.state()
            # The connection is closed before the Engine knows, and why it was killed comes last.
            while time.monotonic() < deadline and (
                state.get("Running") or (state.get("ExitCode") == KILLED and not self.lacked(state))
            ):
                time.sleep(POLL_S)
                state = self.state()
            if self.lacked(state):
                return "out_of_memory", "the container was killed: it used more than its memory"
        except EngineError as error:
            self.log.problem(error)
            return "crash", "the container gave no answer, and the Engine none of why"
        if state.get("Running"):
            return "crash", "the container closed its connection without an answer"
        return "exit", f"the container ended without an answer, with exit code {state['ExitCode']}"

    def lacked(self, state: Mapping[str, Any]) -> bool:
        """Whether it was killed for its memory: its state says so, or an event that came later."""
        if state.get("OOMKilled"):
            return True
        filters = {"container": [self.id], "event": ["oom"]}
        times = {"since": str(self.began // 10**9), "until": f"{time.time():.6f}"}
        return bool(self.engine.ask("GET", "/events", query={"filters": filters, **times}))

    def state(self) -> dict[str, Any]:
        """The Engine's state of it."""
        state: dict[str, Any] = self.engine.ask("GET", f"/containers/{self.id}/json")["State"]
        return state

    def output(self) -> str:
        """The last lines that it printed; empty if the Engine does not say."""
        query = {"stdout": "true", "stderr": "true", "tail": str(LAST_LINES)}
        try:
            content = self.engine.raw("GET", f"/containers/{self.id}/logs", query)
        except EngineError:
            return ""
        text = b"".join(frames(content)).decode(errors="replace").strip()
        return text[-2 * MOST_MESSAGE :]


def frames(content: bytes) -> Iterator[bytes]:
    """What is in the frames of an output: heads of 8 bytes, whose last four are the length."""
    at = 0
    while len(content) >= at + 8:
        size = int.from_bytes(content[at + 4 : at + 8])
        yield content[at + 8 : at + 8 + size]
        at += 8 + size


def is_answer(document: Mapping[str, Any]) -> bool:
    """Whether it is an answer as the shims write them: times, and a result or what was raised."""
    # True is an int, too, and no time.
    if any(type(document.get(key)) is not int for key in ("started", "ended", "user", "system")):
        return False
    if "type" not in document:
        return "result" in document
    return all(isinstance(document.get(key), str) for key in ("type", "message"))


def group_of(pid: int, container: str) -> str | None:
    """The control group of a container, by its path in the mounted tree; None if it is not seen.

    Args:
        pid: of its first process, as its Engine numbers processes: here it may be another's.
        container: its id, which the name of its group has in it: `ID`, `docker-ID.scope` or
            `libpod-ID.scope`, of which Podman has the process in a group below.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        names = line.split(":", 2)[2].split("/")
        # What is not below this process' root is not mounted here.
        if ".." in names:
            continue
        for count, name in enumerate(names, 1):
            if container in name:
                return "/".join(names[:count])
    return None
