"""Calls of ``uncia-engine cpu``: JSON in, JSON or a table out."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from uncia import engine
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa


def ask(command: str, config: dict[str, Any]) -> Any:
    """Run ``uncia-engine cpu COMMAND`` and return the JSON that it prints.

    Args:
        command: the subcommand, such as ``duration``.
        config: its configuration.

    Raises:
        UnciaError: the configuration is wrong, or the engine failed; the engine's own sentence.
    """
    return json.loads(_run(command, config))


def table(command: str, config: dict[str, Any]) -> pa.Table:
    """Run ``uncia-engine cpu COMMAND`` and return the Arrow stream that it prints.

    Args:
        command: the subcommand, such as ``sweep``.
        config: its configuration.

    Raises:
        UnciaError: as `ask`.
    """
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(_run(command, config))) as stream:
        return stream.read_all()


def _run(command: str, config: dict[str, Any]) -> bytes:
    process = subprocess.run(
        [str(engine.binary()), "cpu", command, "--config", "-"],
        input=json.dumps(config).encode(),
        capture_output=True,
        check=False,
    )
    if process.returncode == 0:
        return process.stdout
    raise UnciaError(_sentence(process.stderr) or f"uncia-engine cpu {command} failed")


def _sentence(text: bytes) -> str | None:
    """Return the message of the last error event; None without one."""
    message = None
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "error":
            message = str(event.get("message"))
    return message
