"""Clients of a platform that is killed under them, each a thread."""

import abc
import base64
import hashlib
import itertools
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from lambda_api.conftest import package

from .engine import Answer, Connection, Unanswered, creation
from .ledger import Ledger, Sent

_FUNCTIONS = "/2015-03-31/functions"
_UP_POLL_S = 0.2
# Of the requests to steady functions.
_EVENTS = 0.1

_ECHO = "def handler(event, context):\n    {body}\n    return event['name']\n"
# Where instances that are copies of another process, or were one that waited, come from.
COPIED = ("zygote", "function_zygote", "pool")
# Functions that are there all the time: source, and settings of CreateFunction.
STEADY: dict[str, tuple[str, dict[str, object]]] = {
    "warm": (_ECHO.format(body="pass"), {}),
    "slow": (_ECHO.format(body="import time; time.sleep(0.03)"), {}),
    # Each request starts an instance.
    "cold": (_ECHO.format(body="pass"), {"Tags": {"uncia:keep-alive-ms": "0"}}),
    # Each of these too: a copy of a runtime or of a function, or a runtime that was started ahead.
    **{
        start: (
            _ECHO.format(body="pass"),
            {"Tags": {"uncia:start-from": start, "uncia:keep-alive-ms": "0"}},
        )
        for start in COPIED
    },
    "flaky": (_ECHO.format(body="import random; random.random() < 0.4 and 1 / 0"), {}),
    # Its instances end, some of them right after the answer.
    "exits": (
        "import os, random, threading\n"
        "def handler(event, context):\n"
        "    if random.random() < 0.2: os._exit(3)\n"
        "    if random.random() < 0.3: threading.Timer(0.001, os._exit, [4]).start()\n"
        "    return event['name']\n",
        {},
    ),
    # Invokes `warm`, whose row names its parent.
    "chain": (
        "import json, os, urllib.request\n"
        "def handler(event, context):\n"
        "    url = os.environ['AWS_ENDPOINT_URL_LAMBDA']\n"
        "    url += '/2015-03-31/functions/warm/invocations'\n"
        "    with urllib.request.urlopen(url, json.dumps(event).encode(), timeout=5) as answer:\n"
        "        return json.load(answer)\n",
        {"Tags": {"uncia:network": "platform"}},
    ),
}


@dataclass(frozen=True)
class Upstream:
    """Where the platform is now."""

    address: str
    # Of the ledger.
    era: int


class Gate:
    """Tells clients where the platform is, and holds them while it is nowhere."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._upstream: Upstream | None = None
        self._closed = False

    def open(self, upstream: Upstream) -> None:
        with self._changed:
            self._upstream = upstream
            self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._upstream = None

    def close(self) -> None:
        """Let all clients end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def upstream(self) -> Upstream | None:
        """Where the platform is, once it is up; None when the client is to end."""
        with self._changed:
            while self._upstream is None and not self._closed:
                self._changed.wait(_UP_POLL_S)
            return None if self._closed else self._upstream


class Client(abc.ABC):
    """What clients share: a thread, a connection, invocations under names of their own."""

    def __init__(self, name: str, gate: Gate, ledger: Ledger, seed: int) -> None:
        self.name = name
        self.thread = threading.Thread(name=name, target=self.run, daemon=True)
        self.gate = gate
        self.ledger = ledger
        self.random = random.Random(f"{seed}-{name}")
        self.connection = Connection()
        self._numbers = itertools.count()

    def run(self) -> None:
        try:
            while (upstream := self.gate.upstream()) is not None:
                try:
                    self.step(upstream)
                except Unanswered:
                    # The platform is being killed, or has not closed its gate yet.
                    threading.Event().wait(0.01)
        except BaseException as error:
            self.ledger.problem(f"client {self.name} failed: {error!r}")
            raise
        finally:
            self.connection.close()

    @abc.abstractmethod
    def step(self, upstream: Upstream) -> None:
        """Send one request or more."""

    def invoke(self, upstream: Upstream, function: str, is_event: bool) -> tuple[Sent, Answer]:
        """Send an invocation, and note what was answered."""
        name = f"{self.name}-{next(self._numbers)}"
        entry = self.ledger.send(name, function, is_event, upstream.era)
        headers = {"x-uncia-invocation": name}
        if is_event:
            headers["x-amz-invocation-type"] = "Event"
        # Large payloads of events are not kept in memory while they wait.
        padding = " " * self.random.choice([0, 0, 0, 4_000, 100_000])
        body = json.dumps({"name": name, "padding": padding}).encode()
        path = f"{_FUNCTIONS}/{function}/invocations"
        answer = self.connection.request(upstream.address, "POST", path, body, headers)
        entry.status = answer.status
        entry.request_id = answer.headers.get("x-amzn-requestid")
        if not is_event:
            entry.outcome = answer.headers.get("x-uncia-outcome")
        return entry, answer


