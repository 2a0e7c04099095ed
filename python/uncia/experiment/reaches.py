"""Whether functions that hand payloads on by the store reach it."""

from __future__ import annotations

from collections.abc import Iterator

from uncia.errors import Mistakes
from uncia.experiment.plan import Plan
from uncia.experiment.sources import Sources
from uncia.functions.transfers import payload_of
from uncia.platforms import adapter
from uncia.services import store


def check(plan: Plan, sources: Sources) -> None:
    """Check that what the run's functions need of the store, they reach.

    Raises:
        UnciaError: one does not; with file, line and key.
    """
    if "reach" not in adapter(plan.platform).CAPABILITIES.settings:
        return
    mistakes = Mistakes()
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


def _by_store(plan: Plan, sources: Sources) -> Iterator[str]:
    """The deployments that put payloads into the store, or get them from there."""
    for experiment in plan.experiments:
        for stream in experiment.streams:
            source = plan.deployments[stream.deployment].function.source
            if stream.hops is not None:
                for stage in stream.hops.stages:
                    payloads = [stage.payload, *stream.hops.payloads(stage)]
                    if any(it and it.size and not it.inline for it in payloads):
                        yield stage.deployment
            elif source is not None and sources.definition(source).transfers:
                payload = payload_of(stream.event)
                if payload is not None and payload.size and not payload.inline:
                    yield stream.deployment
