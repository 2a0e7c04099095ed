"""Installs a Python function's requirements, pinned and hashed, into the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError

LOCK_NAME: Final = "requirements.txt"
_LAYOUT: Final = 1  # counts up when what is kept of an installation changes

_ARCHITECTURES: Final = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}

# Platform tags of wheels for Linux with glibc: Lambda's Amazon Linux 2023 has glibc 2.34, and
# Debian 12, the oldest system Uncia runs on, 2.36.
_MANYLINUX: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")

_PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;]+)")

_NOTES: Final = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json")


@dataclass(frozen=True)
class Target:
    """What the installed files are to run on.

    Attributes:
        python_version: ``major.minor``.
        architecture: ``x86_64`` or ``aarch64``.
    """

    python_version: str
    architecture: str

    @staticmethod
    def of(python_version: str | None, architecture: str | None) -> Target:
        """Return the target, with this machine's values for what is None.

        Raises:
            UnciaError: an unknown architecture, or no ``major.minor``.
        """
        version = python_version or f"{sys.version_info.major}.{sys.version_info.minor}"
        if re.fullmatch(r"3\.\d{1,2}", version) is None:
            raise UnciaError(f"{version!r} is not a Python version: write for example 3.12")
        machine = (architecture or platform.machine()).lower()
        if machine not in _ARCHITECTURES:
            allowed = ", ".join(sorted(set(_ARCHITECTURES)))
            raise UnciaError(f"unknown architecture {machine!r} (allowed: {allowed})")
        return Target(version, _ARCHITECTURES[machine])


def check_lock(path: Path, requirements: Sequence[str], function: Path) -> Path:
    """Check that a lock file pins what is required, and return its path.

    Args:
        path: the lock file.
        requirements: distributions, by name; versions after it are uv's to check.
        function: the function's folder, for messages.

    Raises:
        UnciaError: it is missing, lacks a requirement or a hash, or names an index.
    """
    make = f"`uncia functions lock {function}` writes it."
    pins = set()
    for number, line in requirement_lines(path, make):
        if line.startswith("-"):
            raise UnciaError(
                f"{path}:{number}: options do not belong here, only pinned requirements",
                hint=make,
            )
        match = _PIN.match(line)
        if match is None:
            raise UnciaError(f"{path}:{number}: not pinned with ==: {line.split()[0]}", hint=make)
        if "--hash=" not in line:
            raise UnciaError(f"{path}:{number}: {match.group(1)} has no --hash", hint=make)
        pins.add(_canonical(match.group(1)))
    for requirement in requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        if _canonical(name) not in pins:
            raise UnciaError(f"{path} does not pin {name}, which the function requires", hint=make)
    return path


def pinned(path: Path) -> list[str]:
    """Return what a lock file pins, as ``name==version``.

    Raises:
        UnciaError: it cannot be read.
    """
    matches = (_PIN.match(line) for _, line in requirement_lines(path))
    return [f"{match[1]}=={match[2]}" for match in matches if match is not None]


def requirement_lines(path: Path, hint: str | None = None) -> list[tuple[int, str]]:
    """Return the requirements in a file with the numbers of their lines.

    Raises:
        UnciaError: it cannot be read.
    """
    try:
        return logical_lines(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnciaError(
            f"{path} is missing; it pins what the function requires", hint=hint
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnciaError(f"{path} cannot be read: {error}") from error


def key(lock: Path, target: Target) -> str:
    """Return a hexadecimal SHA-256 of what an installation depends on."""
    digest = hashlib.sha256(f"{_LAYOUT} {target.python_version} {target.architecture}\n".encode())
    digest.update(lock.read_bytes())
    return digest.hexdigest()


def install(lock: Path, target: Target) -> Path:
    """Return the folder with everything that a lock file pins, installed now or before.

    Args:
        lock: a ``requirements.txt`` whose every line has a version and hashes.
        target: what it is to run on; only binary wheels are taken, so nothing is built or executed.

    Returns:
        A folder of the cache, to be read only.

    Raises:
        UnciaError: there is no installer, or it failed; nothing is left of the attempt.
    """
    path = cache_folder("dependencies") / key(lock, target)[:32]
    return create_once(path, lambda partial: _install(lock, target, partial))


def _install(lock: Path, target: Target, partial: Path) -> None:
    command = _installer(lock, target, partial)
    programs.run(
        command,
        f"installing {lock} for Python {target.python_version} on {target.architecture} failed",
        hint="Nothing was kept. Check the network, and that there are wheels for this target.",
    )
    partial.mkdir(exist_ok=True)
    # Scripts carry the path of this machine's interpreter, and a handler cannot use them anyway.
    shutil.rmtree(partial / "bin", ignore_errors=True)
    # What installers record about themselves differs between them, and no handler reads it.
    for name in _NOTES:
        for file in partial.glob(f"*.dist-info/{name}"):
            file.unlink()


def _installer(lock: Path, target: Target, folder: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        platforms = [f"--platform={tag}_{target.architecture}" for tag in _MANYLINUX]
        return [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--no-compile", "--no-warn-script-location"),
            *("--require-hashes", "--only-binary=:all:", "--implementation=cp"),
            *(f"--python-version={target.python_version}", *platforms),
            *("--target", str(folder), "--requirement", str(lock)),
        ]
    uv = shutil.which("uv")
    if uv is None:
        raise UnciaError(
            "neither pip nor uv is here to install a function's requirements",
            hint=f"Install pip: {sys.executable} -m ensurepip",
        )
    return [
        *(
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-config",
            "--require-hashes",
            "--only-binary=:all:",
        ),
        *("--python", sys.executable, "--python-version", target.python_version),
        *("--python-platform", f"{target.architecture}-manylinux_2_34"),
        *("--target", str(folder), "--requirement", str(lock)),
    ]


def _canonical(name: str) -> str:
    """Return a distribution's name in the normal form of the packaging specifications."""
    return re.sub(r"[-_.]+", "-", name).lower()


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Return line numbers and requirements, with continuations joined and comments dropped."""
    lines: list[tuple[int, str]] = []
    open_line: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        start, before = open_line or (number, "")
        if line.endswith("\\"):
            open_line = (start, f"{before}{line[:-1].rstrip()} ")
            continue
        open_line = None
        if joined := (before + line).strip():
            lines.append((start, joined))
    if open_line and open_line[1].strip():
        lines.append((open_line[0], open_line[1].strip()))
    return lines
