"""A function that is an HTTP server, weighed from an experiment file."""

from collections.abc import Callable
from pathlib import Path

from run_helpers import experiment, function, rows

from uncia.runs.folder import read_run

SERVER = """\
import http.server
import os
import threading

meeting = threading.Barrier(3)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        meeting.wait(50)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def write_server(tmp_path: Path) -> None:
    """The function ./server, which answers once three requests are there."""
    folder = function(tmp_path / "server", SERVER)
    form = (folder / "function.yaml").read_text()
    form = form.replace("main.handler", "main.py").replace("timeout: 2s", "timeout: 60s")
    (folder / "function.yaml").write_text(form)


def test_requests_that_overlap_are_rows_that_share_an_instance(
    command: Callable[..., tuple[int, str, str]], state_home: Path, tmp_path: Path
) -> None:
    write_server(tmp_path)
    source = "./server, architecture: http, concurrency: 3"
    path = experiment(tmp_path, source, "{kind: burst, sizes: [3]}")
    code, _, errors = command("run", str(path), "--out", str(tmp_path / "run"))
    assert code == 0, errors
    assert "HTTP events" not in errors
    (first, second, third) = rows(tmp_path / "run")
    for row in (first, second, third):
        assert (row["outcome"], row["shared"]) == ("ok", True)
        assert row["memory_peak"] is None
    assert first["instance"] == second["instance"] == third["instance"]


LIKE = """\
name: like
seed: 3
platform: {kind: embedded, like: gcp}
functions:
  server: {source: ./server}
  hello: {source: hello, replicas: 2}
  other: {source: hello, memory: 512MB}
experiments:
  together: {function: server, arrivals: {kind: burst, sizes: [3]}}
  alone:
    mix:
      - {function: hello, arrivals: {kind: burst, sizes: [2]}}
      - {function: other, arrivals: {kind: burst, sizes: [2]}}
"""


def test_a_platform_like_cloud_run_serves_servers_so_and_says_who_is_none(
    command: Callable[..., tuple[int, str, str]], state_home: Path, tmp_path: Path
) -> None:
    write_server(tmp_path)
    path = tmp_path / "like.yaml"
    path.write_text(LIKE)
    code, _, errors = command("run", str(path), "--out", str(tmp_path / "run"))
    assert code == 0, errors
    table = rows(tmp_path / "run")
    overlapping = [row for row in table if row["experiment"] == "together"]
    assert {(row["outcome"], row["shared"]) for row in overlapping} == {("ok", True)}
    assert len({row["instance"] for row in overlapping}) == 1
    assert not any(row["shared"] for row in table if row["experiment"] == "alone")
    warnings = [it for it in read_run(tmp_path / "run")["warnings"] if "HTTP server" in it]
    assert "hello, other: it polls, and an instance of it serves one request at a time" in errors
    assert [it.partition(":")[0] for it in warnings if "it polls" in it] == ["hello, other"]
