"""Whether the parts of an experiment file fit together, and the platform can do what they ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from uncia import yamlio
from uncia.errors import Mistakes
from uncia.experiment import cpus, triggers
from uncia.experiment.model import (
    Chain,
    Experiment,
    ExperimentFile,
    Function,
    Sender,
    Settings,
    Stage,
)
from uncia.experiment.triggers import TriggerForm
from uncia.platforms import adapter
from uncia.services import named
from uncia.stats.turns import turns
from uncia.units import GIB, MIB, format_size
from uncia.workload import chains, mapping

MAX_FILLER: Final = 250 * MIB
"""Of a zip file, in bytes: what Lambda lets one unpack to."""

MAX_IMAGE_FILLER: Final = 10 * GIB
"""Of an image, in bytes."""


def check(document: yamlio.Document) -> ExperimentFile:
    """Check a document: its form, and that its parts fit together.

    Raises:
        UnciaError: with file, line and key.
    """
    file = yamlio.validate(ExperimentFile, document)
    mistakes = Mistakes()
    for alias, function in file.functions.items():
        with mistakes.collect():
            _check_function(document, file, alias, function)
    kind = file.platform.kind
    if file.services is not None and "reach" not in adapter(kind).CAPABILITIES.settings:
        raise document.error(("services",), f"functions of the platform {kind} reach no services")
    with mistakes.collect():
        _check_services(document, file)
    for name, chain in file.chains.items():
        with mistakes.collect():
            _check_chain(document, file, name, chain)
    for name, trigger in file.triggers.items():
        with mistakes.collect():
            _check_trigger(document, file, name, trigger)
    for name, experiment in file.experiments.items():
        with mistakes.collect():
            _check_experiment(document, file, name, experiment)
    mistakes.raise_all()
    return cpus.allowed(document, file)


def _check_function(
    document: yamlio.Document, file: ExperimentFile, alias: str, function: Function
) -> None:
    kind = file.platform.kind
    deploys = adapter(kind).CAPABILITIES.deploys
    at: yamlio.KeyPath = ("functions", alias)
    if deploys and function.source is None:
        raise document.error(at, f"{kind} deploys functions, so this one needs a source")
    if not deploys and function.source is not None:
        raise document.error(
            (*at, "source"), f"{kind} deploys nothing, so give the function's url instead"
        )
    _check_settings(document, file, at, function)


def _check_services(document: yamlio.Document, file: ExperimentFile) -> None:
    """Check that every service is used: others would be started, and may fail, for nothing."""
    users = [settings for _, settings in cpus.all_settings(file)]
    used = {name for it in users for name in str(it.declared().get("reach", "")).split()}
    used |= {"registry" for it in users if it.package == "container"}
    used |= {"store" for it in users if it.declared().get("code") == "fetched"}
    for name in {} if file.services is None else named(file.services):
        if name not in used:
            how = "package: container" if name == "registry" else f"reach: [{name}]"
            raise document.error(
                ("services", name),
                f"no function uses this service: give one `{how}`, or leave the service out",
            )


def _check_trigger(
    document: yamlio.Document, file: ExperimentFile, name: str, trigger: TriggerForm
) -> None:
    """Check that there are changes to follow, and that what a trigger begins is in the file."""
    at = triggers.place(name)
    kind = file.platform.kind
    if not adapter(kind).CAPABILITIES.triggers:
        raise document.error(at, f"the platform {kind} has no triggers")
    if triggers.SERVICE not in ({} if file.services is None else named(file.services)):
        raise document.error(
            at,
            "a trigger follows the changes of the service documents, which is not there: name it"
            " at the top, `services: {documents: {}}`",
        )
    if trigger.function is None:
        sender = Sender.model_construct(chain=trigger.chain, kind=trigger.kind)
        if trigger.chain not in file.chains:
            raise document.error(
                (*at, "chain"), f"there is no chain {trigger.chain!r}", tuple(file.chains)
            )
        _check_kind(document, file, at, sender)
        return _check_told_apart(document, file, at, sender)
    function = file.functions.get(trigger.function)
    if function is None:
        raise document.error(
            (*at, "function"),
            f"there is no function {trigger.function!r}",
            tuple(file.functions),
        )
    if function.replicas > 1:
        raise document.error(
            (*at, "function"),
            f"{trigger.function} has replicas, which only a client visits in turn",
        )
    return None


def _check_told_apart(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, begun: Sender
) -> None:
    """That rows tell the states of a sequence that a trigger begins from stages of other chains.

    What else a trigger begins is named by it. States have the writer as their parent, as the stages
    have that functions invoke.
    """
    if begun.kind != "sequence" or begun.chain is None:
        return
    states = {
        turn
        for name, stage in file.chains[begun.chain].stages.items()
        for turn in turns(name, stage.repeat)
    }
    for experiment in file.experiments.values():
        for stream in experiment.streams():
            chain = file.chains.get(stream.chain or "")
            if chain is None or stream.kind not in ("nested", "asynchronous"):
                continue
            invoked = [
                turn for name, it in chain.stages.items() for turn in turns(name, it.repeat)
            ][1:]
            if shared := [turn for turn in invoked if turn in states]:
                raise document.error(
                    (*at, "chain"),
                    f"its chain {begun.chain} and the {stream.kind} chain {stream.chain} both have"
                    f" a stage {shared[0]}, which rows could not tell apart: call one otherwise",
                )


def _check_reach(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, settings: Settings
) -> None:
    """Check that the services which a function reaches are the file's."""
    services = {} if file.services is None else named(file.services)
    for name in str(settings.declared().get("reach", "")).split():
        if name not in services:
            raise document.error(
                (*at, "reach"),
                f"there is no service {name!r}: name it at the top, `services: {{{name}: {{}}}}`",
                tuple(services),
            )


