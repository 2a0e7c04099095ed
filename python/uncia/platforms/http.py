"""Functions that exist already on any platform, reached by their URLs."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
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
)
from uncia.platforms.journal import Resource

# Nothing is set with them: they say what there is, for the rows.
CAPABILITIES: Final = Capabilities(
    deploys=False,
    collects=False,
    settings=frozenset({"memory", "vcpu", "execution"}),
    # Without a log, nobody would know when a chain of events has ended.
    chains=frozenset({"client", "nested"}),
)

_INVOKE_TIMEOUT_S: Final = 60.0


class Options(PlatformForm):
    """A platform of which nothing is known but the URLs of its functions."""

    kind: Literal["http"]
    region: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$",
        description="Where the functions run, such as eu-central-1; it stands in run.yaml",
    )


class HttpPlatform:
    """Functions at URLs; creates nothing, so journals and removes nothing."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}

    def start(self) -> list[str]:
        return []

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if not isinstance(function, FunctionSpec):
            raise UnciaError(f"{function.name}: http has no state machines and no triggers")
        if function.url is None:
            raise UnciaError(f"the function {function.name} has no url, and http deploys nothing")
        self._targets[function.name] = Target(function.url, function.method, dict(function.headers))
        return Deployment(function.name)

    def endpoint(self, deployment: Deployment) -> Target:
        return self._targets[deployment.name]

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        target = self.endpoint(deployment)
        request = urllib.request.Request(
            target.url,
            data=None if target.method in ("GET", "HEAD") else json.dumps(event).encode(),
            headers={"content-type": "application/json", **target.headers},
            method=target.method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_INVOKE_TIMEOUT_S) as answer:
                return Response(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, dict(error.headers), error.read())
        except (OSError, http.client.HTTPException) as error:
            raise RunFailedError(f"{target.url} does not answer: {error}") from error

    def collect(self) -> Collected:
        return Collected()

    def is_settled(self) -> bool:
        return True

    def unserved_events(self) -> int:
        return 0

    def remove(self, deployment: Deployment) -> None:
        self._targets.pop(deployment.name, None)

    def close(self) -> None:
        self._targets.clear()


def connect(options: Options, context: Context) -> HttpPlatform:
    """Return the platform; nothing is connected to before a function is deployed."""
    del options, context
    return HttpPlatform()


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """Return all resources as removed, because this platform creates none."""
    del log
    return list(resources)
