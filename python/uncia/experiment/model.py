"""The forms of the experiment file: what a person writes.

:mod:`uncia.experiment.files` reads a file, :mod:`uncia.experiment.checks` says whether its parts
fit together, and :mod:`uncia.experiment.plan` works out what it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, Union

from pydantic import Field, model_validator

from uncia.experiment.expect import Expect
from uncia.experiment.triggers import TriggerForm
from uncia.forms import Form, Headers, Name, Url
from uncia.platforms import PlatformOptions
from uncia.services import ServicesForm
from uncia.settings import FUNCTION_SETTINGS, Setting, Value, form
from uncia.units import NS_PER_S, Duration, Size, Vcpu
from uncia.workload import chains
from uncia.workload.arrivals import PROCESSES, ArrivalProcess, Arrivals
from uncia.workload.chains import ChainStage
from uncia.workload.columns import ColumnField
from uncia.workload.hints import Hints
from uncia.workload.loops import MAX_CLIENTS, NO_THOUGHT, Closed, Think
from uncia.workload.mapping import ReplayArrivals
from uncia.workload.model import FieldForm
from uncia.workload.monitoring import MonitorForms

DEFAULT_TIMEOUT_NS: Final = 60 * NS_PER_S
DEFAULT_CONNECT_TIMEOUT_NS: Final = 5 * NS_PER_S

MAX_REPEAT: Final = 1_000
"""How often a stage of a chain may follow on itself."""

Parameters = dict[str, Any]

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
    package: Literal["zip", "container"] | None = Field(
        None,
        description="zip: a file; container: an image of the runtime's root, the code and the"
        " filler, pulled from the service registry. Default: zip",
    )
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
    parameters_of: str | None = Field(
        None,
        description="Of a function at a URL: the catalogue's function, or the folder, that runs"
        " there, whose parameters it takes",
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [self.source is not None, self.url is not None, bool(self.urls)]
        if sum(origins) != 1:
            raise ValueError("a function has exactly one of source, url and urls")
        if self.parameters_of is not None and self.source is not None:
            raise ValueError("parameters_of is of a function at a URL: its source has them here")
        return self

    @property
    def declared_by(self) -> str | None:
        """The function of the catalogue, or the folder, that says which parameters it takes."""
        return self.source or self.parameters_of


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
    hints: Hints | None = Field(
        None, description="What requests say of those to come (x-uncia-next); by default nothing"
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
        if self.hints is not None and (self.chain is not None or self.closed is not None):
            return "hints are of a function's arrivals: of others nobody knows when they come"
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


class NeighbourForm(Form):
    """A function that is kept busy while an experiment is measured, by clients without a pause."""

    function: Name = Field(description="One of the file's functions")
    clients: int = Field(1, ge=1, le=MAX_CLIENTS, description="How many keep it busy at once")
    think: Think = Field(NO_THOUGHT, description="From an answer to the next request")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The event, over the function's own"
    )


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
    neighbours: list[NeighbourForm] = Field(
        default_factory=list,
        description="Functions that are kept busy meanwhile; it is measured before without them, as"
        " <name>.alone",
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
    monitors: MonitorForms = Field(
        default_factory=list,
        description="What watches while this experiment alone is measured, besides the file's;"
        " rows call it EXPERIMENT.NAME",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.mix:
            given = [
                key
                for key in (
                    *("function", "chain", "kind", "arrivals", "closed"),
                    *("parameters", "fields", "hints"),
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
    triggers: dict[Name, TriggerForm] = Field(
        default_factory=dict,
        description="What is begun for every change of a document of the service documents",
    )
    experiments: dict[Name, Experiment] = Field(min_length=1)
    subtract_rtt: bool = Field(
        False,
        description="The report and summary.json also show latencies less the median round trip",
    )
    monitors: MonitorForms = Field(
        default_factory=list, description="What watches this machine, or others, during the run"
    )


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
