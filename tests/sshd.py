"""A real sshd for tests: on a free loopback port, with keys and configuration of its own."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import scaled

_UNPACKED = Path(__file__).parents[1] / "target/openssh"
"""Where the Makefile unpacks Debian's packages, instead of installing a server."""

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:{_UNPACKED}/usr/sbin")

_PRIVATE = (
    'mount --bind "$0" /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"'
)
"""An sshd of root wants a user and a folder, which it has in a mount namespace of its own."""

_USER = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"


def missing() -> str | None:
    """Why there can be none here; None if there can."""
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "needs OpenSSH's client and server (make languages)"
    if os.geteuid() == 0:
        tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if tried.returncode != 0:
            return "sshd as root needs a mount namespace of its own"
    return None


class Sshd:
    """A server, and the configuration by which ssh finds it.

    Attributes:
        folder: of keys and configuration.
        port: that it listens on.
        temporary: the folder for temporary files of those who log in.
        path: ``PATH`` on which ssh has this configuration.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "there"
        self.temporary.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
            )
        public = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"SetEnv TMPDIR={self.temporary}\n"
        )
        (folder / "ssh_config").write_text(
            f"IdentityFile {folder}/user\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {folder}/known\nGlobalKnownHostsFile none\n"
        )
        tools = folder / "bin"
        tools.mkdir()
        ssh = tools / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"ssh://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert SSHD is not None, "it was looked for"
        log = (self.folder / "log").open("wb")
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if os.geteuid() == 0:
            users = self.folder / "passwd"
            users.write_text(f"{Path('/etc/passwd').read_text()}{_USER}")
            command = ["unshare", "-m", "sh", "-c", _PRIVATE, str(users), *command]
        libraries = ":".join(map(str, _UNPACKED.glob("usr/lib/*")))
        self._process = subprocess.Popen(
            command,
            stderr=log,
            process_group=0,
            env={**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else None,
        )
        log.close()
        end = time.monotonic() + scaled(30)
        while time.monotonic() < end:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("sshd does not listen")

    def sessions(self) -> list[int]:
        """Its processes that serve a connection."""
        assert self._process is not None, "it was started"
        return _children(self._process.pid)

    def programs(self) -> list[int]:
        """Processes that run for those who logged in, by the temporary folder in their settings."""
        mark = f"TMPDIR={self.temporary}".encode()
        result = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    result.append(int(entry.name))
            except OSError:
                continue
        return result

    def lose(self) -> None:
        """Lose every connection, as when a network goes."""
        for pid in self.sessions():
            for each in [*_children(pid), pid]:
                # The session's own sshd, and the one that runs as the user; not what they run.
                if b"sshd" in Path(f"/proc/{each}/cmdline").read_bytes():
                    os.kill(each, signal.SIGKILL)

    def stop(self) -> None:
        """End it and its sessions."""
        if self._process is None:
            return
        for pid in self.sessions():
            os.kill(pid, signal.SIGKILL)
        self._process.terminate()
        self._process.wait()
        self._process = None

    def left(self) -> tuple[list[int], list[Path]]:
        """What is still there of those who logged in, once all had time to end."""
        end = time.monotonic() + scaled(20)
        while time.monotonic() < end and (self.programs() or any(self.temporary.iterdir())):
            time.sleep(0.05)
        return self.programs(), list(self.temporary.iterdir())


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    """A server for a time."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    server = Sshd(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
