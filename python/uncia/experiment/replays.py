"""Replays in experiment files: which function gets which recorded requests, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import requests
from uncia.experiment.model import ExperimentFile, Function, Sender
from uncia.experiment.requests import Requests
from uncia.experiment.sources import Sources
from uncia.providers import LAMBDA_BYTES, LAMBDA_MAX_MB, LAMBDA_MIN_MB
from uncia.settings import PLATFORM_SETTINGS
from uncia.units import MIB, MICRO_PER_VCPU, format_duration, parse_duration, parse_size
from uncia.workload import made, mapping
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.columns import ColumnField, decimal_text
from uncia.workload.made import Demand, Made
from uncia.workload.mapping import ReplayArrivals
from uncia.workload.replay import Expansion, Replayed, expansion

if TYPE_CHECKING:
    from uncia.functions import Function as Definition
    from uncia.functions.form import Parameter

_DURATIONS: Final = ("cpu", "duration")
_TAKEN: Final = (*_DURATIONS, "memory")
"""The parameters of a function that a made one sets."""


@dataclass(frozen=True)
class Part:
    """The requests of one recorded function.

    Attributes:
        recorded: the function's name in the table.
        alias: what the rows call the function that gets them.
        function: it, as it is to be deployed.
        name: of a deployment of its own; None: that of the file's function.
        arrivals: when they are sent.
        requests: what they say.
        fields: all fields, in the engine's form.
    """

    recorded: str
    alias: str
    function: Function
    name: str | None
    arrivals: ArrivalProcess
    requests: Requests
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Parts:
    """A replay: its parts, a sentence on it, and what a reader of the results should know."""

    parts: list[Part]
    sentence: str
    notes: list[str] = field(default_factory=list)


@dataclass
class Replays:
    """Resolves the replays of an experiment file.

    Attributes:
        file: the experiment file.
        sources: finds and checks functions.
    """

    file: ExperimentFile
    sources: Sources
    _expanded: dict[tuple[object, ...], Expansion] = field(default_factory=dict)

    def parts(
        self,
        sender: Sender,
        at: yamlio.KeyPath,
        timeout_ns: int,
        changed: Callable[[Function], Function],
    ) -> Parts:
        """Resolve the replay of an experiment or stream.

        Args:
            sender: the experiment or stream.
            at: it in the file.
            timeout_ns: after which the client gives up.
            changed: applies the sender's settings to a function.

        Raises:
            UnciaError: the table cannot be replayed so; with file, line and key.
        """
        replay = sender.replay
        assert replay is not None, "the sender replays a table"
        try:
            if isinstance(replay.map, Made):
                return self._made(replay, replay.map, sender, at, timeout_ns, changed)
            return self._mapped(replay, sender, at, changed)
        except UnciaError as error:
            document = self.sources.document
            if error.message.startswith(f"{document.name}:"):
                raise
            raise document.error((*at, "arrivals"), error.message, hint=error.hint) from error

    def _mapped(
        self,
        replay: ReplayArrivals,
        sender: Sender,
        at: yamlio.KeyPath,
        changed: Callable[[Function], Function],
    ) -> Parts:
        """Give recorded requests to functions of the file."""
        assert not isinstance(replay.map, Made), "made functions are apart"
        wanted = {form.column for form in sender.fields.values() if isinstance(form, ColumnField)}
        expanded = self._expand(replay, columns=wanted)
        chosen = replay.map if sender.function is None else sender.function
        pairs = mapping.assign(chosen, expanded.replayed, self.file.functions, replay.table)
        content = {
            alias: requests.make(self.sources, self.file.functions[alias], sender, at)
            for alias in sorted({alias for alias, _ in pairs})
        }
        parts = [
            Part(
                recorded=part.function,
                alias=alias,
                function=changed(self.file.functions[alias]),
                name=None,
                arrivals=part.arrivals,
                requests=content[alias],
                fields=content[alias].fields_for(part),
            )
            for alias, part in pairs
        ]
        return Parts(parts, expanded.sentence(replay.table), _notes(replay, expanded))

    def _made(
        self,
        replay: ReplayArrivals,
        how: Made,
        sender: Sender,
        at: yamlio.KeyPath,
        timeout_ns: int,
        changed: Callable[[Function], Function],
    ) -> Parts:
        """Make a function for each recorded one."""
        document = self.sources.document
        pattern = changed(self.file.functions[how.function])
        at_map: yamlio.KeyPath = (*at, "arrivals", "map", "function")
        if pattern.source is None:
            raise document.error(at_map, "functions are made from one that has a source")
        definition = self.sources.definition(pattern.source)
        taken = [name for name in _TAKEN if name in definition.parameters]
        if not taken:
            raise document.error(
                at_map,
                f"{definition.name} has none of the parameters {', '.join(_TAKEN)}, so it can take"
                " nothing of what a recorded function took",
            )
        if sender.fields:
            raise document.error((*at, "fields"), "requests to made functions have fields already")
        given = {**pattern.parameters, **sender.parameters}
        for name in taken:
            if name in given:
                raise document.error(
                    (*at, "parameters", name), "a made function takes it from the table"
                )
        event = dict(self.sources.event(pattern, given, (*at, "parameters")))
        event |= {name: f"{{{{{name}}}}}" for name in taken}
        content = Requests(event, requests.template(event, dict.fromkeys(taken, True)))
        expanded = self._expand(replay, optional=made.COLUMNS)
        self._check_room(len(expanded.replayed))
        demands = made.demands(how, replay, expanded, self.file.seed, self.sources.base)
        limit_ns = min(pattern.timeout or definition.timeout, timeout_ns)
        parts = [
            _make_function(
                part, demands[part.function], how, pattern, definition, content, limit_ns, index
            )
            for index, part in enumerate(expanded.replayed)
        ]
        notes = _notes(replay, expanded)
        cut = sum(demand.cut for demand in demands.values())
        if how.longest is not None and cut:
            notes.append(
                f"{cut:,} requests of {replay.table} took longer than"
                f" {format_duration(how.longest)}, and are replayed with that"
            )
        return Parts(parts, f"{expanded.sentence(replay.table)}, on made functions", notes)

    def _expand(
        self,
        replay: ReplayArrivals,
        columns: Collection[str] = (),
        optional: Collection[str] = (),
    ) -> Expansion:
        """Read the table, once for all members of a sweep."""
        key = (id(replay), *sorted(columns), "", *sorted(optional))
        if key not in self._expanded:
            self._expanded[key] = expansion(
                replay, self.file.seed, self.sources.base, columns, optional
            )
        return self._expanded[key]

    def _check_room(self, functions: int) -> None:
        """Refuse more made functions than the platform can have instances at once.

        Raises:
            UnciaError: there are more.
        """
        platform = self.file.platform
        setting = PLATFORM_SETTINGS["max_instances"]
        chosen = getattr(platform, setting.name, None)
        room = int(setting.default or 0) if chosen is None else int(chosen)
        if platform.kind == "embedded" and functions > room:
            raise UnciaError(
                f"the replay makes {functions:,} functions, and the platform holds {room:,}"
                " instances",
                hint="Draw fewer with `sample`, or raise max_instances of the platform.",
            )


def check_warmup(
    document: yamlio.Document, at: yamlio.KeyPath, fields: Iterable[Mapping[str, Any]]
) -> None:
    """Refuse a warm-up of requests whose values are those of rows.

    Args:
        document: the file.
        at: the warm-up in it.
        fields: of all streams, in the engine's form.

    Raises:
        UnciaError: with file, line and key.
    """
    if any(form["kind"] == "column" for form in fields):
        raise document.error(
            at,
            "requests that carry values of recorded rows have none for a warm-up; replay an"
            " earlier window as an experiment of its own",
        )


def _notes(replay: ReplayArrivals, expanded: Expansion) -> list[str]:
    if not expanded.retries:
        return []
    return [
        f"{expanded.retries:,} rows of {replay.table} are further attempts of a request; they are"
        " not replayed"
    ]


def _make_function(
    part: Replayed,
    demand: Demand,
    how: Made,
    pattern: Function,
    definition: Definition,
    content: Requests,
    limit_ns: int,
    index: int,
) -> Part:
    """Make the function of a recorded one, and what its requests take.

    Raises:
        UnciaError: it takes more than a function can have, or longer than its time limit.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    memory = _memory_limit(part.function, demand, how, pattern.memory or definition.memory)
    changes: dict[str, Any] = {"memory": memory}
    cpu = pattern.declared().get("cpu", demand.allocated_cpu)
    if cpu is not None:
        changes["cpu"] = int(cpu)
    share = Fraction(memory, LAMBDA_BYTES) if cpu is None else Fraction(int(cpu), MICRO_PER_VCPU)
    used = how.utilization * float(min(Fraction(1), share))
    taken = {
        "duration": demand.durations,
        "cpu": pc.coalesce(
            demand.cpu, pa.array((demand.durations * used).astype(np.int64))
        ).to_numpy(),
        "memory": np.minimum(demand.memory.fill_null(0).to_numpy(), max(0, memory - how.headroom)),
    }
    slowest = int(max(taken[name].max() for name in _DURATIONS))
    if slowest >= limit_ns:
        raise UnciaError(
            f"a request of {part.function!r} takes {format_duration(slowest)}, and its time limit"
            f" is {format_duration(limit_ns)}",
            hint="Cut long ones with `longest` in the map, or raise the function's and the"
            " experiment's timeout.",
        )
    fields = {
        name: _column(part.function, name, definition.parameters[name], values.tolist())
        for name, values in taken.items()
        if name in definition.parameters
    }
    return Part(
        recorded=part.function,
        alias=part.function,
        function=pattern.model_copy(update=changes),
        name=f"{how.function}-{index}",
        arrivals=part.arrivals,
        requests=content,
        fields=fields,
    )


