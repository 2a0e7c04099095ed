"""The load generator as Python sees it: a configuration in, rows out.

The work is done by ``uncia-engine load``: the schedule is fixed before the first request, sends are
never delayed by slow answers, and every request is a row, whatever became of it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from uncia import engine
from uncia.units import NS_PER_S
from uncia.workload.arrivals import ArrivalProcess

DEFAULT_CONNECT_TIMEOUT_NS: Final = 5 * NS_PER_S
DEFAULT_TIMEOUT_NS: Final = 60 * NS_PER_S
# After an interruption: answers on their way still become rows, and nobody waits long for them.
DEFAULT_DRAIN_TIMEOUT_NS: Final = 3 * NS_PER_S

# A platform that knows this header logs the invocation under the client's id, so the two can be
# joined.
INVOCATION_HEADER: Final = "x-uncia-invocation"


@dataclass(frozen=True)
class Stream:
    """One function's requests.

    Attributes:
        function: the function's name in the table.
        targets: names and addresses of its replicas, visited in turn.
        arrivals: when requests are sent.
        method: the HTTP method.
        headers: sent with every request.
        body: what is sent, or None.
        label: which random stream of the seed it draws from (default: ``function``); streams with
            the same label and seed have the same schedule.
        start_ns: after the start of the load.
        invocation_header: the header that carries the invocation's id, or None to send none.
    """

    function: str
    targets: Sequence[tuple[str, str]]
    arrivals: ArrivalProcess
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    label: str | None = None
    start_ns: int = 0
    invocation_header: str | None = INVOCATION_HEADER

    def engine(self) -> dict[str, Any]:
        """The stream as the engine takes it."""
        return {
            "function": self.function,
            "label": self.label or self.function,
            "targets": [{"function": name, "url": url} for name, url in self.targets],
            "method": self.method,
            "headers": dict(self.headers),
            "body": _body(self.body),
            "invocation_header": self.invocation_header,
            "arrivals": self.arrivals.engine(),
            "start_ns": self.start_ns,
        }


@dataclass(frozen=True)
class Load:
    """One load: streams that run at the same time, and where the rows go; times in nanoseconds."""

    run: str
    experiment: str | None
    platform: str | None
    streams: Sequence[Stream]
    seed: int
    out: Path
    spans_out: Path | None = None
    epoch_unix_ns: int | None = None
    connect_timeout_ns: int = DEFAULT_CONNECT_TIMEOUT_NS
    total_timeout_ns: int = DEFAULT_TIMEOUT_NS
    max_connections: int | None = None
    drain_timeout_ns: int = DEFAULT_DRAIN_TIMEOUT_NS
    dry_run: bool = False
    # Real-time priority for the sending thread, so that it is on time on a busy machine too;
    # allowed to root.
    realtime: bool = field(default_factory=lambda: os.geteuid() == 0)

    def engine(self) -> dict[str, Any]:
        """The configuration of ``uncia-engine load``."""
        return {
            "run": self.run,
            "experiment": self.experiment,
            "platform": self.platform,
            "out": str(self.out),
            "spans_out": None if self.spans_out is None else str(self.spans_out),
            # Parquet is made here, when the rows of all parts are together.
            "parquet": False,
            "epoch_unix_ns": self.epoch_unix_ns,
            "seed": self.seed,
            "dry_run": self.dry_run,
            "realtime": self.realtime,
            "connect_timeout_ns": self.connect_timeout_ns,
            "total_timeout_ns": self.total_timeout_ns,
            "max_connections": self.max_connections,
            "drain_timeout_ns": self.drain_timeout_ns,
            "streams": [stream.engine() for stream in self.streams],
        }


def drive(
    load: Load,
    on_event: Callable[[engine.Event], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> engine.Event:
    """Carry out a load; returns the engine's last event, with its counts.

    Args:
        load: what to send.
        on_event: gets every progress event.
        on_start: gets the engine's process number as soon as it runs.

    Raises:
        UnciaError: the engine refused the configuration, or failed.
        KeyboardInterrupt: it was interrupted; the rows so far are in ``load.out``.
    """
    return engine.run(
        ["load", "--config", "-"], load.engine(), on_event=on_event, on_start=on_start
    )


def _body(body: bytes | None) -> dict[str, str] | None:
    if body is None:
        return None
    try:
        return {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}
