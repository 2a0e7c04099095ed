"""Sends a prepared load by one or several processes, into one table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.errors import UnciaError
from uncia.units import NS_PER_MS, NS_PER_S
from uncia.workload import collect, fleet
from uncia.workload.client import Load, Share
from uncia.workload.fleet import Ended
from uncia.workload.resolve import Prepared

if TYPE_CHECKING:
    from uncia.interrupt import Interruption

MAX_PROCESSES: Final = 1_000

# Time that a process needs before its first request: to start and read its configuration, to count
# its schedule, to connect. Lateness is reported, so the figures need not be right everywhere.
_LEAD_NS: Final = NS_PER_S
_LEAD_PER_PROCESS_NS: Final = 250 * NS_PER_MS
_LEAD_PER_REQUEST_NS: Final = 500
_LEAD_PER_CONNECTION_NS: Final = NS_PER_MS
_LEAD_PER_PROBE_NS: Final = 100 * NS_PER_MS


@dataclass(frozen=True)
class SendSettings:
    """How a load is sent.

    Attributes:
        processes: generator processes on this machine.
        share: the part of the load that this machine sends.
        start_unix_ns: when the schedule starts, the same on every machine; None: soon.
        realtime: real-time priority of the sending threads; None: if it is allowed (root).
    """

    processes: int = 1
    share: Share = field(default_factory=Share)
    start_unix_ns: int | None = None
    realtime: bool | None = None

    def check(self) -> None:
        """Raise `UnciaError` if a value is out of range."""
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise UnciaError(f"processes: {self.processes} is not from 1 to {MAX_PROCESSES:,}")
        if not 0 <= self.share.index < self.share.of:
            raise UnciaError(
                f"share: {self.share.index + 1}/{self.share.of} is not one of 1/{self.share.of} to"
                f" {self.share.of}/{self.share.of}"
            )


def check_out(out: Path) -> None:
    """Check that rows can be written to a file.

    Raises:
        UnciaError: the suffix is unknown, the folder is missing, or the file exists.
    """
    if out.suffix not in (collect.STREAM, collect.PARQUET):
        raise UnciaError(f"{out}: rows are written as *.parquet or *.arrows")
    if not out.resolve().parent.is_dir():
        raise UnciaError(f"there is no folder {out.parent}")
    if out.exists():
        raise UnciaError(f"{out} exists already", hint="Remove it, or name another file.")


def send(
    prepared: Prepared,
    how: SendSettings,
    out: Path,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    interruption: Interruption | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Ended:
    """Send a load and write its rows, or the schedule of a dry run, to ``out``.

    Meanwhile, the rows are next to ``out`` in ``NAME.arrows``, or ``NAME.1-of-3.arrows`` and so on
    with several processes; if this process is killed, they remain there.

    Args:
        prepared: the load.
        how: processes, start, and part of the load.
        out: ``*.parquet`` or ``*.arrows``.
        on_event: gets the generator's events, combined over processes.
        interruption: deferred while the rows are merged.
        on_start: gets the number of each generator process as soon as it runs.

    Returns:
        How it ended; the rows are written in any case.

    Raises:
        UnciaError: an argument is wrong, or the rows cannot be written.
    """
    how.check()
    check_out(out)
    files = _files(out, how.processes)
    loads = split(prepared.load, how)
    if how.realtime is not None:
        loads = [replace(load, realtime=how.realtime) for load in loads]
    start = how.start_unix_ns
    if start is not None and start <= time.time_ns() and not prepared.load.dry_run:
        raise UnciaError(
            f"the start time has passed {(time.time_ns() - start) / 1e9:,.1f} s ago",
            hint="Give the machines a start time far enough ahead to log in to all of them.",
        )
    if start is None and how.processes > 1:
        start = time.time_ns() + _lead_ns(prepared, how)
    loads = [
        replace(load, out=file, start_unix_ns=start, epoch_unix_ns=load.epoch_unix_ns or start)
        for load, file in zip(loads, files, strict=True)
    ]
    for note in prepared.notes:
        if on_event is not None:
            on_event({"event": "warning", "message": note})
    ended = fleet.run(loads, on_event, on_start)
    ended.warnings[:0] = prepared.notes
    with nullcontext() if interruption is None else interruption.held():
        _collect(files, out)
    return ended


def split(load: Load, how: SendSettings) -> list[Load]:
    """Divide this machine's share of ``load`` among its processes.

    The generator distributes requests by number, and the clients of a closed loop. Limits on
    connections are divided here, so that they hold for all processes together.

    Raises:
        UnciaError: there are fewer connections than processes.
    """
    shares = how.share.split(how.processes)
    if shares[0].of == 1:
        return [load]
    limit, pool = load.max_connections, load.connections
    return [
        replace(
            load,
            share=share,
            max_connections=None if limit is None else _divide("max connections", limit, share),
            connections=pool
            if isinstance(pool, str)
            else _divide("pooled connections", pool, share),
            # One process measures for all.
            rtt_probes=load.rtt_probes if number == 0 else 0,
        )
        for number, share in enumerate(shares)
    ]


def _divide(name: str, count: int, share: Share) -> int:
    """Compute the part of ``count`` for a share; the parts add up to it."""
    if count < share.of:
        raise UnciaError(f"{count:,} {name} cannot be divided among {share.of:,} processes")
    return count // share.of + (1 if share.index < count % share.of else 0)


def _files(out: Path, processes: int) -> list[Path]:
    if processes == 1:
        return [out.with_suffix(collect.STREAM)]
    files = [
        out.with_name(f"{out.stem}.{number}-of-{processes}{collect.STREAM}")
        for number in range(1, processes + 1)
    ]
    leftover = next((file for file in files if file.exists()), None)
    if leftover is not None:
        raise UnciaError(
            f"{leftover} exists: an earlier load ended before its rows were merged",
            hint="`uncia recover` makes Parquet of it; or remove it.",
        )
    return files


def _lead_ns(prepared: Prepared, how: SendSettings) -> int:
    load = prepared.load
    crowd = -(-how.processes // (os.cpu_count() or 1))
    addresses = {url for stream in load.streams for _, url in stream.targets}
    pool = load.connections if isinstance(load.connections, int) else 0
    return (
        _LEAD_NS
        + _LEAD_PER_PROCESS_NS * how.processes
        + _LEAD_PER_REQUEST_NS * prepared.expected * crowd
        + _LEAD_PER_CONNECTION_NS * pool * len(addresses)
        + _LEAD_PER_PROBE_NS * load.rtt_probes
    )


def _collect(files: list[Path], out: Path) -> None:
    """Merge the files of the processes into ``out``; a process that never started has none."""
    if files == [out]:
        return
    parts = [file for file in files if file.exists() and collect.readable(file)]
    if parts:
        collect.merge(parts, out)
