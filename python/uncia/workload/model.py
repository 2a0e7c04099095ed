"""The form of workload files, which people write for ``uncia load FILE.yaml``.

A URL on the command line, or in ``uncia.load(url, ...)``, becomes the same form with one function
and one stream, so that both can do the same. `uncia.workload.resolve` turns the form into a load.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.forms import Form, Headers, Name, Url
from uncia.units import NS_PER_S, Duration, Size, Vcpu
from uncia.workload import chains, columns, mapping
from uncia.workload.arrivals import Arrivals
from uncia.workload.chains import ChainStage
from uncia.workload.columns import ColumnField
from uncia.workload.loops import Closed
from uncia.workload.mapping import MappedReplay
from uncia.workload.monitoring import MonitorForms, read_programs
from uncia.workload.shares import Percent

DEFAULT_TIMEOUT_NS: Final = 60 * NS_PER_S
DEFAULT_CONNECT_TIMEOUT_NS: Final = 5 * NS_PER_S
DEFAULT_RTT_PROBES: Final = 5
MAX_RTT_PROBES: Final = 1_000
MAX_POOL: Final = 1_000_000


def _http(version: object) -> object:
    # A person writes 1.1 or 2 without quotes, and YAML reads a number.
    return (
        {1.1: "1.1", 2: "2"}.get(version, version) if isinstance(version, int | float) else version
    )


HttpVersion = Annotated[Literal["1.1", "2", "auto"], BeforeValidator(_http)]


class Pool(Form):
    """Connections that are open before the first request, so that bursts need not open them."""

    pool: int = Field(ge=1, le=MAX_POOL, description="Connections for each address")


class Tls(Form):
    """How the server's certificate is checked."""

    ca_file: str | None = Field(None, description="Certificates to trust instead of the system's")
    insecure: bool = Field(False, description="Accept any certificate")


class Stop(Form):
    """Conditions that end a load early, with exit code 1; every row is kept."""

    error_budget: Percent | None = Field(
        None, description="More failed requests than this part of all"
    )
    lag_p99: Duration | None = Field(None, gt=0, description="The generator is later than this")
    slowdown: float | None = Field(
        None, gt=1, allow_inf_nan=False, description="Latency has grown by this factor"
    )


class Overrides(Form):
    """Options that override keys of a workload."""

    seed: int | None = Field(None, ge=0, lt=1 << 64)
    rtt_probes: int | None = Field(None, ge=0, le=MAX_RTT_PROBES)
    error_budget: Percent | None = None
    max_lag: Duration | None = Field(None, gt=0)
    max_slowdown: float | None = Field(None, gt=1, allow_inf_nan=False)


class Body(Form):
    """The body of requests: exactly one of the keys."""

    text: str | None = Field(None, description="This text")
    base64: str | None = Field(None, description="These bytes")
    file: str | None = Field(
        None, description="The content of this file, relative to the workload file"
    )
    template: str | None = Field(None, description="This text, with {{fields}} filled in")
    template_file: str | None = Field(
        None, description="The content of this file, with {{fields}} filled in"
    )
    random: Size | None = Field(None, gt=0, description="Incompressible bytes of this size")

    @model_validator(mode="after")
    def _one(self) -> Self:
        keys = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(keys) != 1:
            raise ValueError(
                "a body has exactly one of text, base64, file, template, template_file and random"
            )
        if self.base64 is not None:
            try:
                base64.b64decode(self.base64, validate=True)
            except ValueError as error:
                raise ValueError(f"base64: this is not base64: {error}") from error
        return self


class IntegerField(Form):
    """A whole number, drawn evenly from ``min`` to ``max``, both included."""

    kind: Literal["integer"]
    min: int = Field(ge=-(1 << 63), lt=1 << 63)
    max: int = Field(ge=-(1 << 63), lt=1 << 63)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self


class ChoiceField(Form):
    """One of several texts, with equal probability."""

    kind: Literal["choice"]
    values: list[str] = Field(min_length=1)


class TextField(Form):
    """Random letters and digits."""

    kind: Literal["text"]
    length: int = Field(ge=1, le=1 << 20)


