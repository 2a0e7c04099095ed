"""AWS's Runtime Interface Emulator with AWS's runtime client for Python.

The emulator is built from AWS's Go module; the client is awslambdaric (PyPI). It isolates nothing,
and serves one request at a time: a second one beside it ends the emulator.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import framework, free_port, server

NAME: Final = "AWS's emulator"
_SOURCE: Final = """
def handler(event, context):
    return {"message": "hello"}
"""
_PATH: Final = "/2015-03-31/functions/function/invocations"


def install(folder: Path) -> None:
    framework(folder, "aws-emulator")


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    (work / "main.py").write_text(_SOURCE)
    port, api = free_port(), free_port()
    command = [
        str(installed / "program"),
        "--log-level=error",
        f"--runtime-interface-emulator-address=127.0.0.1:{port}",
        f"--runtime-api-address=127.0.0.1:{api}",
        sys.executable,
        "-m",
        "awslambdaric",
        "main.handler",
    ]
    # The port is open before the runtime is started, which the first request does.
    variables = {
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api}",
        "PYTHONPATH": str(installed / "packages"),
    }
    with server(command, port, work, variables):
        yield f"127.0.0.1:{port}", _PATH
