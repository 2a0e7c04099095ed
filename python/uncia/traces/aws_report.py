"""Lambda's log lines about an invocation, as text and as JSON.

| text | JSON | says |
|---|---|---|
| ``START RequestId: ...`` | ``platform.start`` | the handler is given the request |
| ``END RequestId: ...`` | | it has ended |
| ``REPORT RequestId: ...`` | ``platform.report`` | durations, memory, status |
| ``... Task timed out ...``, ``... Process exited ...`` | | how it failed |
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from uncia.traces import cells, log_values
from uncia.traces.json_lines import decimal, integer
from uncia.units import MIB, NS_PER_MS

START: Final = 0
END: Final = 1
REPORT: Final = 2
FAULT: Final = 3

# The quantities of a report: name in text, in JSON, and in the fields that Logs Insights finds.
_MS: Final = (NS_PER_MS, "ms", "milliseconds, 0 or more")
_MB: Final = (MIB, "MB", "megabytes, 0 or more")
_FIELDS: Final = (
    ("duration", "Duration", "durationMs", *_MS),
    ("billed", "Billed Duration", "billedDurationMs", *_MS),
    ("memory", "Memory Size", "memorySizeMB", *_MB),
    ("peak", "Max Memory Used", "maxMemoryUsedMB", *_MB),
    ("init", "Init Duration", "initDurationMs", *_MS),
    ("restore", "Restore Duration", "restoreDurationMs", *_MS),
)
_MAX_MEMORY: Final = 1 << 40  # a hundred times what Lambda sells; its share fits in int64
_REQUIRED: Final = ("duration", "billed", "memory")
_IGNORED: Final = ("Billed Restore Duration", "Status", "Error Type")
_NAMES: Final = sorted([*(text for _, text, *_ in _FIELDS), *_IGNORED], key=len, reverse=True)
_NAMED: Final = re.compile(
    rf"(?:^|\s)({'|'.join(_NAMES)}): *(.*?)(?=\t|\s+(?:{'|'.join(_NAMES)}|XRAY TraceId): ?|\n|$)"
)
_LINE: Final = re.compile(r"(START|END|REPORT) RequestId: ?(\S*)\s?([^\x00]*)")
# A report without its request: a function's own line hardly goes on so.
_HEADLESS: Final = re.compile(r"REPORT\s[^\x00]*(?:Billed )?Duration: ")
_KINDS: Final = {"START": START, "END": END, "REPORT": REPORT}
_ID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TIMED_OUT: Final = re.compile(rf"({_ID}) (Task timed out after [0-9.]+ seconds)")
_EXITED: Final = re.compile(
    rf"RequestId: ({_ID}) ((?:Process exited|Error: Runtime exited)[^\r\n]*)"
)
_DONE: Final = ("", "success")


class Unreadable(Exception):
    """A line that should describe an invocation and does not.

    Attributes:
        column: which part of it is wrong.
        text: what stands there.
        expected: what should.
    """

    def __init__(self, column: str, text: object, expected: str) -> None:
        super().__init__(column, text, expected)
        self.column, self.text, self.expected = column, str(text), expected


@dataclass
class Line:
    """What a line says about an invocation: times in ns, memory in bytes, None for no value.

    Attributes:
        bad: what is wrong with a REPORT whose request is known. It ends that request's attempt all
            the same.
    """

    kind: int
    request: str
    time: int | None = None
    function: str | None = None
    figures: dict[str, int | None] = field(default_factory=dict)
    outcome: str | None = None
    error: str | None = None
    bad: Unreadable | None = None


def parse(message: str) -> Line | None:
    """Parse a message of the log; None if it is the function's own or of no interest.

    Raises:
        Unreadable: it begins as a line of Lambda's and is none, or names no request.
    """
    text = message.strip()
    if text.startswith("{"):
        return _parse_json(text) if '"platform.' in text else None
    match = _LINE.match(text)
    if match:
        kind, request, rest = match.groups()
        line = Line(_KINDS[kind], _request(request))
        if line.kind == REPORT:
            fields: dict[str, Any] = dict(reversed(_NAMED.findall(rest)))
            _report(line, {name: fields.get(text) for name, text, *_ in _FIELDS})
            _outcome(line, fields.get("Status") or "", fields.get("Error Type"))
        return line
    if _HEADLESS.match(text):
        raise Unreadable("RequestId", "", "an identifier")
    if (fault := _TIMED_OUT.search(text)) is not None:
        return Line(FAULT, fault.group(1), outcome="timeout", error=fault.group(2))
    if (fault := _EXITED.search(text)) is not None:
        error = log_values.text(fault.group(2))
        return Line(FAULT, fault.group(1), outcome="function_error", error=error)
    return None


def _parse_json(text: str) -> Line | None:
    try:
        event = json.loads(text, parse_float=decimal, parse_int=integer)
    except (ValueError, RecursionError):
        return None  # a message of the function's own that only looks like one
    return from_json(event)


def from_json(event: Any) -> Line | None:
    """Parse an event of Lambda's JSON format; None as for :func:`parse`.

    Raises:
        Unreadable: a ``platform.start`` or ``platform.report`` without request, time or metrics.
    """
    kind = {"platform.start": START, "platform.report": REPORT}.get(
        str(event.get("type")) if isinstance(event, dict) else ""
    )
    if kind is None:
        return None
    record = event.get("record")
    if not isinstance(record, dict):
        raise Unreadable("record", record, "an object")
    line = Line(kind, _request(record.get("requestId")))
    line.time = log_values.unix_ns(event.get("time"))
    if line.time is None:
        raise Unreadable("time", event.get("time"), "a time such as 2025-05-12T20:24:06.154Z")
    line.function = _function_of(record.get("functionArn"))
    if kind == REPORT:
        metrics = record.get("metrics")
        if not isinstance(metrics, dict):
            raise Unreadable("metrics", metrics, "an object")
        _report(line, {name: metrics.get(key) for name, _, key, *_ in _FIELDS})
        _outcome(line, str(record.get("status") or ""), record.get("errorType"))
    return line


def from_record(record: dict[str, Any]) -> Line:
    """A report whose parts are members of their own, named as in the text.

    ``Invocation Timestamp`` and ``Response Timestamp`` are the client's, Unix time in ns.

    Raises:
        Unreadable: it names no request.
    """
    line = Line(REPORT, _request(record.get("RequestId")))
    _report(line, {name: record.get(text) for name, text, *_ in _FIELDS})
    _outcome(line, str(record.get("Status") or ""), record.get("Error Type"))
    line.function = log_values.name(record.get("Function Name"))
    for name, key in (("sent", "Invocation Timestamp"), ("received", "Response Timestamp")):
        value = record.get(key)
        if value is None:
            continue
        line.figures[name] = log_values.quantity(value, 1)
        if line.figures[name] is None:
            line.bad = Unreadable(key, value, "a Unix time in ns")
    return line


def _request(text: Any) -> str:
    request = log_values.name(text)
    if request is None:
        raise Unreadable("RequestId", "" if text is None else text, "an identifier")
    return request


def _report(line: Line, values: dict[str, Any]) -> None:
    """Take the quantities of a report, exact from decimal text, or note which of them is bad."""
    try:
        line.figures = _figures(values)
    except Unreadable as bad:
        line.bad = bad


def _figures(values: dict[str, Any]) -> dict[str, int | None]:
    figures: dict[str, int | None] = {}
    for name, text, _, factor, unit, expected in _FIELDS:
        value = values[name]
        if value is None or value in cells.NO_DATA:
            if name in _REQUIRED:
                raise Unreadable(text, "", expected)
            figures[name] = None
            continue
        number = log_values.quantity(value, factor, unit)
        if number is None:
            raise Unreadable(text, value, expected)
        if name == "memory" and not 0 < number <= _MAX_MEMORY:
            raise Unreadable(text, value, f"megabytes, from 1 to {_MAX_MEMORY // MIB:,}")
        figures[name] = number
    return figures


def _outcome(line: Line, status: str, error: Any) -> None:
    status = status.strip()
    if status in _DONE:
        line.outcome = "ok"
        return
    line.outcome = "timeout" if status == "timeout" else "function_error"
    line.error = log_values.text(str(error).strip() if error else status)


def _function_of(arn: Any) -> str | None:
    """The function's name in ``arn:aws:lambda:region:account:function:name``."""
    parts = arn.split(":") if isinstance(arn, str) else []
    return log_values.name(parts[6]) if len(parts) > 6 else None
