"""Compiles a C file to a static executable, which runs whatever libraries a platform has."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.functions.dependencies import Target

_OPTIONS: Final = ("-std=c11", "-O2", "-static", "-s")


def compile_c(source: Path, architecture: str | None = None, include: Path | None = None) -> Path:
    """Return the executable of a C file, compiled now or before.

    The compiler is ``$CC``, else ``cc``. For another architecture than this machine's, ``$CC`` must
    name a compiler that makes its executables.

    Args:
        source: the file.
        architecture: ``x86_64`` or ``arm64``; by default this machine's.
        include: a folder of headers that it may include.

    Returns:
        A file of the cache, to be read only.

    Raises:
        UnciaError: the file is missing, there is no compiler for the architecture, or it failed.
    """
    target = Target.of(None, architecture).architecture
    cc = os.environ.get("CC", "")
    if not cc and target != Target.of(None, platform.machine()).architecture:
        raise UnciaError(
            f"{source} is to be compiled for {target}, and this machine is {platform.machine()}",
            hint=f"Name a compiler for it, such as CC={target}-linux-gnu-gcc.",
        )
    compiler = shlex.split(cc) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise UnciaError(
            f"there is no C compiler {compiler[0]} to compile {source}",
            hint="Install gcc and the C library's files for static programs, or set CC.",
        )
    headers = sorted(include.glob("*.h")) if include is not None else []
    try:
        content = b"\0".join(file.read_bytes() for file in (source, *headers))
    except OSError as error:
        raise UnciaError(f"{source} cannot be read: {error.strerror or error}") from error
    options = [*_OPTIONS, *([] if include is None else [f"-I{include}"])]
    version = _run([*compiler, "--version"], source).splitlines()[:1]
    digest = hashlib.sha256(f"{target} {compiler} {version} {_OPTIONS}\n".encode() + content)
    path = cache_folder("executables") / digest.hexdigest()[:32]

    def make(partial: Path) -> None:
        _run([*compiler, *options, "-o", str(partial), str(source)], source)

    return create_once(path, make)


def _run(command: list[str], source: Path) -> str:
    return programs.run(
        command,
        f"compiling {source} failed",
        hint="Static programs need the C library's static files (libc6-dev, glibc-static).",
    )
