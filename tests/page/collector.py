"""A collector of spans: takes what OTLP over HTTP sends as JSON, and checks its form."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_TIMEOUT_S: Final = 60.0
_TRACE: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN: Final = re.compile(r"(?!0{16})[0-9a-f]{16}")
_NUMBER: Final = re.compile(r"-?\d+")
_SPAN_KEYS: Final = {
    *("traceId", "spanId", "parentSpanId", "traceState", "name", "kind", "status"),
    *("startTimeUnixNano", "endTimeUnixNano", "attributes"),
}
_VALUES: Final[dict[str, Callable[[Any], bool]]] = {
    "stringValue": lambda value: isinstance(value, str),
    # Numbers of 64 bits are texts in the JSON of Protocol Buffers.
    "intValue": lambda value: isinstance(value, str) and bool(_NUMBER.fullmatch(value)),
    "boolValue": lambda value: isinstance(value, bool),
}


class Collector:
    """Keeps the spans that it was sent, each with the attributes of its resource.

    Attributes:
        refusals: statuses that the next requests are answered with, instead of being taken.
        headers: those of each request.
        errors: what was wrong with the requests.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[dict[str, Any]] = []
        self.refusals: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.errors: list[str] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Take a request; return the status of the answer."""
        self.headers.append(headers)
        if self.refusals:
            return self.refusals.pop(0)
        try:
            assert path == "/v1/traces", path
            assert headers["content-type"] == "application/json", headers
            self.spans += list(checked(json.loads(body)))
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            return 400
        return 200

    def wait(self, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The spans, once a condition holds of them."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition(self.spans):
            assert time.monotonic() < deadline, (self.spans, self.errors)
            time.sleep(0.05)
        assert self.errors == []
        return self.spans


def checked(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The spans of an ``ExportTraceServiceRequest``, whose form is checked on the way."""
    assert set(request) == {"resourceSpans"}, request
    for of_resource in request["resourceSpans"]:
        assert set(of_resource) == {"resource", "scopeSpans"}, of_resource
        resource = attributes(of_resource["resource"]["attributes"])
        for of_scope in of_resource["scopeSpans"]:
            assert set(of_scope) == {"scope", "spans"}, of_scope
            assert of_scope["scope"]["name"] == "uncia"
            for span in of_scope["spans"]:
                yield checked_span(span) | {"resource": resource}


def checked_span(span: dict[str, Any]) -> dict[str, Any]:
    """A span, with its attributes as a mapping and its times as numbers."""
    assert set(span) <= _SPAN_KEYS, span
    assert _TRACE.fullmatch(span["traceId"]), span
    assert _SPAN.fullmatch(span["spanId"]), span
    assert "parentSpanId" not in span or _SPAN.fullmatch(span["parentSpanId"]), span
    assert span["name"], span
    assert span["kind"] in range(1, 6), span
    for key in ("startTimeUnixNano", "endTimeUnixNano"):
        assert isinstance(span[key], str), span
    start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    assert 0 < start <= end, span
    assert set(span["status"]) <= {"code", "message"}, span
    assert span["status"].get("code", 0) in (0, 1, 2), span
    return span | {"attributes": attributes(span["attributes"]), "start": start, "end": end}


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as a mapping; their numbers as such."""
    result: dict[str, Any] = {}
    for pair in pairs:
        assert set(pair) == {"key", "value"}, pair
        ((kind, value),) = pair["value"].items()
        assert _VALUES[kind](value), pair
        assert pair["key"] not in result, pair
        result[pair["key"]] = int(value) if kind == "intValue" else value
    return result


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            names = {name.lower(): value for name, value in self.headers.items()}
            status = collector.take(self.path, names, body)
            answer = b"{}"
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
