"""The experiment file: what a person writes, checked strictly.

``load`` reads a file into an :class:`ExperimentFile`; every error names file, line and
key. What the file means is worked out in :mod:`uncia.experiment.plan`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, Union

from pydantic import Field, model_validator

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment.expect import Expect
from uncia.forms import Form, Headers, Name, Url
from uncia.platforms import PlatformOptions, adapter
from uncia.services import ServicesForm, named
from uncia.settings import FUNCTION_SETTINGS, Setting, Value, form
from uncia.units import NS_PER_S, Duration, Size, Vcpu
from uncia.workload import chains, mapping
from uncia.workload.arrivals import PROCESSES, ArrivalProcess, Arrivals
from uncia.workload.chains import ChainStage
from uncia.workload.columns import ColumnField
from uncia.workload.loops import Closed
from uncia.workload.mapping import ReplayArrivals
from uncia.workload.model import FieldForm

DEFAULT_TIMEOUT_NS: Final = 60 * NS_PER_S
DEFAULT_CONNECT_TIMEOUT_NS: Final = 5 * NS_PER_S

MAX_REPEAT: Final = 1_000
"""How often a stage of a chain may follow on itself."""

Parameters = dict[str, Any]

_FOLDER_TEMPLATE: Final = Path(__file__).parent.parent / "templates" / "folder.yaml.template"


if TYPE_CHECKING:
    _DeclaredSettings = Form
    _SentAt = ArrivalProcess | ReplayArrivals
else:
    _SentAt = Annotated[Union[(*PROCESSES, ReplayArrivals)], Field(discriminator="kind")]
    _DeclaredSettings = form.make(
        "_DeclaredSettings", Form, FUNCTION_SETTINGS.values(), Setting.function_default_text
    )


class Settings(_DeclaredSettings):
    """How a function is deployed; what is left out is its own default, then the platform's."""

    runtime: str | None = Field(
        None, description="One of the function's, or an exact one such as python3.12"
    )
    handler: str | None = Field(None, description="module.function, if not the function's own")
    memory: Size | None = Field(None, gt=0, description="Memory limit; Lambda's MB is 2^20 bytes")
    vcpu: Vcpu | None = Field(
        None, gt=0, description="CPU of an instance that exists, where its answers do not say it"
    )
    execution: Literal["response"] | None = Field(
        None,
        description="response: where no answer says how long a function that exists ran, its"
        " response time counts, network included",
    )
    timeout: Duration | None = Field(None, gt=0, description="The platform ends it after this time")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables")
    filler: Size | None = Field(None, description="Random bytes added to the package")
    root: str | None = Field(
        None,
        description="An OCI image layout that the function is laid over, a folder beside this file",
    )
    replicas: int = Field(1, ge=1, le=10_000, description="Identical functions, visited in turn")

    def declared(self) -> dict[str, Value]:
        """Those of :data:`uncia.settings.FUNCTION_SETTINGS` that are chosen, by name."""
        return form.given(self, FUNCTION_SETTINGS)


class Function(Settings):
    """A function of the experiment: from the catalogue, from a folder, or a URL that exists."""

    source: str | None = Field(
        None, description="A name in the catalogue, or a folder beside this file"
    )
    parameters: Parameters = Field(
        default_factory=dict, description="The event, for every experiment"
    )
    url: Url | None = Field(None, description="Where it is, on a platform that deploys nothing")
    urls: list[Url] = Field(default_factory=list, description="Several addresses, visited in turn")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    headers: Headers = Field(default_factory=dict, description="Sent with every request")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [self.source is not None, self.url is not None, bool(self.urls)]
        if sum(origins) != 1:
            raise ValueError("a function has exactly one of source, url and urls")
        return self


class Override(Settings):
    """Settings that one experiment changes; it then gets a deployment of its own."""

    # None where nothing is changed, unlike a function's own default of one.
    replicas: int | None = Field(None, ge=1, le=10_000)  # type: ignore[assignment]


class Stage(ChainStage):
    """A stage of a chain, and what its requests carry."""

    parameters: Parameters = Field(
        default_factory=dict,
        description="The event, over the function's own; {{answer}} and {{answer.KEY}} in it",
    )
    body: str | None = Field(
        None, description="What is sent instead of an event; {{answer}} and {{answer.KEY}} in it"
    )
    settings: Override = Field(
        default_factory=Override, description="Deployed apart, with these changed"
    )
    repeat: int = Field(1, ge=1, le=MAX_REPEAT, description="How often the stage follows on itself")

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.body is not None and self.parameters:
            raise ValueError("a stage has parameters or a body, not both")
        return self


