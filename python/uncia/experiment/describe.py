"""``run.yaml``: what was run, with what, where and when, so that a reader can do it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from uncia import record
from uncia.experiment.expect import NONE
from uncia.experiment.model import resolved
from uncia.experiment.plan import ExperimentPlan, Plan, StreamPlan
from uncia.platforms import adapter
from uncia.runs.folder import Status
from uncia.units import format_duration
from uncia.workload.loops import Closed


@dataclass(frozen=True)
class Content:
    """What a run carries out, as plain data.

    Attributes:
        title: its name for people.
        description: of the run.
        platform: the options of the platform.
        experiments: by name, what statistics and reports need to know of each.
        file: what a person wrote, with every default.
    """

    title: str
    description: str
    platform: Mapping[str, Any]
    experiments: Mapping[str, Any]
    file: Mapping[str, Any]


@dataclass
class Description:
    """What is known of a run; grows as the run goes on and is written to ``run.yaml``."""

    run: str
    content: Content
    seed: int
    epoch_unix_ns: int
    status: Status = "running"
    ended_unix_ns: int | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)
    # Other machines on which monitors watched: facts, and how far their clocks were.
    hosts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # The load generator's events of round trips, by experiment.
    round_trips: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    # The load generator's events that explain why invocations failed; they go into the summary.
    explained: Sequence[Mapping[str, Any]] = ()

    def data(self) -> dict[str, Any]:
        """The description as plain data, for YAML."""
        return {
            "run": self.run,
            "title": self.content.title,
            "status": self.status,
            "description": self.content.description,
            "schema_version": record.SCHEMA_VERSION,
            "seed": self.seed,
            "epoch_unix_ns": self.epoch_unix_ns,
            "started": _time(self.epoch_unix_ns),
            "ended": None if self.ended_unix_ns is None else _time(self.ended_unix_ns),
            "versions": dict(self.versions),
            "platform": dict(self.content.platform),
            "machine": dict(self.machine),
            "noise": dict(self.noise),
            **({"hosts": dict(self.hosts)} if self.hosts else {}),
            "warnings": list(self.warnings),
            "failures": list(self.failures),
            "packages": dict(self.packages),
            "experiments": dict(self.content.experiments),
            "file": {**self.content.file, "seed": self.seed},
        }


def content(plan: Plan) -> Content:
    """What a plan comes to."""
    file = resolved(plan.file)
    experiments = {
        experiment.name: _experiment(plan, experiment) for experiment in plan.experiments
    }
    return Content(plan.file.name, plan.file.description, file["platform"], experiments, dict(file))


def _experiment(plan: Plan, experiment: ExperimentPlan) -> dict[str, Any]:
    """One experiment, with what statistics and reports need to know of it."""
    declared = {
        name: bound.text
        for name in type(experiment.expect).model_fields
        if (bound := experiment.expect.bound(name)) is not None and bound != NONE
    }
    described: dict[str, Any] = {
        "description": experiment.description,
        "functions": sorted({stream.alias for stream in experiment.streams}),
        "wait_ns": experiment.wait_ns,
        "expect": declared,
        "timeout_ns": experiment.timeout_ns,
        "streams": [
            {
                "function": stream.alias,
                "deployment": stream.deployment,
                **_pacing(experiment, stream),
                "start": format_duration(stream.start_ns),
                "event": dict(stream.event),
                "settings": _settings(plan, stream.deployment),
            }
            for stream in experiment.streams
        ],
    }
    if experiment.warmup_of is not None:
        described["warmup_of"] = experiment.warmup_of
    if experiment.measured is not None:
        described["beside"] = experiment.measured
    if experiment.seed is not None:
        described["seed"] = experiment.seed
    if experiment.base is not None:
        described["base"] = experiment.base
    if adapter(plan.file.platform.kind).CAPABILITIES.marks_events:
        described["marks_events"] = True
    if experiment.monitors:
        described["monitors"] = [
            it.asked.within(experiment.name).row_name for it in experiment.monitors
        ]
    return described


def _pacing(experiment: ExperimentPlan, stream: StreamPlan) -> dict[str, Any]:
    """When a stream's requests are sent, and its part in a chain."""
    described: dict[str, Any] = {}
    if stream.recorded is not None:
        # The file has the replay; its times may be millions, and are those of the rows.
        assert stream.arrivals is not None, "it is no later stage"
        described["recorded"] = stream.recorded
        described["sends"] = stream.arrivals.sentence()
    elif stream.arrivals is not None:
        key = "closed" if isinstance(stream.arrivals, Closed) else "arrivals"
        described[key] = stream.arrivals.model_dump(mode="json", exclude_none=True)
        described["sends"] = stream.pace()
    else:
        described["after"] = [experiment.streams[position].stage for position in stream.after]
        if stream.after_failures:
            described["after_failures"] = True
        described["think"] = stream.think.words()
    if stream.hints is not None:
        described["hints"] = stream.hints.model_dump(mode="json", exclude_none=True)
    if stream.stage is not None:
        described["stage"] = stream.stage
    if stream.hops is not None:
        described["hops"] = stream.hops.described()
    if stream.template is not None:
        described["template"] = stream.template
    return described


def package_identity(content: bytes) -> str:
    """What identifies a package: the SHA-256 of its bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _settings(plan: Plan, deployment: str) -> dict[str, Any]:
    settings = plan.deployments[deployment].function.model_dump(
        mode="json", exclude_none=True, exclude={"parameters", "source"}
    )
    return {key: value for key, value in settings.items() if value not in ({}, [])}


def _time(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")
