"""The versions of software that a result depends on."""

from __future__ import annotations

import platform as host
import subprocess

from uncia import engine
from uncia.version import __version__


def versions() -> dict[str, str]:
    """The versions of software that a result depends on."""
    return {
        "uncia": __version__,
        "engine": _engine_version(),
        "python": host.python_version(),
        "kernel": f"{host.system()} {host.release()}",
        "architecture": host.machine(),
    }


def _engine_version() -> str:
    answer = subprocess.run(
        [str(engine.binary()), "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.strip() or "unknown"
