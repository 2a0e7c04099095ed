"""Apache OpenWhisk: actions through its REST API, and their activations as rows.

An action is the function's package with an entry point of OpenWhisk's before its handler. What a
row has of an activation is in whole milliseconds: ``waitTime`` is ``queued``, ``initTime`` the
``initialization`` of a cold start, and the rest of the duration the ``execution``.
"""

from __future__ import annotations

import base64
import io
import json
import re
import time
import urllib.parse
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import Field, field_validator

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
)
from uncia.platforms.bare import SHIMS, language
from uncia.platforms.journal import Resource
from uncia.platforms.openwhisk_api import FIRST_TIMEOUT_S, Api, message_of, url_of
from uncia.units import MIB, NS_PER_MS, NS_PER_S, Duration, format_duration, format_size

_KIND: Final = "openwhisk"

_PAGE: Final = 200  # of activations; OpenWhisk lists no more at a time
_LIST_PAUSE_S: Final = 0.2
_DEFAULT_TIMEOUT_MS: Final = 60_000

_ENTRIES: Final = SHIMS / "openwhisk-action"
# What is put beside a handler: what calls it, under that name, and the entry point.
_HANDLERS: Final = {
    "python": ("python_handler.py", "uncia_handler.py", "__main__.py"),
    "node": ("node_handler.cjs", "uncia_handler.cjs", "uncia_main.cjs"),
}
_ACTION: Final = "uncia_action.json"
_KINDS: Final = {"python": "python", "node": "nodejs"}
# As the load generator words and reads them in the answers that it sees
# (`crates/load/src/rows/interpret/outcome.rs`).
_TIME_LIMIT: Final = "The action exceeded its time limits of"
_WRONG_OUTPUT: Final = "the function's own check says that its output is wrong"


def kind_of(runtime: str) -> str:
    """What OpenWhisk calls a runtime: ``python3.11`` is ``python:3.11``, ``node`` the default."""
    version = re.sub(r"^\D+|\.x$", "", runtime)
    return f"{_KINDS[language(runtime)]}:{version or 'default'}"


def _mistakes(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    memory, timeout = values.get("memory"), values.get("timeout")
    if memory is not None and memory % MIB:
        yield "memory", f"{format_size(memory)} is not a whole number of MB"
    if timeout is not None and timeout % NS_PER_MS:
        yield "timeout", f"{format_duration(timeout)} is not a whole number of milliseconds"


CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=True,
    names_invocations=True,
    settings=frozenset(
        {"runtime", "handler", "memory", "timeout", "environment", "filler", "replicas"}
    ),
    mistakes=_mistakes,
    languages=lambda _options: tuple(_HANDLERS),
    log_lag=lambda options: int(options.records_within),
)


class Options(PlatformForm):
    """An OpenWhisk and how its actions are invoked; its credentials stand in no file of a run."""

    kind: Literal["openwhisk"]
    host: str | None = Field(
        None,
        description="Of its API, such as https://openwhisk.example. Default: __OW_API_HOST, or"
        " APIHOST of ~/.wskprops",
    )
    namespace: str = Field(
        "_", pattern=r"^[\w][\w@ .-]*$", description="Of the actions; _: that of the credentials"
    )
    blocking: bool = Field(
        True,
        description="Whether a request waits for its action's answer; else it is accepted, and the"
        " rest is in the activation's record",
    )
    records_within: Duration = Field(
        60 * NS_PER_S,
        ge=0,
        description="How long after the last answer records of activations may still appear",
    )

    @field_validator("host")
    @classmethod
    def _is_host(cls, host: str | None) -> str | None:
        if host is not None:
            url_of(host)
        return host


