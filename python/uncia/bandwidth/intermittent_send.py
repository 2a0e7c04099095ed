"""Requests one after another, each made from the answer before: what a generator cannot send.

A load generator fixes all of its events beforehand. A task that goes on where the last answer left
it, or one request that collects what another began, needs a client that reads answers. Its rows are
those of the load generator, with the same clock, the same outcomes and the same invocation header.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import record
from uncia.platforms import Target
from uncia.workload.client import INVOCATION_HEADER

_OUTCOMES: Final = ("ok", "function_error", "throttled", "timeout", "transport_error", "preempted")
_OK: Final = range(200, 300)
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = range(500, 600)


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Attributes:
        invocation: its id.
        outcome: as in the invocation table.
        body: the answer's JSON object; empty if there was none.
        received_ns: when it ended, since the run's epoch.
        instance: the instance that served it, by the platform; None where it does not say.
    """

    invocation: str
    outcome: str
    body: Mapping[str, Any]
    received_ns: int
    instance: str | None


class Clock:
    """Nanoseconds since a run's epoch, by the monotonic clock set once against the time of day."""

    def __init__(self, epoch_unix_ns: int) -> None:
        self._offset: Final = time.time_ns() - time.monotonic_ns() - epoch_unix_ns
        self.epoch_unix_ns: Final = epoch_unix_ns

    def now(self) -> int:
        """Now, since the epoch."""
        return time.monotonic_ns() + self._offset

    def wait_until(self, at_ns: int) -> None:
        """Sleep until then; at once if it is over."""
        left = at_ns - self.now()
        if left > 0:
            time.sleep(left / 1e9)


@dataclass
class Rows:
    """The rows of an experiment's requests and the spans that functions reported, as they grow."""

    run: str
    platform: str
    invocations: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)

    def failures(self) -> dict[str, int]:
        """How many requests ended otherwise than ok, by outcome."""
        found: dict[str, int] = {}
        for row in self.invocations:
            if row["outcome"] != "ok":
                found[row["outcome"]] = found.get(row["outcome"], 0) + 1
        return found

    def done(self) -> dict[str, Any]:
        """The counts as a load generator reports them at its end."""
        failed = self.failures()
        rows = len(self.invocations)
        return {"rows": rows, "ok": rows - sum(failed.values()), "failed": failed}

    def write(self, invocations: Path, spans: Path, epoch_unix_ns: int) -> None:
        """Write both as parts of a run's tables."""
        for name, rows, path in (
            ("invocations", self.invocations, invocations),
            ("spans", self.spans, spans),
        ):
            table = _table(name, [{"run": self.run, **row} for row in rows], epoch_unix_ns)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)


