"""AWS's Runtime Interface Emulator with AWS's runtime client for Python.

The emulator is the binary that AWS ships in its package aws-sam-cli (PyPI); the client is
awslambdaric (PyPI). It isolates nothing, and serves one request at a time: a second one beside it
ends the emulator.
"""

from __future__ import annotations

import contextlib
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import free_port, python_packages, server

NAME: Final = "AWS's emulator"
_ARCHITECTURES: Final = {"x86_64": "x86_64", "aarch64": "arm64"}
_SOURCE: Final = """
def handler(event, context):
    return {"message": "hello"}
"""
_PATH: Final = "/2015-03-31/functions/function/invocations"


def install(folder: Path) -> None:
    python_packages(folder / "python", "awslambdaric")
    emulator = folder / "emulator"
    if emulator.exists():
        return
    # Only the emulator is wanted of it, not the 60 packages that it requires.
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--dest", str(folder / "wheel"), "aws-sam-cli"], check=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    name = f"samcli/local/rapid/aws-lambda-rie-{_ARCHITECTURES[platform.machine()]}"
    partial = folder / "emulator.partial"
    with zipfile.ZipFile(wheel) as archive:
        partial.write_bytes(archive.read(name))
    partial.chmod(0o755)
    partial.rename(emulator)


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    (work / "main.py").write_text(_SOURCE)
    port, api = free_port(), free_port()
    command = [
        str(installed / "emulator"),
        "--log-level=error",
        f"--runtime-interface-emulator-address=127.0.0.1:{port}",
        f"--runtime-api-address=127.0.0.1:{api}",
        str(installed / "python/bin/python"),
        "-m",
        "awslambdaric",
        "main.handler",
    ]
    # The port is open before the runtime is started, which the first request does.
    with server(command, port, work, {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api}"}):
        yield f"127.0.0.1:{port}", _PATH
