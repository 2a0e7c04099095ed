"""Invocations on Lambda, the events that they log, and the forms in which these are exported."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from uncia import record

MS = 1_000_000
MB = 1 << 20
EPOCH_MS = 1_747_081_446_000
STREAM = "2025/05/12/[$LATEST]5b1105a695c440a3b75cb8e9aba09b2{}"


@dataclass(frozen=True)
class Invocation:
    """What happened, in hundredths of a millisecond, and what the log must say of it."""

    request: str
    stream: str
    start_ms: int
    duration: int
    memory: int
    peak: int
    init: int | None = None
    restore: int | None = None
    status: str = ""

    @property
    def end_ms(self) -> int:
        return self.start_ms + -(-self.duration // 100)

    @property
    def billed(self) -> int:
        return -(-(self.duration + (self.init or 0)) // 100)

    def messages(self) -> list[tuple[int, str]]:
        text = (
            f"REPORT RequestId: {self.request}\tDuration: {hundredths(self.duration)} ms\t"
            f"Billed Duration: {self.billed} ms\tMemory Size: {self.memory} MB\t"
            f"Max Memory Used: {self.peak} MB\t"
        )
        if self.init is not None:
            text += f"Init Duration: {hundredths(self.init)} ms\t"
        if self.restore is not None:
            text += f"Restore Duration: {hundredths(self.restore)} ms\t"
            text += "Billed Restore Duration: 1 ms\t"
        if self.status:
            text += f"Status: {self.status}\t"
        if self.status == "error":
            text += "Error Type: Runtime.ExitError\t"
        text += (
            "\nXRAY TraceId: 1-5759e988-bd862e3fe1be46a994272793\tSegmentId: 3\tSampled: true\t\n"
        )
        return [
            (self.start_ms, f"START RequestId: {self.request} Version: $LATEST\n"),
            (self.end_ms, f"END RequestId: {self.request}\n"),
            (self.end_ms, text),
        ]

    def row(self, attempt: int) -> dict[str, object]:
        start = "restored" if self.restore is not None else "cold" if self.init else "warm"
        row: dict[str, object] = {
            "platform": "aws",
            "function": "fn",
            "invocation": self.request,
            "request_id": self.request,
            "attempt": attempt,
            "outcome": {"": "ok", "timeout": "timeout", "error": "function_error"}[self.status],
            "start": start,
            "instance": self.stream,
            "started": self.start_ms * MS,
            "ended": self.end_ms * MS,
            "execution": self.duration * MS // 100,
            "billed": self.billed * MS,
            "allocated_memory": self.memory * MB,
            "allocated_cpu": self.memory * 1_000_000 // 1769,
            "memory_peak": self.peak * MB,
        }
        if self.status:
            row["error"] = "Runtime.ExitError" if self.status == "error" else "timeout"
        waited = self.init if self.restore is None else self.restore
        if waited is not None:
            row["initialization"] = waited * MS // 100
        return row


def hundredths(number: int) -> str:
    return f"{number // 100}.{number % 100:02d}"


def iso(ms: int, separator: str = "T") -> str:
    import datetime

    moment = datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
    return moment.strftime(f"%Y-%m-%d{separator}%H:%M:%S") + f".{ms % 1000:03d}"


def request_id(number: int) -> str:
    return f"{number:08x}-1356-466e-9cd3-c453eea3ea16"


def as_events(invocations: list[Invocation]) -> list[dict[str, Any]]:
    events = []
    for item in invocations:
        for index, (time, message) in enumerate(item.messages()):
            identifier = f"{item.start_ms}{item.request}{index}"
            events.append(
                {
                    "logStreamName": item.stream,
                    "timestamp": time,
                    "message": message,
                    "ingestionTime": time + 9,
                    "eventId": identifier,
                }
            )
    return events


OTHER = "some line of the function's own: REPORT of the day\n"


def write(folder: Path, form: str, events: list[dict[str, Any]]) -> Path:
    """The events in one of the forms, in the order given."""
    selected = {"logStreamName": "x", "timestamp": EPOCH_MS, "message": OTHER, "eventId": "own"}
    events = [*events, selected]
    stream = [{"id": e["eventId"], **{k: e[k] for k in ("timestamp", "message")}} for e in events]
    group = "/aws/lambda/fn"
    if form == "pages":
        half = len(events) // 2
        pages = [
            {"events": events[:half], "searchedLogStreams": [], "nextToken": "abc"},
            {"events": events[half:], "searchedLogStreams": []},
        ]
        return text(folder / "fn.json", "\n".join(json.dumps(page, indent=2) for page in pages))
    if form == "list":
        return text(folder / "fn.json.gz", json.dumps(events))
    if form == "lines":
        named = [{**event, "logGroupName": group} for event in events]
        return text(folder / "x.jsonl", "\n".join(map(json.dumps, named)) + "\r\n")
    if form == "subscription":  # one object behind the other, each of a stream
        result = ""
        for event, short in zip(events, stream, strict=True):
            around = {"logGroup": group, "logStream": event["logStreamName"]}
            result += json.dumps({"messageType": "DATA_MESSAGE", **around, "logEvents": [short]})
        return text(folder / "x.gz", result)
    if form == "insights":
        rows = [
            [
                {"field": "@timestamp", "value": iso(e["timestamp"], " ")},
                {"field": "@message", "value": e["message"]},
                {"field": "@logStream", "value": e["logStreamName"]},
                {"field": "@log", "value": "123456789012:" + group},
                {"field": "@ptr", "value": e["eventId"]},
            ]
            for e in events
        ]
        answer = {"results": rows, "statistics": {"recordsMatched": 3.0}, "status": "Complete"}
        return text(folder / "x.json", json.dumps(answer))
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["@timestamp", "@message", "@logStream", "@log"])
        for e in events:
            cells = [iso(e["timestamp"], " "), e["message"], e["logStreamName"]]
            writer.writerow([*cells, "123456789012:" + group])
        return text(folder / "x.csv", out.getvalue())
    if form == "tail":
        lines = [
            f"{iso(e['timestamp'])}000+00:00 {e['logStreamName']} {e['message']}" for e in events
        ]
        return text(folder / "fn.log", "".join(lines))
    assert form == "export"  # a file for each stream, as exported to S3
    base = folder / "fn" / "4d4b9d2e-2b0a-4a7b-8a5c-0f2d7e0c9b3a"
    for name in {e["logStreamName"] for e in events}:
        lines = [
            f"{iso(e['timestamp'])}Z {e['message']}" for e in events if e["logStreamName"] == name
        ]
        text(base / name.replace("/", "-") / "000000.gz", "".join(lines))
    return folder


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def imported(folder: Path) -> list[dict[str, object]]:
    rows = record.read(folder).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


FORMS = ["pages", "list", "lines", "subscription", "insights", "csv", "tail", "export"]


@st.composite
def invocations(draw: st.DrawFn) -> list[Invocation]:
    """Requests on several streams; a retry of a request comes after what it retries."""
    result = []
    for number in range(draw(st.integers(1, 5))):
        at = EPOCH_MS + draw(st.integers(0, 10_000))
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            case = Invocation(
                request_id(number),
                STREAM.format(draw(st.integers(0, 2))),
                at,
                draw(st.integers(0, 90_000_000)),
                draw(st.integers(128, 10_240)),
                draw(st.integers(1, 10_240)),
                init=draw(st.none() | st.integers(1, 1_000_000)),
                restore=draw(st.none() | st.none() | st.integers(0, 100_000)),
                status=draw(st.sampled_from(["", "", "timeout", "error"])),
            )
            result.append(case)
            at = case.end_ms + draw(st.integers(1, 100_000))
    return result


def rows_of(all_of: list[Invocation]) -> list[dict[str, object]]:
    attempts: dict[str, int] = {}
    rows = []
    for invocation in sorted(all_of, key=lambda invocation: invocation.start_ms):
        attempts[invocation.request] = attempts.get(invocation.request, 0) + 1
        rows.append(invocation.row(attempts[invocation.request]))
    return rows


def by_key(rows: list[dict[str, object]]) -> dict[tuple[object, object], dict[str, object]]:
    return {(row["invocation"], row["attempt"]): row for row in rows}
