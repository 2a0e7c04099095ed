"""The deployments of a plan: one for a function, and one for each change of its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.model import ExperimentFile, Function, Settings
from uncia.experiment.plan import DeploymentPlan
from uncia.experiment.sources import Sources
from uncia.platforms import adapter


def apply(function: Function, settings: Settings) -> Function:
    """The function with an experiment's changed settings; environments are joined."""
    changed: dict[str, Any] = {}
    for key in Settings.model_fields:
        value = getattr(settings, key)
        if key == "environment":
            changed[key] = {**function.environment, **settings.environment}
        elif value is not None:
            changed[key] = value
    return function.model_copy(update=changed)


@dataclass
class Deployments:
    """Collects the deployments that experiments need.

    Attributes:
        file: the experiment file.
        sources: finds its functions.
        plans: by key.
    """

    file: ExperimentFile
    sources: Sources
    plans: dict[str, DeploymentPlan] = field(default_factory=dict)

    def add(
        self,
        alias: str,
        settings: Settings,
        name: str,
        at: yamlio.KeyPath,
        *,
        invokes: bool = False,
    ) -> str:
        """The key of the deployment of a function with changed settings.

        Args:
            alias: the function.
            settings: what is changed.
            name: of a deployment of its own, if that is needed.
            at: whose settings they are, in the file.
            invokes: whether it invokes others.

        Raises:
            UnciaError: it cannot be deployed so, with file, line and key; or another deployment
                has its key.
        """
        declared = self.file.functions[alias]
        function = apply(declared, settings)
        if (
            settings.runtime or "start_from" in settings.declared()
        ) and self.file.platform.kind == "embedded":
            self.sources.check_start(function, (*at, "settings", "start_from"))
        if settings.runtime or settings.handler:
            key = "handler" if settings.handler else "runtime"
            self.sources.check_package(function, (*at, "settings", key))
        if invokes:
            function = self._with_calls(function, at)
        preferred = alias if function == declared else f"{alias}-{name}"
        return self.named(alias, function, preferred, invokes=invokes)

    def named(self, alias: str, function: Function, key: str, *, invokes: bool = False) -> str:
        """The key of a deployment; equal ones of one function are the same.

        Args:
            alias: the function.
            function: it, as it is to be deployed.
            key: of the deployment, if it is a new one.
            invokes: whether it invokes others.

        Raises:
            UnciaError: another deployment has the key.
        """
        for known, plan in self.plans.items():
            if (plan.alias, plan.function, plan.invokes) == (alias, function, invokes):
                return known
        if invokes and key in self.plans:
            key += "-calls"
        if key in self.plans:
            raise UnciaError(
                f"two deployments would be called {key!r}",
                hint="Rename the function or the experiment of that name.",
            )
        self.plans[key] = DeploymentPlan(key, alias, function, invokes)
        return key

    def _with_calls(self, function: Function, at: yamlio.KeyPath) -> Function:
        """A function that can invoke others, if it can be one.

        Raises:
            UnciaError: with file, line and key.
        """
        if function.source is None:
            return function
        self.sources.check_invokes(function, at)
        if "network" not in adapter(self.file.platform.kind).CAPABILITIES.settings:
            return function
        network = function.declared().get("network")
        if network not in (None, "platform"):
            raise self.sources.document.error(
                at, f"its network is {network}: a stage that invokes the next needs platform"
            )
        return function.model_copy(update={"network": "platform"})
