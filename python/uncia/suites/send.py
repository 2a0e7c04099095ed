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
from dataclasses import dataclass
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
_FLUSH_EVERY_S: Final = 0.5


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


class Rows:
    """The rows of requests and the spans that functions reported, on the disk as they grow."""

    def __init__(
        self, run: str, platform: str, invocations: Path, spans: Path, epoch_unix_ns: int
    ) -> None:
        """
        Args:
            run: the run's id.
            platform: the kind of platform.
            invocations: the part of the run's invocation table that this becomes.
            spans: the same of the spans.
            epoch_unix_ns: the run's.
        """
        self.run: Final = run
        self.platform: Final = platform
        self.invocations: Final[list[dict[str, Any]]] = []
        self.spans: Final[list[dict[str, Any]]] = []
        self._parts: Final = (
            _Part("invocations", invocations, epoch_unix_ns),
            _Part("spans", spans, epoch_unix_ns),
        )
        self._flushed = time.monotonic()

    def flush(self) -> None:
        """Write what is complete, if it is time again."""
        if time.monotonic() - self._flushed >= _FLUSH_EVERY_S:
            self._write()

    def close(self) -> None:
        """Write the rest and close both parts."""
        self._write()
        for part in self._parts:
            part.close()

    def done(self) -> dict[str, Any]:
        """The counts as a load generator reports them at its end."""
        failed: dict[str, int] = {}
        for row in self.invocations:
            if row["outcome"] != "ok":
                failed[row["outcome"]] = failed.get(row["outcome"], 0) + 1
        rows = len(self.invocations)
        return {"rows": rows, "ok": rows - sum(failed.values()), "failed": failed}

    def _write(self) -> None:
        for part, rows in zip(self._parts, (self.invocations, self.spans), strict=True):
            part.write([{"run": self.run, **row} for row in rows[part.written :]])
        self._flushed = time.monotonic()


class _Part:
    """A table of a run while it grows: an Arrow IPC stream."""

    def __init__(self, name: str, path: Path, epoch_unix_ns: int) -> None:
        self._name: Final = name
        self._epoch: Final = epoch_unix_ns
        self._file: Final = path.open("wb")
        self._stream: Final = pa.ipc.new_stream(self._file, record.schema(name, epoch_unix_ns))
        self.written = 0

    def write(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._stream.write_table(_table(self._name, rows, self._epoch))
            self.written += len(rows)
        self._file.flush()

    def close(self) -> None:
        self._stream.close()
        self._file.close()


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
        self._rows.flush()
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
    columns = {
        column.name: _array([row.get(column.name) for row in rows], column.type)
        for column in record.schema(name)
    }
    return record.conform(pa.table(columns), name, epoch_unix_ns)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.utf8() if pa.types.is_dictionary(kind) else kind)
