"""What is deployed for a plan: of each deployment its functions, with their packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uncia.errors import UnciaError
from uncia.experiment.describe import package_identity
from uncia.experiment.plan import DeploymentPlan
from uncia.experiment.sources import Sources, language
from uncia.platforms import FunctionSpec

if TYPE_CHECKING:
    from uncia.functions.images import Image


@dataclass
class Specs:
    """Makes the specifications of functions, and each package once.

    Attributes:
        sources: finds the functions to package.
        identities: of each package that was made, its SHA-256, by function and runtime.
    """

    sources: Sources
    identities: dict[str, str] = field(default_factory=dict)
    _packages: dict[
        tuple[str, str | None, int | None, str | None, bool],
        tuple[bytes, Image | None, str, str],
    ] = field(default_factory=dict)

    def make(self, prefix: str, plan: DeploymentPlan) -> list[FunctionSpec]:
        """The functions of one deployment, one per replica (or address).

        Args:
            prefix: of their names; several are numbered.
            plan: the deployment.

        Raises:
            UnciaError: a package cannot be made.
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
        from uncia import functions
        from uncia.functions import images

        definition = self.sources.definition(function.source)
        wanted = None if function.runtime is None else language(function.runtime)
        identity = (function.source, wanted, function.filler, function.root, plan.invokes)
        if identity not in self._packages:
            filler = function.filler or 0
            image: Image | None = None
            if function.root is None and definition.root is None:
                packaged = functions.package(
                    definition, wanted, filler=filler, invokes=plan.invokes
                )
            elif plan.invokes:
                raise UnciaError(
                    f"{function.source} brings a root of its own: it cannot be a stage of a chain"
                    " that functions carry on"
                )
            else:
                layout = None if function.root is None else self.sources.base / function.root
                image, packaged = images.image_of(definition, layout, wanted, filler=filler)
            content = packaged.read_bytes()
            self._packages[identity] = (content, image, packaged.handler, packaged.runtime)
            name = f"{function.source} ({packaged.runtime})"
            if plan.invokes:
                name += ", invokes"
            self.identities[name] = package_identity(content) if image is None else image.digest
        package, image, handler, runtime = self._packages[identity]
        return [
            FunctionSpec(
                name=f"{prefix}-{replica}" if function.replicas > 1 else prefix,
                package=package if image is None else None,
                image=None if image is None else image.folder,
                runtime=function.runtime or runtime,
                handler=function.handler or handler,
                memory=definition.memory if function.memory is None else function.memory,
                timeout=definition.timeout if function.timeout is None else function.timeout,
                environment=function.environment,
                settings=function.declared(),
                method=method,
                headers=function.headers,
            )
            for replica in range(function.replicas)
        ]
