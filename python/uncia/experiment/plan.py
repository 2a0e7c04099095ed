"""What an experiment file comes to: the deployments it needs and the experiments in their order.

Sweeps are spread out, warm-ups become experiments of their own (``<name>.warmup``), and every
setting an experiment changes leads to a deployment of its own, so that no experiment sees another's
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.expect import Expect
from uncia.experiment.model import Experiment, ExperimentFile, Function, Settings, Stream
from uncia.experiment.sources import Sources
from uncia.units import MIB, format_size
from uncia.workload.arrivals import Arrivals

WARMUP_SUFFIX: Final = ".warmup"


@dataclass(frozen=True)
class DeploymentPlan:
    """A function as it is to be deployed, ``replicas`` times.

    Attributes:
        key: names it within the run; parts of resource names are made of it.
        alias: what the file and the tables call the function.
        function: the file's function, with the experiment's changes applied.
    """

    key: str
    alias: str
    function: Function


@dataclass(frozen=True)
class StreamPlan:
    """One function's requests within an experiment; ``event`` is what each of them sends."""

    alias: str
    deployment: str
    label: str
    arrivals: Arrivals
    event: Mapping[str, Any]
    start_ns: int = 0


@dataclass(frozen=True)
class ExperimentPlan:
    """One experiment as it is carried out; times in nanoseconds."""

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

    def expected_requests(self) -> int:
        """How many requests it makes, on average where arrivals are random."""
        return sum(stream.arrivals.expected_requests() for stream in self.streams)

    def span_ns(self) -> int:
        """From its start to its last scheduled request, the pause before it included."""
        return self.pause_ns + max(
            stream.start_ns + stream.arrivals.span_ns() for stream in self.streams
        )


@dataclass(frozen=True)
class Plan:
    """The whole run: every deployment, and the experiments in their order."""

    file: ExperimentFile
    deployments: Mapping[str, DeploymentPlan]
    experiments: Sequence[ExperimentPlan]

    @property
    def platform(self) -> str:
        """The kind of platform."""
        return self.file.platform.kind

    def last_use(self) -> dict[str, int]:
        """For every deployment the position of the last experiment that needs it."""
        last: dict[str, int] = {}
        for position, experiment in enumerate(self.experiments):
            for stream in experiment.streams:
                last[stream.deployment] = position
        return last


def plan(file: ExperimentFile, sources: Sources, only: Sequence[str] = ()) -> Plan:
    """Work out what a checked file comes to.

    Args:
        file: the experiment file.
        sources: finds the functions that it names.
        only: names of experiments (of the file, or of a sweep's members); empty means all.

    Raises:
        UnciaError: a function or parameter does not exist (with file, line and key), a name in
            ``only`` is not there, or two experiments come to the same name.
    """
    for alias, function in file.functions.items():
        sources.check(alias, function)
    builder = _Builder(file, sources)
    experiments: list[ExperimentPlan] = []
    names: set[str] = set()
    chosen: set[str] = set()
    for name, experiment in file.experiments.items():
        for member, variant in spread(name, experiment):
            if member in names:
                raise UnciaError(f"two experiments come to the name {member!r}")
            names.add(member)
            if only and name not in only and member not in only:
                continue
            chosen |= {name, member} & set(only)
            experiments.extend(builder.experiment(name, member, variant))
    if missing := [name for name in only if name not in chosen]:
        raise UnciaError(
            f"there is no experiment {missing[0]!r}",
            hint=f"The file's experiments are: {', '.join(sorted(names))}.",
        )
    return Plan(file, builder.deployments, experiments)


