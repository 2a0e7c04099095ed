"""Entries of Google Cloud Logging that describe a request, and descriptions of services.

| entry | source |
|---|---|
| of the log ``run.googleapis.com/requests``, with ``httpRequest`` | Cloud Run, and functions of the second generation |
| ``Function execution took 12 ms, finished with status code: 200`` | functions of the first generation, at the end |
| ``Function execution started`` | the same, at the start |
| a Knative ``Service`` or ``Revision`` with ``resources.limits`` | `gcloud run services describe --format=json` |
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeGuard
from urllib.parse import unquote

from uncia.traces import log_values
from uncia.traces.aws_report import Unreadable
from uncia.units import MICRO_PER_VCPU, NS_PER_MS, NS_PER_S

REQUEST: Final = 0
STARTED: Final = 1
TOOK: Final = 2

_REQUEST_LOG: Final = "run.googleapis.com/requests"
_TOOK: Final = re.compile(
    r"Function execution took (\S+) ms[,.] [Ff]inished with status(?: code)?: '?([^']+?)'?\.?"
)
_BEGAN: Final = "Function execution started"
_TRACE: Final = re.compile(r"(?:projects/[^/]+/traces/)?([!-~]+?)(?:/\d+)?(?:;o=\d)?")
_CPU: Final = re.compile(r"([0-9.]+)(m?)")
_SIZE: Final = re.compile(r"([0-9.]+)(k|Ki|M|Mi|G|Gi|)")
_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
}
# Members of Cloud Logging's `LogEntry`, one of which every entry has.
_OF_ENTRIES: Final = frozenset(
    ("httpRequest", "insertId", "jsonPayload", "logName", "protoPayload", "resource", "textPayload")
)
_MAX_SIZE: Final = 1 << 50
_LATENCY: Final = "seconds such as 0.123456s"
_GATEWAY_TIMEOUT: Final = 504


@dataclass
class Entry:
    """What an entry says about a request; times in ns, None where it is silent."""

    kind: int
    function: str
    revision: str | None
    location: str | None
    instance: str | None
    invocation: str
    request: str | None
    key: str | None
    time: int
    duration: int | None = None
    status: int | None = None
    outcome: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Size:
    """What a service or revision is allocated: micro-vCPU, bytes, requests at a time.

    CPU and memory are those of all its containers together, as Cloud Run bills them.
    """

    name: str
    location: str | None
    cpu: int | None
    memory: int | None
    concurrency: int | None


def known(record: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a record is an entry of any of Google's logs, or describes something of Knative's."""
    return isinstance(record, dict) and (
        not _OF_ENTRIES.isdisjoint(record) or ("kind" in record and "metadata" in record)
    )


def entry(record: dict[str, Any]) -> Entry | None:
    """Parse an entry; None if it is of another log.

    Raises:
        Unreadable: it is of a request, and a part of it is missing or wrong.
    """
    log = unquote(str(record.get("logName", "")))
    text = record.get("textPayload")
    if log.endswith(_REQUEST_LOG) or (not log and isinstance(record.get("httpRequest"), dict)):
        entry = _around(record, REQUEST, "service_name")
        _request(entry, record.get("httpRequest"))
        return entry
    if not isinstance(text, str):
        return None
    if text.startswith("Function execution took"):
        entry = _around(record, TOOK, "function_name")
        _took(entry, text)
        return entry
    if text.startswith(_BEGAN):
        return _around(record, STARTED, "function_name")
    return None


