"""Functions behind the AWS Lambda API, wherever it is served.

Settings that Lambda's API does not have (keep-alive, network, a CPU share apart from memory) are
sent as tags ``uncia:<key>``, which the embedded platform reads and Amazon's ignores.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from uncia import settings
from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import Deployment, FunctionSpec, Response, Target
from uncia.platforms.journal import Journal, Resource
from uncia.units import MIB, NS_PER_S, format_duration, format_size

SETTINGS: Final = frozenset(
    {"runtime", "handler", "memory", "timeout", "environment", "filler", "replicas"}
)
"""The settings of a function that need no tags."""

IDENTIFIERS: Final[Mapping[str, str]] = {
    language: runtime.identifier for language, runtime in settings.LANGUAGES.items()
}
"""What the API calls a runtime where a file gives only its name."""

MEMORY: Final = (128 * MIB, 10_240 * MIB)
"""The least and the most memory of a function, in bytes; sizes are whole numbers of MB."""

TIMEOUT: Final = (NS_PER_S, 900 * NS_PER_S)
"""The least and the most time limit, in nanoseconds; limits are whole seconds."""

MAX_REQUEST_BYTES: Final = 6_291_556
"""Of an event whose answer is waited for."""

MAX_EVENT_BYTES: Final = 262_144
"""Of an event that is accepted and worked on later."""

MAX_HANDLER: Final = 128
"""Characters of a handler's name."""

MAX_ENVIRONMENT_BYTES: Final = 4 * 1024
"""Of all names and values of environment variables together."""

_VARIABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]+")

# Creating a function is asynchronous in the API; on a cloud it takes seconds, here milliseconds.
_ACTIVE_POLL_S: Final = 1
_ACTIVE_POLLS: Final = 120


class LambdaApi:
    """Create, reach, invoke and delete functions through a boto3 Lambda client."""

    def __init__(
        self,
        client: Any,
        *,
        platform: str,
        role: str,
        journal: Journal,
        runtimes: Mapping[str, str] = IDENTIFIERS,
    ) -> None:
        """
        Args:
            client: a boto3 client for ``lambda``.
            platform: the kind of platform, for the journal and for messages.
            role: the execution role's ARN that CreateFunction wants.
            journal: takes every function before it is created.
            runtimes: the identifier used where only a language is named.
        """
        self._client = client
        self._platform: Final = platform
        self._role: Final = role
        self._journal: Final = journal
        self._runtimes: Final = runtimes

    def deploy(self, function: FunctionSpec) -> Deployment:
        """Create the function and its URL, and wait until it is active.

        Raises:
            UnciaError: a setting has no form in this API.
            RunFailedError: the platform refused.
        """
        request = create_request(function, self._role, self._runtimes)
        resource = Resource(self._platform, "function", function.name)
        self._journal.created(resource)
        with translated(self._platform, f"cannot create the function {function.name}"):
            created = self._client.create_function(**request)
            self._client.get_waiter("function_active_v2").wait(
                FunctionName=function.name,
                WaiterConfig={"Delay": _ACTIVE_POLL_S, "MaxAttempts": _ACTIVE_POLLS},
            )
            url = self._client.create_function_url_config(
                FunctionName=function.name, AuthType="NONE"
            )
        detail = {"arn": created["FunctionArn"], "url": url["FunctionUrl"]}
        # Said by the embedded platform alone.
        headers = created["ResponseMetadata"]["HTTPHeaders"]
        detail["architecture"] = headers.get("x-uncia-architecture", "polling")
        warning = headers.get("x-uncia-warning")
        return Deployment(function.name, detail, () if warning is None else (warning,))

    def endpoint(self, deployment: Deployment) -> Target:
        """Return the function's URL."""
        return Target(deployment.detail["url"])

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        """Invoke the function and wait for its answer.

        Raises:
            RunFailedError: the platform refused, or cannot be reached.
        """
        with translated(self._platform, f"cannot invoke the function {deployment.name}"):
            answer = self._client.invoke(
                FunctionName=deployment.name, Payload=json.dumps(event).encode()
            )
            payload: io.BufferedIOBase = answer["Payload"]
            metadata = answer["ResponseMetadata"]
            return Response(answer["StatusCode"], metadata["HTTPHeaders"], payload.read())

    def remove(self, deployment: Deployment) -> None:
        """Delete the function and mark it removed; one that is gone already is no error.

        Raises:
            RunFailedError: the platform refused, or cannot be reached.
        """
        self.delete(deployment.name)
        self._journal.removed(Resource(self._platform, "function", deployment.name))

    def delete(self, name: str) -> None:
        """Delete a function and its URL by name; see :meth:`remove`."""
        delete(self._client, self._platform, name)


