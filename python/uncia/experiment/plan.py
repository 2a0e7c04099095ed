"""What an experiment file comes to: the deployments it needs and the experiments in their order.

Sweeps are spread out, warm-ups become experiments of their own (``<name>.warmup``), and every
setting an experiment changes leads to a deployment of its own, so that no experiment sees another's
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment import replays, requests
from uncia.experiment.chained import ChainBuilder
from uncia.experiment.expect import Expect
from uncia.experiment.model import (
    Experiment,
    ExperimentFile,
    Function,
    Settings,
    Stage,
    Stream,
)
from uncia.experiment.replays import Replays
from uncia.experiment.sources import Sources
from uncia.experiment.stages import ChainPlan, StagePlan
from uncia.platforms import adapter
from uncia.units import MIB, format_size
from uncia.workload import chains
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.loops import NO_THOUGHT, Closed, ThinkTime

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
        """From its start to its last scheduled request, the pause before it included."""
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
    """

    file: ExperimentFile
    deployments: Mapping[str, DeploymentPlan]
    experiments: Sequence[ExperimentPlan]
    warnings: Sequence[str] = ()

    @property
    def platform(self) -> str:
        """The kind of platform."""
        return self.file.platform.kind

    def last_use(self) -> dict[str, int]:
        """For every deployment the position of the last experiment that needs it."""
        last: dict[str, int] = {}
        for position, experiment in enumerate(self.experiments):
            for stream in experiment.streams:
                last |= dict.fromkeys(stream.deployments(), position)
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
    mistakes = Mistakes()
    for alias, function in file.functions.items():
        with mistakes.collect():
            sources.check(alias, function)
            _check_defaults(file, sources, alias, function)
            if file.platform.kind == "embedded":
                sources.check_start(function, ("functions", alias, "start_from"))
    mistakes.raise_all()
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
            with mistakes.collect():
                experiments.extend(builder.experiment(name, member, variant))
    mistakes.raise_all()
    if missing := [name for name in only if name not in chosen]:
        raise UnciaError(
            f"there is no experiment {missing[0]!r}",
            hint=f"The file's experiments are: {', '.join(sorted(names))}.",
        )
    return Plan(file, builder.deployments, experiments, builder.warnings)


