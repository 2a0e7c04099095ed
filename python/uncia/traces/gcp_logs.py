"""Logs of Google Cloud Run and Cloud Functions, as Cloud Logging exports them in JSON.

An entry of Cloud Run's request log becomes a row of the invocation table:

* ``started`` is ``timestamp``, when the request came, and ``execution`` is ``httpRequest.latency``,
  which holds all until the answer was sent, waiting for an instance included: it is the time that
  Google bills a request for. ``ended`` is their sum. All are exact to the nanosecond.
* ``function`` is the service, ``platform`` names the location, ``instance`` is the label
  ``instanceId``, ``invocation`` is ``insertId`` and ``request_id`` the trace, sampled or not.
* ``status`` is the HTTP status: 504 is ``timeout``, any other from 500 ``function_error``, from 400
  ``transport_error``. A request from 400 that names no instance never ran, if others of its service
  do name theirs: its ``execution`` is null, and 429 or from 500, but for 504, it is ``throttled``,
  as no instance was available. Where no entry of the service names one, as in a log without labels,
  nothing tells such requests from those that ran, and they count as run.
* ``requestSize`` and ``responseSize`` count headers too, and are therefore not the table's sizes of
  bodies, which are null.

An entry ``Function execution took ...`` of Cloud Functions (first generation) becomes a row too:
``execution`` is its milliseconds, ``ended`` its time, ``started`` that of ``Function execution
started`` with the same execution id, and ``invocation`` that id.

Allocations are not logged. Where the descriptions of services or revisions are given beside the log
(`gcloud run services describe SERVICE --format=json`), ``allocated_cpu`` and ``allocated_memory``
are the limits of all containers together; a revision's own come before those of its service. A
description counts for requests of its location (its label ``cloud.googleapis.com/location``). One
that names none counts for all locations, where no other does. ``shared`` is false where an instance
serves one request at a time, else null.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces import gcp_entries, log_files
from uncia.traces.aws_report import Unreadable
from uncia.traces.base import Imported, Issues, expand
from uncia.traces.gcp_entries import Entry, Size
from uncia.traces.json_lines import Broken, Text, opened, records
from uncia.traces.output import Names, Output, Stage, output
from uncia.traces.rejected import Problem

NAME: Final = "gcp-logs"
DESCRIPTION: Final = (
    "Logs of Google Cloud Run and Cloud Functions: JSON of `gcloud logging read --format=json` or"
    " of a sink, with the descriptions of services for their allocations; your own data."
)
TABLES: Final = ("invocations",)
SUFFIXES: Final = tuple(
    suffix for suffix in log_files.SUFFIXES if suffix not in (".csv", ".txt", ".log")
)

_LISTS: Final = ("entries", "items")
_HINTS: Final = ('"httpRequest"', '"logName"', "Function execution ", '"insertId"')
_DESCRIPTION: Final = re.compile(r'"kind"\s*:\s*"(Service|Revision)"')
_NO_ENTRY: Final = "an entry of Cloud Logging's or the description of a service"
_PIECE: Final = 1 << 15  # entries that are in memory at once

# Why requests lack their allocation.
_UNDESCRIBED: Final = (
    "of services that nothing describes: allocation is null; give the JSON of"
    " `gcloud run services describe` beside the log"
)
_DIFFERENT: Final = (
    "of services whose descriptions differ in {noun}: {column} is null; give one description for"
    " each service and location"
)
_UNLIMITED: Final = (
    "of services with a container that has no limit of {noun}, or an absurd one: {column} is null;"
    " give a description with the limits of all containers"
)

_STAGE: Final = {
    "kind": pa.int8(),
    "function": pa.int32(),
    "revision": pa.int32(),
    "location": pa.int32(),
    "instance": pa.utf8(),
    "invocation": pa.utf8(),
    "request": pa.utf8(),
    "key": pa.utf8(),
    "time": pa.int64(),
    "duration": pa.int64(),
    "status": pa.int64(),
    "outcome": pa.utf8(),
    "error": pa.utf8(),
}
# An entry is the same as another if time and insertId are; one without insertId is its own.
# Logs may lack the label of all instances: that one entry lacks it shows that the request had none
# only where others of the service have it.
_WITH: Final = """
    WITH unique_entries AS (
        SELECT * FROM entries QUALIFY row_number() OVER (
            PARTITION BY function, location, kind, time, coalesce(key, 'row ' || row)
            ORDER BY row) = 1
    ),
    logged AS (
        SELECT *, last_value(CASE WHEN kind = 1 THEN time END IGNORE NULLS) OVER latest AS began,
                  last_value(kind) OVER latest AS before,
                  kind = 0 AND status >= 400 AND instance IS NULL AS no_instance,
                  (function, coalesce(location, -1)) IN (
                      SELECT DISTINCT (function, coalesce(location, -1)) FROM entries
                      WHERE kind = 0 AND instance IS NOT NULL
                  ) AS names_instances
        FROM unique_entries
        WINDOW latest AS (PARTITION BY function, location, invocation ORDER BY time, kind, row
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ),
    judged AS (SELECT *, no_instance AND names_instances AS refused FROM logged)
"""
# The time of a request in Cloud Run's log is its start, of one logged as text its end.
_TABLE: Final = f"""
    {_WITH},
    rows AS (
        SELECT * REPLACE (
                   CASE WHEN NOT refused THEN duration END AS duration,
                   CASE WHEN refused AND (status = 429 OR status >= 500) AND status <> 504
                        THEN 'throttled' ELSE outcome END AS outcome
               ),
               CASE WHEN kind = 0 THEN time WHEN before = 1 THEN began END AS started,
               CASE WHEN kind <> 0 THEN time WHEN NOT refused THEN time + duration END AS ended
        FROM judged WHERE kind <> 1
    )
    SELECT *, row_number() OVER (
        PARTITION BY function, location, invocation ORDER BY coalesce(started, ended), row
    ) AS attempt
    FROM rows ORDER BY coalesce(started, ended), row
"""
_COUNTS: Final = f"""
    {_WITH}
    SELECT count(*) FILTER (kind = 2 AND before IS DISTINCT FROM 1) AS unstarted,
           count(*) FILTER (kind = 1) - count(*) FILTER (kind = 2 AND before = 1) AS open,
           count(*) FILTER (refused) AS refused,
           count(*) FILTER (no_instance AND NOT names_instances) AS unclear,
           (SELECT count(*) FROM entries) - count(*) AS twice
    FROM judged
"""


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of Cloud Logging's or describes services, by its first records."""
    return all(_recognises(log_files.beginning(path)) for path in paths)


def _recognises(start: str) -> bool:
    if not log_files.is_json(start):
        return False
    described = '"spec"' in start and _DESCRIPTION.search(start) is not None
    return described or any(hint in start for hint in _HINTS)


def convert(paths: Iterable[Path | str], out: Path | str, *, strict: bool = False) -> Imported:
    """Write the requests of a log, sorted by ``started``.

    Args:
        paths: files, plain or compressed with gzip, bzip2 or xz, or folders of them; descriptions
            of services and revisions may be among them.
        out: a folder, or a file ``*.parquet``.
        strict: whether an entry of a request that cannot be read is an error; otherwise it is kept
            aside and counted.

    Raises:
        UnciaError: a file is no such log, cut off or damaged, an entry is bad, or nothing can be
            written.
    """
    files = expand(paths, SUFFIXES)
    issues = Issues(strict)
    with output(Path(out), TABLES, issues) as result:
        reader = _Reader(result.stage("entries", _STAGE), issues)
        for path in files:
            reader.read(path)
        if not reader.stage.rows and issues.skipped == reader.foreign:
            raise UnciaError(
                f"no entry of a request is in {files[0]}"
                + (f" and {len(files) - 1} more" if len(files) > 1 else ""),
                hint="Read the log run.googleapis.com/requests with"
                " `gcloud logging read ... --format=json`.",
            )
        warnings = reader.warnings(result)
        for batch in result.query(_TABLE):
            issues.take(batch.num_rows)
            result.write("invocations", reader.columns(batch))
        return result.finish([*warnings, *reader.allocations()])


_Allocation: TypeAlias = tuple[Mapping[str, Any], Sequence[str]]
"""Columns of a row, and why it lacks some of them."""


@dataclass
class _Reader:
    """Reads logs into a stage, and makes the columns of the table from what comes out of it."""

    stage: Stage
    issues: Issues
    functions: Names = field(default_factory=Names)
    revisions: Names = field(default_factory=Names)
    locations: Names = field(default_factory=Names)
    sizes: dict[str, list[Size]] = field(default_factory=dict)
    lacking: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _allocations: dict[tuple[str | None, ...], _Allocation] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        """Add the entries of a file.

        Raises:
            UnciaError: it is no JSON, cut off or damaged, or (if strict) an entry is bad.
        """
        if not log_files.is_json(log_files.beginning(path)):
            raise UnciaError(
                f"{path} is no JSON",
                hint="Export the log with `gcloud logging read --format=json`.",
            )
        with opened(path) as file:
            for record in records(Text(path, file), _LISTS):
                if isinstance(record, Broken):
                    self.issues.add(Problem(path, record.line, "", record.text, "JSON"))
                    continue
                if not gcp_entries.known(record.value):
                    text = json.dumps(record.value, default=str)
                    self.issues.add(Problem(path, record.line, "", text, _NO_ENTRY))
                    self.foreign += 1
                    continue
                for size in gcp_entries.sizes(record.value):
                    described = self.sizes.setdefault(size.name, [])
                    if size not in described:
                        described.append(size)
                try:
                    entry = gcp_entries.entry(record.value)
                except Unreadable as bad:
                    row = json.dumps(record.value, default=str)
                    self.issues.add(
                        Problem(path, record.line, bad.column, bad.text, bad.expected, row=row)
                    )
                    continue
                if entry is not None:
                    self._rows.append(self._row(entry))
                if len(self._rows) >= _PIECE:
                    self._flush()
        self._flush()

    def _row(self, entry: Entry) -> dict[str, Any]:
        return {
            **vars(entry),
            "function": self.functions.id(entry.function),
            "revision": None if entry.revision is None else self.revisions.id(entry.revision),
            "location": None if entry.location is None else self.locations.id(entry.location),
        }

    def _flush(self) -> None:
        self.stage.write({name: [row.get(name) for row in self._rows] for name in _STAGE})
        self._rows.clear()

    def warnings(self, result: Output) -> list[str]:
        """What a reader of the table should know."""
        (row,) = (row for batch in result.query(_COUNTS) for row in batch.to_pylist())
        sentences = []
        for key, noun, what in (
            ("twice", "entry", "that occurred again, taken once"),
            ("unstarted", "execution", "logged at its end only: started is null"),
            ("open", "execution", "started without an end in the log: no row"),
            ("refused", "request", "refused before it reached an instance: execution is null"),
            (
                "unclear",
                "request",
                "failed where no entry of the service names an instance: taken for answers of the"
                " function's own, which are billed",
            ),
        ):
            if row[key]:
                sentences.append(f"{plural(row[key], noun)} {what}".replace("entrys", "entries"))
        return sentences

    def allocations(self) -> list[str]:
        """How many rows lack a part of their allocation, and why."""
        return [f"{plural(count, 'request')} {why}" for why, count in sorted(self.lacking.items())]

    def _allocation(self, key: tuple[str | None, ...]) -> _Allocation:
        """The allocation of a location, a revision and a service."""
        if key not in self._allocations:
            location, *names = key
            self._allocations[key] = _allocation(self._described(location, names))
        return self._allocations[key]

    def _described(self, location: str | None, names: Sequence[str | None]) -> list[Size]:
        """The descriptions of the first of these names that has any for the location."""
        for name in names:
            sizes = self.sizes.get(name or "", [])
            if location is not None:
                there = [size for size in sizes if size.location == location]
                sizes = there or [size for size in sizes if size.location is None]
            if sizes:
                return sizes
        return []

    def columns(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        """The columns of the invocation table."""
        row = dict(zip(batch.schema.names, batch.columns, strict=True))
        function = self.functions.column(row["function"])
        keys = zip(
            self.locations.column(row["location"]).to_pylist(),
            self.revisions.column(row["revision"]).to_pylist(),
            function.to_pylist(),
            strict=True,
        )
        allocations = []
        for allocation, lacking in map(self._allocation, keys):
            allocations.append(allocation)
            self.lacking.update(lacking)
        return {
            "platform": self.locations.column(
                pc.fill_null(row["location"], len(self.locations)),
                [*(f"gcp-{location}" for location in self.locations), "gcp"],
            ),
            "function": function,
            "invocation": row["invocation"],
            "request_id": row["request"],
            "attempt": row["attempt"],
            "status": row["status"],
            "outcome": row["outcome"],
            "error": row["error"],
            "instance": row["instance"],
            "shared": pa.array([it.get("shared") for it in allocations], pa.bool_()),
            "started": row["started"],
            "ended": row["ended"],
            "execution": row["duration"],
            **{
                name: pa.array([it.get(name) for it in allocations], pa.int64())
                for name in ("allocated_cpu", "allocated_memory")
            },
        }


def _allocation(described: Sequence[Size]) -> _Allocation:
    """What descriptions of a service or revision say of its allocation, each quantity by itself.

    Returns:
        Columns of the table, None where descriptions differ or say nothing; and why they do not
        have what they lack.
    """
    if not described:
        return {}, [_UNDESCRIBED]
    columns: dict[str, Any] = {}
    lacking = []
    for column, noun, values in (
        ("allocated_cpu", "CPU", {size.cpu for size in described}),
        ("allocated_memory", "memory", {size.memory for size in described}),
        ("shared", "containerConcurrency", {_shared(size) for size in described}),
    ):
        columns[column] = values.pop() if len(values) == 1 else None
        if values:
            lacking.append(_DIFFERENT.format(noun=noun, column=column))
        elif columns[column] is None and column != "shared":
            lacking.append(_UNLIMITED.format(noun=noun, column=column))
    return columns, lacking


def _shared(size: Size) -> bool | None:
    """Whether requests share an instance: not if it serves one at a time, else perhaps."""
    return False if size.concurrency == 1 else None
