"""Whether the platform takes the functions that a plan deploys, and reads what its requests say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment.cpus import all_settings
from uncia.experiment.plan import DeploymentPlan, Plan
from uncia.experiment.sources import Sources, language
from uncia.functions import java
from uncia.platforms import adapter
from uncia.providers import LAMBDA_BYTES, lambda_cpu
from uncia.settings import POLICIES
from uncia.units import MIB, format_cpu, format_size

# Of a function that does not say, on the embedded platform as on Lambda.
_DEFAULT_MEMORY: Final = 128 * MIB
_PROCESS: Final = "process"
_STARTS_OF_CONTAINERS: Final = ("fresh", "prepared")


def check(plan: Plan, sources: Sources) -> list[str]:
    """Check what the platform would refuse when functions are deployed.

    Returns:
        What it would silently ignore, a sentence each.

    Raises:
        UnciaError: it would refuse some; with file, line and key.
    """
    mistakes = Mistakes()
    for deployment in plan.deployments.values():
        with mistakes.collect():
            _check_language(plan, sources, deployment)
        if plan.platform == "embedded":
            with mistakes.collect():
                _check_sharing(plan, sources, deployment)
            with mistakes.collect():
                _check_container(plan, sources, deployment)
            with mistakes.collect():
                _check_size(plan, sources, deployment)
    mistakes.raise_all()
    if plan.platform != "embedded":
        return []
    return list(dict.fromkeys([*_left_out(plan), *_ignored_hints(plan)]))


def check_here(plan: Plan, sources: Sources) -> None:
    """Check what the platform would refuse on this machine, and might take on another.

    Raises:
        UnciaError: it would refuse some; with file, line and key.
    """
    if plan.platform != "embedded":
        return
    mistakes = Mistakes()
    for deployment in plan.deployments.values():
        runtime = sources.runtime(deployment.function)
        shared = deployment.function.declared().get("share_state")
        if runtime is None or runtime.name != "java" or shared != "profile":
            continue
        try:
            java.find_with_profiles()
        except UnciaError as error:
            with mistakes.collect():
                at = _place(plan, deployment, "share_state")
                raise sources.document.error(at, error.message, hint=error.hint) from error
    mistakes.raise_all()


def _check_language(plan: Plan, sources: Sources, deployment: DeploymentPlan) -> None:
    """Check that the platform with its options serves functions in this language."""
    served = adapter(plan.platform).CAPABILITIES.languages(plan.file.platform)
    function = deployment.function
    if served is None or function.source is None:
        return
    definition = sources.definition(function.source)
    name = language(function.runtime or definition.runtime_names[0])
    if name not in served:
        key = "runtime" if function.runtime is not None else "source"
        raise sources.document.error(
            _place(plan, deployment, key),
            f"{deployment.alias} is in {name}, which the platform {plan.platform} does not serve"
            f"{' with its framework' if plan.platform == 'server' else ''}",
            tuple(served),
        )


def _check_sharing(plan: Plan, sources: Sources, deployment: DeploymentPlan) -> None:
    """Check that instances of the function's runtime can share what it asks for."""
    chosen = deployment.function.declared()
    shared, runtime = chosen.get("share_state"), sources.runtime(deployment.function)
    if shared is None or runtime is None:
        return
    at = _place(plan, deployment, "share_state")
    if shared not in runtime.share_state:
        raise sources.document.error(
            at, f"instances of a function in {runtime.name} share no {shared}", runtime.share_state
        )
    if shared != "none" and chosen.get("architecture") in ("http", "code"):
        raise sources.document.error(
            at, f"it shares {shared}, which only functions that poll can (architecture: polling)"
        )


def _check_container(plan: Plan, sources: Sources, deployment: DeploymentPlan) -> None:
    """Check that instances which are to be containers can start as they are to."""
    chosen = deployment.function.declared()
    sandbox, origin = chosen.get("sandbox", _PROCESS), chosen.get("start_from", "fresh")
    if sandbox != _PROCESS and origin not in _STARTS_OF_CONTAINERS:
        raise sources.document.error(
            _place(plan, deployment, "start_from"),
            f"what starts from {origin} is no container of {sandbox}",
            _STARTS_OF_CONTAINERS,
        )


