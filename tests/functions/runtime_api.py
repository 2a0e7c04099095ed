"""The Runtime API for a function that runs outside of any platform: events out, answers in."""

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PREFIX = "/2018-06-01/runtime/invocation/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, events: Sequence[Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events = list(enumerate(events))
        self.replies: dict[int, dict[str, Any]] = {}
        self.failure: Any = None
        self.done = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    # Clients that ask for the next event with their answer keep the connection.
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert self.path == f"{_PREFIX}next"
        if not self.server.events:
            self.server.done.set()
            return
        number, event = self.server.events.pop(0)
        body = json.dumps(event).encode()
        self.send_response(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", f"id-{number}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        name, kind = self.path.removeprefix(_PREFIX).split("/")[-2:]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if name == "init":
            self.server.failure = body
            self.server.done.set()
            return
        reply = (
            {"answer": body}
            if kind == "response"
            else {"error": body["errorType"], "message": body["errorMessage"]}
        )
        self.server.replies[int(name.removeprefix("id-"))] = reply
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        del format, arguments


def serve(
    executable: Path, events: Sequence[Any], *arguments: str, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """One new process of the executable that answers the events one after another."""
    with _Server(events) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        process = subprocess.Popen(
            [executable, *arguments],
            env={"AWS_LAMBDA_RUNTIME_API": f"{os.fsdecode(host)}:{port}", **(env or {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            ended = server.done.wait(timeout=120)
        finally:
            process.kill()
            _, message = process.communicate()
            server.shutdown()
        assert ended, message
        assert server.failure is None, server.failure
        return [server.replies[number] for number in range(len(events))]
