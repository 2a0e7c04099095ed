"""CloudWatch's events, whatever form they were exported in.

| form | source |
|---|---|
| ``{"events": [{"timestamp", "message", "logStreamName"?, ...}]}`` | `aws logs filter-log-events` and `get-log-events`; several pages may follow one another |
| a list of such events, or one a line | scripts |
| ``{"logGroup", "logStream", "logEvents": [{"id", "timestamp", "message"}]}`` | subscriptions: Firehose, Kinesis |
| ``{"results": [[{"field": "@message", "value": ...}, ...]]}``, a list of ``{"@timestamp", "@message"}``, or CSV with these columns | Logs Insights |
| lines, each with time, stream, both or neither before the message | export to S3, `aws logs tail`, `sam logs`, the console |
| ``{"time", "type": "platform.report", "record": {...}}`` | Lambda's JSON log format, by itself or as the message of any form |
| ``{"RequestId", "Duration", "Billed Duration", ...}`` | measurements that keep the parts of a REPORT |
"""  # noqa: E501

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

from uncia.traces import aws_report, log_files, log_values
from uncia.traces.aws_report import Line, Unreadable
from uncia.traces.base import Issues
from uncia.traces.json_lines import MAX_RECORD_CHARS, Broken, Text, opened, records
from uncia.traces.rejected import Problem

LISTS: Final = ("events", "logEvents", "results")
_RECORD: Final = ("RequestId", "Billed Duration")
_EVENT_TIME: Final = ("timestamp", "@timestamp")
_STREAM: Final = ("logStreamName", "logStream", "@logStream")
_GROUP: Final = ("logGroupName", "logGroup", "@log", "@logGroup")
_LAMBDA_GROUP: Final = re.compile(r"(?:^|[:/])aws/lambda/([!-~]{1,512})$")
_ISO: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LOG_STREAM: Final = r"\d{4}/\d\d/\d\d/\S*\[[^\]\s]*\][0-9a-f]{32}"
_END: Final[list[str]] = []
_LINE: Final = re.compile(
    rf"(?:(?P<before>{_LOG_STREAM})\s+)?(?:(?P<time>{_ISO})\s+)?(?:(?P<after>{_LOG_STREAM})\s+)?"
    r"(?P<message>.*)"
)
_STREAM_FOLDER: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)-(.*\[.*\][0-9a-f]{32})")
_NO_RECORD: Final = "a record of CloudWatch's"


@dataclass(frozen=True)
class Event:
    """A line of Lambda's with what the log says around it.

    Attributes:
        line: its content.
        function: the function by the log group; None if none is named.
        stream: the log stream; None if none is named.
        time: Unix time in ns; None if the log has none.
        id: the event's identifier; None if it has none.
    """

    line: Line
    function: str | None
    stream: str | None
    time: int | None
    id: str | None


def recognises(start: str) -> bool:
    """Whether a text that begins so is a log of Lambda's."""
    if log_files.is_json(start):
        hints = ("RequestId: ", '"platform.', '"Billed Duration"', "@message", "@requestId")
        if '"logName"' in start or '"httpRequest"' in start:
            return False  # Google's entries, which may have a time and a message too
        names = '"logEvents"' in start or ('"message"' in start and '"timestamp"' in start)
        return names or any(hint in start for hint in hints)
    lines = start.split("\n")
    if _is_table(lines[0]):
        return True
    return any(
        re.match(r"(START|END|REPORT) RequestId: ", match["message"].lstrip('"'))
        or '"platform.' in match["message"]
        for line in lines
        if (match := _LINE.match(line))
    )


def events(path: Path, issues: Issues) -> Iterator[Event]:
    """The lines of a file about invocations, in order.

    What the functions themselves wrote is passed over. A line or record that should tell of an
    invocation and cannot be read goes to ``issues``. A REPORT is here all the same if its request
    is known: its line is ``bad``.

    Raises:
        UnciaError: the file cannot be read, is cut off or damaged, or (if strict) a line is bad.
    """
    start = log_files.beginning(path)
    with opened(path) as file:
        text = Text(path, file)
        reader = _Reader(path, issues)
        if log_files.is_json(start):
            yield from reader.json(text)
        elif _is_table(start.split("\n", 1)[0]):
            yield from reader.table(text)
        else:
            yield from reader.lines(text)


def _is_table(line: str) -> bool:
    names = [name.strip().strip('"') for name in line.lstrip("\ufeff").strip().split(",")]
    return any(name in names for name in ("@message", "message", "@requestId")) or all(
        name in names for name in _RECORD
    )


