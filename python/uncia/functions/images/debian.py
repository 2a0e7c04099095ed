"""Makes a root file system from Debian packages, by mmdebstrap and the machine's own sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.errors import UnciaError
from uncia.layouts import TIME, Execution, Image, Layer, write_image

PROGRAM: Final = "mmdebstrap"
SOURCES: Final = Path("/etc/apt")

_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+)?")
_SUITE: Final = re.compile(r"[a-z][a-z0-9-]*")

# What no function reads, and what differs from machine to machine.
_LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*")
_KEPT: Final = ("/usr/share/doc/*/copyright",)
_MACHINES_OWN: Final = (
    "etc/hostname etc/resolv.conf etc/machine-id etc/apt/sources.list etc/apt/sources.list.d"
    " var/lib/dbus/machine-id var/log/* var/cache/*"
)

_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


def make_root(packages: Sequence[str], out: Path, suite: str | None = None) -> Image:
    """Make a root of Debian's essential packages and these, and write it as an image of one layer.

    The packages come from where this machine's apt gets its own. The same versions of the same
    packages give the same image, as far as their installation scripts allow.

    Args:
        packages: names, as apt takes them.
        out: the layout's folder; must not exist, or be empty.
        suite: such as ``bookworm``; by default this machine's.

    Raises:
        UnciaError: a name is none, mmdebstrap is missing, or it failed; nothing is left of the
            attempt.
    """
    for package in packages:
        if _PACKAGE.fullmatch(package) is None:
            raise UnciaError(f"{package!r} is not the name of a Debian package")
    own_suite = machine_suite()
    suite = suite or own_suite
    if suite is None or _SUITE.fullmatch(suite) is None:
        raise UnciaError(
            "this machine is no Debian, so that there is no suite to take"
            if suite is None
            else f"{suite!r} is not the name of a suite, such as bookworm",
            hint="Name one with --suite.",
        )
    if shutil.which(PROGRAM) is None:
        raise UnciaError(
            f"{PROGRAM} is not installed, which makes roots from Debian packages",
            hint=f"Install it: apt-get install {PROGRAM}",
        )
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UnciaError(f"{out} exists already", hint="Choose another folder, or remove this one.")
    with tempfile.TemporaryDirectory(prefix="uncia-root-") as folder:
        sources = _sources(Path(folder), own_suite, suite)
        archive = Path(folder) / "root.tar"
        _run(_command(packages, suite, archive, sources), suite)
        return write_image(out, [Layer(archive)], Execution(("/bin/sh",), (), dict(_ENVIRONMENT)))


def _command(
    packages: Sequence[str], suite: str, archive: Path, sources: Sequence[Path]
) -> list[str]:
    command = [PROGRAM, "--variant=essential", "--format=tar", "--quiet"]
    if packages:
        command.append(f"--include={','.join(packages)}")
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in _KEPT]
    command += [f"--aptopt={option}" for option in _proxies()]
    command.append(f'--customize-hook=cd "$1" && rm -rf {_MACHINES_OWN}')
    return [*command, suite, str(archive), *map(str, sources)]


def machine_suite() -> str | None:
    """The suite of Debian that this machine is; None if it is something else."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return None
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = values.get("VERSION_CODENAME", "").strip('"')
    return name if name and values.get("ID", "").strip('"') == "debian" else None


def _sources(folder: Path, own_suite: str | None, suite: str) -> list[Path]:
    """Copy this machine's package sources of its own suite, for ``suite``.

    Raises:
        UnciaError: there are none.
    """
    listed = [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*.*"))]
    copies: list[Path] = []
    for source in listed:
        if source.suffix not in (".list", ".sources") or not source.is_file():
            continue
        text = source.read_text(encoding="utf-8")
        # Others are of what has suites of other names.
        word = re.compile(rf"\b{re.escape(own_suite or suite)}\b")
        if word.search(text) is None:
            continue
        copy = folder / f"{len(copies)}{source.suffix}"
        copy.write_text(word.sub(suite, text), encoding="utf-8")
        copies.append(copy)
    if not copies:
        raise UnciaError(
            f"apt has no sources of {own_suite or suite} in {SOURCES} to take packages from",
            hint="Configure apt, or name the suite that its sources are of with --suite.",
        )
    return copies


def _proxies() -> list[str]:
    """The proxies that this machine's apt uses, as options of apt."""
    process = subprocess.run(
        ["apt-config", "dump"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    pattern = re.compile(r'(Acquire::https?::Proxy) "(.+)";')
    matches = (pattern.fullmatch(line) for line in process.stdout.splitlines())
    return [f'{match[1]} "{match[2]}"' for match in matches if match is not None]


def _run(command: list[str], suite: str) -> None:
    programs.run(
        command,
        f"{PROGRAM} could not make a root of {suite}",
        hint="It needs root or user namespaces, and packages that apt finds (apt-get update).",
        environment=os.environ | {"SOURCE_DATE_EPOCH": str(TIME), "LC_ALL": "C.UTF-8"},
    )
