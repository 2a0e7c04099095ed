"""Builds and starts versitygw: an S3 server in front of a folder.

Its version and all that it is made of are pinned by the Go module in the folder beside this file.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.functions import golang
from uncia.services import listening

_MODULE: Final = Path(__file__).with_name("versitygw_module")
_PROGRAM: Final = "github.com/versity/versitygw/cmd/versitygw"

HINT: Final = "Build it with `make services`, or `python -m uncia.services`."


def version() -> str:
    """Return the version that is pinned."""
    for line in (_MODULE / "go.mod").read_text(encoding="utf-8").splitlines():
        words = line.removeprefix("require ").split()
        if words[:1] == ["github.com/versity/versitygw"]:
            return words[1]
    raise AssertionError("go.mod pins versitygw")


def _built() -> Path:
    return cache_folder("services") / f"versitygw-{version()}"


def find() -> Path:
    """Find the program: the one that was built, else one on the PATH.

    Raises:
        UnciaError: there is none.
    """
    if _built().exists():
        return _built()
    on_path = shutil.which("versitygw")
    if on_path is None:
        raise UnciaError("there is no versitygw, which serves the store", hint=HINT)
    return Path(on_path)


def build() -> Path:
    """Build the program into the user's cache, once; it takes some minutes.

    Raises:
        UnciaError: there is no Go that is new enough, or the build failed.
    """

    def make(partial: Path) -> None:
        golang.build_pinned(_MODULE, _PROGRAM, partial, "versitygw")

    return create_once(_built(), make)


def data(folder: Path) -> Path:
    """Return where a server keeps its objects, which its command line names."""
    return folder / "data"


class Server:
    """A versitygw in front of a folder, on a free port of the loopback interface."""

    def __init__(self, folder: Path) -> None:
        """Start it and wait until it listens.

        Args:
            folder: made for it, with its data and its log.

        Raises:
            UnciaError: there is none, or it does not start; the message ends with its log.
        """
        program = find()
        folder.mkdir(parents=True)
        # Closed to others, whatever the umask: what functions store is in it.
        folder.chmod(0o700)
        data(folder).mkdir()
        (folder / "sidecar").mkdir()
        self.access_key: Final = f"uncia{secrets.token_hex(6)}"
        self.secret_key: Final = secrets.token_urlsafe(24)
        self._log: Final = folder / "log"
        self.address, self.process = listening.start(
            lambda address: self._start(program, folder, address), self._log, "versitygw"
        )

    def _start(self, program: Path, folder: Path, address: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    *(str(program), "--port", address),
                    *("posix", "--sidecar", str(folder / "sidecar"), str(data(folder))),
                ],
                # The keys are no arguments, which every user of the machine could read.
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "ROOT_ACCESS_KEY": self.access_key,
                    "ROOT_SECRET_KEY": self.secret_key,
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Out of reach of the terminal's Ctrl-C: the run ends it, after its functions.
                start_new_session=True,
            )

    def stop(self) -> str:
        """End it; returns how it had ended before, as `listening.stop`."""
        return listening.stop(self.process)
