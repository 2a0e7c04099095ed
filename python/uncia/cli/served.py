"""What ``uncia serve`` says to people: address, functions, and each invocation in a line."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from uncia.units import format_size

# Soon enough to look immediate, and rare enough to cost the platform nothing.
_POLL_S: Final = 0.25
_FUNCTIONS_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 10
# Of more invocations in one poll, the first are shown and the others counted.
_MAX_LINES: Final = 20
# The prices of invocations: the platform bills as Lambda does.
_TARIFF: Final = "aws-lambda-x86"
_LOOPBACK: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def watch() -> int:
    """Start a process that speaks for the platform; return where it wants the engine's output.

    The process that calls this becomes the engine, and keeps its number and its signals; the one
    that speaks ends with the engine, when the output does.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    os.close(writing)
    try:
        # Ctrl-C is for the engine, whose end ends this.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _speak(reading)
    except BrokenPipeError:
        pass  # nobody reads any more
    finally:
        # Not the exit of a command: its parent goes on as the engine.
        sys.stdout.flush()
        os._exit(0)


def _speak(engine: int) -> None:
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(engine, 65_536)
        if not read:
            return  # it did not start, and says why itself
        line += read
    ready = json.loads(line)
    address = ready["address"]
    _say(f"Listening on http://{address}: endpoint_url of any Lambda client. Ctrl-C ends it.")
    for warning in ready.get("warnings", []):
        _say(f"Warning: {warning}")
    speaker = Speaker(address)
    while True:
        ended = bool(select.select([engine], [], [], _POLL_S)[0])
        if ended and not os.read(engine, 65_536):
            return
        try:
            speaker.poll()
        except (OSError, urllib.error.URLError):
            continue  # it is about to end


class Speaker:
    """Says which functions there are, and what their invocations came to."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._functions: dict[str, str] | None = None
        self._asked = 0.0
        self._last: int | None = None

    def poll(self) -> None:
        """Say what is new since the previous call; earlier invocations are not repeated."""
        if self._last is None:
            self._last = self._last_row()
        now = time.monotonic()
        if self._functions is None or now - self._asked > _FUNCTIONS_EVERY_S:
            self._asked = now
            self._say_functions()
        rows, self._last = self._rows(self._last)
        for row in rows[:_MAX_LINES]:
            _say(line(row))
        if len(rows) > _MAX_LINES:
            failed = sum(row["outcome"] != "ok" for row in rows[_MAX_LINES:])
            tail = f", {failed:,} of them not ok" if failed else ""
            _say(f"... and {len(rows) - _MAX_LINES:,} more{tail}")

    def _say_functions(self) -> None:
        listed = self._json("/2015-03-31/functions/?MaxItems=10000")["Functions"]
        functions = {item["FunctionName"]: _function(item) for item in listed}
        if self._functions is None and not functions:
            _say("No functions yet.")
        before = self._functions or {}
        for name, text in functions.items():
            if before.get(name) != text:
                urls = self._json(f"/2021-10-31/functions/{name}/urls")["FunctionUrlConfigs"]
                url = (
                    f", {urls[0]['FunctionUrl']} (HTTP events: what is sent is event['body'])"
                    if urls
                    else ""
                )
                _say(f"Function {name}: {text}{url}")
        for name in before.keys() - functions.keys():
            _say(f"Function {name} was deleted.")
        self._functions = functions

    def _last_row(self) -> int:
        """Find the number of the log's last row, without reading the log."""
        low, high = 0, 1
        while self._rows(high - 1, limit=1)[0]:
            low, high = high, high * 2
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self._rows(middle - 1, limit=1)[0] else (low, middle)
        return low

    def _rows(self, after: int, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
        import pyarrow as pa

        path = f"/uncia/v1/invocations?after={after}" + (f"&limit={limit}" if limit else "")
        with self._open(path) as answer:
            last = int(answer.headers["x-uncia-last-rowid"])
            with pa.ipc.open_stream(answer.read()) as reader:
                return reader.read_all().to_pylist(), last

    def _json(self, path: str) -> dict[str, Any]:
        with self._open(path) as answer:
            content: dict[str, Any] = json.loads(answer.read())
            return content

    def _open(self, path: str) -> Any:
        return _LOOPBACK.open(f"http://{self._address}{path}", timeout=_TIMEOUT_S)


def line(row: Mapping[str, Any]) -> str:
    """Write an invocation in a line: time, function, outcome, duration, start and cost."""
    ended = row["ended"]
    moment = time.strftime("%H:%M:%S", time.localtime((ended or time.time_ns()) / 1e9))
    parts = [f"{moment}  {row['function']}  {row['outcome']}"]
    if row["execution"] is not None:
        parts.append(f"{row['execution'] / 1e6:,.1f} ms")
    if row["start"] is not None:
        initialization = row["initialization"]
        took = "" if initialization is None else f" start in {initialization / 1e6:,.1f} ms"
        parts.append(f"{row['start']}{took}")
    cost = _cost(row)
    if cost is not None:
        parts.append(f"{cost * 1_000_000:,.2f} USD a million")
    if row["error"]:
        parts.append(" ".join(row["error"].split()))
    return "  ".join(parts)


def _cost(row: Mapping[str, Any]) -> float | None:
    """What Lambda would bill for an invocation, in dollars."""
    from uncia.tariffs import catalogue, request

    cost = request.cost(catalogue.resolve([_TARIFF])[0], row)
    return None if cost is None else float(cost)


def _function(item: Mapping[str, Any]) -> str:
    return (
        f"{item['Runtime']}, {format_size(item['MemorySize'] << 20)}, {item['Timeout']} s"
        f", {item['Handler']}"
    )


def _say(text: str) -> None:
    print(text, flush=True)