class UuidField(Form):
    """A random UUID."""

    kind: Literal["uuid"]


FieldForm = Annotated[
    IntegerField | ChoiceField | TextField | UuidField | ColumnField, Field(discriminator="kind")
]


class AwsSigV4(Form):
    """Signature Version 4 of AWS; credentials come from the environment, never from this file."""

    region: str = Field(min_length=1, pattern=r"^[a-z0-9-]+$")
    service: str = Field("lambda", min_length=1, pattern=r"^[a-z0-9-]+$")
    profile: str | None = Field(None, description="A profile of ~/.aws instead of the default")


class Sign(Form):
    """How requests are signed."""

    aws_sigv4: AwsSigV4


class Function(Form):
    """The addresses of a function, and the requests that it gets."""

    url: Url | None = Field(None, description="http://... or https://...")
    urls: list[Url] = Field(default_factory=list, description="Several addresses, visited in turn")
    unix_socket: str | None = Field(None, description="Connect to this socket instead of a host")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = Field(
        None, description="GET without a body, POST with one, unless said otherwise"
    )
    headers: Headers = Field(default_factory=dict, description="Sent with every request")
    query: dict[str, str] = Field(default_factory=dict, description="Added to the URL")
    body: Body | None = Field(None, description="Sent with every request")
    fields: dict[Name, FieldForm] = Field(
        default_factory=dict, description="Drawn for each request, for {{name}} in templates"
    )
    http: HttpVersion = Field("1.1", description="1.1, 2, or auto: what the server prefers")
    memory: Size | None = Field(
        None, gt=0, description="Memory of an instance, where its answers do not say it"
    )
    vcpu: Vcpu | None = Field(
        None, gt=0, description="CPU of an instance, where its answers do not say it"
    )
    execution: Literal["response"] | None = Field(
        None,
        description="response: where no answer says how long the function ran, its response time"
        " counts, network included",
    )
    sign: Sign | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.url is not None) == bool(self.urls):
            raise ValueError("a function has exactly one of url and urls")
        return self

    def addresses(self) -> list[str]:
        """List all URLs."""
        return [self.url] if self.url is not None else list(self.urls)


class Stage(ChainStage):
    """A stage of a chain, and what its requests carry."""

    body: Body | None = Field(
        None, description="Instead of the function's; {{answer}} and {{answer.KEY}} in templates"
    )


class Chain(Form):
    """Functions whose requests are sent when others are answered."""

    description: str = ""
    stages: dict[Name, Stage] = Field(
        min_length=1, description="In order: each waits for earlier ones"
    )


class Stream(Form):
    """A function or chain, and its requests: by arrivals, or in a closed loop."""

    function: Name | None = Field(None, description="One of the file's functions")
    chain: Name | None = Field(None, description="One of the file's chains, instead of a function")
    kind: Literal["client"] | None = Field(
        None, description="Who drives the chain: client (the load generator)"
    )
    arrivals: Arrivals | None = Field(None, description="When requests are sent (open loop)")
    closed: Closed | None = Field(None, description="Clients that wait for answers (closed loop)")
    start: Duration = Field(0, description="After the start of the load")

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if (self.arrivals is None) == (self.closed is None):
            raise ValueError("a stream has exactly one of arrivals and closed")
        if (self.function is None) == (self.chain is None):
            raise ValueError("a stream has exactly one of function and chain")
        if self.chain is None and self.kind is not None:
            raise ValueError("kind is of a chain, and there is none")
        return self


