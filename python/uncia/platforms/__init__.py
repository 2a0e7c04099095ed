"""Platforms: what runs functions, each behind the same small protocol, one file each.

A module in this package that defines ``Options`` (a form with a literal ``kind``),
``CAPABILITIES``, ``connect`` and ``clean`` is a platform; it needs no registration. Modules without
these names hold what several platforms share (the Lambda API).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union

from pydantic import Field

from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.settings import Value
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.platforms.journal import Journal, Resource


class PlatformForm(Form):
    """The options of a platform; each kind adds its own."""

    kind: str


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do; a run that needs more is refused before it begins.

    Attributes:
        deploys: it creates functions from packages; otherwise a function is a URL that exists
            already.
        collects: it keeps a log of its own that is joined to the client's rows.
        settings: the function settings of an experiment file that it honours.
        http_events: its functions get HTTP events, with what was sent as text in their body.
        mistakes: finds settings whose values it does not take: name and what is wrong, a sentence
            that begins with the value.
        chains: the kinds of chains that it has, by who carries them on.
        payload_limits: of its options, the most bytes of an event (or, in a sequence, between two
            functions), by kind of chain; a kind without one has no limit that is known.
        triggers: it begins functions and state machines when documents change.
        languages: of its options, the languages whose functions it serves; None: of all that it
            has a runtime for.
        groups: patterns of the control groups in which a run's functions are, by the run and what
            the names of its functions begin with; none where they are not known.
        log_lag: of its options, how long its log may lag behind its answers, in nanoseconds; what
            is not there then is missing.
        names_invocations: it does not learn the client's names of invocations, but names each in
            its answer: one that is named in none cannot be found in the log.
        images: it takes every function as an image, laid over the root of its runtime.
        marks_events: its log tells which invocations were events, for which nobody waited.
    """

    deploys: bool
    collects: bool
    settings: frozenset[str]
    http_events: bool = False
    mistakes: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = lambda _values: ()
    chains: frozenset[str] = frozenset({"client"})
    payload_limits: Callable[[Any], Mapping[str, int]] = lambda _options: {}
    triggers: bool = False
    languages: Callable[[Any], Sequence[str] | None] = lambda _options: None
    groups: Callable[[str, str], Sequence[str]] = lambda _run, _prefix: ()
    log_lag: Callable[[Any], int] = lambda _options: 5 * NS_PER_S
    names_invocations: bool = False
    images: bool = False
    marks_events: bool = False


@dataclass(frozen=True)
class FunctionSpec:
    """A function to deploy; None leaves the choice to the platform.

    Memory in bytes, times in nanoseconds, CPU in micro-vCPU.

    Attributes:
        image: an OCI image layout, which has the package in it, instead of that.
        reference: of an image in a registry, which the platform pulls, instead of both.
        stored: bucket and key of the package in a store of objects, instead of it.
        settings: those of :data:`uncia.settings.FUNCTION_SETTINGS` that are chosen, by name.
    """

    name: str
    package: bytes | None = None
    image: Path | None = None
    reference: str | None = None
    stored: tuple[str, str] | None = None
    runtime: str | None = None
    handler: str | None = None
    memory: int | None = None
    timeout: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Value] = field(default_factory=dict)
    url: str | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SequenceSpec:
    """A state machine to deploy, whose tasks are functions that are deployed already.

    Attributes:
        name: its name on the platform.
        definition: in the Amazon States Language, as plain data.
    """

    name: str
    definition: Mapping[str, Any]


@dataclass(frozen=True)
class TriggerSpec:
    """What a platform is to begin for every change of a document below a prefix.

    Attributes:
        name: the trigger's.
        prefix: what the keys of the documents begin with.
        changes: ``put``, ``delete`` or both.
        begins: the function or the state machine, which is deployed already.
        event: what that is given beside the change, which has the key ``change``.
        stage: what the rows of its invocations call them; None: the states of the machine do.
    """

    name: str
    prefix: str
    changes: Sequence[str]
    begins: Deployment
    event: Mapping[str, Any]
    stage: str | None = None