def _left_out(plan: Plan) -> Iterator[str]:
    """What containers, and instances with the host's network, cannot do: it is done without."""
    for deployment in plan.deployments.values():
        chosen = deployment.function.declared()
        sandbox = chosen.get("sandbox", _chosen(plan, "sandbox", _PROCESS))
        origin = chosen.get("start_from", _chosen(plan, "start_from", "fresh"))
        network = chosen.get("network", _chosen(plan, "network", "none"))
        what = None
        if sandbox != _PROCESS:
            what = f"Instances of {deployment.alias} are containers of {sandbox}"
            if origin not in _STARTS_OF_CONTAINERS:
                yield f"{what}: they start as prepared, not from {origin}."
        elif network == "host":
            what = f"Instances of {deployment.alias} have the host's network"
        if what is not None and chosen.get("share_state") == "warm":
            yield (
                f"{what}, and there are no checkpoints of such: its share_state, warm, is ignored."
            )


def _chosen(plan: Plan, name: str, default: str) -> str:
    """What the platform's options have for a setting."""
    value = getattr(plan.file.platform, name, None)
    return default if value is None else str(value)


def _check_size(plan: Plan, sources: Sources, deployment: DeploymentPlan) -> None:
    """Check that an instance fits into the capacity that the platform is given."""
    function, options = deployment.function, plan.file.platform
    memory, key = function.memory, "memory"
    if memory is None:
        key = "source"
        named = function.source is not None and sources.definition(function.source).memory
        memory = named or _DEFAULT_MEMORY
    most = getattr(options, "capacity_memory", None)
    if most is not None and memory > most:
        raise sources.document.error(
            _place(plan, deployment, key),
            f"{format_size(memory)} is more than the platform's capacity_memory,"
            f" {format_size(most)}: no instance could start",
        )
    declared = function.declared().get("cpu")
    cpu = lambda_cpu(memory, _memory_per_vcpu(options))
    if declared is not None:
        cpu, key = int(declared), "cpu"
    most = getattr(options, "capacity_cpu", None)
    if most is not None and cpu > most:
        with_memory = "" if declared is not None else f", which goes with {format_size(memory)},"
        raise sources.document.error(
            _place(plan, deployment, key),
            f"{format_cpu(cpu)}{with_memory} is more than the platform's capacity_cpu,"
            f" {format_cpu(most)}: no instance could start",
        )


def _memory_per_vcpu(options: Any) -> int:
    """The memory in bytes with which the platform gives a vCPU: Lambda's unless it says so."""
    configuration = options.engine() if hasattr(options, "engine") else {}
    return int(configuration.get("memory_per_vcpu_bytes", LAMBDA_BYTES))


def _place(plan: Plan, deployment: DeploymentPlan, key: str) -> yamlio.KeyPath:
    """Where the file says what a deployment has for a setting."""
    value = getattr(deployment.function, key)
    at: yamlio.KeyPath = ("functions", deployment.alias)
    declared = plan.file.functions[deployment.alias]
    if getattr(declared, key) == value:
        return (*at, key)
    for path, settings in all_settings(plan.file):
        if getattr(settings, key, None) == value and path[0] != "functions":
            return (*path, key)
    for name, experiment in plan.file.experiments.items():
        if key == "memory" and experiment.sweep and value in experiment.sweep.memory:
            return ("experiments", name, "sweep", "memory")
    return at


def _ignored_hints(plan: Plan) -> Iterator[str]:
    """Hints that are sent to functions or platforms that ignore them."""
    policy = _retention(plan.file.platform)
    for experiment in plan.experiments:
        for stream in experiment.streams:
            if stream.hints is None or experiment.warmup_of is not None:
                continue
            instances = (
                plan.deployments[stream.deployment].function.declared().get("hint_instances")
            )
            reasons = []
            if policy != "hints":
                reasons.append(
                    f"the platform's retention policy is {policy}"
                    " (write `policies: {retention: hints}` under platform)"
                )
            if not instances:
                reasons.append(f"the hint_instances of {stream.alias} are 0")
            if reasons:
                yield (
                    f"The hints of {experiment.name} to {stream.alias} are ignored:"
                    f" {' and '.join(reasons)}."
                )


def _retention(options: Any) -> str:
    """The policy that keeps instances."""
    named: Any = options.policies and options.policies.retention
    profile = options.profile()
    of_profile = {} if profile is None else profile.policy_names()
    return str(named or of_profile.get("retention") or POLICIES["retention"].default)