class Workload(Form):
    """A whole workload file."""

    name: Name = Field(description="Name of run and experiment in the rows")
    description: str = ""
    seed: int = Field(1, ge=0, lt=1 << 64, description="The same seed gives the same requests")
    connections: Literal["reuse", "fresh"] | Pool = Field(
        "reuse", description="reuse, fresh (one for each request), or {pool: N}, opened beforehand"
    )
    timeout: Duration = Field(
        DEFAULT_TIMEOUT_NS, gt=0, description="Time from sending to the last byte"
    )
    connect_timeout: Duration = Field(
        DEFAULT_CONNECT_TIMEOUT_NS, gt=0, description="Time to establish a connection"
    )
    first_byte_timeout: Duration | None = Field(
        None, gt=0, description="Time from sending to the head of the answer"
    )
    max_connections: int | None = Field(
        None, ge=1, description="Maximum of open connections, over all addresses"
    )
    tls: Tls = Field(default_factory=Tls)
    stop: Stop = Field(default_factory=Stop)
    rtt_probes: int = Field(
        DEFAULT_RTT_PROBES,
        ge=0,
        le=MAX_RTT_PROBES,
        description="TCP connects to each address, before and after",
    )
    monitors: MonitorForms = Field(
        default_factory=list, description="What watches this machine while the load is kept"
    )
    functions: dict[Name, Function] = Field(min_length=1)
    chains: dict[Name, Chain] = Field(
        default_factory=dict, description="Requests that follow answers, for streams to name"
    )
    streams: list[Stream] = Field(
        default_factory=list, description="The requests of functions and chains, and their times"
    )
    replay: MappedReplay | None = Field(None, description="Arrivals of a recorded table")

    @model_validator(mode="after")
    def _sends(self) -> Self:
        if not self.streams and self.replay is None:
            raise ValueError("a workload needs streams, a replay, or both")
        return self


def load(path: Path) -> tuple[Workload, yamlio.Document]:
    """Read and check a workload file.

    Raises:
        UnciaError: it cannot be read or is invalid; with file, line and key.
    """
    document = yamlio.load(path)
    workload = check(document)
    read_programs(workload.monitors, document, path.parent)
    return workload, document


def check(document: yamlio.Document) -> Workload:
    """Check a document: its form, and that names refer to existing parts.

    Raises:
        UnciaError: it is invalid; with file, line and key.
    """
    workload = yamlio.validate(Workload, document)
    for name, chain in workload.chains.items():
        at_stages: yamlio.KeyPath = ("chains", name, "stages")
        chains.check(document, at_stages, chain.stages, tuple(workload.functions))
        for stage_name, stage in chain.stages.items():
            # A stage without a body sends its function's.
            body_path = (*at_stages, stage_name, "function" if stage.body is None else "body")
            function = workload.functions[stage.function]
            for text in (*function.addresses(), *function.query.values()):
                function_path: yamlio.KeyPath = (*at_stages, stage_name, "function")
                chains.check_template(document, function_path, chain.stages, stage_name, text)
            body = stage.body or function.body
            if body is not None and body.template is not None:
                chains.check_template(document, body_path, chain.stages, stage_name, body.template)
    for position, stream in enumerate(workload.streams):
        if stream.chain is not None and stream.chain not in workload.chains:
            raise document.error(
                ("streams", position, "chain"),
                f"there is no chain {stream.chain!r}",
                tuple(workload.chains),
            )
        if stream.chain is None and stream.function not in workload.functions:
            raise document.error(
                ("streams", position, "function"),
                f"there is no function {stream.function!r}",
                tuple(workload.functions),
            )
    _check_columns(document, workload)
    if workload.replay is not None:
        mapping.check(document, ("replay", "map"), workload.replay.map, workload.functions)
    return workload


def _check_columns(document: yamlio.Document, workload: Workload) -> None:
    """Check that fields of kind ``column`` exist, and are of functions that only a replay sends.

    Raises:
        UnciaError: with file, line and key.
    """
    for name, function in workload.functions.items():
        for field_name, form in function.fields.items():
            if not isinstance(form, ColumnField):
                continue
            at: yamlio.KeyPath = ("functions", name, "fields", field_name)
            try:
                columns.is_number(form)
            except UnciaError as error:
                raise document.error((*at, "column"), error.message, hint=error.hint) from error
            senders = {stream.function for stream in workload.streams}
            for chain in workload.chains.values():
                senders |= {stage.function for stage in chain.stages.values()}
            if workload.replay is None or name in senders:
                raise document.error(
                    (*at, "kind"),
                    f"a column is of the rows of a replay, and other requests of {name} have none",
                )


def json_schema() -> dict[str, Any]:
    """Make the JSON Schema of workload files, for editors and other tools."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Workload.model_json_schema(mode="validation"),
        "title": "Uncia workload file",
    }