@dataclass(frozen=True)
class Deployment:
    """What is deployed, under the name that it has on the platform.

    ``warnings`` are what the platform says of how it serves it, a sentence each.
    """

    name: str
    detail: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """Where what is deployed is reached by plain HTTP.

    Attributes:
        machine: the ARN of the state machine that is to be executed, if it is none of functions.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    machine: str | None = None


@dataclass(frozen=True)
class Response:
    """The answer to one invocation that was made outside any measurement."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Collected:
    """What a platform logged of the invocations it served since the previous collection.

    Tables of the schemas in :mod:`uncia.record`; times are Unix nanoseconds, ``run`` and
    ``experiment`` are null. None where the platform keeps no such table. A platform that does not
    learn the client's names of invocations calls them by its own ``request_id``. ``warnings`` are
    what readers of the results must know since :meth:`Platform.start` or the previous collection.
    """

    invocations: pa.Table | None = None
    spans: pa.Table | None = None
    instances: pa.Table | None = None
    warnings: tuple[str, ...] = ()


class Platform(Protocol):
    """What every platform implements; runs use a platform only by these nine methods."""

    def start(self) -> list[str]:
        """Make the platform ready; returns warnings for readers of the results."""

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        """Create a function, a state machine or a trigger, journalled before it exists."""

    def endpoint(self, deployment: Deployment) -> Target:
        """Return where the load generator reaches the function, or begins an execution."""

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        """Invoke the function once, outside any measurement."""

    def collect(self) -> Collected:
        """Return what the platform logged since the previous call."""

    def is_settled(self) -> bool:
        """Whether no change waits for its triggers, and nothing that one began runs."""

    def unserved_events(self) -> int:
        """Return how many accepted events wait still, or went with their function."""

    def remove(self, deployment: Deployment) -> None:
        """Remove the function and mark it removed in the journal."""

    def close(self) -> None:
        """End what :meth:`start` began and delete what it left; may be called twice."""


@dataclass(frozen=True)
class ServiceEndpoint:
    """Where a service is that functions reach beside the platform.

    Attributes:
        address: ``HOST:PORT``, as the platform reaches it.
        environment: variables of the functions that reach it, such as credentials.
    """

    address: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a platform receives besides its options.

    Attributes:
        run: the run's id; names of created resources carry it.
        journal: every resource goes in here before it is created.
        log: takes one line of what is going on, for a person.
        services: what functions reach beside the platform, by name.
        warn: takes a sentence that belongs into the run's description.
    """

    run: str
    journal: Journal
    log: Callable[[str], None] = lambda _line: None
    services: Mapping[str, ServiceEndpoint] = field(default_factory=dict)
    warn: Callable[[str], None] = lambda _sentence: None


class Adapter(Protocol):
    """What a platform's module defines."""

    Options: type[PlatformForm]
    CAPABILITIES: Capabilities

    def connect(self, options: Any, context: Context) -> Platform:
        """Return a platform that is not started yet."""

    def clean(self, resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
        """Remove what a crashed run left; returns those of ``resources`` that no longer exist."""


def _adapters() -> dict[str, Any]:
    adapters: dict[str, Any] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "Options") and hasattr(module, "connect"):
            for kind in module.Options.model_fields["kind"].annotation.__args__:
                adapters[kind] = module
    return adapters


def adapter(kind: str) -> Adapter:
    """Return the adapter of a kind of platform.

    Raises:
        UnciaError: there is no platform of this kind.
    """
    if kind not in ADAPTERS:
        raise UnciaError(
            f"{kind!r} is not a kind of platform", hint=f"Known kinds: {', '.join(kinds())}."
        )
    module: Adapter = ADAPTERS[kind]
    return module


def kinds() -> list[str]:
    """Return the names of all kinds of platforms."""
    return list(ADAPTERS)


ADAPTERS: dict[str, Any] = _adapters()

if TYPE_CHECKING:
    PlatformOptions = PlatformForm
else:
    PlatformOptions = Annotated[
        Union[tuple(module.Options for module in ADAPTERS.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]
