"""Configuration of the load generator, ``uncia-engine load``, and calls of it.

The engine fixes the schedule before the first request, never delays sends because of slow answers,
and records every request as a row, whatever its outcome.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from uncia import engine
from uncia.errors import UnciaError
from uncia.units import NS_PER_H, NS_PER_S
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.loops import Closed

DEFAULT_CONNECT_TIMEOUT_NS: Final = 5 * NS_PER_S
DEFAULT_TIMEOUT_NS: Final = 60 * NS_PER_S
# After an interruption, the generator waits this long for answers on their way.
DEFAULT_DRAIN_TIMEOUT_NS: Final = 3 * NS_PER_S

# The duration of a closed loop that ends with its last request; the engine requires one.
_FOREVER_NS: Final = 3650 * 24 * NS_PER_H

# A platform that knows this header logs the invocation under the client's id, so that the two can
# be joined.
INVOCATION_HEADER: Final = "x-uncia-invocation"

# What people write, in files and as options, by the engine's key for it.
_WRITTEN: Final = {
    "total_timeout_ns": "timeout",
    "connect_timeout_ns": "connect_timeout",
    "first_byte_timeout_ns": "first_byte_timeout",
}
_ENGINE_KEY: Final = re.compile(rf"\b(?:{'|'.join(_WRITTEN)})\b")


@dataclass(frozen=True)
class ClosedLoop:
    """Clients that each wait for an answer, think, and send again; times in nanoseconds."""

    clients: int
    think_ns: int = 0
    duration_ns: int | None = None
    requests: int | None = None
    together: bool = False
    one_replica: bool = False
    think_max_ns: int | None = None

    @classmethod
    def of(cls, closed: Closed) -> ClosedLoop:
        """Convert the loop of a form."""
        return cls(
            closed.clients,
            closed.think.min,
            closed.duration,
            closed.requests,
            closed.together,
            closed.one_replica,
            closed.think.most_ns,
        )

    def engine(self) -> dict[str, Any]:
        """Convert to the engine's configuration."""
        config: dict[str, Any] = {
            "clients": self.clients,
            "think_ns": self.think_ns,
            "duration_ns": _FOREVER_NS if self.duration_ns is None else self.duration_ns,
            "requests": self.requests,
        }
        if self.together:
            config["together"] = True
        if self.one_replica:
            config["one_replica"] = True
        if self.think_max_ns is not None:
            config["think_max_ns"] = self.think_max_ns
        return config