def _check_package(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, settings: Settings
) -> None:
    """Check that there is a service which a package is fetched from, and what it may hold."""
    services = {} if file.services is None else named(file.services)
    is_container = settings.package == "container"
    is_fetched = settings.declared().get("code") == "fetched"
    if is_container and is_fetched:
        raise document.error(
            (*at, "code"), "an image is always fetched: leave code out, or package: container"
        )
    for key, is_given, service in (
        ("package", is_container, "registry"),
        ("code", is_fetched, "store"),
    ):
        if is_given and service not in services:
            raise document.error(
                (*at, key),
                f"the package is fetched from the service {service!r}, which is not there: name it"
                f" at the top, `services: {{{service}: {{}}}}`",
            )
    # What an experiment changes does not say which kind of package it is of.
    is_image = is_container or adapter(file.platform.kind).CAPABILITIES.images
    is_zip = isinstance(settings, Function) and not is_image and settings.root is None
    most = MAX_FILLER if is_zip else MAX_IMAGE_FILLER
    if settings.filler is not None and settings.filler > most:
        hint = None if not is_zip else "With package: container it may be larger."
        raise document.error(
            (*at, "filler"),
            f"{format_size(settings.filler)} is more than the {format_size(most)} that such a"
            " package may hold",
            hint=hint,
        )


def _check_experiment(
    document: yamlio.Document, file: ExperimentFile, name: str, experiment: Experiment
) -> None:
    kind = file.platform.kind
    at: yamlio.KeyPath = ("experiments", name)
    for index, stream in enumerate(experiment.streams()):
        here: yamlio.KeyPath = (*at, "mix", index) if experiment.mix else at
        _check_stream(document, file, here, stream)
    for index, neighbour in enumerate(experiment.neighbours):
        if neighbour.function not in file.functions:
            raise document.error(
                (*at, "neighbours", index, "function"),
                f"there is no function {neighbour.function!r}",
                tuple(file.functions),
            )
    for memory in experiment.sweep.memory if experiment.sweep else []:
        # A sweep deploys: where nothing is deployed, a size only says what there is.
        if not adapter(kind).CAPABILITIES.deploys:
            raise document.error(
                (*at, "sweep", "memory"), f"the platform {kind} has no setting memory"
            )
        _check_values(document, (*at, "sweep"), {"memory": memory}, kind)
    if experiment.base is not None and experiment.base not in file.experiments:
        raise document.error(
            (*at, "base"), f"there is no experiment {experiment.base!r}", tuple(file.experiments)
        )


