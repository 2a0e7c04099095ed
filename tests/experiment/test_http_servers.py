"""A function that is an HTTP server, weighed from an experiment file."""

from collections.abc import Callable
from pathlib import Path

from run_helpers import experiment, function, rows

SERVER = """\
import http.server
import os
import threading

together = threading.Barrier(3)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        together.wait(50)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_requests_that_overlap_are_rows_that_share_an_instance(
    command: Callable[..., tuple[int, str, str]], state_home: Path, tmp_path: Path
) -> None:
    folder = function(tmp_path / "server", SERVER)
    form = (folder / "function.yaml").read_text()
    form = form.replace("main.handler", "main.py").replace("timeout: 2s", "timeout: 60s")
    (folder / "function.yaml").write_text(form)
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
