"""Programs that Debian packages: found on the PATH, and installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from uncia.errors import UnciaError


@dataclass(frozen=True)
class Program:
    """A program, in the package of its name or another.

    Attributes:
        name: of the program.
        purpose: what it does, as in "which serves images".
        package: Debian's, where it has another name.
    """

    name: str
    purpose: str
    package: str | None = None

    @property
    def hint(self) -> str:
        """How to have it."""
        return f"Install it: apt-get install {self.package or self.name}"

    def find(self) -> Path:
        """Find the program.

        Raises:
            UnciaError: there is none.
        """
        path = shutil.which(self.name)
        if path is None:
            raise UnciaError(f"there is no {self.name}, which {self.purpose}", hint=self.hint)
        return Path(path)

    def can_install(self) -> bool:
        """Whether this user and machine could install it."""
        return os.geteuid() == 0 and shutil.which("apt-get") is not None

    def install(self) -> Path:
        """Install Debian's package, unless the program is there.

        Raises:
            UnciaError: it is not there, and this user or machine cannot install it.
        """
        if shutil.which(self.name) is None:
            if not self.can_install():
                raise UnciaError(
                    f"{self.name} can only be installed as root on a Debian machine", hint=self.hint
                )
            # A policy that starts nothing: a run has a server of its own.
            process = subprocess.run(
                ["apt-get", "install", "-y", "--no-install-recommends", self.package or self.name],
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if process.returncode:
                lines = process.stderr.strip().splitlines()[-3:]
                raise UnciaError(
                    f"{self.name} cannot be installed: " + "\n".join(lines), hint=self.hint
                )
        return self.find()