@dataclass(frozen=True)
class Stream:
    """The requests of one function.

    Attributes:
        function: the function's name in the table.
        targets: names and addresses of its replicas, visited in turn.
        arrivals: when requests are sent, or None for a closed loop.
        closed: the closed loop, or None.
        after: indexes of earlier streams of the load, whose answers release requests of this one:
            a later stage of a chain. Exactly one of ``arrivals``, ``closed`` and this is given.
        after_failures: whether failed requests release them as well.
        think_ns: time from the last of these answers to the request.
        think_max_ns: if given, the time is drawn at random between the two.
        stage: the stage of a chain, for the rows.
        method: the HTTP method; None: POST with a body, else GET.
        headers: sent with every request.
        query: added to the URL, value templates by name.
        body: bytes, a body in the engine's form, or None.
        fields: name in templates -> value to draw for each request, in the engine's form.
        http_version: ``1.1``, ``2`` or ``auto``.
        unix_socket: connect to this instead of the URL's host.
        sign: how requests are signed, with credentials; never shown.
        label: the random stream of the seed to draw from (default: ``function``); streams with the
            same label and seed have the same schedule.
        start_ns: time after the start of the load.
        invocation_header: the header that carries the invocation's id, or None to send none.
        allocated_memory: of an instance in bytes, for the rows whose answers do not say it.
        allocated_cpu: the same in micro-vCPU.
        execution: ``response``: the response time stands for an execution that no answer says.
        hints: what requests say of those to come, in the engine's form.
    """

    function: str
    targets: Sequence[tuple[str, str]]
    arrivals: ArrivalProcess | None = None
    closed: ClosedLoop | None = None
    method: str | None = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | Mapping[str, Any] | None = field(default=None, repr=False)
    fields: Mapping[str, Any] = field(default_factory=dict)
    http_version: str = "1.1"
    unix_socket: str | None = None
    sign: Mapping[str, Any] | None = field(default=None, repr=False)
    label: str | None = None
    start_ns: int = 0
    invocation_header: str | None = INVOCATION_HEADER
    stage: str | None = None
    after: Sequence[int] = ()
    after_failures: bool = False
    think_ns: int = 0
    think_max_ns: int | None = None
    allocated_memory: int | None = None
    allocated_cpu: int | None = None
    execution: str | None = None
    hints: Mapping[str, Any] | None = None

    def engine(self) -> dict[str, Any]:
        """Convert to the engine's configuration."""
        targets = [{"function": name, "url": url} for name, url in self.targets]
        if self.unix_socket is not None:
            for target in targets:
                target["unix_socket"] = self.unix_socket
        config: dict[str, Any] = {
            "function": self.function,
            "label": self.label or self.function,
            "targets": targets,
            "headers": dict(self.headers),
            "body": _body(self.body),
            "invocation_header": self.invocation_header,
            "start_ns": self.start_ns,
        }
        if self.method is not None:
            config["method"] = self.method
        if self.arrivals is not None:
            config["arrivals"] = self.arrivals.engine()
        if self.closed is not None:
            config["closed"] = self.closed.engine()
        if self.after:
            config["after"] = {"streams": list(self.after), "think_ns": self.think_ns}
            if self.after_failures:
                config["after"]["after_failures"] = True
            if self.think_max_ns is not None:
                config["after"]["think_max_ns"] = self.think_max_ns
        if self.stage is not None:
            config["stage"] = self.stage
        if self.query:
            config["query"] = dict(self.query)
        if self.fields:
            config["fields"] = dict(self.fields)
        if self.http_version != "1.1":
            config["http_version"] = self.http_version
        if self.sign is not None:
            config["sign"] = dict(self.sign)
        if self.hints is not None:
            config["hints"] = dict(self.hints)
        for key in ("allocated_memory", "allocated_cpu", "execution"):
            if getattr(self, key) is not None:
                config[key] = getattr(self, key)
        return config


@dataclass(frozen=True)
class Share:
    """The part of a schedule that a process sends: requests with number mod ``of`` == ``index``."""

    index: int = 0
    of: int = 1

    def split(self, parts: int) -> list[Share]:
        """Divide this share into parts that add up to it."""
        return [Share(self.index + self.of * part, self.of * parts) for part in range(parts)]

    def engine(self) -> dict[str, int]:
        """Convert to the engine's configuration."""
        return {"index": self.index, "of": self.of}


