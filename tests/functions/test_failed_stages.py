"""What functions make of stages that fail, whatever these answer."""

import importlib.util
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CALLS = Path(__file__).parents[2] / "functions" / "_calls" / "python" / "uncia_calls.py"


class Failing(BaseHTTPRequestHandler):
    """Answers 500, with the request's body."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on the test's output."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ('{"errorMessage": "stage c: no"}', "stage c: no"),
        ('{"errorMessage": "no"}', 'HTTP 500: {"errorMessage": "no"}'),
        ('{"errorMessage": null}', 'HTTP 500: {"errorMessage": null}'),
        ('{"errorMessage": {"a": 1}}', 'HTTP 500: {"errorMessage": {"a": 1}}'),
        ("[]", "HTTP 500: []"),
        ("not here", "HTTP 500: not here"),
        ('{"uncia": {"hops": null}}', 'HTTP 500: {"uncia": {"hops": null}}'),
    ],
)
def test_any_answer_is_a_failure(url: str, body: str, failure: str) -> None:
    specification = importlib.util.spec_from_file_location("uncia_calls", CALLS)
    assert specification is not None
    assert specification.loader is not None
    calls = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(calls)
    stage = {"stage": "b", "function": "g", "url": url}
    hops, why = calls._perform(stage, "b", body.encode(), False, "i", "r")
    expected = failure if failure.startswith("stage ") else f"stage b: {failure}"
    assert (why, [hop["error"] for hop in hops]) == (expected, [expected])