class Chain(Form):
    """Functions whose requests are sent when others are answered."""

    description: str = ""
    stages: dict[Name, Stage] = Field(
        min_length=1, description="In order: each waits for some before it"
    )


class Sender(Form):
    """Who is sent requests, and when: one function or a chain, by arrivals or in a closed loop."""

    function: Name | None = Field(None, description="One of the file's functions")
    chain: Name | None = Field(None, description="One of the file's chains, instead of a function")
    kind: chains.Kind | None = Field(
        None,
        description="Who goes on with the chain: client (the load generator); nested (functions,"
        " which wait for what they invoke); sequence (the platform); asynchronous (functions,"
        " which invoke with events)",
    )
    arrivals: _SentAt | None = Field(None, description="When requests are sent")
    closed: Closed | None = Field(None, description="Clients that wait for answers, instead")
    parameters: Parameters = Field(
        default_factory=dict, description="The event, over the function's own"
    )
    fields: dict[Name, FieldForm] = Field(
        default_factory=dict, description="Drawn for each request, for {{name}} in parameters"
    )
    settings: Override = Field(
        default_factory=Override, description="Deployed apart, with these changed"
    )

    def misfit(self, what: str) -> str | None:
        """What is wrong with it as a whole, in words that name ``what`` it is."""
        if self.arrivals is not None and self.closed is not None:
            return f"{what} has arrivals or a closed loop, not both"
        if self.function is not None and self.chain is not None:
            return f"{what} has a function or a chain, not both"
        if self.chain is None and self.kind is not None:
            return "kind is of a chain, and there is none"
        if self.chain is not None and (self.parameters or self.settings != Override()):
            return "with a chain, parameters and settings belong into its stages"
        if self.chain is not None and self.fields:
            return "fields are of a function's requests, and a chain's stages have none"
        return self._misfit_of_replay(what)

    def _misfit_of_replay(self, what: str) -> str | None:
        replay = self.replay
        if replay is not None and self.chain is not None:
            return "a replay is of functions, and cannot drive a chain"
        if replay is not None and replay.map is not None and self.function is not None:
            return f"{what} that replays has a function for all recorded ones or a map, not both"
        if replay is None and any(isinstance(form, ColumnField) for form in self.fields.values()):
            return "a field of kind column is of the rows of a replay (arrivals of kind replay)"
        return None

    @property
    def replay(self) -> ReplayArrivals | None:
        """The recorded table that is replayed, if one is."""
        return self.arrivals if isinstance(self.arrivals, ReplayArrivals) else None

    @property
    def has_target(self) -> bool:
        """Whether it says who is sent requests; a replay may find functions by their names."""
        return self.function is not None or self.chain is not None or self.replay is not None

    def loop(self) -> ArrivalProcess | Closed:
        """When requests are sent, unless it replays a table."""
        pacing = self.arrivals if self.closed is None else self.closed
        assert isinstance(pacing, ArrivalProcess | Closed), "it was checked"
        return pacing


class Stream(Sender):
    """One function or chain of a mix, and when it is invoked."""

    start: Duration = Field(0, description="After the experiment's start")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if wrong := self.misfit("a stream"):
            raise ValueError(wrong)
        if not self.has_target:
            raise ValueError("a stream has a function or a chain")
        if self.arrivals is None and self.closed is None:
            raise ValueError("a stream has arrivals or a closed loop")
        return self


class Sweep(Form):
    """One experiment per value; their names end in the value."""

    memory: list[Size] = Field(default_factory=list, description="Experiments named <name>-<MB>")
    parameter: dict[str, list[int | float | str | bool]] = Field(
        default_factory=dict, description="One parameter and its values: <name>-<value>"
    )

    @model_validator(mode="after")
    def _one_axis(self) -> Self:
        if bool(self.memory) + len(self.parameter) != 1:
            raise ValueError("a sweep has exactly one axis: memory, or one parameter")
        values: Sequence[object] = self.memory or [
            value for axis in self.parameter.values() for value in axis
        ]
        if not values:
            raise ValueError("a sweep needs values")
        if len(set(map(str, values))) != len(values):
            raise ValueError("a sweep has each value once")
        return self


