"""What is deployed for a plan: of each deployment its functions, with their packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from uncia.experiment.describe import package_identity
from uncia.experiment.plan import DeploymentPlan
from uncia.experiment.sources import Sources, language
from uncia.platforms import FunctionSpec, ServiceEndpoint
from uncia.services import registry, store

if TYPE_CHECKING:
    from uncia import functions


@dataclass(frozen=True)
class _Made:
    """A package that was made: what a specification says of it."""

    runtime: str
    handler: str
    package: bytes | None = None
    image: Path | None = None
    reference: str | None = None
    stored: tuple[str, str] | None = None


@dataclass
class Specs:
    """Makes the specifications of functions, and each package once.

    Attributes:
        sources: finds the functions to package.
        identities: of each package that was made, its SHA-256, by function and runtime.
        services: what packages are fetched from, by name.
        images: whether every function becomes an image.
    """

    sources: Sources
    identities: dict[str, str] = field(default_factory=dict)
    services: Mapping[str, ServiceEndpoint] = field(default_factory=dict)
    images: bool = False
    _packages: dict[tuple[object, ...], _Made] = field(default_factory=dict)

    def make(self, prefix: str, plan: DeploymentPlan) -> list[FunctionSpec]:
        """The functions of one deployment, one per replica (or address).

        Args:
            prefix: of their names; several are numbered.
            plan: the deployment.

        Raises:
            UnciaError: a package cannot be made, or not put where it is fetched from.
        """
        function = plan.function
        method = function.method or "POST"
        if function.source is None:
            urls = [function.url] if function.url is not None else function.urls
            return [
                FunctionSpec(
                    name=f"{prefix}-{position}" if len(urls) > 1 else prefix,
                    url=url,
                    method=method,
                    headers=function.headers,
                )
                for position, url in enumerate(urls)
            ]
        definition = self.sources.definition(function.source)
        made = self._package(function.source, definition, plan)
        return [
            FunctionSpec(
                name=f"{prefix}-{replica}" if function.replicas > 1 else prefix,
                package=made.package,
                image=made.image,
                reference=made.reference,
                stored=made.stored,
                runtime=function.runtime or made.runtime,
                handler=function.handler or made.handler,
                memory=definition.memory if function.memory is None else function.memory,
                timeout=definition.timeout if function.timeout is None else function.timeout,
                environment=function.environment,
                settings=function.declared(),
                method=method,
                headers=function.headers,
            )
            for replica in range(function.replicas)
        ]

    def _package(self, source: str, definition: functions.Function, plan: DeploymentPlan) -> _Made:
        """Make a function's package, or return it if it was made before."""
        function = plan.function
        runtime = None if function.runtime is None else language(function.runtime)
        is_fetched = function.declared().get("code") == "fetched"
        identity = (
            *(source, runtime, function.filler, function.root, function.package),
            *(is_fetched, plan.invokes),
        )
        if identity not in self._packages:
            has_root = function.root is not None or definition.root is not None
            if self.images or has_root or function.package == "container":
                made, digest = self._image(definition, plan, runtime)
            else:
                made, digest = self._zip(definition, plan, runtime, is_fetched=is_fetched)
            name = f"{source} ({made.runtime})"
            for mark, is_it in (
                ("container", function.package == "container"),
                ("fetched", is_fetched),
                ("invokes", plan.invokes),
            ):
                name += f", {mark}" if is_it else ""
            self.identities[name] = digest
            self._packages[identity] = made
        return self._packages[identity]

    def _zip(
        self,
        definition: functions.Function,
        plan: DeploymentPlan,
        runtime: str | None,
        *,
        is_fetched: bool,
    ) -> tuple[_Made, str]:
        """Make a zip file, and put it into the store if it is fetched from there."""
        from uncia import functions

        packaged = functions.package(
            definition, runtime, filler=plan.function.filler or 0, invokes=plan.invokes
        )
        content = packaged.read_bytes()
        kind, handler = packaged.runtime, packaged.handler
        if not is_fetched:
            return _Made(kind, handler, package=content), package_identity(content)
        stored = store.put(self.services["store"], f"packages/{packaged.sha256}.zip", packaged.path)
        return _Made(kind, handler, stored=stored), package_identity(content)

    def _image(
        self, definition: functions.Function, plan: DeploymentPlan, runtime: str | None
    ) -> tuple[_Made, str]:
        """Make an image, and push it if it is pulled from the registry."""
        from uncia.functions import images

        function = plan.function
        layout = None if function.root is None else self.sources.base / function.root
        image, packaged = images.image_of(
            definition, layout, runtime, filler=function.filler or 0, invokes=plan.invokes
        )
        kind, handler = packaged.runtime, packaged.handler
        if function.package != "container":
            return _Made(kind, handler, image=image.folder), image.digest
        endpoint = self.services["registry"]
        reference = images.push(image, endpoint.address, endpoint.environment[registry.REPOSITORY])
        return _Made(kind, handler, reference=reference), image.digest
