"""Frameworks that serve functions over HTTP, a YAML file each, with what is pinned in a folder.

The folder of a framework's name holds what it is installed from (``requirements.txt``,
``package-lock.json``, ``go.mod``) and its shim: the files that stand between it and a handler.
`uncia.functions.frameworks` installs them.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from uncia.cache import cache_folder
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.yamlio import load, validate

_FOLDER: Final = Path(__file__).resolve().parent
_LOCKS: Final = ("requirements.txt", "package.json", "package-lock.json", "go.mod", "go.sum")
_CPUS: Final = {"x86_64": "64", "aarch64": "arm64"}
INSTALL: Final = "python -m uncia.functions.frameworks"


class Install(Form):
    """What a framework is installed from; its folder pins it."""

    python: str | None = Field(None, description="A distribution of PyPI")
    npm: str | None = Field(None, description="A package of npm")
    go: str | None = Field(None, description="A program of a Go module")


class Concurrency(Form):
    """How many requests a framework serves at a time."""

    default: int = Field(ge=1)
    variable: str | None = Field(
        None, description="The variable of the environment that says it; else {concurrency} does"
    )


class Framework(Form):
    """A framework: how it is installed and started, and how one knows that it is ready.

    Texts of ``command`` and ``environment`` may name ``{python}``, ``{packages}``, ``{program}``,
    ``{cpu}``, ``{port}``, ``{other_port}``, ``{upstream_port}``, ``{function}``, ``{timeout_s}``
    and ``{concurrency}``.
    """

    name: str
    description: str
    languages: list[Literal["python", "node"]] = Field(min_length=1)
    install: Install
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Files of its folder that are laid beside the function, by the names there;"
        " they may name {module}, {attribute}, {modules} and {port}",
    )
    command: list[str] = Field(min_length=1)
    environment: dict[str, str] = Field(default_factory=dict)
    path: str = Field("/", description="Where requests go")
    ready: str | None = Field(
        None, description="A path that is answered when the function is loaded; else its port says"
    )
    concurrency: Concurrency | None = Field(
        None, description="Without it, nothing bounds the requests that are served at a time"
    )
    serial: bool = Field(
        False, description="It serves one request at a time, and others must wait before it"
    )
    isolated: bool = Field(
        False, description="It needs a network namespace, because it listens on every interface"
    )
    before: str | None = Field(
        None, description="It stands before another framework: this one, unless another is chosen"
    )

    @property
    def folder(self) -> Path:
        """Where its locks and its shim lie."""
        return _FOLDER / self.name

    def place(self) -> Path:
        """Where it is installed, or would be: another place for each version of what is pinned."""
        digest = hashlib.sha256(f"{sys.version_info[:2]} {platform.machine()}\n".encode())
        for name in _LOCKS:
            if (self.folder / name).is_file():
                digest.update((self.folder / name).read_bytes())
        return cache_folder("frameworks") / f"{self.name}-{digest.hexdigest()[:16]}"

    def installed(self) -> Path:
        """Return where it is installed.

        Raises:
            UnciaError: it is not, or a program that runs it is not.
        """
        if self.command[0] == "node" and shutil.which("node") is None:
            raise UnciaError(f"{self.name} needs Node.js, which is not here", hint="Install node.")
        if not self.place().is_dir():
            sources = (self.install.python, self.install.npm, self.install.go)
            raise UnciaError(
                f"the framework {self.name} is not installed",
                hint=f"`{INSTALL} {self.name}` installs it:"
                f" {' and '.join(text for text in sources if text)}.",
            )
        return self.place()

    def placeholders(self, installed: Path) -> dict[str, str]:
        """What the texts of `command` and `environment` may name of its installation."""
        return {
            "python": sys.executable,
            "packages": str(installed / "packages"),
            "program": str(installed / "program"),
            "cpu": _CPUS.get(platform.machine(), platform.machine()),
        }


def names() -> tuple[str, ...]:
    """The names of all frameworks, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def get(name: str) -> Framework:
    """Return the framework with this name.

    Raises:
        UnciaError: there is none, or its file is wrong.
    """
    if name not in names():
        raise UnciaError(f"there is no framework {name!r}", hint=f"Known: {', '.join(names())}.")
    return validate(Framework, load(_FOLDER / f"{name}.yaml"))