class Experiment(Sender):
    """One experiment: a function, a chain or a mix, when it is invoked, and what may come out."""

    description: str = ""
    mix: list[Stream] = Field(default_factory=list, description="Several functions at once")
    warmup: Arrivals | None = Field(
        None, description="Sent before, and kept as the experiment <name>.warmup"
    )
    pause: Duration = Field(0, description="Quiet time before the first request")
    wait: Duration = Field(
        0,
        description="What the function waits on purpose; subtracted for MR, TR and TMR only",
    )
    base: str | None = Field(None, description="The experiment that MR and TR compare with")
    sweep: Sweep | None = None
    timeout: Duration = Field(DEFAULT_TIMEOUT_NS, gt=0, description="The client gives up")
    connect_timeout: Duration = Field(DEFAULT_CONNECT_TIMEOUT_NS, gt=0)
    max_connections: int | None = Field(None, ge=1, description="Per target; unlimited if left out")
    expect: Expect = Field(default_factory=Expect, description="What may come out besides ok")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.mix:
            given = [
                key
                for key in (
                    *("function", "chain", "kind", "arrivals", "closed"),
                    *("parameters", "fields"),
                )
                if getattr(self, key)
            ]
            if self.settings != Override():
                given.append("settings")
            if given:
                raise ValueError(
                    f"with a mix, {' and '.join(given)} belong into each of its streams"
                )
            if self.sweep is not None:
                raise ValueError("a sweep is over one function, not over a mix")
            return self
        if wrong := self.misfit("an experiment"):
            raise ValueError(wrong)
        if not self.has_target or (self.arrivals is None and self.closed is None):
            raise ValueError(
                "an experiment has a function (or a chain) and arrivals (or a closed loop),"
                " or a mix"
            )
        if self.chain is not None and self.sweep is not None:
            raise ValueError("a sweep is over one function, not over a chain")
        return self

    def streams(self) -> list[Stream]:
        """What is sent: the mix, or the one function as a mix of one."""
        if self.mix:
            return self.mix
        shared = {key: getattr(self, key) for key in Sender.model_fields}
        return [Stream.model_construct(**shared, start=0)]


class ExperimentFile(Form):
    """A whole experiment file."""

    name: Name = Field(description="The run's name")
    description: str = ""
    seed: int = Field(1, ge=0, lt=1 << 64, description="The same seed gives the same requests")
    platform: PlatformOptions = Field(description="Where the functions run")
    functions: dict[Name, Function] = Field(min_length=1)
    services: ServicesForm | None = Field(
        None, description="What functions reach beside the platform, started for the run"
    )
    chains: dict[Name, Chain] = Field(
        default_factory=dict, description="Requests that follow answers, for experiments to name"
    )
    experiments: dict[Name, Experiment] = Field(min_length=1)


def load(path: Path, *, platform: str | None = None) -> tuple[ExperimentFile, yamlio.Document]:
    """Read and check an experiment file.

    Args:
        path: the YAML file; or a function's folder, whose warm and cold starts are measured.
        platform: a kind of platform to use instead of the file's, with that kind's defaults.

    Raises:
        UnciaError: the file cannot be read or is not right; with file, line and key.
    """
    document = _of_function(path) if path.is_dir() else yamlio.load(path)
    if platform is not None and isinstance(document.data, dict):
        adapter(platform)
        document.data["platform"] = {"kind": platform}
    return check(document), document


def _of_function(folder: Path) -> yamlio.Document:
    """The experiment of a function's folder that no file describes."""
    from uncia import functions

    function = functions.load(folder)
    text = _FOLDER_TEMPLATE.read_text(encoding="utf-8")
    for key, value in (
        ("NAME", function.name),
        ("FOLDER", json.dumps(f"./{folder.resolve().name}")),
    ):
        text = text.replace(f"@{key}@", value)
    return yamlio.load(text, name=str(folder))


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
    if (
        file.services is not None
        and "reach" not in adapter(file.platform.kind).CAPABILITIES.settings
    ):
        raise document.error(
            ("services",), f"functions of the platform {file.platform.kind} reach no services"
        )
    for name, chain in file.chains.items():
        with mistakes.collect():
            _check_chain(document, file, name, chain)
    for name, experiment in file.experiments.items():
        with mistakes.collect():
            _check_experiment(document, file, name, experiment)
    mistakes.raise_all()
    return file


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
    _check_settings(document, at, function, kind)
    _check_reach(document, file, at, function)


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