def _memory_limit(function: str, demand: Demand, how: Made, usual: int) -> int:
    """The memory limit of a made function: whole MB, as platforms sell it."""
    wanted = usual
    if demand.allocated_memory is not None:
        wanted = demand.allocated_memory
    elif demand.memory.null_count < len(demand.memory):
        wanted = int(demand.memory.drop_null().to_numpy().max()) + how.headroom
    megabytes = max(LAMBDA_MIN_MB, -(-wanted // MIB))
    if megabytes > LAMBDA_MAX_MB:
        raise UnciaError(
            f"{function!r} takes {megabytes:,} MB with headroom, more than the {LAMBDA_MAX_MB:,} MB"
            " that a function can have",
            hint="Leave it out with `functions`, which names those to replay.",
        )
    return megabytes * MIB


def _column(
    function: str, name: str, parameter: Parameter, values: Sequence[int]
) -> dict[str, Any]:
    """What the requests carry as a parameter, in its unit."""
    parse = parse_duration if name in _DURATIONS else parse_size
    unit = parse(f"1{parameter.unit}")
    if parameter.high is not None and max(values) > parameter.high * unit:
        raise UnciaError(
            f"a request of {function!r} takes a {name} of"
            f" {decimal_text(max(values), unit)} {parameter.unit}, and the function takes at most"
            f" {parameter.max}"
        )
    return {"kind": "column", "values": [decimal_text(value, unit) for value in values]}
