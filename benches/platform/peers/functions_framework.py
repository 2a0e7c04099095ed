"""Google's functions-framework for Python (PyPI), with the server that it ships, gunicorn.

One process serves all requests, by threads; it isolates and meters nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import framework, free_port, server

NAME: Final = "functions-framework"
_SOURCE: Final = """
def hello(request):
    request.get_json()
    return {"message": "hello"}
"""


def install(folder: Path) -> None:
    framework(folder, "functions-framework-python")


def command(target: str, port: int) -> list[str]:
    """Serve a function of ``main.py``."""
    options = (f"--target={target}", "--source=main.py", "--host=127.0.0.1", f"--port={port}")
    return [sys.executable, "-m", "functions_framework", *options]


def environment(installed: Path) -> dict[str, str]:
    """What it is found by."""
    return {"PYTHONPATH": str(installed / "packages")}


def write(work: Path) -> None:
    """Write ``hello`` into a folder."""
    (work / "main.py").write_text(_SOURCE)


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    write(work)
    port = free_port()
    with server(command("hello", port), port, work, environment(installed)):
        yield f"127.0.0.1:{port}", "/"