def _check_experiment(
    document: yamlio.Document, file: ExperimentFile, name: str, experiment: Experiment
) -> None:
    kind = file.platform.kind
    at: yamlio.KeyPath = ("experiments", name)
    for position, stream in enumerate(experiment.streams()):
        here: yamlio.KeyPath = (*at, "mix", position) if experiment.mix else at
        if stream.chain is not None and stream.chain not in file.chains:
            raise document.error(
                (*here, "chain"), f"there is no chain {stream.chain!r}", tuple(file.chains)
            )
        if stream.chain is not None:
            _check_kind(document, file, here, stream)
        replay = stream.replay
        if replay is not None:
            at_map: yamlio.KeyPath = (*here, "arrivals", "map")
            mapping.check(document, at_map, replay.map, file.functions)
        is_named = replay is None or stream.function is not None
        if stream.chain is None and is_named and stream.function not in file.functions:
            raise document.error(
                (*here, "function"),
                f"there is no function {stream.function!r}",
                tuple(file.functions),
            )
        _check_settings(document, (*here, "settings"), stream.settings, kind)
        _check_reach(document, file, (*here, "settings"), stream.settings)
        if stream.function is not None:
            for path, url in _urls(stream.function, file.functions[stream.function]):
                chains.check_without_answers(document, path, url)
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
    for path, url in _urls(alias, function):
        chains.check_without_answers(document, path, url)


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
    turns: set[str] = set()
    for name, stage in stages.items():
        here: yamlio.KeyPath = (*at_stages, name)
        of_stage = {name} if stage.repeat == 1 else {f"{name}-{n + 1}" for n in range(stage.repeat)}
        if of_stage & turns:
            raise document.error(
                here,
                f"two stages are called {min(of_stage & turns)}: those that repeat get numbers",
            )
        turns |= of_stage
        if kind == "client":
            continue
        _check_request(document, file, stage.function, kind)
        for key, is_given in (
            ("think", stage.think.most_ns if stage.think.most_ns is not None else stage.think.min),
            ("after_failures", stage.after_failures),
            ("body", stage.body is not None),
        ):
            if is_given:
                raise document.error(
                    (*here, key), f"only the client can do so; this chain is {kind}"
                )
        function = file.functions.get(stage.function)
        replicas = stage.settings.replicas or (1 if function is None else function.replicas)
        if replicas > 1:
            raise document.error(
                here, f"{stage.function} has replicas, which only a client visits in turn"
            )
        if kind != "sequence" and len(waits[name]) > 1:
            raise document.error(
                (*here, "after"), f"several functions would invoke it; this chain is {kind}"
            )


def _check_chain(
    document: yamlio.Document,
    file: ExperimentFile,
    name: str,
    chain: Chain,
) -> None:
    kind = file.platform.kind
    at: yamlio.KeyPath = ("chains", name, "stages")
    chains.check(document, at, chain.stages, tuple(file.functions))
    waits = chains.predecessors(chain.stages)

    def check(stage: str, path: yamlio.KeyPath, template: str, known: Sequence[str] | None) -> None:
        chains.check_template(document, path, chain.stages, stage, template, known, waits)

    for stage_name, stage in chain.stages.items():
        here: yamlio.KeyPath = (*at, stage_name)
        _check_settings(document, (*here, "settings"), stage.settings, kind)
        _check_reach(document, file, (*here, "settings"), stage.settings)
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
    document: yamlio.Document, at: yamlio.KeyPath, settings: Settings, kind: str
) -> None:
    """A setting that the platform would silently ignore, or would not take, is an error."""
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


def _check_values(
    document: yamlio.Document, at: yamlio.KeyPath, values: Mapping[str, Any], kind: str
) -> None:
    """Report all settings whose values the platform does not take, at their places."""
    mistakes = Mistakes()
    for key, message in adapter(kind).CAPABILITIES.mistakes(values):
        with mistakes.collect():
            raise document.error((*at, key), message)
    mistakes.raise_all()


def resolved(file: ExperimentFile) -> Mapping[str, Any]:
    """The file with every default filled in, as plain data that reads back as the same file."""
    return file.model_dump(mode="json", exclude_none=True)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the experiment file, for editors and other tools."""
    schema = ExperimentFile.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Uncia experiment file",
    }


def find(text: str) -> Path:
    """The experiment file that ``text`` names: a path, or the name of one that ships with Uncia.

    :raises UnciaError: there is neither.
    """
    from uncia.paths import data

    path = Path(text)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    shipped = data("experiments") / f"{text}.yaml"
    if shipped.exists():
        return shipped
    known = sorted(file.stem for file in data("experiments").glob("*.yaml"))
    raise UnciaError(
        f"there is no experiment file {text!r}",
        hint=f"Give a path, or one of the experiments that ship with uncia: {', '.join(known)}.",
    )
