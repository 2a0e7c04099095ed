"""Locks what functions require, with hashes: by uv for Python, npm for Node.js, Maven for Java."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.errors import RunFailedError, UnciaError
from uncia.functions import maven, npm
from uncia.functions.catalogue import load
from uncia.functions.dependencies import Target, pinned
from uncia.functions.form import Function

_LAST_LINES: Final = 12


@dataclass(frozen=True)
class Lock:
    """A lock file that was written.

    Attributes:
        path: the file.
        pins: what it pins: ``name==version``, ``name@version`` or ``group:artifact:version``.
        target: what it is for, in words; empty where it is for all.
    """

    path: Path
    pins: Sequence[str]
    target: str


def lock(
    function: str | os.PathLike[str] | Function,
    *,
    python_version: str | None = None,
    architecture: str | None = None,
    upgrade: bool = False,
) -> list[Lock]:
    """Write the lock files of what a function requires, one for each language that requires any.

    Versions that an earlier lock pins stay, as far as they fit.

    Args:
        function: a folder, a name in the catalogue, or a loaded function.
        python_version: ``major.minor`` of the target; by default this interpreter's.
        architecture: ``x86_64`` or ``arm64``; by default this machine's.
        upgrade: whether to take the newest versions instead.

    Raises:
        UnciaError: it requires nothing, the program that finds versions is missing, or no versions
            fit the target; an earlier lock file is kept.
    """
    if not isinstance(function, Function):
        function = load(function)
    locks = []
    if wanted := function.requirements("python"):
        target = Target.of(python_version, architecture)
        locks.append(_lock_python(wanted, target, function.lock_path("python"), upgrade=upgrade))
    node = function.runtime_folder("node")
    if "node" in function.runtime_names and npm.requirements(node):
        path = npm.write_lock(node, upgrade=upgrade)
        locks.append(Lock(path, npm.pinned(path), ""))
    if wanted := function.requirements("java"):
        path = maven.write_lock(wanted, function.lock_path("java"))
        locks.append(Lock(path, maven.pinned(path), ""))
    if not locks:
        raise UnciaError(
            f"{function.name} requires nothing, so there is nothing to lock",
            hint=function.requirements_hint(),
        )
    return locks


def _lock_python(wanted: Sequence[str], target: Target, path: Path, *, upgrade: bool) -> Lock:
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.exists() and path.stat().st_size:
            # uv keeps the versions that its output file pins.
            shutil.copyfile(path, partial)
        _compile(wanted, target, partial, upgrade=upgrade)
        partial.replace(path)
    except OSError as error:
        raise UnciaError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    words = f"Python {target.python_version} on {target.architecture}"
    return Lock(path, pinned(path), words)


def _compile(wanted: Sequence[str], target: Target, out: Path, *, upgrade: bool) -> None:
    command = [
        *(uv(), "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url"),
        *("--no-header", "--no-annotate", "--only-binary=:all:"),
        *("--python-version", target.python_version),
        *("--python-platform", f"{target.architecture}-manylinux_2_34"),
        *(["--upgrade"] if upgrade else []),
        *("--output-file", str(out), "-"),
    ]
    process = subprocess.run(
        command, input="\n".join(wanted) + "\n", capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise RunFailedError(
            f"uv found no versions of {', '.join(wanted)} for Python {target.python_version} on"
            f" {target.architecture}:\n{programs.last_lines(process.stderr, _LAST_LINES)}",
            hint="Nothing was written. Check the names, the network, and that there are binary"
            " wheels for this target.",
        )


def uv() -> str:
    """Return the path of uv: that of this Python's packages, else of the PATH.

    Raises:
        UnciaError: there is none.
    """
    if importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin

        try:
            return str(find_uv_bin())
        except FileNotFoundError:
            pass  # the package without its program: the PATH may have one
    path = shutil.which("uv")
    if path is None:
        raise UnciaError(
            "uv, which finds the versions of requirements, is missing",
            hint=f"Install it: {sys.executable} -m pip install uv",
        )
    return path