class _Reader:
    def __init__(self, path: Path, issues: Issues) -> None:
        self._path = path
        self._issues = issues

    def json(self, text: Text) -> Iterator[Event]:
        """Records of JSON; the line that a problem names is that of the record."""
        for record in records(text, LISTS):
            if isinstance(record, Broken):
                plain = _LINE.match(record.text)
                if record.text and plain and not record.text.lstrip().startswith("{"):
                    yield from self._line(record.text, record.line)
                else:
                    self._bad(record.line, "", record.text, "JSON", record.text)
                continue
            value = record.value
            if isinstance(value, list):
                value = _fields(value)
            if not isinstance(value, dict):
                shown = json.dumps(value, default=str)
                self._bad(record.line, "", shown, _NO_RECORD, shown)
                continue
            yield from self._checked(
                partial(self._record, value, record.around), record.line, value
            )

    def table(self, text: Text) -> Iterator[Event]:
        """A CSV file with a header; cells may hold line breaks."""
        csv.field_size_limit(MAX_RECORD_CHARS)
        rows = csv.reader(_whole_lines(text))
        names = [name.strip() for name in _next(rows) or ()]
        if not names:
            self._bad(1, "", "", "a header of CSV", "")
            return
        line = rows.line_num + 1
        while (row := _next(rows)) is not _END:
            if row is None:
                self._bad(line, "", "", "a row of CSV: it has a line break or NUL within", "")
            elif row and len(row) != len(names):
                expected = f"a row of {len(names)} cells"
                self._bad(line, "", ",".join(row), expected, ",".join(row))
            elif row:
                record = dict(zip(names, row, strict=True))
                yield from self._checked(partial(self._record, record, {}), line, ",".join(row))
            line = rows.line_num + 1

    def lines(self, text: Text) -> Iterator[Event]:
        """A line for an event."""
        number = text.line()
        while (line := text.readline()) is not None:
            yield from self._line(line, number)
            number += 1

    def _line(self, line: str, number: int) -> Iterator[Event]:
        match = _LINE.match(line)
        if match is None:
            return
        stream = match["before"] or match["after"] or self._stream_of_file()
        time = log_values.unix_ns(match["time"]) if match["time"] else None
        bad_time = match["time"] is not None and time is None

        def make() -> Event | None:
            report = self._parse(match["message"])
            if report is None:
                return None
            if bad_time:
                report.bad = Unreadable("timestamp", match["time"], "a time")
            return Event(report, report.function, stream, _known(report.time, time), None)

        yield from self._checked(make, number, line)

    def _checked(self, make: Callable[[], Event | None], line: int, row: Any) -> Iterator[Event]:
        try:
            event = make()
            bad = None if event is None else event.line.bad
        except Unreadable as error:
            event, bad = None, error
        if bad is not None:
            text = row if isinstance(row, str) else json.dumps(row, default=str)
            self._bad(line, bad.column, bad.text, bad.expected, text)
        # Of a bad START or END nothing is left.
        if event is not None and (bad is None or event.line.kind == aws_report.REPORT):
            yield event

    def _record(self, record: dict[str, Any], around: dict[str, Any]) -> Event | None:
        if str(record.get("type", "")).startswith("platform."):
            line = aws_report.from_json(record)
            return None if line is None else Event(line, line.function, None, line.time, None)
        message = _first(record, ("message", "@message"))
        if "RequestId" in record and message is None:
            line = aws_report.from_record(record)
            return Event(line, line.function, None, None, None)
        if message is None and record.get("@requestId"):
            line = _insights_fields(record)
        elif isinstance(message, dict):  # the console parses messages that are JSON
            line = aws_report.from_json(message)
        elif isinstance(message, str):
            line = self._parse(message)
        else:
            if {"nextToken", "searchedLogStreams", "status", "messageType"} & record.keys():
                return None  # a page without events
            raise Unreadable("message", "" if message is None else message, "the event's text")
        if line is None:
            return None
        group = _first(record, _GROUP) or _first(around, _GROUP)
        stream = _first(record, _STREAM) or _first(around, _STREAM)
        try:
            time = _time(record)
        except Unreadable as bad:
            line.bad, time = bad, None
        return Event(
            line,
            _function(group) or line.function,
            log_values.name(stream) if stream else None,
            _known(line.time, time),
            log_values.name(_first(record, ("eventId", "id", "@ptr"))),
        )

    def _parse(self, message: str) -> Line | None:
        line = aws_report.parse(message)
        if line is None and message.lstrip().startswith("REPORT"):
            # A cut line, or one that a function wrote: nothing tells.
            self._issues.note("line begins with REPORT but is none of Lambda's: passed over")
        return line

    def _stream_of_file(self) -> str | None:
        match = _STREAM_FOLDER.fullmatch(self._path.parent.name)
        return "/".join(match.groups()) if match else None

    def _bad(self, line: int, column: str, text: str, expected: str, row: str) -> None:
        self._issues.add(Problem(self._path, line, column, text, expected, row=row))


def _fields(row: list[Any]) -> Any:
    """A row of Logs Insights, a list of field and value, as a record."""
    if all(isinstance(cell, dict) and "field" in cell for cell in row):
        return {str(cell["field"]): cell.get("value") for cell in row}
    return row


def _insights_fields(record: dict[str, Any]) -> Line | None:
    """A report from the fields that Logs Insights finds in it; its megabytes are 10^6 bytes."""
    if record.get("@type") not in (None, "", "REPORT") or not record.get("@duration"):
        return None
    shown: dict[str, Any] = {"RequestId": record["@requestId"]}
    for text, key in (
        ("Duration", "@duration"),
        ("Billed Duration", "@billedDuration"),
        ("Init Duration", "@initDuration"),
    ):
        shown[text] = record.get(key)
    for text, key in (("Memory Size", "@memorySize"), ("Max Memory Used", "@maxMemoryUsed")):
        size = log_values.quantity(record.get(key), 1)
        shown[text] = None if size is None else Decimal(size).scaleb(-6)
    return aws_report.from_record(shown)


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _function(group: Any) -> str | None:
    """The function that a log group is of; another group is named as it is."""
    if not isinstance(group, str):
        return None
    match = _LAMBDA_GROUP.search(group)
    return match.group(1) if match else log_values.name(group)


def _time(record: dict[str, Any]) -> int | None:
    """When the event was, Unix time in ns; None if the record has no time.

    Raises:
        Unreadable: it has one that is none.
    """
    value = _first(record, _EVENT_TIME)
    if value is None:
        return None
    time = log_values.unix_ms(value)
    if time is None:
        time = log_values.unix_ns(value)
    if time is None:
        raise Unreadable("timestamp", value, "a Unix time in ms")
    return time


def _whole_lines(text: Text) -> Iterator[str]:
    while (line := text.readline()) is not None:
        yield line + "\n"


def _next(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, None if it is no CSV, and `_END` after the last."""
    try:
        return next(rows, _END)
    except csv.Error:
        return None