class Invoker(Client):
    """Invokes the steady functions, one request or event after the other."""

    def step(self, upstream: Upstream) -> None:
        (function,) = self.random.choices(list(STEADY), [6, 3, 1, *[1] * len(COPIED), 2, 1, 1])
        entry, answer = self.invoke(upstream, function, self.random.random() < _EVENTS)
        expected = (202,) if entry.is_event else (200,)
        # 429: as many instances run as may; 503: it is stopping.
        if answer.status not in (*expected, 429, 503):
            self.ledger.problem(f"{function} was answered with {answer}")


# What is known of a function: its code and description; None when there is none.
State = tuple[str, str] | None


class Deployer(Client):
    """Creates, changes, invokes and deletes a function of its own, and knows what must be there."""

    def __init__(self, name: str, gate: Gate, ledger: Ledger, seed: int) -> None:
        super().__init__(name, gate, ledger, seed)
        self.function = f"of-{name}"
        # More than one after a change that was not answered.
        self.possible: set[State] = {None}
        self._versions: dict[str, str] = {}
        self.era = ledger.era

    def step(self, upstream: Upstream) -> None:
        if upstream.era != self.era:
            self.era = upstream.era
            self._start_over(upstream)
        self.confirm(upstream)
        (state,) = self.possible
        if state is None:
            self._create(upstream)
            return
        choices: list[Callable[[Upstream, tuple[str, str]], None]] = [
            self._invoke,
            self._invoke,
            self._send_event,
            self._update_code,
            self._describe,
            self._delete,
        ]
        self.random.choice(choices)(upstream, state)

    def confirm(self, upstream: Upstream) -> None:
        """Ask what is there; it must be possible."""
        answer = self._ask(upstream, "GET", self.function)
        actual: State = None
        if answer.status != 404:
            configuration = json.loads(answer.body)["Configuration"]
            version = self._versions.get(configuration["CodeSha256"], configuration["CodeSha256"])
            actual = (version, configuration["Description"])
            if configuration["State"] != "Active":
                self.ledger.problem(f"{self.function} is {configuration}")
        if actual not in self.possible:
            text = f"{self.function} is {actual}, acknowledged {self.possible}"
            self.ledger.problem(text)
        self.possible = {actual}

    def _start_over(self, upstream: Upstream) -> None:
        """Nothing that was acknowledged may be relied on."""
        self.ledger.orphan(self.function)
        self._ask(upstream, "DELETE", self.function)
        self.possible = {None}

    def _ask(self, upstream: Upstream, method: str, path: str, body: object = None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        full = f"{_FUNCTIONS}/{path}".rstrip("/")
        return self.connection.request(upstream.address, method, full, content)

    def _change(self, state: State, change: Callable[[], Answer], expected: int) -> None:
        """Make a change that leads to this state; if nobody answers, it may have been made."""
        self.possible.add(state)
        answer = change()
        if answer.status == expected:
            self.possible = {state}
        elif answer.status != 503:
            self.ledger.problem(f"{self.function}, {self.possible}: {answer}")

    def _package(self) -> tuple[str, bytes]:
        version = f"v{len(self._versions)}"
        source = f"def handler(event, context):\n    return {version!r}\n"
        content = package(source)
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        self._versions[digest] = version
        return version, content

    def _create(self, upstream: Upstream) -> None:
        version, content = self._package()
        body = creation(self.function, content, Description="new")
        self._change(
            (version, "new"),
            lambda: self.connection.request(upstream.address, "POST", _FUNCTIONS, body),
            201,
        )

    def _update_code(self, upstream: Upstream, state: tuple[str, str]) -> None:
        version, content = self._package()
        body = {"ZipFile": base64.b64encode(content).decode()}
        path = f"{self.function}/code"
        self._change(
            (version, state[1]), lambda: self._ask(upstream, "PUT", path, body), expected=200
        )

    def _describe(self, upstream: Upstream, state: tuple[str, str]) -> None:
        description = f"number {self.random.random()}"
        body = {"Description": description}
        path = f"{self.function}/configuration"
        self._change(
            (state[0], description), lambda: self._ask(upstream, "PUT", path, body), expected=200
        )

    def _delete(self, upstream: Upstream, state: tuple[str, str]) -> None:
        del state
        self.ledger.orphan(self.function)
        self._change(None, lambda: self._ask(upstream, "DELETE", self.function), expected=204)

    def _invoke(self, upstream: Upstream, state: tuple[str, str]) -> None:
        _, answer = self.invoke(upstream, self.function, is_event=False)
        if answer.status == 200 and json.loads(answer.body) != state[0]:
            self.ledger.problem(f"{self.function} is {state} and answers {answer}")
        elif answer.status not in (200, 429, 503):
            self.ledger.problem(f"{self.function} is {state} and is answered with {answer}")

    def _send_event(self, upstream: Upstream, state: tuple[str, str]) -> None:
        del state
        self.invoke(upstream, self.function, is_event=True)


def deploy_steady(connection: Connection, address: str) -> None:
    """Create the steady functions that are not there."""
    for name, (source, settings) in STEADY.items():
        body = creation(name, package(source), **settings)
        answer = connection.request(address, "POST", _FUNCTIONS, body)
        assert answer.status in (201, 409), answer
