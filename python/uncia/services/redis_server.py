"""Starts redis-server, Debian's package of the database that documents are kept in."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Final

from uncia.services import debian, listening

PROGRAM: Final = debian.Program("redis-server", "keeps documents")


def configuration(folder: Path) -> Path:
    """Return a server's configuration file, which its command line names."""
    return folder / "redis.conf"


class Server:
    """A redis-server on a free port of the loopback interface, which keeps nothing on the disk."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        """Start it and wait until it listens.

        Args:
            folder: made for it, with its configuration and its log.
            memory_bytes: the most that it holds; beyond, it refuses to take more.

        Raises:
            UnciaError: there is none, or it does not start; the message ends with its log.
        """
        program = PROGRAM.find()
        folder.mkdir(parents=True)
        # Closed to others, whatever the umask: the password is in it.
        folder.chmod(0o700)
        self.password: Final = secrets.token_hex(16)
        self._memory_bytes: Final = memory_bytes
        log = folder / "log"
        self.address, self.process = listening.start(
            lambda address: self._start(program, folder, log, address), log, PROGRAM.name
        )

    def _start(
        self, program: Path, folder: Path, log: Path, address: str
    ) -> subprocess.Popen[bytes]:
        host, _, port = address.rpartition(":")
        lines = {
            "bind": host,
            "port": port,
            "requirepass": self.password,
            "save": '""',
            "appendonly": "no",
            "dir": f'"{folder}"',
            "maxmemory": self._memory_bytes,
            # Documents are never dropped to make room for others.
            "maxmemory-policy": "noeviction",
            # The command line stays, by which the server is found again.
            "set-proc-title": "no",
        }
        text = "".join(f"{name} {value}\n" for name, value in lines.items())
        configuration(folder).write_text(text, encoding="utf-8")
        return listening.begin(program, [str(configuration(folder))], folder, log, {})

    def stop(self) -> str:
        """End it; returns how it had ended before, as `listening.stop`."""
        return listening.stop(self.process)
