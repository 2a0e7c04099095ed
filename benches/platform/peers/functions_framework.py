"""Google's functions-framework for Python (PyPI), with the server that it ships, gunicorn.

One process serves all requests, by threads; it isolates and meters nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import free_port, python_packages, server

NAME: Final = "functions-framework"
_SOURCE: Final = """
def hello(request):
    request.get_json()
    return {"message": "hello"}
"""


def install(folder: Path) -> None:
    python_packages(folder, "functions-framework")


def write(work: Path) -> None:
    """Write ``hello`` into a folder."""
    (work / "main.py").write_text(_SOURCE)


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    write(work)
    port = free_port()
    command = [str(installed / "bin/functions-framework"), "--target=hello", "--source=main.py"]
    with server([*command, "--host=127.0.0.1", f"--port={port}"], port, work):
        yield f"127.0.0.1:{port}", "/"