def _check_stream(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, stream: Sender
) -> None:
    """Check that what a stream names is in the file, and that the platform can do it."""
    if stream.chain is not None and stream.chain not in file.chains:
        raise document.error(
            (*at, "chain"), f"there is no chain {stream.chain!r}", tuple(file.chains)
        )
    if stream.chain is not None:
        _check_kind(document, file, at, stream)
    replay = stream.replay
    if replay is not None:
        at_map: yamlio.KeyPath = (*at, "arrivals", "map")
        mapping.check(document, at_map, replay.map, file.functions)
    is_named = replay is None or stream.function is not None
    if stream.chain is None and is_named and stream.function not in file.functions:
        raise document.error(
            (*at, "function"),
            f"there is no function {stream.function!r}",
            tuple(file.functions),
        )
    _check_settings(document, file, (*at, "settings"), stream.settings)
    if stream.function is not None:
        _check_urls(document, file, stream.function)


def _check_request(document: yamlio.Document, file: ExperimentFile, alias: str, kind: str) -> None:
    """That a function of a chain which no client carries on is asked by POST at a fixed address.

    Raises:
        UnciaError: with file, line and key.
    """
    function = file.functions.get(alias)
    if function is None:
        return
    at: yamlio.KeyPath = ("functions", alias)
    for key, is_given in (
        ("method", function.method not in (None, "POST")),
        ("headers", bool(function.headers)),
    ):
        if is_given:
            raise document.error(
                (*at, key), f"only the client sends such requests; a chain of it is {kind}"
            )
    _check_urls(document, file, alias)


def _check_kind(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, stream: Sender
) -> None:
    """That the platform has chains of this kind, and that this chain is none of the client's alone.

    Raises:
        UnciaError: with file, line and key.
    """
    assert stream.chain is not None, "it was checked"
    kind = stream.kind or "client"
    has = adapter(file.platform.kind).CAPABILITIES.chains
    if kind not in has:
        raise document.error(
            (*at, "kind"), f"the platform {file.platform.kind} has no {kind} chains", sorted(has)
        )
    stages = file.chains[stream.chain].stages
    at_stages: yamlio.KeyPath = ("chains", stream.chain, "stages")
    waits = chains.predecessors(stages)
    names: set[str] = set()
    for name, stage in stages.items():
        here: yamlio.KeyPath = (*at_stages, name)
        names_of_turns = set(turns(name, stage.repeat))
        if taken := names & names_of_turns:
            raise document.error(
                here, f"two stages are called {min(taken)}: those that repeat get numbers"
            )
        names |= names_of_turns
        if kind == "client":
            continue
        _check_carried_on(document, file, here, stage, kind)
        if kind != "sequence" and len(waits[name]) > 1:
            raise document.error(
                (*here, "after"), f"several functions would invoke it; this chain is {kind}"
            )


def _check_carried_on(
    document: yamlio.Document,
    file: ExperimentFile,
    at: yamlio.KeyPath,
    stage: Stage,
    kind: chains.Kind,
) -> None:
    """That a stage asks for nothing that only the client can do, in a chain it does not carry on.

    Raises:
        UnciaError: with file, line and key.
    """
    _check_request(document, file, stage.function, kind)
    for key, is_given in (
        ("think", stage.think.most_ns if stage.think.most_ns is not None else stage.think.min),
        ("after_failures", stage.after_failures),
        ("body", stage.body is not None),
    ):
        if is_given:
            raise document.error((*at, key), f"only the client can do so; this chain is {kind}")
    function = file.functions.get(stage.function)
    replicas = stage.settings.replicas or (1 if function is None else function.replicas)
    if replicas > 1:
        raise document.error(
            at, f"{stage.function} has replicas, which only a client visits in turn"
        )


