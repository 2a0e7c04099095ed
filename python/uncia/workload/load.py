"""`load`: sends load to a URL or by a workload file, for ``uncia.load(...)`` and ``uncia load``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncia.errors import RunFailedError
from uncia.workload import options
from uncia.workload.client import Share
from uncia.workload.options import process
from uncia.workload.resolve import Prepared, prepare
from uncia.workload.send import SendSettings, send

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load", "process", "send_and_read"]


def load(
    target: str | Path | Mapping[str, Any],
    *,
    rate: str | None = None,
    duration: str | None = None,
    arrivals: str | Mapping[str, Any] | None = None,
    closed: int | None = None,
    think: str | None = None,
    requests: int | None = None,
    seed: int | None = None,
    method: str | None = None,
    body: bytes | str | None = None,
    random_body: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    http: str | None = None,
    unix_socket: str | None = None,
    insecure: bool = False,
    ca_file: str | Path | None = None,
    sign_aws: str | None = None,
    connections: str | None = None,
    max_connections: int | None = None,
    timeout: str | None = None,
    connect_timeout: str | None = None,
    first_byte_timeout: str | None = None,
    memory: str | None = None,
    vcpu: float | str | None = None,
    execution: str | None = None,
    error_budget: str | None = None,
    max_lag: str | None = None,
    max_slowdown: float | None = None,
    rtt_probes: int | None = None,
    processes: int = 1,
    share: str | None = None,
    start_at: str | datetime | None = None,
    realtime: bool | None = None,
    out: Path | str | None = None,
    dry_run: bool = False,
    **parameters: Any,
) -> pa.Table:
    """Send requests at times fixed beforehand, and return a row for each.

    >>> rows = uncia.load("http://127.0.0.1:8080/", rate="100/s", duration="10s")
    >>> rows = uncia.load(url, arrivals="burst", sizes=[1, 10, 50], interval="2s", bursts=6)
    >>> rows = uncia.load("mix.yaml", processes=2)

    Args:
        target: a URL; a workload file (a path, or text that ends in .yaml or .yml); or the content
            of one as a mapping. The arguments down to ``execution`` are for a URL; in a
            workload they are keys.
        rate, duration: of most arrivals, with units (``"6/min"``, ``"10s"``).
        arrivals: the kind of arrival process (default ``constant``), or the process as a mapping.
        parameters: other keys of the arrivals, such as ``sizes``, ``interval``, ``cv``.
        closed, think, requests: a closed loop instead: the number of clients, each of which waits
            for its answer and thinks before it sends again, until ``duration`` or ``requests``.
        seed: the same seed gives the same requests on every machine (default 1).
        method: by default GET without a body, POST with one.
        body: sent with every request; ``random_body="64KB"`` instead sends incompressible bytes.
        headers, query: sent with every request.
        http: ``"1.1"`` (default), ``"2"`` or ``"auto"``.
        unix_socket: connect to this socket instead of the URL's host.
        insecure, ca_file: accept any certificate; trust these instead of the system's.
        sign_aws: ``"region/service"``: sign with AWS SigV4 and the credentials of the environment.
        connections: ``"reuse"`` (default), ``"fresh"`` or ``"pool:N"``.
        max_connections: the maximum number of open connections; None: no limit.
        timeout, connect_timeout, first_byte_timeout: with units.
        memory, vcpu: what an instance is allocated (``"512MB"``, ``0.5``), for bills, where answers
            do not say it.
        execution: ``"response"``: where no answer says how long the function ran, its response time
            counts, network included, so that bills are upper bounds.
        error_budget, max_lag, max_slowdown: stop when more than this share of requests failed
            (``"5%"``), the generator's lag (p99) is above this (``"1ms"``), or latency has grown by
            this factor.
        rtt_probes: TCP connects before and after, which measure the network's round-trip time.
        processes: generator processes on this machine.
        share: ``"2/3"``: of three machines this is the second, and sends a third of the requests.
        start_at: when the schedule starts, as RFC 3339 text or a datetime with a time zone.
        realtime: real-time priority for sending (None: where it is allowed).
        out: a file to write the rows to as well, ``*.parquet`` or ``*.arrows``.
        dry_run: send nothing and return the schedule.

    Returns:
        The invocation table by scheduled time, in nanoseconds since the schedule's start; of a dry
        run ``function``, ``target``, ``invocation``, ``scheduled`` and ``burst``. Failed requests
        are rows with another ``outcome``, not an exception.

    Raises:
        UnciaError: an argument is wrong, the generator failed, or a stop rule ended the load; the
            rows so far are in ``out``.
        KeyboardInterrupt: it was interrupted; the rows so far are in ``out``.
    """
    values = {
        "arrivals": arrivals,
        "rate": rate,
        "duration": duration,
        "set": parameters or None,
        "closed": closed,
        "think": think,
        "requests": requests,
        "method": method,
        "body": body,
        "random_body": random_body,
        "headers": headers,
        "query": query,
        "http": http,
        "unix_socket": unix_socket,
        "insecure": insecure or None,
        "ca_file": ca_file,
        "sign_aws": sign_aws,
        "connections": connections,
        "max_connections": max_connections,
        "timeout": timeout,
        "connect_timeout": connect_timeout,
        "first_byte_timeout": first_byte_timeout,
        "memory": memory,
        "vcpu": vcpu,
        "execution": execution,
    }
    overrides = {
        "seed": seed,
        "rtt_probes": rtt_probes,
        "error_budget": error_budget,
        "max_lag": max_lag,
        "max_slowdown": max_slowdown,
    }
    prepared = plan(target, values, overrides, dry_run=dry_run)
    settings = machines(processes, share, start_at, realtime=realtime)
    return send_and_read(prepared, settings, None if out is None else Path(out))


def plan(
    target: str | Path | Mapping[str, Any],
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    dry_run: bool,
) -> Prepared:
    """Prepare the load of a URL or a workload; options that are None were not given.

    Raises:
        UnciaError: an option or the workload is invalid.
    """
    workload, folder = options.read(
        target, {key: value for key, value in values.items() if value is not None}
    )
    return prepare(options.override(workload, **overrides), folder, dry_run=dry_run)


def machines(
    processes: int, share: str | None, start_at: str | datetime | None, *, realtime: bool | None
) -> SendSettings:
    """Make the settings of sending: processes, part of the schedule, start, priority.

    Raises:
        UnciaError: the share or the start is invalid.
    """
    return SendSettings(
        processes=processes,
        share=Share() if share is None else options.share(share),
        start_unix_ns=None if start_at is None else options.start(start_at),
        realtime=realtime,
    )


def send_and_read(prepared: Prepared, settings: SendSettings, out: Path | None) -> pa.Table:
    """Send a load and read its rows back; without ``out``, no file is kept.

    Raises:
        UnciaError: it failed or was stopped by a rule.
        KeyboardInterrupt: it was interrupted.
    """
    import pyarrow as pa

    from uncia import record
    from uncia.record import parquet
    from uncia.workload.collect import PARQUET

    with tempfile.TemporaryDirectory(prefix="uncia-load-") as folder:
        file = Path(folder) / f"rows{PARQUET}" if out is None else out
        ended = send(prepared, settings, file)
        if ended.failure is not None:
            raise ended.failure
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.stopped is not None:
            raise RunFailedError(f"stopped: {ended.stopped['message']}")
        if not prepared.load.dry_run:
            return record.read(file)
        if file.suffix == PARQUET:
            return parquet.read_table(file)
        with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as reader:
            return reader.read_all()
