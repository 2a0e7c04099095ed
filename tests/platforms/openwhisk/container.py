"""What runs a Python action: ``/init`` once, then ``/run``, as OpenWhisk's containers serve them.

    python container.py

The code of a zip is in the working folder already. Its port goes into the file ``.port`` there.
"""

import importlib.util
import json
import os
import sys
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

MAIN: list[Any] = []


class Handler(BaseHTTPRequestHandler):
    """Takes one request after the other."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Load the action, or run it."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            status, answer = init(body["value"]) if self.path == "/init" else run(body)
        except Exception:  # noqa: BLE001  # what an action raises as it is loaded is the answer
            traceback.print_exc()
            status, answer = 502, {"error": "Cannot start action. Check logs for details."}
        sys.stdout.flush()
        sys.stderr.flush()
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the output is the action's."""


def init(value: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Load the action."""
    folder = Path.cwd()
    if not value["binary"]:
        (folder / "__main__.py").write_text(value["code"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("main__", folder / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    MAIN.append(getattr(module, value["main"]))
    return 200, {"ok": True}


def run(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run the action; its exception is its error."""
    for key, value in body.items():
        if key != "value":
            os.environ[f"__OW_{key.upper()}"] = value
    try:
        answer = MAIN[0](body["value"])
    except Exception as error:  # noqa: BLE001  # whatever it is
        traceback.print_exc()
        answer = {"error": str(error)}
    if not isinstance(answer, dict):
        return 502, {"error": "The action did not return a dictionary."}
    return 200, answer


def main() -> None:
    """Serve until it is killed."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    Path(".port.new").write_text(str(server.server_port), encoding="utf-8")
    Path(".port.new").rename(".port")
    server.serve_forever()


if __name__ == "__main__":
    main()
