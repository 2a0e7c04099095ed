"""Streams of the load generator: what the plan of an experiment has it send, and where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from uncia.experiment.deployed import Deployed
from uncia.experiment.plan import Plan, StreamPlan
from uncia.platforms import Target
from uncia.workload.client import ClosedLoop, Stream
from uncia.workload.loops import Closed


def make(plan: Plan, stream: StreamPlan, deployed: Deployed) -> Stream:
    """Make a stream of the load generator.

    Args:
        plan: of the run.
        stream: of one of its experiments.
        deployed: where the functions are.
    """
    function = plan.deployments[stream.deployment].function
    method: str = function.method or "POST"
    replicas = deployed.functions[stream.deployment]
    if stream.hops is not None and stream.hops.kind == "sequence":
        replicas = [deployed.sequences[stream.hops.name]]
        method = replicas[0][1].method
    target = replicas[0][1]
    headers = {"content-type": "application/json", **target.headers, **function.headers}
    body: bytes | dict[str, str] | None = None
    if method not in ("GET", "HEAD"):
        body = json.dumps(_first_event(plan, stream, deployed, target)).encode()
        if stream.template is not None:
            body = {"template": stream.template}
    loop = stream.arrivals
    return Stream(
        function=stream.alias,
        targets=[(deployment.name, target.url) for deployment, target in replicas],
        arrivals=None if isinstance(loop, Closed) else loop,
        closed=ClosedLoop.of(loop) if isinstance(loop, Closed) else None,
        stage=stream.stage,
        after=stream.after,
        after_failures=stream.after_failures,
        think_ns=stream.think.min,
        think_max_ns=stream.think.most_ns,
        method=method,
        headers=headers,
        body=body,
        fields=stream.fields,
        label=stream.label,
        start_ns=stream.start_ns,
        # A platform that deploys says itself what it allocated.
        allocated_memory=None if function.source else function.memory,
        allocated_cpu=None if function.source else function.vcpu,
        execution=function.execution,
        hints=None if stream.hints is None else stream.hints.engine(),
    )


def _first_event(
    plan: Plan, stream: StreamPlan, deployed: Deployed, target: Target
) -> Mapping[str, Any]:
    """What a request carries; one that begins a chain has the whole of it."""
    chain = stream.hops
    if chain is None:
        return stream.event
    if target.machine is not None:
        return {"stateMachineArn": target.machine, "input": json.dumps(dict(stream.event))}
    return deployed.begins(plan, chain)
