"""What functions make of stages, whatever these answer."""

import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "functions" / "_calls"
CALLS = FOLDER / "python" / "uncia_calls.py"

FOLLOW = """
const { follow } = require(process.argv[1]);
const hops = [null, 5, "parent", {}, { stage: "c", parent: "" }, { stage: "d", parent: "x" }];
const next = { stage: "b", function: "g", url: process.argv[2], event: { hops } };
const chain = { stages: [{ stage: "a", function: "f", next: [1] }, next], at: 0, turn: 1 };
follow(chain, {}, "i", "r", () => 1).then((done) => console.log(JSON.stringify(done)));
"""


class Echo(BaseHTTPRequestHandler):
    """Answers with the request's body: 500, and 200 at the path ``/good``.

    At ``/hops`` what it is given as hops is what it reports.
    """

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/hops":
            body = json.dumps({"uncia": {"hops": json.loads(body)["hops"]}}).encode()
        self.send_response(200 if self.path in ("/good", "/hops") else 500)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on the test's output."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def calls() -> Any:
    specification = importlib.util.spec_from_file_location("uncia_calls", CALLS)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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
def test_any_answer_is_a_failure(calls: Any, url: str, body: str, failure: str) -> None:
    stage = {"stage": "b", "function": "g", "url": url}
    hops, why = calls._perform(stage, "b", body.encode(), False, "i", "r")
    expected = failure if failure.startswith("stage ") else f"stage b: {failure}"
    assert (why, [hop["error"] for hop in hops]) == (expected, [expected])


LATER = {"stage": "c", "parent": ""}


@pytest.mark.parametrize(
    ("hops", "reported"),
    [
        (None, []),
        (5, []),
        ("ab", []),
        ({"parent": "x"}, []),
        ([1, None, "parent", {}, LATER], [LATER]),
        ([{"stage": "c", "parent": "x"}], [{"stage": "c", "parent": "x"}]),
    ],
)
def test_hops_of_another_form_are_the_functions_own_affair(
    calls: Any, url: str, hops: Any, reported: list[dict[str, str]]
) -> None:
    stage = {"stage": "b", "function": "g", "url": f"{url}good"}
    body = json.dumps({"uncia": {"hops": hops}}).encode()
    (hop, *later), why = calls._perform(stage, "b", body, False, "i", "r")
    assert why is None
    assert later == [{**it, "parent": it["parent"] or hop["request"]} for it in reported]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_so_they_are_in_node(url: str) -> None:
    module = FOLDER / "node" / "uncia-calls" / "index.js"
    command = ["node", "-e", FOLLOW, str(module), f"{url}hops"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (hop, *later), why = json.loads(done.stdout)
    assert why == ""
    assert later == [{"stage": "c", "parent": hop["request"]}, {"stage": "d", "parent": "x"}]


@pytest.mark.parametrize("path", ["", "good"])
def test_an_answer_that_is_nested_without_end_has_no_hops(calls: Any, url: str, path: str) -> None:
    stage = {"stage": "b", "function": "g", "url": f"{url}{path}"}
    hops, _ = calls._perform(stage, "b", b"[" * 200_000, False, "i", "r")
    assert len(hops) == 1