@dataclass(frozen=True)
class StopRules:
    """Conditions that end a load early; None leaves a rule out."""

    error_budget: float | None = None
    lag_p99_ns: int | None = None
    slowdown: float | None = None

    def engine(self) -> dict[str, Any]:
        """Convert to the engine's configuration."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Load:
    """A load: streams that run at the same time, and the file of the rows; times in nanoseconds.

    Attributes:
        connections: ``reuse``, ``fresh`` or the number of connections opened beforehand.
        start_unix_ns: when the schedule starts; None: as soon as the generator is ready.
        share: the part of the schedule that this process sends.
        rtt_probes: TCP connects to each endpoint before and after the load.
    """

    run: str
    experiment: str | None
    platform: str | None
    streams: Sequence[Stream]
    seed: int
    out: Path
    spans_out: Path | None = None
    epoch_unix_ns: int | None = None
    start_unix_ns: int | None = None
    connect_timeout_ns: int = DEFAULT_CONNECT_TIMEOUT_NS
    total_timeout_ns: int = DEFAULT_TIMEOUT_NS
    first_byte_timeout_ns: int | None = None
    max_connections: int | None = None
    connections: str | int = "reuse"
    ca_file: str | None = None
    insecure: bool = False
    stop_rules: StopRules = field(default_factory=StopRules)
    rtt_probes: int = 0
    share: Share = field(default_factory=Share)
    invocation_prefix: str | None = None
    drain_timeout_ns: int = DEFAULT_DRAIN_TIMEOUT_NS
    dry_run: bool = False
    # Real-time priority of the sending thread, which keeps send times exact on a busy machine; only
    # root may set it.
    realtime: bool = field(default_factory=lambda: hasattr(os, "geteuid") and os.geteuid() == 0)

    def engine(self) -> dict[str, Any]:
        """Make the configuration of ``uncia-engine load``."""
        return {
            "run": self.run,
            "experiment": self.experiment,
            "platform": self.platform,
            "out": str(self.out),
            "spans_out": None if self.spans_out is None else str(self.spans_out),
            "epoch_unix_ns": self.epoch_unix_ns,
            "start_unix_ns": self.start_unix_ns,
            "seed": self.seed,
            "dry_run": self.dry_run,
            "realtime": self.realtime,
            "connect_timeout_ns": self.connect_timeout_ns,
            "total_timeout_ns": self.total_timeout_ns,
            "max_connections": self.max_connections,
            "drain_timeout_ns": self.drain_timeout_ns,
            "invocation_prefix": self.invocation_prefix,
            **self._optional(),
            "streams": [stream.engine() for stream in self.streams],
        }

    def _optional(self) -> dict[str, Any]:
        """Make the keys that differ from the engine's defaults."""
        config: dict[str, Any] = {}
        if self.first_byte_timeout_ns is not None:
            config["first_byte_timeout_ns"] = self.first_byte_timeout_ns
        if self.connections != "reuse":
            pool = isinstance(self.connections, int)
            config["connections"] = {"pool": self.connections} if pool else self.connections
        if self.ca_file is not None or self.insecure:
            config["tls"] = {"ca_file": self.ca_file, "insecure": self.insecure}
        if self.rtt_probes:
            config["rtt_probes"] = self.rtt_probes
        if self.share != Share():
            config["share"] = self.share.engine()
        if self.stop_rules != StopRules():
            config["stop_rules"] = self.stop_rules.engine()
        return config


def drive(
    load: Load,
    on_event: Callable[[engine.Event], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> engine.Event:
    """Send a load, and return the engine's last event, with its counts.

    Args:
        load: what to send.
        on_event: gets every progress event.
        on_start: gets the engine's process number as soon as it runs.

    Raises:
        UnciaError: the engine refused the configuration, or failed.
        KeyboardInterrupt: it was interrupted; the rows so far are in ``load.out``.
    """

    def pass_on(event: engine.Event) -> None:
        if on_event is not None:
            on_event(as_written(event))

    try:
        return engine.run(
            ["load", "--config", "-"], load.engine(), on_event=pass_on, on_start=on_start
        )
    except UnciaError as error:
        raise UnciaError(
            _name_keys(error.message), hint=error.hint, exit_code=error.exit_code
        ) from error


def as_written(event: engine.Event) -> engine.Event:
    """An event whose message names keys as people write them."""
    if "message" not in event:
        return event
    return {**event, "message": _name_keys(str(event["message"]))}


def _name_keys(message: str) -> str:
    """Put the keys of files, which are the names of options too, for the engine's in a sentence."""
    return _ENGINE_KEY.sub(lambda key: _WRITTEN[key.group()], message)


def _body(body: bytes | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if body is None:
        return None
    if isinstance(body, Mapping):
        return dict(body)
    try:
        return {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}
