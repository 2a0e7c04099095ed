"""Logs of AWS Lambda: what CloudWatch keeps of every invocation, in the forms it is exported in.

An invocation is the lines START, END and REPORT (or the same as JSON), which belong
together by request id and log stream; those of several instances may be interleaved, in any order
and over several files. Each REPORT becomes a row of the invocation table:

* ``execution`` is Duration, ``billed`` is Billed Duration, ``initialization`` is Init Duration (the
  start is ``cold``) or Restore Duration (``restored``); a REPORT without either is of a ``warm``
  start. They are exact decimal text, which Lambda rounds to 0.01 ms.
* ``started`` is the time of START and ``ended`` that of END, else of REPORT, in the log's
  milliseconds; they are not derived from each other. ``sent`` and ``received`` are the client's
  times where measurements keep them beside the parts of a REPORT.
* ``instance`` is the log stream. ``allocated_memory`` is Memory Size (MB of 2^20 bytes), and
  ``allocated_cpu`` the share that goes with it, 1 vCPU at 1769 MB, rounded down to a micro-vCPU.
* ``memory_peak`` is Max Memory Used, which is the most that the instance used so far, in this
  invocation or one before. CPU time is not logged, so it is null.
* ``outcome`` is timeout or function_error where Status, ``Task timed out`` or ``Process exited``
  say so, else ok: an exception that the handler raised is in the function's own lines only.
* ``invocation`` and ``request_id`` are the request id; a retry has the same, ``attempt`` counts.

The function is that of the log group; where a file does not name one, it is named after the file.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.providers import LAMBDA_BYTES
from uncia.text import plural
from uncia.traces import aws_events, log_files, log_values
from uncia.traces.aws_events import Event
from uncia.traces.aws_report import REPORT
from uncia.traces.base import Imported, Issues, expand
from uncia.traces.output import Names, Output, Stage, output
from uncia.units import MICRO_PER_VCPU

NAME: Final = "aws-logs"
DESCRIPTION: Final = (
    "Logs of AWS Lambda from CloudWatch: START, END and REPORT lines or Lambda's JSON format, as"
    " `aws logs` prints them, exported to S3, from Logs Insights or a subscription; your own data."
)
TABLES: Final = ("invocations",)
SUFFIXES: Final = log_files.SUFFIXES

_PIECE: Final = 1 << 15  # events that are in memory at once

_STAGE: Final = {
    "kind": pa.int8(),
    "named": pa.int32(),
    "file": pa.int32(),
    "source": pa.int32(),
    "bad": pa.bool_(),
    "request": pa.utf8(),
    "stream": pa.utf8(),
    "time": pa.int64(),
    "event": pa.utf8(),
    "duration": pa.int64(),
    "billed": pa.int64(),
    "memory": pa.int64(),
    "peak": pa.int64(),
    "init": pa.int64(),
    "restore": pa.int64(),
    "sent": pa.int64(),
    "received": pa.int64(),
    "outcome": pa.utf8(),
    "error": pa.utf8(),
}

# An event that was exported twice is the same event: it has the same identifier or, where there
# are none, the same time and content. Of events without either, files as a whole tell. A bad REPORT
# is itself, as it was rejected as often as it stands there.
_UNIQUE: Final = """
    unique_events AS (
        SELECT * FROM events WHERE source NOT IN ({copies})
        QUALIFY row_number() OVER (PARTITION BY CASE
            WHEN bad THEN 'row ' || row
            WHEN event IS NOT NULL THEN 'id ' || event
            WHEN coalesce(time, sent) IS NOT NULL THEN concat_ws(' ', 'at', kind, request,
                coalesce(named, -1), coalesce(stream, '-'), coalesce(time, sent), duration, billed,
                error)
            ELSE 'row ' || row END ORDER BY row) = 1
    )
