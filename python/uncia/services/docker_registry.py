"""Finds and starts docker-registry: Debian's package of the CNCF's registry of images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from uncia.services import debian, listening

PROGRAM: Final = debian.Program("docker-registry", "serves images")


def configuration(folder: Path) -> Path:
    """Return a server's configuration file, which its command line names."""
    return folder / "config.yml"


class Server:
    """A docker-registry in front of a folder, on a free port of the loopback interface."""

    def __init__(self, folder: Path) -> None:
        """Start it and wait until it listens.

        Args:
            folder: made for it, with its data and its log.

        Raises:
            UnciaError: there is none, or it does not start; the message ends with its log.
        """
        program = PROGRAM.find()
        folder.mkdir(parents=True)
        # Closed to others, whatever the umask: what functions are made of is in it.
        folder.chmod(0o700)
        log = folder / "log"
        self.address, self.process = listening.start(
            lambda address: self._start(program, folder, log, address), log, PROGRAM.name
        )

    def _start(
        self, program: Path, folder: Path, log: Path, address: str
    ) -> subprocess.Popen[bytes]:
        # JSON is YAML.
        configuration(folder).write_text(
            json.dumps(
                {
                    "version": 0.1,
                    "log": {"level": "warn", "accesslog": {"disabled": True}},
                    "storage": {
                        "filesystem": {"rootdirectory": str(folder / "data")},
                        "delete": {"enabled": True},
                    },
                    "http": {"addr": address},
                }
            ),
            encoding="utf-8",
        )
        arguments = ["serve", str(configuration(folder))]
        variables = {"OTEL_TRACES_EXPORTER": "none"}
        return listening.begin(program, arguments, folder, log, variables)

    def stop(self) -> str:
        """End it; returns how it had ended before, as `listening.stop`."""
        return listening.stop(self.process)
