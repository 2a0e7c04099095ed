"""A platform that is running already: what people deploy to it, ask of it and remove from it."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final, Literal
from urllib.parse import urlencode, urlsplit

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import FunctionSpec, boto, wire
from uncia.platforms.inquiries import fetch_page, list_functions
from uncia.platforms.lambda_api import IDENTIFIERS, create_request, delete, translated
from uncia.units import MIB, NS_PER_S

DEFAULT_ADDRESS: Final = "127.0.0.1:9001"
"""Where ``uncia serve`` listens unless told otherwise."""

_SCHEMES: Final = ("http", "https")
_REFUSED: Final = (401, 403)
_PLATFORM: Final = "embedded"
_TIMEOUT_S: Final = 10.0
_HEALTH: Final = "/uncia/v1/health"
_GLIMPSE_S: Final = 1.0
_HEALTH_BYTES: Final = MIB
_READ_BYTES: Final = 64 * 1024
_LEAST_WAIT_S: Final = 0.001
_INVOKE_MODES: Final = {True: "RESPONSE_STREAM", False: "BUFFERED"}
_PAGE_ROWS: Final = 10_000
_LEAST_SPAN: Final = 1_000

State = Literal["created", "updated", "unchanged"]

Row = dict[str, Any]
"""A row of the invocation table, in Unix time."""


@dataclass(frozen=True)
class Deployed:
    """A function as it is on the platform after a deployment.

    Attributes:
        name: the function's name.
        state: what the deployment did.
        url: its function URL.
        memory: in bytes.
        timeout: in nanoseconds.
        code_bytes: of its package.
        warning: what the platform says of how it serves the function; "" if nothing.
    """

    name: str
    state: State
    url: str
    memory: int
    timeout: int
    code_bytes: int
    warning: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer to an invocation.

    Attributes:
        body: the function's answer, or its error.
        failed: whether it is an error.
        log: the end of what the function printed.
        request_id: names the invocation in the platform's log.
    """

    body: bytes
    failed: bool
    log: str
    request_id: str