def _check_defaults(file: ExperimentFile, sources: Sources, alias: str, function: Function) -> None:
    """Check that the platform takes what a function's own file says, where nothing else does.

    Raises:
        UnciaError: with file, line and key.
    """
    if function.source is None:
        return
    definition = sources.definition(function.source)
    settings = {
        key: getattr(definition, key)
        for key in ("memory", "timeout")
        if getattr(function, key) is None
    }
    for key, message in adapter(file.platform.kind).CAPABILITIES.mistakes(settings):
        raise sources.document.error(
            ("functions", alias, "source"),
            f"its {key} of {message}",
            hint=f"Write another {key} here, or in {definition.folder / 'function.yaml'}.",
        )


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
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._replays = Replays(self.file, self.sources)

    def experiment(
        self, origin: str, name: str, experiment: Experiment
    ) -> Iterator[ExperimentPlan]:
        """The plans of one experiment: its warm-up, if it has one, and itself.

        Args:
            origin: its name in the file.
            name: its name in the run; another one for a member of a sweep.
            experiment: the experiment.
        """
        plans: list[StreamPlan] = []
        for position, stream in enumerate(experiment.streams()):
            at: yamlio.KeyPath = ("experiments", origin)
            if experiment.mix:
                at = (*at, "mix", position)
            suffix = f"-{position}" if experiment.mix else ""
            if stream.chain is not None and (stream.kind or "client") == "client":
                plans += self._chain(stream.chain, stream, plans)
            elif stream.chain is not None:
                plans.append(self._hops(at, stream.chain, stream, plans))
            elif stream.replay is not None:
                plans += self._replay(at, f"{name}{suffix}", stream, plans, experiment.timeout)
            else:
                plans.append(self._stream(at, f"{name}{suffix}", stream, plans))
        if experiment.warmup is not None:
            fields = [field for stream in plans for field in stream.fields.values()]
            replays.check_warmup(self.sources.document, ("experiments", origin, "warmup"), fields)
            yield ExperimentPlan(
                name=name + WARMUP_SUFFIX,
                description=f"Before {name}, to each of its functions: "
                f"{experiment.warmup.sentence()}",
                warmup_of=name,
                streams=[
                    replace(
                        stream,
                        arrivals=None if stream.after else experiment.warmup,
                        start_ns=0,
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
        self, at: yamlio.KeyPath, name: str, stream: Stream, before: Sequence[StreamPlan]
    ) -> StreamPlan:
        """The requests of one function.

        Args:
            at: the experiment or stream in the file.
            name: of a deployment of its own, if settings are changed.
            stream: the checked stream.
            before: the experiment's streams so far.
        """
        alias = stream.function
        assert alias is not None, "it was checked"
        content = requests.make(self.sources, self.file.functions[alias], stream, at)
        return StreamPlan(
            alias=alias,
            deployment=self._deploy(alias, stream.settings, name, at),
            label=_label(alias, before),
            arrivals=stream.loop(),
            event=content.event,
            start_ns=stream.start,
            template=content.template,
            fields=content.fields,
        )

    def _replay(
        self,
        at: yamlio.KeyPath,
        name: str,
        stream: Stream,
        before: Sequence[StreamPlan],
        timeout_ns: int,
    ) -> list[StreamPlan]:
        """The requests of a recorded table, a stream for each of its functions."""
        replay = self._replays.parts(
            stream, at, timeout_ns, lambda function: apply(function, stream.settings)
        )
        self.warnings += [note for note in replay.notes if note not in self.warnings]
        plans: list[StreamPlan] = []
        for part in replay.parts:
            if part.name is None:
                key = self._deploy(part.alias, stream.settings, name, at)
            else:
                key = self._deployment(part.alias, part.function, f"{part.name}-{name}")
            plans.append(
                StreamPlan(
                    alias=part.alias,
                    deployment=key,
                    label=_label(part.recorded, [*before, *plans]),
                    arrivals=part.arrivals,
                    event=part.requests.event,
                    start_ns=stream.start,
                    template=part.requests.template,
                    fields=part.fields,
                    recorded=part.recorded,
                    replay=None if plans else replay.sentence,
                )
            )
        return plans

    def _chain(
        self, chain_name: str, stream: Stream, before: Sequence[StreamPlan]
    ) -> list[StreamPlan]:
        """The requests of a chain, a stream for each stage."""
        stages = self.file.chains[chain_name].stages
        waits = chains.predecessors(stages)
        plans: list[StreamPlan] = []
        last: dict[str, int] = {}
        for name, stage in stages.items():
            at: yamlio.KeyPath = ("chains", chain_name, "stages", name)
            key = self._deploy(stage.function, stage.settings, f"{chain_name}-{name}", at)
            after = tuple(last[other] for other in waits[name])
            for turn in _turns(name, stage):
                event, template = self._body(at, stage, is_first=not after)
                plans.append(
                    StreamPlan(
                        alias=stage.function,
                        deployment=key,
                        label=_label(stage.function, [*before, *plans]),
                        arrivals=None if after else stream.loop(),
                        event=event,
                        start_ns=0 if after else stream.start,
                        template=template,
                        stage=turn,
                        after=after,
                        after_failures=stage.after_failures,
                        think=stage.think,
                        chain=None if after else f"chain {chain_name} ({_stages_in_words(stages)})",
                    )
                )
                last[name] = len(before) + len(plans) - 1
                after = (last[name],)
        return plans

    def _hops(
        self,
        at: yamlio.KeyPath,
        chain_name: str,
        stream: Stream,
        before: Sequence[StreamPlan],
    ) -> StreamPlan:
        """The requests that begin a chain of functions, or of the platform's.

        Args:
            at: the experiment or stream in the file.
            chain_name: the chain.
            stream: the checked stream.
            before: the experiment's streams so far.
        """
        kind = stream.kind
        assert kind is not None, "the client's are others"
        stages = self.file.chains[chain_name].stages
        chain = ChainBuilder(self.file, self.sources, self.deployments, self._deploy).plan(
            chain_name, kind
        )
        first = chain.stages[0]
        return StreamPlan(
            alias=chain_name if kind == "sequence" else first.alias,
            deployment=first.deployment,
            label=_label(chain_name, before),
            arrivals=stream.loop(),
            event=dict(first.event),
            start_ns=stream.start,
            stage=chain.first,
            chain=f"chain {chain_name} ({_stages_in_words(stages)}), {kind}",
            hops=chain,
        )

    def _body(
        self, at: yamlio.KeyPath, stage: Stage, *, is_first: bool
    ) -> tuple[dict[str, Any], str | None]:
        """What a stage sends: an event, and a template in its place if it has values of answers."""
        if stage.body is not None:
            return {}, stage.body
        function = self.file.functions[stage.function]
        given = {**function.parameters, **stage.parameters}
        # The first stage has no answers, and sends its event as it is.
        filled = {
            key: value for key, value in given.items() if not is_first and chains.has_braces(value)
        }
        known = {key: value for key, value in given.items() if key not in filled}
        # What comes of answers has no type yet; that there are such parameters is known.
        self.sources.check_names(function, filled, (*at, "parameters"))
        event = {**self.sources.event(function, known, (*at, "parameters")), **filled}
        return event, chains.event_template(event) if filled else None

    def _deploy(
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
        wanted = alias if function == declared else f"{alias}-{name}"
        return self._deployment(alias, function, wanted, invokes=invokes)

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

    def _deployment(
        self, alias: str, function: Function, wanted: str, *, invokes: bool = False
    ) -> str:
        """The key of a deployment; equal ones of one function are the same."""
        for key, plan in self.deployments.items():
            if (plan.alias, plan.function, plan.invokes) == (alias, function, invokes):
                return key
        if invokes and wanted in self.deployments:
            wanted += "-calls"
        if wanted in self.deployments:
            raise UnciaError(
                f"two deployments would be called {wanted!r}",
                hint="Rename the function or the experiment of that name.",
            )
        self.deployments[wanted] = DeploymentPlan(wanted, alias, function, invokes)
        return wanted


def _turns(name: str, stage: Stage) -> list[str]:
    """The stages that one comes to, as rows name them."""
    return StagePlan(name, stage.function, "", {}, repeat=stage.repeat).turns()


def _stages_in_words(stages: Mapping[str, Stage]) -> str:
    """The stages, and how often they are repeated."""
    words = chains.sentence(stages)
    repeated = [
        f"{name} {stage.repeat:,} times" for name, stage in stages.items() if stage.repeat > 1
    ]
    return "; ".join([words, *repeated])


def _label(name: str, before: Sequence[StreamPlan]) -> str:
    """Which random stream requests draw from: that of a name, numbered if others have it.

    Streams of one function draw from different ones, else they would send in lock-step.
    """
    taken = {stream.label for stream in before}
    label, number = name, 2
    while label in taken:
        label, number = f"{name}#{number}", number + 1
    return label


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