class Sender:
    """One connection to a deployed function, over which requests go one after another."""

    def __init__(
        self,
        target: Target,
        *,
        experiment: str,
        function: str,
        rows: Rows,
        clock: Clock,
        timeout_ns: int,
    ) -> None:
        """
        Args:
            target: where the function is; plain HTTP.
            experiment: the experiment of the rows.
            function: the function's name in the rows.
            rows: where they go.
            clock: tells when things happened.
            timeout_ns: from the beginning of a request to the end of its answer, at each step.
        """
        address = urllib.parse.urlsplit(target.url)
        self._path: Final = urllib.parse.urlunsplit(
            ("", "", address.path or "/", address.query, "")
        )
        self._host: Final = str(address.hostname)
        self._port: Final = address.port
        self._headers: Final = {"content-type": "application/json", **target.headers}
        self._experiment: Final = experiment
        self._function: Final = function
        self._rows: Final = rows
        self._clock: Final = clock
        self._timeout_s: Final = timeout_ns / 1e9
        self._connection: http.client.HTTPConnection | None = None
        self._sent = 0

    def send(
        self,
        event: Mapping[str, Any],
        *,
        at_ns: int | None = None,
        parent: str | None = None,
        stage: str | None = None,
    ) -> Answer:
        """Send one request and wait for its answer; a row, whatever becomes of it.

        Args:
            event: what is sent, as JSON.
            at_ns: when, since the epoch; at once if that is over.
            parent: the invocation that this one goes on from.
            stage: which part of a task it is.

        Raises:
            KeyboardInterrupt: it was interrupted; the row says so.
        """
        clock = self._clock
        scheduled = clock.now() if at_ns is None else at_ns
        clock.wait_until(scheduled)
        invocation = f"{self._rows.run}:{self._experiment}-0-{self._sent}"
        self._sent += 1
        body = json.dumps(event).encode()
        row: dict[str, Any] = {
            "experiment": self._experiment,
            "platform": self._rows.platform,
            "function": self._function,
            "invocation": invocation,
            "attempt": 1,
            "parent": parent,
            "stage": stage,
            "open_loop": False,
            "scheduled": scheduled,
            "sent": clock.now(),
            "request_bytes": len(body),
            # Until it is known better, whatever interrupts this.
            "outcome": "transport_error",
            "error": "interrupted while the answer was awaited",
        }
        self._rows.invocations.append(row)
        answered: Mapping[str, Any] = {}
        try:
            answered = self._exchange(row, body, {**self._headers, INVOCATION_HEADER: invocation})
        except TimeoutError:
            self._failed(row, "timeout", "no answer in time")
        except (OSError, http.client.HTTPException) as error:
            self._failed(row, "transport_error", f"{type(error).__name__}: {error}")
        except KeyboardInterrupt:
            self.close()
            raise
        ended = row.get("received") or clock.now()
        return Answer(invocation, row["outcome"], answered, ended, row.get("instance"))

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, row: dict[str, Any], body: bytes, headers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        connection = self._connection
        row["connection_reused"] = connection is not None
        if connection is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            self._connection = connection
            connection.connect()
            row["connected"] = self._clock.now()
        connection.request("POST", self._path, body, dict(headers))
        response = connection.getresponse()
        row["first_byte"] = self._clock.now()
        content = response.read()
        row["received"] = self._clock.now()
        if response.will_close:
            self.close()
        row["response_bytes"] = len(content)
        row["status"] = response.status
        row["request_id"] = response.getheader("x-amzn-requestid")
        row["instance"] = response.getheader("x-uncia-instance")
        answered = _object(content)
        row["outcome"], row["error"] = outcome(response.status, response.headers, answered, content)
        self._handler_span(row, answered)
        return answered

    def _handler_span(self, row: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        told = answered.get("uncia")
        if not isinstance(told, dict):
            return
        start, end = told.get("handler_start_ns"), told.get("handler_end_ns")
        if isinstance(start, int) and isinstance(end, int):
            epoch = self._clock.epoch_unix_ns
            self._rows.spans.append(
                {
                    "invocation": row["invocation"],
                    "name": "handler",
                    "start": start - epoch,
                    "end": end - epoch,
                    "clock": "function",
                }
            )

    def _failed(self, row: dict[str, Any], kind: str, error: str) -> None:
        row["outcome"], row["error"] = kind, error
        row.pop("received", None)
        self.close()


def outcome(
    status: int,
    headers: Mapping[str, str] | http.client.HTTPMessage,
    answered: Mapping[str, Any],
    content: bytes,
) -> tuple[str, str | None]:
    """An answer's outcome and error, by the load generator's rules (docs/reference/load-config)."""
    said = headers.get("x-uncia-outcome")
    text = content[:300].decode(errors="replace")
    told = answered.get("uncia")
    invalid = isinstance(told, dict) and told.get("valid") is False
    if said in _OUTCOMES:
        kind = str(said)
    elif "x-amz-function-error" in headers:
        kind = "timeout" if "Task timed out after" in text else "function_error"
    elif status in _OK:
        kind = "ok"
    elif status == _TOO_MANY:
        kind = "throttled"
    else:
        kind = "function_error" if status in _SERVER_ERROR else "transport_error"
    if kind == "ok" and invalid:
        return "function_error", "the answer says that it is not valid"
    return kind, None if kind == "ok" else f"HTTP {status}: {text}"


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _table(name: str, rows: list[dict[str, Any]], epoch_unix_ns: int) -> pa.Table:
    """Rows as a table of the record; what a row does not have is null."""
    schema = record.schema(name)
    if not rows:
        return record.empty(name, epoch_unix_ns)
    columns = {
        column.name: _array([row.get(column.name) for row in rows], column.type)
        for column in schema
    }
    return record.conform(pa.table(columns), name, epoch_unix_ns)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.utf8() if pa.types.is_dictionary(kind) else kind)
