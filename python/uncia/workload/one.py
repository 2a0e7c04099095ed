"""Load on a single URL: ``uncia.load(...)`` and the command ``uncia load``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.errors import UnciaError
from uncia.units import parse_duration
from uncia.workload.arrivals import ArrivalProcess, Arrivals
from uncia.workload.client import Load, Stream, drive

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "load"
_STREAM: Final = ".arrows"
_PARQUET: Final = ".parquet"


@dataclass(frozen=True)
class Measured:
    """The rows of a load, and whether it was cut short by an interruption."""

    rows: pa.Table
    interrupted: bool


def load(
    url: str,
    *,
    rate: str | None = None,
    duration: str | None = None,
    arrivals: str = "constant",
    sizes: Sequence[int] | None = None,
    interval: str | None = None,
    bursts: int | None = None,
    seed: int = 1,
    method: str | None = None,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: str = "60s",
    connect_timeout: str = "5s",
    max_connections: int | None = None,
    out: Path | str | None = None,
    dry_run: bool = False,
) -> pa.Table:
    """Send requests to a URL at times fixed beforehand, and return a row for each.

    >>> rows = uncia.load("http://127.0.0.1:8080/", rate="100/s", duration="10s")
    >>> rows = uncia.load(url, arrivals="burst", sizes=[1, 10, 50], interval="2s", bursts=6)

    Args:
        url: ``http://...``.
        rate, duration: of constant and Poisson arrivals, with units (``"6/min"``, ``"10s"``).
        arrivals: ``constant``, ``poisson`` or ``burst``.
        sizes, interval, bursts: of bursts: sizes taken in turn, the time between them, how many.
        seed: the same seed gives the same schedule on every machine.
        method: GET without a body, POST with one, unless said otherwise.
        body: sent with every request.
        headers: sent with every request.
        timeout, connect_timeout: with units.
        max_connections: connections open at once; None: as many as it takes.
        out: where the rows go as well, ``*.parquet`` or ``*.arrows``.
        dry_run: send nothing and return the schedule.

    Returns:
        The invocation table, times in nanoseconds since the schedule's start; of a dry run
        ``function``, ``target``, ``invocation``, ``scheduled`` and ``burst``.

    Raises:
        UnciaError: an argument is wrong, or the engine failed.
        KeyboardInterrupt: it was interrupted; with ``out`` the rows so far are there.
    """
    given = {
        "kind": arrivals,
        "rate": rate,
        "duration": duration,
        "sizes": None if sizes is None else list(sizes),
        "interval": interval,
        "bursts": bursts,
    }
    measured = measure(
        url,
        process({key: value for key, value in given.items() if value is not None}),
        seed=seed,
        method=method,
        body=body.encode() if isinstance(body, str) else body,
        headers=headers,
        timeout=timeout,
        connect_timeout=connect_timeout,
        max_connections=max_connections,
        out=None if out is None else Path(out),
        dry_run=dry_run,
    )
    if measured.interrupted:
        raise KeyboardInterrupt
    return measured.rows


def process(given: Mapping[str, Any]) -> ArrivalProcess:
    """The arrival process of options such as ``{"kind": "poisson", "rate": "100/s", ...}``.

    :raises UnciaError: one is missing, unknown for this kind, or has no or a wrong unit.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[ArrivalProcess] = TypeAdapter(Arrivals)
    try:
        return adapter.validate_python(dict(given))
    except ValidationError as error:
        sentences = [_sentence(str(given.get("kind")), detail) for detail in error.errors()]
        raise UnciaError("\n".join(sentences)) from error


def measure(
    url: str,
    arrivals: ArrivalProcess,
    *,
    seed: int = 1,
    method: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: str = "60s",
    connect_timeout: str = "5s",
    max_connections: int | None = None,
    out: Path | None = None,
    dry_run: bool = False,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Measured:
    """Send the requests of one arrival process; an interruption keeps the rows so far.

    :raises UnciaError: an argument is wrong, or the engine failed.
    """
    import pyarrow.parquet as pq

    from uncia import record

    if out is not None and out.suffix not in (_STREAM, _PARQUET):
        raise UnciaError(f"{out}: rows are written as *.parquet or *.arrows")
    if out is not None and not out.resolve().parent.is_dir():
        raise UnciaError(f"there is no folder {out.parent}")
    with ExitStack() as stack:
        if out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncia-load-"))
            stream = Path(folder) / f"rows{_STREAM}"
        else:
            stream = out.with_suffix(_STREAM)
        sent = Load(
            run=NAME,
            experiment=NAME,
            platform="http",
            streams=[
                Stream(
                    function=NAME,
                    targets=[(NAME, url)],
                    arrivals=arrivals,
                    method=method or ("GET" if body is None else "POST"),
                    headers=dict(headers or {}),
                    body=body,
                )
            ],
            seed=seed,
            out=stream,
            connect_timeout_ns=_duration("connect timeout", connect_timeout),
            total_timeout_ns=_duration("timeout", timeout),
            max_connections=max_connections,
            dry_run=dry_run,
        )
        interrupted = False
        try:
            drive(sent, on_event)
        except KeyboardInterrupt:
            interrupted = True
        rows = _schedule(stream) if dry_run else record.read(stream, "invocations")
        if out is not None and out.suffix == _PARQUET:
            if dry_run:
                pq.write_table(rows, out)
            else:
                record.write(rows, out, "invocations")
            stream.unlink()
    return Measured(rows, interrupted)


def _schedule(stream: Path) -> pa.Table:
    """What a dry run wrote: function, target, invocation, scheduled (ns), burst."""
    import pyarrow as pa

    with pa.OSFile(str(stream), "rb") as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def _duration(what: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UnciaError(f"{what}: {error}") from error


def _sentence(kind: str, detail: Mapping[str, Any]) -> str:
    """A pydantic error about an arrival process as a sentence."""
    where = ".".join(str(part) for part in detail["loc"] if part != kind)
    match detail["type"]:
        case "union_tag_invalid":
            allowed = detail["ctx"]["expected_tags"]
            return f"arrivals: {kind!r} is not known (allowed: {allowed})"
        case "missing":
            return f"{kind} arrivals need a {where}"
        case "extra_forbidden":
            return f"{kind} arrivals have no {where}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
