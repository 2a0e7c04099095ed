"""The plan of a run: the deployments it needs and the experiments in their order.

:mod:`uncia.experiment.planning` makes it of an experiment file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uncia.experiment.expect import Expect
from uncia.experiment.model import ExperimentFile, Function
from uncia.experiment.stages import ChainPlan
from uncia.experiment.triggers import TriggerPlan
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.hints import Hints
from uncia.workload.loops import NO_THOUGHT, Closed, ThinkTime
from uncia.workload.monitoring import MonitorForm

WARMUP_SUFFIX: Final = ".warmup"


@dataclass(frozen=True)
class DeploymentPlan:
    """A function as it is to be deployed, ``replicas`` times.

    Attributes:
        key: names it within the run; parts of resource names are made of it.
        alias: what the file and the tables call the function.
        function: the file's function, with the experiment's changes applied.
        invokes: whether it invokes others, as a stage of a chain.
    """

    key: str
    alias: str
    function: Function
    invokes: bool = False


@dataclass(frozen=True)
class StreamPlan:
    """One function's requests within an experiment; ``event`` is what each of them sends.

    Attributes:
        alias: what the file and the tables call the function.
        deployment: the key of what is invoked.
        label: which random stream it draws from.
        arrivals: when requests are sent; None of a later stage of a chain.
        event: what each of them sends.
        start_ns: after the experiment's start.
        template: what is sent instead, with values of earlier answers.
        stage: the stage of a chain, for the rows.
        after: positions of the streams whose answers it waits for.
        after_failures: whether it is sent as well when they have failed.
        think: from the last of them to the request.
        chain: of the first stage of a chain, its name and its stages in words.
        fields: of the template, in the engine's form.
        recorded: of a replay, the function whose requests these are.
        replay: of the first stream of a replay, the whole of it in words.
        hops: of the first stage of a chain that the client does not carry on, the chain.
        hints: what its requests say of those to come.
    """

    alias: str
    deployment: str
    label: str
    arrivals: ArrivalProcess | Closed | None
    event: Mapping[str, Any]
    start_ns: int = 0
    template: str | None = None
    stage: str | None = None
    after: tuple[int, ...] = ()
    after_failures: bool = False
    think: ThinkTime = NO_THOUGHT
    chain: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    recorded: str | None = None
    replay: str | None = None
    hops: ChainPlan | None = None
    hints: Hints | None = None

    def deployments(self) -> set[str]:
        """The keys of all that it needs to be deployed."""
        stages = () if self.hops is None else self.hops.stages
        return {self.deployment, *(stage.deployment for stage in stages)}

    def pace(self) -> str | None:
        """When requests (or chains) are sent, in a few words.

        None of later stages, and of all streams of a replay but the first, which has the whole.
        """
        if self.recorded is not None:
            return self.replay
        if isinstance(self.arrivals, Closed) and self.chain is not None:
            return self.arrivals.sentence("chains")
        return None if self.arrivals is None else self.arrivals.sentence()

    def subject(self) -> str:
        """Whose requests they are, to stand before the words of `pace`."""
        if self.replay is not None:
            return ""
        return self.alias if self.chain is None else f"{self.chain}:"


@dataclass(frozen=True)
class ExperimentPlan:
    """One experiment as it is carried out; times in nanoseconds.

    Attributes:
        seed: of its requests, if not the run's.
        measured: the experiment that it goes on beside, of which these are the neighbours.
        monitors: what watches while it goes on, besides the run's monitors.
    """

    name: str
    streams: Sequence[StreamPlan]
    expect: Expect
    description: str = ""
    warmup_of: str | None = None
    pause_ns: int = 0
    wait_ns: int = 0
    base: str | None = None
    timeout_ns: int = 0
    connect_timeout_ns: int = 0
    max_connections: int | None = None
    seed: int | None = None
    measured: str | None = None
    monitors: Sequence[MonitorForm] = ()

    def expected_requests(self) -> int:
        """How many requests it makes, on average where arrivals are random.

        Of a chain all stages count; of a closed loop without a number of requests, nothing.
        """
        return sum(self._head(stream).expected_requests() for stream in self.streams)

    def is_bounded(self) -> bool:
        """Whether the number of requests is known: in closed loops answers may decide it."""
        return all(
            not isinstance(stream.arrivals, Closed) or stream.arrivals.requests is not None
            for stream in self.streams
        )

    def span_ns(self) -> int:
        """From its start to its last scheduled request, the pause before it included.

        Neighbours take none of their own: they go on while another is measured.
        """
        if self.measured is not None:
            return 0
        return self.pause_ns + max(
            stream.start_ns + stream.arrivals.span_ns()
            for stream in self.streams
            if stream.arrivals is not None
        )

    def _head(self, stream: StreamPlan) -> ArrivalProcess | Closed:
        """When the chain of a stage begins."""
        while stream.arrivals is None:
            stream = self.streams[stream.after[0]]
        return stream.arrivals


@dataclass(frozen=True)
class Plan:
    """The whole run: every deployment, and the experiments in their order.

    Attributes:
        file: the experiment file.
        deployments: by key.
        experiments: in their order.
        warnings: for readers of the results: a sentence each.
        triggers: which there are during all experiments.
    """

    file: ExperimentFile
    deployments: Mapping[str, DeploymentPlan]
    experiments: Sequence[ExperimentPlan]
    warnings: Sequence[str] = ()
    triggers: Sequence[TriggerPlan] = ()

    @property
    def platform(self) -> str:
        """The kind of platform."""
        return self.file.platform.kind

    def last_use(self) -> dict[str, int]:
        """For every deployment the position of the last experiment that needs it.

        What triggers begin is needed behind the last, until they are removed.
        """
        last: dict[str, int] = {}
        for position, experiment in enumerate(self.experiments):
            for stream in experiment.streams:
                last |= dict.fromkeys(stream.deployments(), position)
        for trigger in self.triggers:
            last |= dict.fromkeys(trigger.deployments(), len(self.experiments))
        return last
