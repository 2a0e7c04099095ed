"""The registry: OCI images, in a repository of the run's own.

Without an address, a server is started for the run (`uncia.services.docker_registry`). The platform
pulls from it what functions start from; functions themselves do not reach it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from uncia.errors import UnciaError
from uncia.forms import Form, Url
from uncia.functions.images import distribution
from uncia.platforms import Context, ServiceEndpoint
from uncia.platforms.journal import Resource, state_home
from uncia.services import docker_registry, listening

REPOSITORY: Final = "UNCIA_REGISTRY_REPOSITORY"
"""The variable with the name of the run's repository."""

# Of services' resources in the journal, as `uncia.services.PLATFORM` says, which imports this.
_PLATFORM: Final = "services"
_SERVICE: Final = {"service": "registry"}
_HTTP_PORT: Final = 80
_LAST_PORT: Final = 65_535
_ADDRESS: Final = re.compile(
    r"http://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::([1-9]\d{0,4}))?/?"
)


class Options(Form):
    """Where the registry is; a server of the run's own if nothing is said."""

    address: Url | None = Field(
        None,
        description="Of a registry that exists and asks for no credentials, such as"
        " http://host:5000",
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.address is not None:
            match = _ADDRESS.fullmatch(self.address)
            if match is None or int(match[2] or _HTTP_PORT) > _LAST_PORT:
                raise ValueError(
                    f"{self.address} is no address of a registry: write http://HOST:PORT, without a"
                    " path (the platform speaks no TLS to it)"
                )
        return self

    def host_and_port(self) -> str | None:
        """``HOST:PORT`` of one that exists."""
        match = None if self.address is None else _ADDRESS.fullmatch(self.address)
        return None if match is None else f"{match[1]}:{match[2] or _HTTP_PORT}"


class Registry:
    """One run's registry."""

    def __init__(self, options: Options, context: Context) -> None:
        self._address: Final = options.host_and_port()
        self._context: Final = context
        self._server: docker_registry.Server | None = None
        self._made: list[Resource] = []
        self.repository: Final = _repository(context.run)

    def start(self) -> ServiceEndpoint:
        address = self._address
        if address is None:
            folder = state_home() / "services" / f"{self._context.run}-registry"
            docker_registry.PROGRAM.find()
            self._journal(Resource(_PLATFORM, "server", str(folder), _SERVICE))
            self._server = docker_registry.Server(folder)
            address = self._server.address
        else:
            distribution.check(address)
            detail = {**_SERVICE, "address": address}
            self._journal(Resource(_PLATFORM, "repository", self.repository, detail))
        return ServiceEndpoint(address, {REPOSITORY: self.repository})

    def close(self) -> None:
        try:
            if self._server is not None:
                listening.tell(self._server.stop(), "registry", self._context)
                self._server = None
            for resource in list(self._made):
                if resource.kind == "server":
                    if not _end_server(Path(resource.id), self._context.log):
                        continue
                else:
                    distribution.empty(str(resource.detail["address"]), resource.id)
                self._context.journal.removed(resource)
                self._made.remove(resource)
        except UnciaError as error:
            # What is left stays in the journal.
            self._context.log(error.message)

    def _journal(self, resource: Resource) -> None:
        self._context.journal.created(resource)
        self._made.append(resource)


def _repository(run: str) -> str:
    """Name a run's own repository, as the specification has names."""
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    return f"uncia/{plain}"


def _end_server(folder: Path, log: Callable[[str], None]) -> bool:
    """End what serves a folder, and remove it; returns whether it is gone."""
    return listening.end(
        docker_registry.configuration(folder),
        folder,
        docker_registry.PROGRAM.name,
        "registry",
        log,
    )


def require() -> None:
    """Check that a server of a run's own can be started.

    Raises:
        UnciaError: there is none; its hint says what to install.
    """
    docker_registry.PROGRAM.find()


def connect(options: Options, context: Context) -> Registry:
    """Return the registry of one run, which is not started yet."""
    return Registry(options, context)


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End the servers of a crashed run, and remove their folders and the run's images."""
    gone: list[Resource] = []
    for resource in resources:
        if resource.kind == "server":
            if _end_server(Path(resource.id), log):
                gone.append(resource)
        else:
            distribution.empty(str(resource.detail["address"]), resource.id)
            gone.append(resource)
    return gone
