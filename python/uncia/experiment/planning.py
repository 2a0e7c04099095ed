"""Plans of experiment files.

Sweeps are spread out, warm-ups become experiments of their own (``<name>.warmup``), and every
setting an experiment changes leads to a deployment of its own, so that no experiment sees another's
settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment import deployable, reaches, replays, requests
from uncia.experiment.chained import ChainBuilder
from uncia.experiment.deployments import Deployments, apply
from uncia.experiment.expect import Expect
from uncia.experiment.model import (
    Experiment,
    ExperimentFile,
    Function,
    NeighbourForm,
    Override,
    Stage,
    Stream,
)
from uncia.experiment.neighbours import ALONE_SUFFIX, LONGEST_NS, NEIGHBOURS_SUFFIX
from uncia.experiment.plan import (
    WARMUP_SUFFIX,
    DeploymentPlan,
    ExperimentPlan,
    Plan,
    StreamPlan,
)
from uncia.experiment.replays import Replays
from uncia.experiment.sources import Sources
from uncia.experiment.triggers import TriggerForm, TriggerPlan, place
from uncia.platforms import adapter
from uncia.stats.turns import turns
from uncia.text import plural
from uncia.units import MIB, format_size
from uncia.workload import chains
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.loops import Closed
from uncia.workload.monitoring import read_programs


def plan(file: ExperimentFile, sources: Sources, only: Sequence[str] = ()) -> Plan:
    """Work out what a checked file comes to.

    Args:
        file: the experiment file.
        sources: finds the functions that it names.
        only: names of experiments (of the file, or of a sweep's members); empty means all.

    Raises:
        UnciaError: a function or parameter does not exist (with file, line and key), a name in
            ``only`` is not there, two experiments come to the same name, or a function needs a
            service that it does not reach.
    """
    mistakes = Mistakes()
    for alias, function in file.functions.items():
        with mistakes.collect():
            sources.check(alias, function)
            _check_defaults(file, sources, alias, function)
            if file.platform.kind == "embedded":
                sources.check_start(function, ("functions", alias, "start_from"))
    with mistakes.collect():
        read_programs(file.monitors, sources.document, sources.base)
    for name, experiment in file.experiments.items():
        at = ("experiments", name, "monitors")
        with mistakes.collect():
            read_programs(experiment.monitors, sources.document, sources.base, at)
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
    triggers: list[TriggerPlan] = []
    for name, form in file.triggers.items():
        with mistakes.collect():
            triggers.append(builder.trigger(name, form))
    mistakes.raise_all()
    if missing := [name for name in only if name not in chosen]:
        raise UnciaError(
            f"there is no experiment {missing[0]!r}",
            hint=f"The file's experiments are: {', '.join(sorted(names))}.",
        )
    warnings = [*builder.warnings, *_left_out(file, builder.deployments.plans.values())]
    made = Plan(file, builder.deployments.plans, experiments, warnings, triggers)
    reaches.check(made, sources)
    return replace(made, warnings=[*warnings, *deployable.check(made, sources)])


def _left_out(file: ExperimentFile, deployed: Iterable[DeploymentPlan]) -> Iterator[str]:
    """What the embedded platform is told not to do, which readers of its rows must know."""
    every = getattr(file.platform, "metering", None)
    unmetered = {
        deployment.alias
        for deployment in deployed
        if deployment.function.declared().get("metering", every) is False
    }
    if unmetered:
        yield (
            f"What {', '.join(sorted(unmetered))} used was not measured (metering: false): its CPU"
            " time, throttling and memory are null, and so is what is billed by them."
        )
    if getattr(file.platform, "log", None) == "memory":
        yield (
            "The platform's log was in memory alone (log: memory): had the platform been killed,"
            " rows would be missing, and asynchronous events that had ended would have run again."
        )


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


@dataclass
class _Builder:
    """Turns the file's experiments into plans, and collects the deployments they need."""

    file: ExperimentFile
    sources: Sources
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deployments = Deployments(self.file, self.sources)
        self._chains = ChainBuilder(self.file, self.sources, self.deployments)
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
        measured = ExperimentPlan(
            name=name,
            description=experiment.description,
            streams=self._streams(origin, name, experiment),
            expect=experiment.expect,
            pause_ns=experiment.pause,
            wait_ns=experiment.wait,
            base=experiment.base,
            timeout_ns=experiment.timeout,
            connect_timeout_ns=experiment.connect_timeout,
            max_connections=experiment.max_connections,
            monitors=experiment.monitors,
        )
        if experiment.warmup is not None:
            at: yamlio.KeyPath = ("experiments", origin, "warmup")
            yield self._warmup(at, measured, experiment.warmup)
        if experiment.neighbours:
            alone_name = name + ALONE_SUFFIX
            alone = replace(
                measured,
                name=alone_name,
                base=measured.base or alone_name,
                description=f"{name} without its neighbours, which is compared with it",
            )
            yield alone
            yield self._neighbours(origin, measured, experiment.neighbours)
            measured = replace(measured, base=alone.base)
        yield measured

    def _neighbours(
        self, origin: str, measured: ExperimentPlan, forms: Sequence[NeighbourForm]
    ) -> ExperimentPlan:
        """What is kept busy while an experiment is measured."""
        streams: list[StreamPlan] = []
        for index, form in enumerate(forms):
            at: yamlio.KeyPath = ("experiments", origin, "neighbours", index, "parameters")
            function = self.file.functions[form.function]
            parameters = {**function.parameters, **form.parameters}
            streams.append(
                StreamPlan(
                    alias=form.function,
                    deployment=self.deployments.add(form.function, Override(), measured.name, at),
                    label=_label(form.function, streams),
                    arrivals=Closed.model_construct(
                        clients=form.clients,
                        think=form.think,
                        duration=LONGEST_NS,
                        requests=None,
                        together=False,
                        one_replica=False,
                    ),
                    event=self.sources.event(function, parameters, at),
                )
            )
        busy = ", ".join(f"{form.function} by {plural(form.clients, 'client')}" for form in forms)
        return ExperimentPlan(
            name=measured.name + NEIGHBOURS_SUFFIX,
            base=measured.name + NEIGHBOURS_SUFFIX,
            description=f"Kept busy while {measured.name} is measured: {busy}",
            streams=streams,
            expect=Expect(),
            timeout_ns=measured.timeout_ns,
            connect_timeout_ns=measured.connect_timeout_ns,
            measured=measured.name,
        )

    def trigger(self, name: str, form: TriggerForm) -> TriggerPlan:
        """The plan of a trigger."""
        at = place(name)
        if form.chain is not None:
            assert form.kind is not None, "it was checked"
            chain = self._chains.plan(form.chain, form.kind)
            first = chain.stages[0]
            return TriggerPlan(
                name, form.prefix, tuple(form.changes), first.deployment, first.event, chain
            )
        assert form.function is not None, "it was checked"
        function = self.file.functions[form.function]
        parameters = {**function.parameters, **form.parameters}
        key = self.deployments.add(form.function, Override(), name, at)
        event = self.sources.event(function, parameters, (*at, "parameters"))
        return TriggerPlan(name, form.prefix, tuple(form.changes), key, event)

    def _warmup(
        self, at: yamlio.KeyPath, measured: ExperimentPlan, arrivals: ArrivalProcess
    ) -> ExperimentPlan:
        """What is sent before an experiment, to each of its functions.

        Args:
            at: the warm-up in the file.
            measured: the experiment.
            arrivals: when requests are sent.
        """
        fields = [field for stream in measured.streams for field in stream.fields.values()]
        replays.check_warmup(self.sources.document, at, fields)
        return replace(
            measured,
            name=measured.name + WARMUP_SUFFIX,
            description=f"Before {measured.name}, to each of its functions: {arrivals.sentence()}",
            warmup_of=measured.name,
            streams=[
                replace(stream, arrivals=None if stream.after else arrivals, start_ns=0)
                for stream in measured.streams
            ],
            expect=_outcomes_only(measured.expect),
            pause_ns=0,
            base=None,
            monitors=(),
        )

    def _streams(self, origin: str, name: str, experiment: Experiment) -> list[StreamPlan]:
        """The streams of one experiment; of a chain that the client carries on, one a stage."""
        plans: list[StreamPlan] = []
        for index, stream in enumerate(experiment.streams()):
            at: yamlio.KeyPath = ("experiments", origin)
            if experiment.mix:
                at = (*at, "mix", index)
            suffix = f"-{index}" if experiment.mix else ""
            if stream.chain is not None and (stream.kind or "client") == "client":
                plans += self._chain(stream.chain, stream, plans)
            elif stream.chain is not None:
                plans.append(self._hops(at, stream.chain, stream, plans))
            elif stream.replay is not None:
                plans += self._replay(at, f"{name}{suffix}", stream, plans, experiment.timeout)
            else:
                plans.append(self._stream(at, f"{name}{suffix}", stream, plans))
        return plans

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
            deployment=self.deployments.add(alias, stream.settings, name, at),
            label=_label(alias, before),
            arrivals=stream.loop(),
            event=content.event,
            start_ns=stream.start,
            template=content.template,
            fields=content.fields,
            hints=stream.hints,
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
                key = self.deployments.add(part.alias, stream.settings, name, at)
            else:
                key = self.deployments.named(part.alias, part.function, f"{part.name}-{name}")
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
                    hints=stream.hints,
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
            key = self.deployments.add(stage.function, stage.settings, f"{chain_name}-{name}", at)
            after = tuple(last[earlier] for earlier in waits[name])
            for turn in turns(name, stage.repeat):
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
        chain = self._chains.plan(chain_name, kind)
        first = chain.stages[0]
        loop = stream.loop()
        if kind == "nested" and isinstance(loop, Closed):
            loops = [
                (it.hops, it.arrivals)
                for it in before
                if it.hops is not None and it.hops.kind == kind and isinstance(it.arrivals, Closed)
            ]
            self._chains.check_clients(at, [*loops, (chain, loop)])
        return StreamPlan(
            alias=chain_name if kind == "sequence" else first.alias,
            deployment=first.deployment,
            label=_label(chain_name, before),
            arrivals=loop,
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
        parameters = {**function.parameters, **stage.parameters}
        # The first stage has no answers, and sends its event as it is.
        filled = {
            key for key, value in parameters.items() if not is_first and chains.has_braces(value)
        }
        event = self.sources.event(function, parameters, (*at, "parameters"), templates=filled)
        return event, chains.event_template(event) if filled else None


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