def sizes(record: dict[str, Any]) -> Iterator[Size]:
    """What a description of a service or revision says of its allocation."""
    metadata, spec = _object(record.get("metadata")), _object(record.get("spec"))
    if record.get("kind") == "Service":
        spec = _object(_object(spec.get("template")).get("spec"))
    elif record.get("kind") != "Revision":
        return
    name = log_values.name(metadata.get("name"))
    containers = spec.get("containers")
    if name is None or not isinstance(containers, list) or not containers:
        return
    limits = [
        _object(_object(_object(container).get("resources")).get("limits"))
        for container in containers
    ]
    labels = _object(metadata.get("labels"))
    cpu_units = {"": MICRO_PER_VCPU, "m": MICRO_PER_VCPU // 1000}
    concurrency = spec.get("containerConcurrency")
    yield Size(
        name,
        log_values.name(labels.get("cloud.googleapis.com/location")),
        _sum(_scaled(_CPU, limit.get("cpu"), cpu_units) for limit in limits),
        _sum(_scaled(_SIZE, limit.get("memory"), _UNITS) for limit in limits),
        concurrency if isinstance(concurrency, int) else None,
    )


def _around(record: dict[str, Any], kind: int, named: str) -> Entry:
    """What every entry says: of which function, when, where."""
    resource = _object(_object(record.get("resource")).get("labels"))
    labels = _object(record.get("labels"))
    function = log_values.name(resource.get(named) or resource.get("service_name"))
    if function is None:
        raise Unreadable(f"resource.labels.{named}", resource.get(named) or "", "a name")
    time = log_values.unix_ns(record.get("timestamp"))
    if time is None:
        expected = "a time such as 2025-05-12T20:24:06.154Z"
        raise Unreadable("timestamp", record.get("timestamp", ""), expected)
    request = labels.get("execution_id") or _trace(record.get("trace"))
    key = log_values.name(record.get("insertId"))
    invocation = labels.get("execution_id") or key or request
    if log_values.name(invocation) is None:
        raise Unreadable("insertId", "" if invocation is None else invocation, "an identifier")
    return Entry(
        kind,
        function,
        log_values.name(resource.get("revision_name")),
        log_values.name(resource.get("location") or resource.get("region")),
        log_values.name(labels.get("instanceId") or labels.get("instance_id")),
        str(invocation),
        log_values.name(request),
        key,
        time,
    )


def _request(entry: Entry, request: Any) -> None:
    if not isinstance(request, dict):
        raise Unreadable("httpRequest", "" if request is None else request, "an object")
    entry.duration = _latency(request.get("latency"))
    status = log_values.quantity(request.get("status"), 1)
    if status is None or not 100 <= status <= 599:
        raise Unreadable("httpRequest.status", request.get("status", ""), "an HTTP status")
    _judge(entry, status)


def _took(entry: Entry, text: str) -> None:
    match = _TOOK.fullmatch(text.strip())
    if match is None:
        raise Unreadable("textPayload", text, "Function execution took N ms, finished with ...")
    entry.duration = log_values.quantity(match.group(1), NS_PER_MS)
    if entry.duration is None:
        raise Unreadable("textPayload", match.group(1), "milliseconds, 0 or more")
    status = match.group(2)
    if re.fullmatch(r"[1-5]\d\d", status):
        _judge(entry, int(status))
        return
    outcomes = {"ok": "ok", "timeout": "timeout"}
    entry.outcome = outcomes.get(status, "function_error")
    entry.error = None if entry.outcome == "ok" else log_values.text(status)


def _judge(entry: Entry, status: int) -> None:
    """The outcome of what ran by HTTP status, as Uncia's own client judges it; 504 is a timeout."""
    entry.status = status
    if status == _GATEWAY_TIMEOUT:
        entry.outcome = "timeout"
    elif status >= 500:
        entry.outcome = "function_error"
    else:
        entry.outcome = "ok" if status < 400 else "transport_error"
    entry.error = None if entry.outcome == "ok" else f"HTTP {status}"


def _latency(value: Any) -> int:
    """A duration as JSON has it, ``0.5s``, or as exports to tables do, seconds and nanos."""
    if isinstance(value, dict):
        parts = [log_values.quantity(value.get(name, 0), 1) for name in ("seconds", "nanos")]
        seconds, nanos = parts
        if seconds is not None and nanos is not None and nanos < NS_PER_S:
            return seconds * NS_PER_S + nanos
    elif isinstance(value, str) and value.endswith("s"):
        number = log_values.quantity(value[:-1], NS_PER_S)
        if number is not None:
            return number
    raise Unreadable("httpRequest.latency", "" if value is None else value, _LATENCY)


def _trace(value: Any) -> str | None:
    """The trace's identifier, of ``projects/P/traces/ID``, sampled (``ID/1;o=1``) or not."""
    match = _TRACE.fullmatch(value) if isinstance(value, str) else None
    return match.group(1) if match else None


def _scaled(pattern: re.Pattern[str], value: Any, units: dict[str, int]) -> int | None:
    text = str(value) if isinstance(value, str | int | Decimal) else ""
    match = pattern.fullmatch(text)
    if match is None:
        return None
    number = log_values.quantity(match.group(1), units[match.group(2)])
    return number if number is not None and 0 < number < _MAX_SIZE else None


def _sum(parts: Iterable[int | None]) -> int | None:
    """The sum; None if a part is, or if it is absurd."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total if total < _MAX_SIZE else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
