"""``uncia-engine cpu``: JSON in, JSON or tables out."""

import json
import subprocess
from typing import Any

from uncia import engine
from uncia.errors import UnciaError


def ask(command: str, config: dict[str, Any]) -> Any:
    """Run ``uncia-engine cpu COMMAND`` and return the JSON that it prints.

    Args:
        command: the subcommand, such as ``duration``.
        config: its configuration.

    Raises:
        UnciaError: the configuration is wrong, or the engine failed; the engine's own sentence.
    """
    done = subprocess.run(
        [str(engine.binary()), "cpu", command, "--config", "-"],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    raise UnciaError(_sentence(done.stderr) or f"uncia-engine cpu {command} failed")


def _sentence(text: str) -> str | None:
    """The message of the last error among the events, None if there is none."""
    found = None
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "error":
            found = str(event.get("message"))
    return found
