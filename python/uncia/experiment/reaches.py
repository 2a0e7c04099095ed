"""Whether functions can hand their payloads on: through the platform, or by a store they reach."""

from __future__ import annotations

from collections.abc import Iterator

from uncia.errors import Mistakes
from uncia.experiment.plan import Plan, StreamPlan
from uncia.experiment.sources import Sources
from uncia.functions.transfers import USE_STORE, Payload, payload_of
from uncia.platforms import adapter
from uncia.services import store


def check(plan: Plan, sources: Sources) -> None:
    """Check that what the run's functions need of the store, they reach, and that answers pass.

    Answers that chains hand on without the client are checked with these chains.

    Raises:
        UnciaError: one does not; with file, line and key.
    """
    capabilities = adapter(plan.platform).CAPABILITIES
    mistakes = Mistakes()
    limit = capabilities.payload_limits(plan.file.platform).get("client")
    for alias, payload in _answered(plan, sources).items():
        if limit is not None and payload.inline > limit:
            with mistakes.collect():
                raise sources.document.error(
                    ("functions", alias),
                    f"its answer has {payload.inline:,} bytes with the payload, and the platform"
                    f" {plan.platform} passes {limit:,} at most",
                    hint=USE_STORE,
                )
    if "reach" not in capabilities.settings:
        mistakes.raise_all()
        return
    for key in dict.fromkeys(_by_store(plan, sources)):
        deployment = plan.deployments[key]
        function = deployment.function
        is_told = store.BUCKET in function.environment
        if "store" not in str(function.declared().get("reach", "")).split() and not is_told:
            with mistakes.collect():
                raise sources.document.error(
                    ("functions", deployment.alias),
                    "it hands payloads on by the store, or takes them from there, and does not"
                    " reach it",
                    hint="Give it `reach: [store]`, and name the service at the top:"
                    " `services: {store: {}}`. With `by: inline` it needs none.",
                )
    mistakes.raise_all()


def _answered(plan: Plan, sources: Sources) -> dict[str, Payload]:
    """The largest payload that each function answers the client with, by what the file calls it."""
    largest: dict[str, Payload] = {}
    for experiment in plan.experiments:
        for stream in experiment.streams:
            if stream.hops is None and (payload := _of_stream(plan, sources, stream)) is not None:
                listed = [payload, largest.get(stream.alias, payload)]
                largest[stream.alias] = max(listed, key=lambda it: it.inline)
    return largest


def _of_stream(plan: Plan, sources: Sources, stream: StreamPlan) -> Payload | None:
    """What a client's requests have a function hand on; None if nothing, or nobody knows."""
    source = plan.deployments[stream.deployment].function.source
    if source is None or not sources.definition(source).transfers:
        return None
    return payload_of(stream.event)


def _by_store(plan: Plan, sources: Sources) -> Iterator[str]:
    """The deployments that put payloads into the store, or get them from there."""
    for experiment in plan.experiments:
        for stream in experiment.streams:
            if stream.hops is not None:
                for stage in stream.hops.stages:
                    payloads = [stage.payload, *stream.hops.payloads(stage)]
                    if any(it and it.size and not it.inline for it in payloads):
                        yield stage.deployment
                continue
            payload = _of_stream(plan, sources, stream)
            if payload is not None and payload.size and not payload.inline:
                yield stream.deployment
