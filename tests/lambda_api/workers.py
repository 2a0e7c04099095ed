"""Workers that join a controller, as processes."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patience import scaled

if TYPE_CHECKING:
    from .conftest import Platform


class Worker:
    """``uncia-engine serve --join``."""

    def __init__(
        self,
        binary: Path,
        url: str,
        state: Path,
        name: str,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.state, self.name = state, name
        command = [binary, "serve", "--join", url, "--name", name, "--state", state]
        if config:
            file = state.with_suffix(".json")
            file.write_text(json.dumps(config))
            command += ["--config", file]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline() or b"{}")

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it, and return its exit code; a second call returns the same."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.communicate(timeout=scaled(60))
        return self.process.returncode


def workers(controller: "Platform") -> dict[str, str]:
    """The state of each worker, by its name."""
    with urllib.request.urlopen(f"{controller.url}/uncia/v1/workers") as answer:
        return {it["name"]: it["state"] for it in json.load(answer)["workers"]}