def spread(name: str, experiment: Experiment) -> Iterator[tuple[str, Experiment]]:
    """The members of a sweep under their names; the experiment itself when it has none."""
    sweep = experiment.sweep
    if sweep is None:
        yield name, experiment
        return
    for size in sweep.memory:
        suffix = str(size // MIB) if size % MIB == 0 else format_size(size)
        settings = experiment.settings.model_copy(update={"memory": size})
        yield (
            f"{name}-{suffix}",
            experiment.model_copy(update={"settings": settings, "sweep": None}),
        )
    for parameter, values in sweep.parameter.items():
        for value in values:
            parameters = {**experiment.parameters, parameter: value}
            yield (
                f"{name}-{_suffix(value)}",
                experiment.model_copy(update={"parameters": parameters, "sweep": None}),
            )


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
class _Builder:
    """Turns the file's experiments into plans, and collects the deployments they need."""

    file: ExperimentFile
    sources: Sources
    deployments: dict[str, DeploymentPlan] = field(default_factory=dict)

    def experiment(
        self, origin: str, name: str, experiment: Experiment
    ) -> Iterator[ExperimentPlan]:
        """The plans of one experiment: its warm-up, if it has one, and itself.

        Args:
            origin: its name in the file.
            name: its name in the run; another one for a member of a sweep.
            experiment: the experiment.
        """
        streams = experiment.streams()
        plans = [
            self._stream(origin, name, position, streams, in_mix=bool(experiment.mix))
            for position in range(len(streams))
        ]
        if experiment.warmup is not None:
            yield ExperimentPlan(
                name=name + WARMUP_SUFFIX,
                description=f"Before {name}, to each of its functions: "
                f"{experiment.warmup.sentence()}",
                warmup_of=name,
                streams=[
                    StreamPlan(
                        alias=stream.alias,
                        deployment=stream.deployment,
                        label=stream.label,
                        arrivals=experiment.warmup,
                        event=stream.event,
                    )
                    for stream in plans
                ],
                expect=_outcomes_only(experiment.expect),
                wait_ns=experiment.wait,
                timeout_ns=experiment.timeout,
                connect_timeout_ns=experiment.connect_timeout,
                max_connections=experiment.max_connections,
            )
        yield ExperimentPlan(
            name=name,
            description=experiment.description,
            streams=plans,
            expect=experiment.expect,
            pause_ns=experiment.pause,
            wait_ns=experiment.wait,
            base=experiment.base,
            timeout_ns=experiment.timeout,
            connect_timeout_ns=experiment.connect_timeout,
            max_connections=experiment.max_connections,
        )

    def _stream(
        self, origin: str, name: str, position: int, streams: Sequence[Stream], *, in_mix: bool
    ) -> StreamPlan:
        stream = streams[position]
        own = self.file.functions[stream.function]
        function = apply(own, stream.settings)
        wanted = stream.function if function == own else f"{stream.function}-{name}"
        if function != own and in_mix:
            wanted += f"-{position}"
        at: yamlio.KeyPath = ("experiments", origin)
        if in_mix:
            at = (*at, "mix", position)
        # Streams of one function in one mix draw from different random streams, else they would
        # send in lock-step.
        before = sum(1 for other in streams[:position] if other.function == stream.function)
        return StreamPlan(
            alias=stream.function,
            deployment=self._deployment(stream.function, function, wanted),
            label=stream.function if before == 0 else f"{stream.function}#{before + 1}",
            arrivals=stream.arrivals,
            event=self.sources.event(
                own, {**own.parameters, **stream.parameters}, (*at, "parameters")
            ),
            start_ns=stream.start,
        )

    def _deployment(self, alias: str, function: Function, wanted: str) -> str:
        """The key of a deployment; equal ones of one function are the same."""
        for key, plan in self.deployments.items():
            if plan.alias == alias and plan.function == function:
                return key
        if wanted in self.deployments:
            raise UnciaError(
                f"two deployments would be called {wanted!r}",
                hint="Rename the function or the experiment of that name.",
            )
        self.deployments[wanted] = DeploymentPlan(wanted, alias, function)
        return wanted


def _outcomes_only(expect: Expect) -> Expect:
    """What is declared of outcomes; starts during a warm-up are nobody's claim."""
    return expect.model_copy(update=dict.fromkeys(("cold", "restored", "thawed", "warm")))


def _suffix(value: object) -> str:
    """A swept value as part of a name."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    kept = "".join(
        character if character.isalnum() or character in "._-" else "_" for character in text
    )
    return kept or "_"
