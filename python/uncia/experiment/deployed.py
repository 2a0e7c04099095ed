"""What a run has deployed: created before its first request, removed after its last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.describe import Description
from uncia.experiment.plan import DeploymentPlan, Plan
from uncia.experiment.progress import Reporter
from uncia.experiment.sources import Sources
from uncia.experiment.specs import Specs
from uncia.experiment.stages import ChainPlan
from uncia.experiment.triggers import TriggerPlan
from uncia.platforms import (
    Deployment,
    Platform,
    SequenceSpec,
    ServiceEndpoint,
    Target,
    TriggerSpec,
    adapter,
)
from uncia.text import plural


def prefix_of(run: str) -> str:
    """What the names of a run's functions begin with on the platform."""
    return "u" + run[-6:]


@dataclass
class Deployed:
    """The functions and state machines of a run that are on its platform.

    Attributes:
        sources: finds the functions to package.
        description: of the run; learns of packages and warnings.
        reporter: receives progress updates.
        services: which packages are fetched from, by name.
        functions: the replicas of each deployment, by its key in the plan.
        sequences: the state machines, by the chain that each is of.
        triggers: by name.
        aliases: what the file calls a function, by the name that it has on the platform.
    """

    sources: Sources
    description: Description
    reporter: Reporter
    services: Mapping[str, ServiceEndpoint] = field(default_factory=dict)
    functions: dict[str, list[tuple[Deployment, Target]]] = field(default_factory=dict)
    sequences: dict[str, tuple[Deployment, Target]] = field(default_factory=dict)
    triggers: dict[str, Deployment] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def deploy(self, platform: Platform, plan: Plan, since: int = 0) -> None:
        """Deploy everything before the first request, so that a broken function costs no time.

        Args:
            platform: where to.
            plan: of the run.
            since: position of the first experiment to come; what only earlier ones needed is gone.
        """
        missing = {
            key
            for key, last in plan.last_use().items()
            if last >= since and key not in self.functions
        }
        if not missing:
            return
        self.reporter.note(_sentence([plan.deployments[key] for key in missing]))
        images = adapter(plan.platform).CAPABILITIES.images
        specs = Specs(self.sources, self.description.packages, self.services, images)
        prefix = prefix_of(self.description.run)
        warned: dict[str, list[str]] = {}
        for number, (key, function) in enumerate(plan.deployments.items()):
            if key not in missing:
                continue
            self.functions[key] = []
            for spec in specs.make(f"{prefix}-{number}-{key[:32]}", function):
                self.aliases[spec.name] = function.alias
                deployment = platform.deploy(spec)
                # Noted before the endpoint is asked for, so that an interruption removes it too.
                self.functions[key].append((deployment, Target("")))
                for warning in deployment.warnings:
                    aliases = warned.setdefault(warning, [])
                    aliases += [function.alias] if function.alias not in aliases else []
                self.functions[key][-1] = (deployment, platform.endpoint(deployment))
        for experiment in plan.experiments[since:]:
            for stream in experiment.streams:
                if stream.hops is not None and stream.hops.kind == "sequence":
                    self._deploy_sequence(platform, prefix, stream.hops)
        for trigger in plan.triggers:
            if trigger.name not in self.triggers:
                self._deploy_trigger(platform, prefix, plan, trigger)
        self._warn(f"{', '.join(aliases)}: {warning}" for warning, aliases in warned.items())
        # An HTTP server gets the request itself.
        polling = any(
            deployment.detail.get("architecture") != "http"
            for key in missing
            for deployment, _ in self.functions[key]
        )
        if adapter(plan.platform).CAPABILITIES.http_events and polling and not since:
            self.reporter.note(
                "Their URLs deliver HTTP events: handlers get the parameters as JSON in"
                ' event["body"].'
            )

    def _warn(self, warnings: Iterable[str]) -> None:
        """Say what has not been said before, now and in the report."""
        for warning in warnings:
            if warning not in self.description.warnings:
                self.description.warnings.append(warning)
                self.reporter.note(f"Warning: {warning}")

    def _deploy_sequence(self, platform: Platform, prefix: str, chain: ChainPlan) -> None:
        """Create the state machine of a chain, whose functions are there, unless it is there."""
        if chain.name in self.sequences:
            return
        resources = {
            key: replicas[0][0].detail.get("arn", replicas[0][0].name)
            for key, replicas in self.functions.items()
        }
        definition = chain.definition(resources.__getitem__)
        deployment = platform.deploy(
            SequenceSpec(f"{prefix}-{len(self.sequences)}-{chain.name[:32]}", definition)
        )
        self.sequences[chain.name] = (deployment, Target(""))
        self.sequences[chain.name] = (deployment, platform.endpoint(deployment))

    def begins(self, plan: Plan, chain: ChainPlan) -> dict[str, Any]:
        """The event that begins a chain which functions carry on."""
        functions = {}
        for key in {stage.deployment for stage in chain.stages}:
            deployment, endpoint = self.functions[key][0]
            functions[key] = {"function": deployment.name}
            if plan.deployments[key].function.source is None:
                functions[key]["url"] = endpoint.url
        return chain.event(functions)

    def _deploy_trigger(
        self, platform: Platform, prefix: str, plan: Plan, trigger: TriggerPlan
    ) -> None:
        """Make a trigger, whose functions are there."""
        chain = trigger.chain
        event = dict(trigger.event)
        begins = self.functions[trigger.deployment][0][0]
        if chain is not None and chain.kind == "sequence":
            self._deploy_sequence(platform, prefix, chain)
            begins = self.sequences[chain.name][0]
        elif chain is not None:
            event = self.begins(plan, chain)
        spec = TriggerSpec(
            trigger.name, trigger.prefix, trigger.changes, begins, event, trigger.stage()
        )
        self.triggers[trigger.name] = platform.deploy(spec)

    def remove_all(self, platform: Platform) -> list[str]:
        """Remove everything, whatever fails on the way; returns what cannot be removed, and why."""
        failed: list[str] = []
        for name, made in list(self.triggers.items()):
            try:
                platform.remove(made)
                del self.triggers[name]
            except UnciaError as error:
                failed.append(error.message)
        for name, (deployment, _) in list(self.sequences.items()):
            try:
                platform.remove(deployment)
                del self.sequences[name]
            except UnciaError as error:
                failed.append(error.message)
        for key in list(self.functions):
            try:
                self.remove(platform, key)
            except UnciaError as error:
                failed.append(error.message)
        return failed

    def remove(self, platform: Platform, key: str) -> None:
        """Remove every replica of a deployment; those that cannot be removed stay listed.

        Raises:
            UnciaError: a replica could not be removed.
        """
        failed: list[UnciaError] = []
        for replica in list(self.functions.get(key, [])):
            try:
                platform.remove(replica[0])
            except UnciaError as error:
                failed.append(error)
            else:
                self.functions[key].remove(replica)
        if failed:
            messages = dict.fromkeys(error.message for error in failed)
            raise RunFailedError("; ".join(messages), failed[0].hint)
        self.functions.pop(key, None)


def _sentence(plans: Sequence[DeploymentPlan]) -> str:
    """Say what is deployed: functions of the file, which sizes and replicas make more of."""
    functions = len({plan.alias for plan in plans})
    deployments = sum(plan.function.replicas for plan in plans)
    count = f" ({deployments} deployments)" if deployments > functions else ""
    return f"Deploying {plural(functions, 'function')}{count}."