def delete(client: Any, platform: str, name: str) -> None:
    """Delete a function and its URL through a boto3 client; one that is gone already is no error.

    Args:
        client: a boto3 client for ``lambda``.
        platform: the kind of platform, for messages.
        name: the function's name.

    Raises:
        RunFailedError: the platform refused, or cannot be reached.
    """
    calls: tuple[Callable[..., Any], ...] = (
        client.delete_function_url_config,
        client.delete_function,
    )
    for call in calls:
        with translated(platform, f"cannot delete the function {name}"):
            try:
                call(FunctionName=name)
            except client.exceptions.ResourceNotFoundException:
                continue


@contextmanager
def translated(platform: str, problem: str) -> Iterator[None]:
    """Raise the SDK's errors as errors of Uncia.

    Args:
        platform: the kind of platform, with which messages begin.
        problem: what could not be done, which comes next.

    Raises:
        RunFailedError: the block raised an error of the SDK.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        raise RunFailedError(
            f"{platform}: {problem}: {details.get('Message') or error}"
            f" ({details.get('Code', 'unknown error')})"
        ) from error
    except BotoCoreError as error:
        raise RunFailedError(f"{platform}: {problem}: {error}") from error


def mistakes(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find settings that the API does not take.

    Args:
        values: settings of a function by name, in base units; None is left to the platform.

    Yields:
        The name of each wrong setting, and what is wrong with it, a sentence that begins with its
        value.
    """
    memory, timeout = values.get("memory"), values.get("timeout")
    if memory is not None:
        if memory % MIB:
            yield "memory", f"{format_size(memory)} is not a whole number of MB"
        elif not MEMORY[0] <= memory <= MEMORY[1]:
            yield (
                "memory",
                f"{format_size(memory)} is not between {MEMORY[0] // MIB}MB and"
                f" {MEMORY[1] // MIB:,}MB, in steps of 1MB",
            )
    if timeout is not None:
        if timeout % NS_PER_S:
            yield "timeout", f"{format_duration(timeout)} is not a whole number of seconds"
        elif not TIMEOUT[0] <= timeout <= TIMEOUT[1]:
            yield (
                "timeout",
                f"{format_duration(timeout)} is not between 1s and {TIMEOUT[1] // NS_PER_S}s",
            )
    handler = values.get("handler")
    if handler is not None and not 1 <= len(handler) <= MAX_HANDLER:
        yield "handler", f"{handler[:20]!r}... is longer than {MAX_HANDLER} characters"
    environment = values.get("environment") or {}
    for name in environment:
        if _VARIABLE.fullmatch(name) is None:
            yield (
                "environment",
                f"{name!r} is no name of a variable: write two or more letters, digits and _,"
                " beginning with a letter",
            )
    size = sum(len(text.encode()) for pair in environment.items() for text in pair)
    if size > MAX_ENVIRONMENT_BYTES:
        yield (
            "environment",
            f"{size:,} bytes of variables are more than the {MAX_ENVIRONMENT_BYTES:,} allowed",
        )
    for name, value in values.items():
        setting = settings.FUNCTION_SETTINGS.get(name)
        if setting is None or value is None:
            continue
        try:
            setting.engine_value(value)
        except ValueError as error:
            yield name, str(error)


def create_request(
    function: FunctionSpec, role: str, runtimes: Mapping[str, str] = IDENTIFIERS
) -> dict[str, Any]:
    """Return the arguments of CreateFunction.

    Raises:
        UnciaError: a setting is one that the API does not take (see `mistakes`), or there is no
            package.
    """
    code = _code(function, runtimes)
    values = {
        "memory": function.memory,
        "timeout": function.timeout,
        "handler": function.handler,
        "environment": function.environment,
        **function.settings,
    }
    for key, message in mistakes(values):
        raise UnciaError(f"{function.name}: {key} {message}")
    request: dict[str, Any] = {
        "FunctionName": function.name,
        "Role": role,
        **code,
        "Tags": settings.tags(function.settings, function.name),
    }
    if function.memory is not None:
        request["MemorySize"] = function.memory // MIB
    if function.timeout is not None:
        request["Timeout"] = function.timeout // NS_PER_S
    if function.environment:
        request["Environment"] = {"Variables": dict(function.environment)}
    return request


def _code(function: FunctionSpec, runtimes: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of CreateFunction that say what is run.

    Raises:
        UnciaError: there is neither a package nor an image.
    """
    if function.reference is not None:
        return {"PackageType": "Image", "Code": {"ImageUri": function.reference}}
    if function.image is not None:
        return {"PackageType": "Image", "Code": {"ImageUri": f"oci:{function.image}"}}
    package: dict[str, Any] | None = None
    if function.stored is not None:
        package = {"S3Bucket": function.stored[0], "S3Key": function.stored[1]}
    elif function.package is not None:
        package = {"ZipFile": function.package}
    if package is None or function.handler is None or function.runtime is None:
        raise UnciaError(f"the function {function.name} has no package to deploy")
    return {
        "Runtime": runtimes.get(function.runtime, function.runtime),
        "Handler": function.handler,
        "Code": package,
    }
