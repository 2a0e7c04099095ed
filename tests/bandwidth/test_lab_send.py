"""Requests one after another, to servers that answer well, badly, late and not at all."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from uncia import record
from uncia.platforms import Target
from uncia.suites.send import Clock, Rows, Sender

EPOCH = 1_700_000_000 * 10**9


class Server(BaseHTTPRequestHandler):
    """Answers as the event asks it to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if event.get("hang_up"):
            self.close_connection = True
            return
        if event.get("late"):
            self.server.late_enough.wait(30)  # type: ignore[attr-defined]
        body = event.get("body", "{}").encode()
        self.send_response(event.get("status", 200))
        for name, value in event.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-amzn-requestid", self.headers["x-uncia-invocation"])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        server.late_enough = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/f"
        server.late_enough.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows("r", "embedded", tmp_path / "i.arrows", tmp_path / "s.arrows", EPOCH)


def sender(url: str, rows: Rows, timeout_ms: int = 30_000) -> Sender:
    return Sender(
        Target(url),
        experiment="e",
        function="f",
        rows=rows,
        clock=Clock(EPOCH),
        timeout_ns=timeout_ms * 10**6,
    )


def test_answers_go_on_from_one_another_over_one_connection(
    url: str, rows: Rows, tmp_path: Path
) -> None:
    client = sender(url, rows)
    body = {"next": 7, "uncia": {"handler_start_ns": EPOCH + 5, "handler_end_ns": EPOCH + 9}}
    headers = {"x-uncia-instance": "i1"}
    first = client.send({"body": json.dumps(body), "headers": headers}, stage="1/2")
    second = client.send({}, parent=first.invocation, stage="2/2")
    client.close()
    rows.close()
    assert (first.outcome, first.body["next"], first.instance) == ("ok", 7, "i1")
    table = record.read(tmp_path / "i.arrows").to_pylist()
    assert [row["connection_reused"] for row in table] == [False, True]
    assert [row["parent"] for row in table] == [None, first.invocation]
    assert [row["stage"] for row in table] == ["1/2", "2/2"]
    for row in table:
        assert row["scheduled"] <= row["sent"] <= row["first_byte"] <= row["received"]
        assert (row["outcome"], row["error"], row["status"]) == ("ok", None, 200)
        assert row["open_loop"] is False
        assert row["request_id"] == row["invocation"], "the header carries the id"
    assert second.received_ns == table[1]["received"]
    (span,) = record.read(tmp_path / "s.arrows", "spans").to_pylist()
    assert (span["name"], span["start"], span["end"]) == ("handler", 5, 9)


@pytest.mark.parametrize(
    ("event", "outcome", "error"),
    [
        ({"status": 429}, "throttled", "HTTP 429"),
        ({"status": 502, "body": "bad"}, "function_error", "HTTP 502: bad"),
        ({"status": 302}, "transport_error", "HTTP 302"),
        ({"body": '{"uncia": {"valid": false}}'}, "function_error", "not valid"),
        ({"headers": {"x-amz-function-error": "Unhandled"}}, "function_error", "HTTP 200"),
        (
            {"headers": {"x-amz-function-error": "Unhandled"}, "body": "Task timed out after 3"},
            "timeout",
            "Task timed out",
        ),
        ({"headers": {"x-uncia-outcome": "preempted"}}, "preempted", "HTTP 200"),
        ({"hang_up": True}, "transport_error", "RemoteDisconnected"),
    ],
)
def test_whatever_becomes_of_a_request_is_a_row(
    url: str, rows: Rows, tmp_path: Path, event: dict[str, object], outcome: str, error: str
) -> None:
    client = sender(url, rows)
    assert client.send(event).outcome == outcome
    # The next one goes out all the same, on another connection if need be.
    assert client.send({}).outcome == "ok"
    client.close()
    rows.close()
    assert rows.done() == {"rows": 2, "ok": 1, "failed": {outcome: 1}}
    row = record.read(tmp_path / "i.arrows").to_pylist()[0]
    assert row["outcome"] == outcome
    assert error in row["error"]


def test_an_answer_that_does_not_come_is_a_timeout(url: str, rows: Rows, tmp_path: Path) -> None:
    client = sender(url, rows, timeout_ms=50)
    assert client.send({"late": True}).outcome == "timeout"
    client.close()
    rows.close()
    row = record.read(tmp_path / "i.arrows").to_pylist()[0]
    assert (row["received"], row["status"]) == (None, None)


def test_nobody_listens(rows: Rows, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        port = server.server_port
    client = sender(f"http://127.0.0.1:{port}/", rows)
    assert client.send({}).outcome == "transport_error"
    client.close()
    rows.close()
    row = record.read(tmp_path / "i.arrows").to_pylist()[0]
    assert (row["connected"], row["connection_reused"]) == (None, False)