"""
# Some lines name their function, such as platform.start, which is then that of the whole request.
# Attempts of a request on one stream follow one another: a REPORT ends one. What concerns a
# failure may stand behind the REPORT of its invocation.
_ROWS: Final = """
    WITH {unique},
    placed AS (
        SELECT *, coalesce(named, max(named) OVER (PARTITION BY request), file) AS function
        FROM unique_events
    ),
    timed AS (
        SELECT *, CASE WHEN bool_or(time IS NULL) OVER (PARTITION BY function, request, stream)
                  THEN NULL ELSE time END AS clock
        FROM placed
    ),
    counted AS (
        SELECT *,
            count(*) FILTER (kind = 2) OVER before AS reports,
            last_value(CASE WHEN kind IN (0, 2) THEN kind END IGNORE NULLS) OVER before AS latest
        FROM timed
        WINDOW before AS (
            PARTITION BY function, request, stream
            ORDER BY clock, CASE WHEN clock IS NULL THEN 0 ELSE kind END, row
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ),
    attempts AS (
        SELECT function, request, stream,
            CASE WHEN kind = 3 AND latest = 2 THEN reports - 1 ELSE reports END AS number,
            min(row) AS row,
            bool_or(named IS NULL AND function = file) AS unnamed,
            max(time) FILTER (kind = 0) AS started,
            coalesce(max(time) FILTER (kind = 1), max(time) FILTER (kind = 2)) AS ended,
            count(*) FILTER (kind = 0) AS starts,
            count(*) FILTER (kind = 2 AND NOT bad) AS reported,
            count(*) FILTER (bad) AS rejected,
            arg_max(outcome, CASE WHEN outcome = 'timeout' THEN 2
                                  WHEN outcome = 'ok' THEN 0 ELSE 1 END) AS outcome,
            coalesce(max(error) FILTER (kind = 2), max(error)) AS error,
            {figures}
        FROM counted GROUP BY ALL
    )
"""
_FIGURES: Final = (
    "duration",
    "billed",
    "memory",
    "peak",
    "init",
    "restore",
    "sent",
    "received",
)
_WITH: Final = _ROWS.format(
    unique=_UNIQUE, figures=", ".join(f"max({name}) AS {name}" for name in _FIGURES)
)
_TABLE: Final = f"""
    {_WITH}
    SELECT *, row_number() OVER (
        PARTITION BY function, request ORDER BY coalesce(started, sent, ended), row) AS attempt
    FROM attempts WHERE reported > 0
    ORDER BY coalesce(started, sent, ended) NULLS LAST, row
"""
# Without times nothing tells a retry that took as long as the attempt before from a copy of it.
_COUNTS: Final = f"""
    {_WITH},
    alike AS (
        SELECT count(*) - 1 AS again FROM attempts
        WHERE reported > 0 AND coalesce(ended, started, sent) IS NULL
        GROUP BY request, stream, {", ".join(_FIGURES)}
    )
    SELECT count(*) FILTER (reported = 0 AND rejected = 0) AS open,
           count(*) FILTER (reported > 0 AND starts = 0 AND sent IS NULL) AS unstarted,
           count(*) FILTER (reported > 0 AND ended IS NULL AND sent IS NULL) AS untimed,
           count(*) FILTER (reported > 0 AND stream IS NULL) AS streamless,
           count(*) FILTER (reported > 0 AND unnamed) AS unnamed,
           (SELECT coalesce(sum(again), 0) FROM alike)::BIGINT AS again,
           (SELECT count(*) FROM events WHERE source NOT IN ({{copies}}))
               - (SELECT count(*) FROM unique_events) AS twice
    FROM attempts
"""


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is a log of Lambda's, by its first lines or records."""
    return all(aws_events.recognises(log_files.beginning(path)) for path in paths)


def convert(paths: Iterable[Path | str], out: Path | str, *, strict: bool = False) -> Imported:
    """Write the invocations of a log, sorted by ``started``.

    Args:
        paths: files, plain or compressed with gzip, bzip2 or xz, or folders of them.
        out: a folder, or a file ``*.parquet``.
        strict: whether a line of Lambda's that cannot be read is an error; otherwise it is kept
            aside and counted.

    Raises:
        UnciaError: a file is no such log, cut off or damaged, a line is bad, or nothing can be
            written.
    """
    files = expand(paths, SUFFIXES)
    issues = Issues(strict)
    with output(Path(out), TABLES, issues) as result:
        reader = _Reader(result.stage("events", _STAGE), is_alone=len(files) == 1)
        for path in files:
            reader.read(path, issues)
        if not reader.reports and not issues.skipped:
            raise UnciaError(
                f"no REPORT line of Lambda's is in {_listed(files)}",
                hint="Export the log group /aws/lambda/NAME; the system log level must be INFO.",
            )
        warnings = reader.warnings(result)
        for batch in result.query(_TABLE.format(copies=reader.copies())):
            issues.take(batch.num_rows)
            result.write("invocations", reader.columns(batch))
        return result.finish(warnings)


@dataclass
class _Reader:
    """Reads logs into a stage, and makes the columns of the table from what comes out of it."""

    stage: Stage
    is_alone: bool = False
    functions: Names = field(default_factory=Names)
    reports: int = 0
    _files: list[Path] = field(default_factory=list)
    _contents: dict[bytes, int] = field(default_factory=dict)
    _copies: dict[int, int] = field(default_factory=dict)
    _rows: list[dict[str, Any]] = field(default_factory=list)

    def read(self, path: Path, issues: Issues) -> None:
        """Add the events of a file."""
        after_file = log_values.file_name(path)
        content = _Content()
        for event in aws_events.events(path, issues):
            if not self.is_alone:
                content.add(event)
            self._rows.append(self._row(event, after_file))
            if len(self._rows) >= _PIECE:
                self._flush()
        self._flush()
        number = len(self._files)
        self._files.append(path)
        if (digest := content.digest()) is not None:
            first = self._contents.setdefault(digest, number)
            if first != number:
                self._copies[number] = first

    def copies(self) -> str:
        """The numbers of files that are copies, for SQL; one that no file has where none is."""
        return ", ".join(map(str, self._copies)) or "-1"

    def _row(self, event: Event, after_file: str) -> dict[str, Any]:
        line = event.line
        if line.kind == REPORT and line.bad is None:
            self.reports += 1
        return {
            "kind": line.kind,
            "source": len(self._files),
            "bad": line.bad is not None,
            "named": None if event.function is None else self.functions.id(event.function),
            "file": self.functions.id(after_file),
            "request": line.request,
            "stream": event.stream,
            "time": event.time,
            "event": event.id,
            "outcome": line.outcome,
            "error": line.error,
            **line.figures,
        }

    def _flush(self) -> None:
        names = _STAGE.keys()
        self.stage.write({name: [row.get(name) for row in self._rows] for name in names})
        self._rows.clear()

    def warnings(self, result: Output) -> list[str]:
        """What a reader of the table should know."""
        counts = result.query(_COUNTS.format(copies=self.copies()))
        (row,) = (row for batch in counts for row in batch.to_pylist())
        notes = []
        if self._copies:
            copy, first = next(iter(self._copies.items()))
            notes.append(
                f"{self._files[copy]} holds the same events without times as"
                f" {self._files[first]}: a copy, which is left out"
            )
        if (more := len(self._copies) - 1) > 0:
            notes.append(f"{plural(more, 'other file')} left out as a copy, too")
        for key, noun, what in (
            ("twice", "event", "that occurred again, taken once"),
            (
                "again",
                "REPORT",
                "without times and with all figures of another of the same request: counted as a"
                " retry; leave out what stands in the log twice",
            ),
            ("open", "invocation", "without a REPORT, of which nothing is known: no row"),
            ("unstarted", "REPORT", "without a START: started is null"),
            ("untimed", "REPORT", "in a log without times: started and ended are null"),
            ("unnamed", "REPORT", "in a log that names no function: it is named after its file"),
            ("streamless", "REPORT", "in a log that names no stream: instance is null"),
        ):
            if row[key]:
                notes.append(f"{plural(row[key], noun)} {what}")
        notes.append("memory_peak is the most that the instance used so far, as Lambda reports it")
        return notes

    def columns(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        """The columns of the invocation table."""
        row = dict(zip(batch.schema.names, batch.columns, strict=True))
        restored, cold = pc.is_valid(row["restore"]), pc.is_valid(row["init"])
        share = pc.divide(pc.multiply(row["memory"], MICRO_PER_VCPU), LAMBDA_BYTES)
        return {
            "platform": pa.repeat(pa.scalar("aws", pa.utf8()), batch.num_rows),
            "function": self.functions.column(row["function"]),
            "invocation": row["request"],
            "request_id": row["request"],
            "attempt": row["attempt"],
            "sent": row["sent"],
            "received": row["received"],
            "outcome": row["outcome"],
            "error": row["error"],
            "start": pc.if_else(restored, "restored", pc.if_else(cold, "cold", "warm")),
            "instance": row["stream"],
            "started": row["started"],
            "ended": row["ended"],
            "initialization": pc.coalesce(row["restore"], row["init"]),
            "execution": row["duration"],
            "billed": row["billed"],
            "allocated_cpu": share,
            "allocated_memory": row["memory"],
            "memory_peak": row["peak"],
        }


class _Content:
    """What a file says, to find its copies where its events do not tell that they are the same."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b()
        self._untimed = False

    def add(self, event: Event) -> None:
        """Take the next event."""
        line = event.line
        if event.time is None and event.id is None and line.figures.get("sent") is None:
            self._untimed = True
        parts = (event.function, event.stream, event.time, event.id)
        content = (line.kind, line.request, line.error, line.outcome, line.figures)
        self._hash.update(repr((parts, content)).encode("utf-8", "surrogatepass"))

    def digest(self) -> bytes | None:
        """What equals that of a copy; None if each event has a time or an identifier."""
        return self._hash.digest() if self._untimed else None


def _listed(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