def glimpse(address: str) -> dict[str, Any] | None:
    """What a platform says of itself, if there is one; None if there seems to be none.

    Whoever else listens there keeps nobody waiting for longer than a second, or for an endless
    answer.

    Args:
        address: host and port.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + _GLIMPSE_S
    answer = bytearray()
    try:
        with socket.create_connection((host, int(port)), _GLIMPSE_S) as connection:
            request = f"GET {_HEALTH} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            while True:
                connection.settimeout(max(end - time.monotonic(), _LEAST_WAIT_S))
                if not (received := connection.recv(_READ_BYTES)):
                    break
                answer += received
                if len(answer) > _HEALTH_BYTES or time.monotonic() >= end:
                    return None
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        health = json.loads(body)
        is_platform = head.split(None, 2)[1] == b"200" and "busy" in health["instances"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return health if is_platform else None


class Served:
    """A running platform, by its address."""

    def __init__(self, address: str) -> None:
        """Connect to a platform.

        Args:
            address: host and port, or a URL without a path.

        Raises:
            UnciaError: it is no address.
            RunFailedError: nothing answers there, or something else.
        """
        try:
            parts = urlsplit(address if "//" in address else f"http://{address}")
            is_address = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of a port or an IPv6 address
            is_address = False
        if not is_address or parts.path not in ("", "/"):
            raise UnciaError(
                f"{address} is no address of a platform", f"Write one such as {DEFAULT_ADDRESS}."
            )
        is_secure = parts.scheme == "https"
        self.address: Final = f"{wire.HTTPS}{parts.netloc}" if is_secure else parts.netloc
        self._client = boto.client(self.address)
        self._health: Final = self.health()

    @property
    def python_version(self) -> str | None:
        """``major.minor`` of the Python that functions run on there; None if it does not say."""
        version = self._health.get("runtimes", {}).get("python")
        return None if version is None else ".".join(str(version).split(".")[:2])

    @property
    def architecture(self) -> str | None:
        """The platform's processor, such as ``x86_64``; None if it does not say."""
        architecture: str | None = self._health.get("architecture")
        return architecture

    @property
    def tariff(self) -> str | None:
        """The id or file of the tariff that the platform was started with; None if of none."""
        tariff = self._health.get("tariff")
        return tariff if isinstance(tariff, str) else None

    def health(self) -> dict[str, Any]:
        """What the platform says of itself.

        Raises:
            RunFailedError: nothing answers there, or something else.
        """
        try:
            with wire.open_path(self.address, _HEALTH, _TIMEOUT_S) as answer:
                health: dict[str, Any] = json.loads(answer.read(_HEALTH_BYTES))
            health["instances"]["busy"]
        except (urllib.error.HTTPError, HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code in _REFUSED:
                raise RunFailedError(
                    f"{self.address} refuses the credentials of the environment: {_message(error)}",
                    "UNCIA_TOKEN, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, must be its own.",
                ) from error
            raise self._stranger() from error
        except (OSError, ValueError, RecursionError) as error:
            if not isinstance(error, OSError):
                raise self._stranger() from error
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RunFailedError(
                    f"the certificate of {self.address} is not believed: {reason.verify_message}",
                    "Name a file with its authority's certificate (PEM) in AWS_CA_BUNDLE.",
                ) from error
            raise RunFailedError(
                f"no platform answers at {self.address}: {getattr(reason, 'strerror', reason)}",
                "Start one with `uncia serve`, or name another with --endpoint.",
            ) from error
        except (KeyError, TypeError) as error:
            raise self._stranger() from error
        return health

    def _stranger(self) -> RunFailedError:
        secure = self.address.startswith("https:")
        return RunFailedError(
            f"what answers at {self.address} is no platform of Uncia's",
            "Start one with `uncia serve`, or name another with --endpoint"
            + ("." if secure else "; one that speaks TLS with https:// before it."),
        )

    def functions(self) -> list[dict[str, Any]]:
        """The functions' configurations, as Lambda's API lists them, by name."""
        return sorted(list_functions(self.address), key=lambda it: str(it["FunctionName"]))

    def url(self, name: str) -> str | None:
        """A function's URL; None if it has none."""
        with translated(_PLATFORM, f"cannot read the URL of {name}"):
            try:
                url: str = self._client.get_function_url_config(FunctionName=name)["FunctionUrl"]
            except self._client.exceptions.ResourceNotFoundException:
                return None
        return url

    def deploy(self, function: FunctionSpec, *, streams: bool | None = None) -> Deployed:
        """Create a function with a URL, or change the one of that name.

        Of one that exists the code and the handler are replaced, and else only what is given:
        memory, time limit, variables of the environment and settings that are None or missing stay
        as they are.

        Args:
            function: what to deploy.
            streams: whether its URL passes an answer on while it is made, or once it is whole;
                None: as it is, and of a new URL once it is whole.

        Raises:
            UnciaError: a setting has no form in the API.
            RunFailedError: the platform refused.
        """
        runtimes = {**IDENTIFIERS}
        if self.python_version is not None:
            runtimes["python"] = f"python{self.python_version}"
        request = create_request(function, boto.ROLE, runtimes)
        with translated(_PLATFORM, f"cannot deploy the function {function.name}"):
            try:
                now = self._client.get_function(FunctionName=function.name)
            except self._client.exceptions.ResourceNotFoundException:
                configuration = self._client.create_function(**request)
                state: State = "created"
            else:
                configuration, changed = self._update(request, now)
                state = "updated" if changed else "unchanged"
            self._client.get_waiter("function_active_v2").wait(
                FunctionName=function.name, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
            )
            url, has_changed = self._give_url(function.name, streams)
        return Deployed(
            function.name,
            "updated" if has_changed and state == "unchanged" else state,
            url,
            memory=int(configuration["MemorySize"]) * MIB,
            timeout=int(configuration["Timeout"]) * NS_PER_S,
            code_bytes=int(configuration["CodeSize"]),
            # Of one that has not changed, which was said when it did.
            warning=configuration.get("ResponseMetadata", {"HTTPHeaders": {}})["HTTPHeaders"].get(
                "x-uncia-warning", ""
            ),
        )

    def _give_url(self, name: str, streams: bool | None) -> tuple[str, bool]:
        """Give a function a URL if it has none; returns it, and whether one that it had changed."""
        mode = {} if streams is None else {"InvokeMode": _INVOKE_MODES[streams]}
        try:
            now = self._client.get_function_url_config(FunctionName=name)
        except self._client.exceptions.ResourceNotFoundException:
            # Beyond this machine nobody's function is public unless its owner says so.
            is_local = not self.address.startswith(wire.HTTPS)
            made = self._client.create_function_url_config(
                FunctionName=name, AuthType="NONE" if is_local else "AWS_IAM", **mode
            )
            return str(made["FunctionUrl"]), False
        has_changed = bool(mode) and now["InvokeMode"] != mode["InvokeMode"]
        if has_changed:
            self._client.update_function_url_config(FunctionName=name, **mode)
        return str(now["FunctionUrl"]), has_changed

    def _update(self, request: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Change what differs from the request; returns the configuration and whether any did.

        Raises:
            RunFailedError: some of it was changed, and then something was refused.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        name: str = request["FunctionName"]
        configuration: dict[str, Any] = now["Configuration"]
        changed: list[str] = []
        wanted = {
            key: request[key]
            for key in ("Runtime", "Handler", "MemorySize", "Timeout", "Environment")
            if key in request
        }
        if "Environment" in wanted:
            # The API replaces the environment as a whole.
            present = configuration.get("Environment", {}).get("Variables", {})
            wanted["Environment"] = {"Variables": present | wanted["Environment"]["Variables"]}
        package: bytes = request["Code"]["ZipFile"]
        digest = base64.b64encode(hashlib.sha256(package).digest()).decode()
        has_new_code = configuration["CodeSha256"] != digest
        if has_new_code:
            # Before anything is changed: most of what can be wrong is wrong with the package.
            self._client.update_function_code(FunctionName=name, ZipFile=package, DryRun=True)
        try:
            if any(configuration.get(key) != value for key, value in wanted.items()):
                configuration = self._client.update_function_configuration(
                    FunctionName=name, **wanted
                )
                changed.append("configuration")
            if has_new_code:
                configuration = self._client.update_function_code(
                    FunctionName=name, ZipFile=package
                )
                changed.append("code")
            tags: dict[str, str] = request["Tags"]
            tagged = now.get("Tags", {})
            if any(tagged.get(key) != value for key, value in tags.items()):
                self._client.tag_resource(Resource=configuration["FunctionArn"], Tags=tags)
                changed.append("settings")
        except (BotoCoreError, ClientError) as error:
            if not changed:
                raise
            raise RunFailedError(
                f"the function {name} is changed in part: its {' and '.join(changed)}, and then the"
                f" platform refused: {error}",
                "Deploy it again without what was refused, or as it was.",
            ) from error
        return configuration, bool(changed)

    def invoke(self, name: str, event: bytes) -> Answer:
        """Invoke a function and wait for its answer.

        Args:
            name: the function's name.
            event: the event as JSON.

        Raises:
            RunFailedError: there is no such function, or the platform refused.
        """
        with translated(_PLATFORM, f"cannot invoke the function {name}"):
            answer = self._client.invoke(FunctionName=name, Payload=event, LogType="Tail")
            body: bytes = answer["Payload"].read()
        log = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
        request_id: str = answer["ResponseMetadata"]["RequestId"]
        return Answer(body, "FunctionError" in answer, log, request_id)

    def submit(self, name: str, event: bytes) -> str:
        """Invoke a function without waiting for its answer; returns the request's id.

        Raises:
            RunFailedError: there is no such function, or the platform refused.
        """
        with translated(_PLATFORM, f"cannot invoke the function {name}"):
            answer = self._client.invoke(FunctionName=name, Payload=event, InvocationType="Event")
        request_id: str = answer["ResponseMetadata"]["RequestId"]
        return request_id

    def remove(self, name: str) -> None:
        """Delete a function and its URL.

        Raises:
            RunFailedError: there is none of that name, or the platform refused.
        """
        self.require(name)
        delete(self._client, _PLATFORM, name)

    def exists(self, name: str) -> bool:
        """Whether there is a function of that name."""
        return name in self._names()

    def require(self, name: str) -> None:
        """Check that there is a function of that name.

        Raises:
            RunFailedError: there is none.
        """
        names = self._names()
        if name not in names:
            known = (
                f"There are: {', '.join(names)}." if names else "Deploy one with `uncia deploy`."
            )
            raise RunFailedError(f"there is no function {name} at {self.address}", known)

    def _names(self) -> list[str]:
        return [str(function["FunctionName"]) for function in self.functions()]

    def living_instances(self, log: Callable[[str], object]) -> list[Row]:
        """The rows of the instances that live, the oldest first.

        Args:
            log: receives a line for rows that are missing because the disk is full.

        Raises:
            RunFailedError: the platform does not answer.
        """
        page, _, _ = fetch_page(self.address, "instances", 0, log, living=True)
        rows: list[Row] = page.drop_columns(["idle"]).to_pylist()
        return sorted(rows, key=lambda row: int(row["started"]))

    def output(self, request_id: str) -> list[str]:
        """What a function printed for a request, of each attempt; empty if it is not kept any more.

        Raises:
            RunFailedError: the platform does not answer.
        """
        query = urlencode({"request": request_id})
        try:
            with wire.open_path(self.address, f"/uncia/v1/output?{query}", _TIMEOUT_S) as answer:
                return [str(entry["output"]) for entry in json.load(answer)]
        except (OSError, ValueError) as error:
            raise RunFailedError(f"the output cannot be fetched: {error}") from error

    def log(self, log: Callable[[str], object]) -> Log:
        """The platform's log of invocations.

        Args:
            log: receives a line for rows that are missing because the disk is full.
        """
        return Log(self.address, log)


def _message(error: urllib.error.HTTPError) -> str:
    """What an answer says is wrong."""
    try:
        return str(json.load(error)["Message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error)


class Log:
    """The log of invocations of a running platform: its newest rows, and those that follow."""

    def __init__(self, address: str, log: Callable[[str], object]) -> None:
        self._address: Final = address
        self._log: Final = log
        _, self._after, _ = fetch_page(address, "invocations", "newest", log)

    def last(self, count: int, wanted: Callable[[Row], bool]) -> list[Row]:
        """The newest rows that are wanted, the oldest first.

        Args:
            count: how many at most.
            wanted: says which.

        Raises:
            RunFailedError: the platform does not answer.
        """
        rows: list[Row] = []
        before = self._after
        span = max(count, _LEAST_SPAN)
        while before > 0 and len(rows) < count:
            after = max(0, before - span)
            older = self._between(after, before)
            rows = [row for row in older if wanted(row)] + rows
            if len(older) < before - after:
                break  # the log keeps no older ones
            before, span = after, min(2 * span, _PAGE_ROWS)
        return rows[max(0, len(rows) - count) :]

    def new(self) -> list[Row]:
        """The rows since the last time, or since this was made.

        Raises:
            RunFailedError: the platform does not answer.
        """
        page, self._after, _ = fetch_page(self._address, "invocations", self._after, self._log)
        rows: list[Row] = page.to_pylist()
        return rows

    def _between(self, after: int, last: int) -> list[Row]:
        """The rows whose ids are above one and at most another.

        Ids have no gaps, except that the log removes its oldest rows: then a page begins later than
        asked for, and may go on beyond the last.
        """
        rows: list[Row] = []
        while after < last:
            page, after, more = fetch_page(
                self._address, "invocations", after, self._log, limit=last - after
            )
            rows += page.slice(0, max(0, page.num_rows - max(0, after - last))).to_pylist()
            if not more:
                break
        return rows