def _check_chain(document: yamlio.Document, file: ExperimentFile, name: str, chain: Chain) -> None:
    at: yamlio.KeyPath = ("chains", name, "stages")
    chains.check(document, at, chain.stages, tuple(file.functions))
    waits = chains.predecessors(chain.stages)

    def check(stage: str, path: yamlio.KeyPath, template: str, known: Sequence[str] | None) -> None:
        chains.check_template(document, path, chain.stages, stage, template, known, waits)

    for stage_name, stage in chain.stages.items():
        here: yamlio.KeyPath = (*at, stage_name)
        _check_settings(document, file, (*here, "settings"), stage.settings)
        function = file.functions[stage.function]
        for path, url in _urls(stage.function, function):
            check(stage_name, path, url, chains.GIVEN)
        has_body = function.method not in ("GET", "HEAD")
        if stage.body is not None:
            path = (*here, "body")
            if not has_body:
                raise document.error(path, f"{function.method} has no body")
            check(stage_name, path, stage.body, chains.GIVEN)
            continue
        for path, text in _parameter_texts(here, stage, function):
            # What the first stage sends is no template: braces are text there.
            check(stage_name, path, text, () if waits[stage_name] else None)
            if not has_body and chains.has_references(text):
                raise document.error(
                    here, f"{function.method} has no body that an answer could be in"
                )


def _urls(alias: str, function: Function) -> Iterator[tuple[yamlio.KeyPath, str]]:
    """The addresses of a function, with their places in the file."""
    if function.url is not None:
        yield ("functions", alias, "url"), function.url
    for index, url in enumerate(function.urls):
        yield ("functions", alias, "urls", index), url


def _check_urls(document: yamlio.Document, file: ExperimentFile, alias: str) -> None:
    """Check that no address of a function waits for answers, as only stages do."""
    for path, url in _urls(alias, file.functions[alias]):
        chains.check_without_answers(document, path, url)


def _parameter_texts(
    at: yamlio.KeyPath, stage: Stage, function: Function
) -> Iterator[tuple[yamlio.KeyPath, str]]:
    """All texts in what a stage sends, however deep, with the parameters that they are of."""
    for key, value in {**function.parameters, **stage.parameters}.items():
        path: yamlio.KeyPath = (*at, "parameters", key)
        if key not in stage.parameters:
            path = ("functions", stage.function, "parameters", key)
        for text in chains.texts(value):
            yield path, text


def _check_settings(
    document: yamlio.Document, file: ExperimentFile, at: yamlio.KeyPath, settings: Settings
) -> None:
    """A setting that the platform would silently ignore, or would not take, is an error."""
    kind = file.platform.kind
    honoured = adapter(kind).CAPABILITIES.settings
    for key, field in type(settings).model_fields.items():
        if key not in Settings.model_fields or key in honoured:
            continue
        if getattr(settings, key) != field.get_default(call_default_factory=True):
            raise document.error(
                (*at, key), f"the platform {kind} has no such setting", tuple(sorted(honoured))
            )
    values = {key: getattr(settings, key) for key in Settings.model_fields}
    _check_values(document, at, values, kind)
    _check_reach(document, file, at, settings)
    _check_package(document, file, at, settings)


def _check_values(
    document: yamlio.Document, at: yamlio.KeyPath, values: Mapping[str, Any], kind: str
) -> None:
    """Report all settings whose values the platform does not take, at their places."""
    mistakes = Mistakes()
    for key, message in adapter(kind).CAPABILITIES.mistakes(values):
        with mistakes.collect():
            raise document.error((*at, key), message)
    mistakes.raise_all()
