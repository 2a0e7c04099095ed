"""A small OpenWhisk: the part of its REST API about actions and activations, which it really runs.

Written from Apache's public documentation and the sources of its controller. Each container is a
process; an idle one serves the next activation of its action, and a new one is initialized first.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "23bc46b1-71f6-4ed5-8c54-816aa4f8c502:only-of-tests"
NAMESPACE = "guest"

_HERE = Path(__file__).parent
PROGRAMS = {
    **{
        f"python:{version}": [sys.executable, "container.py"]
        for version in ("default", "3", f"3.{sys.version_info.minor}")
    },
    **{f"nodejs:{version}": ["node", "container.cjs"] for version in ("default", "20")},
}
_NAME = re.compile(r"\w|\w[\w@ .-]*[\w@.-]")
_MOST = 200


@dataclass
class Rules:
    """What an operator chooses.

    Attributes:
        concurrent: activations of a namespace at once; more are refused.
        payload: most bytes of an event.
        memory: least and most of an action, in MB.
        wait_s: how long a blocking invocation waits.
        record_delay_s: from the end of an activation until its record is listed.
        names_activations: whether an answer has the header with its activation.
    """

    concurrent: int = 30
    payload: int = 1 << 20
    memory: tuple[int, int] = (128, 512)
    wait_s: float = 60
    record_delay_s: float = 0
    names_activations: bool = True


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Container:
    """A process that runs one action."""

    def __init__(self, action: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="uncia-test-openwhisk-"))
        if action["exec"]["binary"]:
            code = base64.b64decode(action["exec"]["code"])
            with zipfile.ZipFile(io.BytesIO(code)) as archive:
                archive.extractall(self.folder)
        program, file = PROGRAMS[action["exec"]["kind"]]
        self._output = (self.folder / ".output").open("wb+")
        self.process = subprocess.Popen(
            [program, str(_HERE / file)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        port = self.folder / ".port"
        while not port.exists() and self.process.poll() is None:
            time.sleep(0.005)
        self.port = int(port.read_text(encoding="utf-8"))

    def post(self, path: str, body: Any, timeout_s: float) -> tuple[int, Any]:
        """Send a request; TimeoutError if it takes longer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def output(self) -> list[str]:
        """The lines that it wrote."""
        return (self.folder / ".output").read_text(encoding="utf-8").splitlines()

    def end(self) -> None:
        """Kill it, and what it started; remove its folder."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()
        shutil.rmtree(self.folder)


@dataclass
class Whisk:
    """Actions, their containers and activations."""

    rules: Rules = field(default_factory=Rules)
    actions: dict[str, dict[str, Any]] = field(default_factory=dict)
    activations: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _idle: dict[str, list[Container]] = field(default_factory=dict)
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(64))

    def put(self, name: str, body: dict[str, Any], *, overwrite: bool) -> dict[str, Any]:
        """Create or replace an action."""
        if not _NAME.fullmatch(name):
            raise Refused(400, "The name of the entity contains illegal characters.")
        given = body.get("exec", {})
        if given.get("kind") not in PROGRAMS:
            known = ", ".join(sorted(PROGRAMS))
            raise Refused(
                400,
                "The request content was malformed:\n"
                f"kind '{given.get('kind')}' not in Set({known})",
            )
        limits = {"timeout": 60_000, "memory": 256, "logs": 10, "concurrency": 1}
        limits |= body.get("limits", {})
        least, most = self.rules.memory
        if not least <= limits["memory"] <= most:
            size = limits["memory"]
            allowed = f"allowed threshold of {most if size > most else least} MB"
            side = "exceeds" if size > most else "below"
            raise Refused(
                400, f"The request content was malformed:\nmemory {size} MB {side} {allowed}"
            )
        if name in self.actions and not overwrite:
            raise Refused(409, "resource already exists")
        code = given["code"]
        # A zip is recognised as one where it is not said.
        is_zip = given.get("binary", code.startswith("UEsDB"))
        action = {
            "namespace": NAMESPACE,
            "name": name,
            "version": "0.0.1",
            "publish": False,
            "exec": {**given, "binary": is_zip, "main": given.get("main", "main")},
            "annotations": [*body.get("annotations", []), {"key": "exec", "value": given["kind"]}],
            "limits": limits,
            "parameters": body.get("parameters", []),
            "updated": time.time_ns() // 1_000_000,
        }
        self.actions[name] = action
        self._drop(name)
        return action

    def get(self, name: str) -> dict[str, Any]:
        """An action."""
        if name not in self.actions:
            raise Refused(404, "The requested resource does not exist.")
        return self.actions[name]

    def delete(self, name: str) -> dict[str, Any]:
        """Delete an action, and end its containers."""
        action = self.get(name)
        del self.actions[name]
        self._drop(name)
        return action

    def invoke(self, name: str, event: Any, *, blocking: bool) -> tuple[str, dict[str, Any] | None]:
        """Run an action; the id of its activation, and its record if it has ended in time."""
        received = time.time()
        action = self.get(name)
        with self._lock:
            if self._running >= self.rules.concurrent:
                count, allowed = self._running + 1, self.rules.concurrent
                raise Refused(
                    429,
                    f"Too many concurrent requests in flight (count: {count}, allowed: {allowed}).",
                )
            self._running += 1
        identifier = uuid.uuid4().hex
        future = self._threads.submit(self._activate, action, event, identifier, received)
        if not blocking:
            return identifier, None
        return identifier, _within(future, self.rules.wait_s)

    def _activate(
        self, action: dict[str, Any], event: Any, identifier: str, received: float
    ) -> dict[str, Any]:
        limit_s = action["limits"]["timeout"] / 1e3
        with self._lock:
            idle = self._idle.setdefault(action["name"], [])
            container = idle.pop() if idle else None
        is_new = container is None
        if container is None:
            container = Container(action)
        started, initialized = time.time(), None
        seen = len(container.output())
        status, answer = 200, None
        ended_badly = None
        try:
            if is_new:
                value = {**action["exec"], "name": action["name"]}
                status, answer = container.post("/init", {"value": value}, limit_s)
                initialized = time.time()
            if status == 200:
                parameters = {it["key"]: it["value"] for it in action["parameters"]}
                body = {
                    "value": parameters | (event or {}),
                    "namespace": NAMESPACE,
                    "action_name": f"/{NAMESPACE}/{action['name']}",
                    "activation_id": identifier,
                    "deadline": str(int((time.time() + limit_s) * 1e3)),
                }
                status, answer = container.post("/run", body, limit_s)
        except TimeoutError:
            within = "." if initialized or not is_new else " during initialization."
            milliseconds = action["limits"]["timeout"]
            ended_badly = (
                f"The action exceeded its time limits of {milliseconds} milliseconds{within}"
            )
        except (OSError, http.client.HTTPException):
            ended_badly = "The action did not produce a valid response and exited unexpectedly."
        ended = time.time()
        if ended_badly is not None:
            status, answer = 502, {"error": ended_badly}
        is_error = isinstance(answer, dict) and "error" in answer
        word = "action developer error"
        if status == 200:
            word = "application error" if is_error else "success"
        # Of an error, nothing else is kept.
        result = {"error": answer["error"]} if is_error else answer
        start, end = int(started * 1e3), int(ended * 1e3)
        notes = {
            "path": f"{NAMESPACE}/{action['name']}",
            "waitTime": max(0, start - int(received * 1e3)),
            "kind": action["exec"]["kind"],
            "timeout": False,
            "limits": action["limits"],
        }
        if is_new and initialized is not None:
            notes["initTime"] = int(initialized * 1e3) - start
        record = {
            "activationId": identifier,
            "namespace": NAMESPACE,
            "name": action["name"],
            "version": action["version"],
            "subject": NAMESPACE,
            "publish": False,
            "start": start,
            "end": end,
            "duration": end - start,
            "response": {"status": word, "success": word == "success", "result": result},
            "logs": [f"{_stamp(ended)} stdout: {line}" for line in container.output()[seen:]],
            "annotations": [{"key": key, "value": value} for key, value in notes.items()],
        }
        with self._lock:
            self._running -= 1
            self.activations.append((time.monotonic() + self.rules.record_delay_s, record))
            is_wanted = self.actions.get(action["name"]) is action and status == 200
            if is_wanted:
                idle.append(container)
        if not is_wanted:
            container.end()
        return record

    def records(self, question: dict[str, str]) -> list[dict[str, Any]]:
        """The records of activations, the newest first."""
        count, skip = int(question.get("limit", 30)), int(question.get("skip", 0))
        if not 0 <= count <= _MOST:
            raise Refused(
                400, f"The value '{count}' is not in the range of 0 to {_MOST} for activations."
            )
        since, upto = int(question.get("since", 0)), int(question.get("upto", 1 << 62))
        with self._lock:
            there = [record for at, record in self.activations if at <= time.monotonic()]
        wanted = [
            record
            for record in sorted(there, key=lambda it: it["start"], reverse=True)
            if since <= record["start"] <= upto
            and question.get("name", record["name"]) == record["name"]
        ]
        page = wanted[skip : skip + (count or _MOST)]
        if question.get("docs") == "true":
            return page
        return [{k: v for k, v in it.items() if k not in ("response", "logs")} for it in page]

    def record(self, identifier: str) -> dict[str, Any]:
        """The record of an activation."""
        for at, record in self.activations:
            if record["activationId"] == identifier and at <= time.monotonic():
                return record
        raise Refused(404, "The requested resource does not exist.")

    def _drop(self, name: str) -> None:
        with self._lock:
            containers = self._idle.pop(name, [])
        for container in containers:
            container.end()

    def close(self) -> None:
        """End what runs."""
        self._threads.shutdown()
        for name in list(self._idle):
            self._drop(name)


def _within(future: Future[dict[str, Any]], wait_s: float) -> dict[str, Any] | None:
    with contextlib.suppress(TimeoutError):
        return future.result(wait_s)
    return None


def _stamp(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


class Handler(BaseHTTPRequestHandler):
    """The REST API."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    whisk: Whisk

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        self.whisk.requests.append(f"{self.command} {self.path}")
        headers: dict[str, str] = {}
        try:
            status, answer = self._route(body, headers)
        except Refused as refused:
            status = refused.status
            answer = {"error": str(refused), "code": uuid.uuid4().hex}
        content = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def _route(self, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        expected = f"Basic {base64.b64encode(KEY.encode()).decode()}"
        if self.headers.get("authorization") != expected:
            raise Refused(401, "The supplied authentication is invalid.")
        parts = urlsplit(self.path)
        question = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        if path == ["api", "v1", "namespaces"]:
            return 200, [NAMESPACE]
        if path[:3] != ["api", "v1", "namespaces"] or len(path) not in (5, 6):
            raise Refused(404, "The requested resource does not exist.")
        if path[3] not in ("_", NAMESPACE):
            raise Refused(
                403, "The supplied authentication is not authorized to access this resource."
            )
        match (self.command, *path[4:]):
            case ("GET", "activations"):
                return 200, self.whisk.records(question)
            case ("GET", "activations", identifier):
                return 200, self.whisk.record(identifier)
            case ("GET", "actions"):
                return 200, list(self.whisk.actions.values())
            case ("GET", "actions", name):
                return 200, self.whisk.get(name)
            case ("DELETE", "actions", name):
                return 200, self.whisk.delete(name)
            case ("PUT", "actions", name):
                overwrite = question.get("overwrite") == "true"
                return 200, self.whisk.put(name, self._object(body), overwrite=overwrite)
            case ("POST", "actions", name):
                return self._invoke(name, body, question, headers)
        raise Refused(405, "HTTP method not allowed.")

    def _invoke(
        self, name: str, body: bytes, question: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, Any]:
        most = self.whisk.rules.payload
        if len(body) > most:
            raise Refused(
                413, f"The request content was larger than allowed: {len(body)} > {most} bytes."
            )
        blocking = question.get("blocking") == "true"
        identifier, record = self.whisk.invoke(
            name, self._object(body) if body else {}, blocking=blocking
        )
        if self.whisk.rules.names_activations:
            headers["X-Openwhisk-Activation-Id"] = identifier
        if record is None:
            return 202, {"activationId": identifier}
        answer = record["response"]["result"] if question.get("result") == "true" else record
        return 200 if record["response"]["success"] else 502, answer

    def _object(self, body: bytes) -> dict[str, Any]:
        if not (self.headers.get("content-type") or "").startswith("application/json"):
            raise Refused(415, "Content type is not supported.")
        try:
            value = json.loads(body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Refused(400, "The request content was malformed:\nObject expected")
        return value

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(rules: Rules | None = None) -> Iterator[tuple[str, Whisk]]:
    """Serve an OpenWhisk on a free port; yields its URL, and it."""
    whisk = Whisk(rules or Rules())
    handler = type("Bound", (Handler,), {"whisk": whisk})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", whisk
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        whisk.close()