class OpenWhiskPlatform:
    """The actions of one run."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options: Final = options
        self._journal: Final = context.journal
        self._log: Final = context.log
        self._api: Final = Api.of(options.host, options.namespace)
        self._lists: dict[str, _List] = {}
        self._listed_at = -_LIST_PAUSE_S

    def start(self) -> list[str]:
        url = f"{self._api.url}/api/v1/namespaces"
        problem = "cannot list the namespaces"
        namespaces = self._api.json("GET", url, problem, timeout_s=FIRST_TIMEOUT_S)
        if not isinstance(namespaces, list):
            raise RunFailedError(f"what answers at {self._api.url} is no OpenWhisk")
        host = urllib.parse.urlsplit(self._api.url)
        if host.scheme == "http" and host.hostname not in ("localhost", "127.0.0.1", "::1"):
            return ["OpenWhisk's credentials are sent without TLS: its host begins with http://."]
        return []

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if not isinstance(function, FunctionSpec):
            raise UnciaError(f"{function.name}: {_KIND} has no state machines and no triggers")
        request = action_of(function)
        detail = {"host": self._api.url, "namespace": self._api.namespace}
        resource = Resource(_KIND, "function", function.name, detail)
        self._journal.created(resource)
        answer = self._api.ask("PUT", self._api.action(function.name, overwrite="false"), request)
        if answer.status != 200:
            # It says that there is none, or that one is there that somebody else has made.
            if 400 <= answer.status < 500:
                self._journal.removed(resource)
            raise RunFailedError(
                f"OpenWhisk: cannot create the action {function.name}: {message_of(answer)}"
            )
        limit = request["limits"].get("timeout", _DEFAULT_TIMEOUT_MS)
        # Records are listed by when their activation began, and appear when it has ended.
        late_ms = -(-int(self._options.records_within) // NS_PER_MS)
        self._lists[function.name] = _List(late_ms + limit)
        return Deployment(function.name)

    def endpoint(self, deployment: Deployment) -> Target:
        how = {"blocking": "true", "result": "true"} if self._options.blocking else {}
        url = self._api.action(deployment.name, **how)
        return Target(url, headers={"authorization": self._api.authorization})

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        return self._api.ask("POST", self.endpoint(deployment).url, event)

    def collect(self) -> Collected:
        # Not faster than this, however often it is asked.
        time.sleep(max(0.0, self._listed_at + _LIST_PAUSE_S - time.monotonic()))
        rows = [
            row_of(activation)
            for name, known in self._lists.items()
            for activation in known.new(self._api, name)
        ]
        self._listed_at = time.monotonic()
        return Collected(pa.Table.from_pylist(rows, _ROW))

    def is_settled(self) -> bool:
        return True

    def unserved_events(self) -> int:
        return 0

    def remove(self, deployment: Deployment) -> None:
        self._api.delete(deployment.name)
        self._lists.pop(deployment.name, None)
        for resource in self._journal.outstanding:
            if (resource.platform, resource.id) == (_KIND, deployment.name):
                self._journal.removed(resource)

    def close(self) -> None:
        mine = [it for it in self._journal.outstanding if it.platform == _KIND]
        for resource in _delete(self._api, mine, self._log):
            self._journal.removed(resource)
        self._lists.clear()


@dataclass
class _List:
    """The activations of an action that were listed so far.

    Attributes:
        late_ms: how much later than others' a record may appear that began before them.
    """

    late_ms: int
    _seen: set[str] = field(default_factory=set)
    _newest_ms: int = 0

    def new(self, api: Api, name: str) -> list[dict[str, Any]]:
        """The records that appeared since the last time."""
        since = max(0, self._newest_ms - self.late_ms)
        new: list[dict[str, Any]] = []
        skip = 0
        while True:
            query = {"name": name, "docs": "true", "limit": _PAGE, "skip": skip, "since": since}
            page = api.json(
                "GET", api.at("activations", **query), f"cannot list the activations of {name}"
            )
            for activation in page:
                if activation["activationId"] not in self._seen and "end" in activation:
                    self._seen.add(activation["activationId"])
                    self._newest_ms = max(self._newest_ms, activation["start"])
                    new.append(activation)
            if len(page) < _PAGE:
                return new
            skip += _PAGE


_ROW: Final = pa.schema(
    [
        *((name, pa.utf8()) for name in ("invocation", "request_id", "function", "platform")),
        *((name, pa.utf8()) for name in ("outcome", "error", "start")),
        *((name, pa.int64()) for name in ("attempt", "started", "ended", "queued")),
        *((name, pa.int64()) for name in ("initialization", "execution", "allocated_memory")),
    ]
)


def row_of(activation: Mapping[str, Any]) -> dict[str, Any]:
    """What the record of an activation says, as a row; times in Unix ns, a request of no client."""
    notes = {note["key"]: note["value"] for note in activation.get("annotations", ())}
    wait, init = notes.get("waitTime"), notes.get("initTime")
    end = activation["end"]
    duration = activation.get("duration", end - activation["start"])
    execution = max(0, duration - (init or 0))
    memory = notes.get("limits", {}).get("memory")
    outcome, error = _outcome(activation.get("response", {}))
    return {
        "invocation": activation["activationId"],
        "request_id": activation["activationId"],
        "function": activation["name"],
        "platform": _KIND,
        "attempt": 1,
        "outcome": outcome,
        "error": error,
        "start": "warm" if init is None else "cold",
        "started": (end - execution) * NS_PER_MS,
        "ended": end * NS_PER_MS,
        "queued": None if wait is None else wait * NS_PER_MS,
        "initialization": None if init is None else init * NS_PER_MS,
        "execution": execution * NS_PER_MS,
        "allocated_memory": None if memory is None else memory * MIB,
    }


def _outcome(response: Mapping[str, Any]) -> tuple[str, str | None]:
    """The outcome of an activation, and what went wrong."""
    status, result = response.get("status", "success"), response.get("result")
    if status == "success":
        report = result.get("uncia") if isinstance(result, Mapping) else None
        if isinstance(report, Mapping) and report.get("valid") is False:
            return "function_error", _WRONG_OUTPUT
        return "ok", None
    error = result.get("error") if isinstance(result, Mapping) else None
    if isinstance(error, Mapping) and "message" in error:
        # What Node.js has of an Error.
        error = ": ".join(str(error[key]) for key in ("name", "message") if key in error)
    elif error is not None and not isinstance(error, str):
        error = json.dumps(error)
    text = status if error is None else f"{status}: {error}"
    is_late = isinstance(error, str) and error.startswith(_TIME_LIMIT)
    return "timeout" if is_late else "function_error", text[:500]


def action_of(function: FunctionSpec) -> dict[str, Any]:
    """The body of the request that creates an action.

    Raises:
        UnciaError: it is of a runtime or a package that OpenWhisk does not take here.
    """
    runtime = function.runtime or "python"
    if function.package is None:
        raise UnciaError(f"{function.name}: {_KIND} takes packages, and no images")
    if language(runtime) not in _HANDLERS:
        raise UnciaError(
            f"{function.name}: runtime {runtime}: functions on OpenWhisk are of"
            f" {' and '.join(_HANDLERS)}"
        )
    values = {"memory": function.memory, "timeout": function.timeout}
    for key, message in _mistakes(values):
        raise UnciaError(f"{function.name}: {key} {message}")
    limits: dict[str, int] = {}
    if function.memory is not None:
        limits["memory"] = function.memory // MIB
    if function.timeout is not None:
        limits["timeout"] = function.timeout // NS_PER_MS
    code = base64.b64encode(_package(function, language(runtime))).decode()
    return {
        "exec": {"kind": kind_of(runtime), "code": code, "binary": True, "main": "main"},
        "limits": limits,
    }


def _package(function: FunctionSpec, of: str) -> bytes:
    """The function's package with an entry point that OpenWhisk calls.

    Raises:
        UnciaError: the function has a file of that name.
    """
    handler, handler_name, main = _HANDLERS[of]
    action = {
        "handler": function.handler or "handler.handler",
        "name": function.name,
        "environment": dict(function.environment),
    }
    added = {
        handler_name: (SHIMS / handler).read_text(encoding="utf-8"),
        main: (_ENTRIES / main).read_text(encoding="utf-8"),
        _ACTION: json.dumps(action),
    }
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(function.package or b"")) as given,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made,
    ):
        if taken := added.keys() & set(given.namelist()):
            raise UnciaError(f"{function.name} has a file {min(taken)}, which {_KIND} needs")
        if of == "node":
            description: dict[str, Any] = {}
            if "package.json" in given.namelist():
                description = json.loads(given.read("package.json"))
            added["package.json"] = json.dumps({**description, "main": main})
        for item in given.infolist():
            if item.filename not in added:
                made.writestr(item, given.read(item))
        for name, text in added.items():
            made.writestr(name, text)
    return buffer.getvalue()


def _delete(api: Api, resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """Delete actions; returns those that are gone."""
    removed = []
    for resource in resources:
        try:
            api.delete(resource.id)
        except UnciaError as error:
            log(f"{resource.sentence()} could not be removed: {error.message}")
        else:
            removed.append(resource)
    return removed


def connect(options: Options, context: Context) -> OpenWhiskPlatform:
    """Return the platform of one run; nothing is asked of OpenWhisk yet.

    Raises:
        UnciaError: there is no host, or there are no credentials.
    """
    return OpenWhiskPlatform(options, context)


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """Delete the actions that a crashed run left, with the credentials of the environment."""
    removed: list[Resource] = []
    for resource in resources:
        try:
            api = Api.of(resource.detail.get("host"), resource.detail.get("namespace", "_"))
        except UnciaError as error:
            log(f"{resource.sentence()} could not be removed: {error}")
        else:
            removed += _delete(api, [resource], log)
    return removed
