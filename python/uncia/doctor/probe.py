"""Runs ``uncia-engine probe``, by which the engine tries what this machine allows."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import engine
from uncia.errors import UnciaError

_TIMEOUT_S: Final = 20


@dataclass(frozen=True)
class Probe:
    """The engine and its answer.

    Attributes:
        path: the binary; None if it is not installed.
        answer: its answer; None if it gave none.
        problem: why there is no path, or no answer.
    """

    path: Path | None
    answer: dict[str, Any] | None
    problem: str = ""


def engine_probe() -> Probe:
    """Find the engine and run its probe."""
    try:
        path = engine.binary()
    except UnciaError as error:
        return Probe(None, None, error.message)
    try:
        process = subprocess.run(
            [path, "probe"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(path, None, f"{path} probe did not answer: {error}")
    try:
        data = json.loads(process.stdout)
    except ValueError:
        data = None
    if process.returncode != 0 or not isinstance(data, dict):
        return Probe(path, None, f"{path} probe failed with exit code {process.returncode}")
    return Probe(path, data)
