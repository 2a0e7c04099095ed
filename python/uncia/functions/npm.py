"""Installs a Node.js function's packages, pinned and hashed by its ``package-lock.json``."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from uncia.errors import RunFailedError, UnciaError
from uncia.functions.cache import cache_folder, create_once
from uncia.functions.dependencies import Target
from uncia.paths import data

MANIFEST: Final = "package.json"
LOCK_NAME: Final = "package-lock.json"
MODULES: Final = "node_modules"

_LAYOUT: Final = 1  # counts up when what is kept of an installation changes
_SOURCES: Final = (".js", ".mjs", ".cjs")
_MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}
# Scripts of packages would run here what nobody has read.
_QUIET: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
_LAST_LINES: Final = 8


def requirements(folder: Path) -> dict[str, str]:
    """Return the packages that a folder's ``package.json`` requires: name -> range of versions.

    Raises:
        UnciaError: the file is no JSON object, or its dependencies are none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    required = _read(path).get("dependencies", {})
    if not isinstance(required, dict) or not all(isinstance(it, str) for it in required.values()):
        raise UnciaError(f"{path}: dependencies is not an object of versions")
    return required


def lock_path(folder: Path) -> Path | None:
    """Return the lock file of what is to be installed for a folder's files; None if nothing is.

    Nothing is where ``node_modules`` lies there already, or where no file loads a package that
    ``package.json`` requires: a bundler has put it in.

    Raises:
        UnciaError: ``package.json`` is wrong, or the lock is missing, of other packages, or lacks
            a hash.
    """
    required = requirements(folder)
    if (folder / MODULES).is_dir() or not (loaded := _first_loaded(folder, required)):
        return None
    make = f"`uncia functions lock` writes it; or cd {folder} && npm install --omit=dev"
    path = folder / LOCK_NAME
    if not path.is_file():
        file, name = loaded
        raise UnciaError(
            f"{file} loads {name}, which is not in {folder / MODULES}, and {path} does not pin it",
            hint=make,
        )
    packages = _packages(path)
    if packages.get("", {}).get("dependencies", {}) != required:
        raise UnciaError(
            f"{path} locks other packages than {folder / MANIFEST} requires", hint=make
        )
    for name, entry in packages.items():
        if name and not (entry.get("integrity") or entry.get("inBundle") or entry.get("dev")):
            raise UnciaError(
                f"{path}: {name} has no integrity, so it could be any",
                hint="Take it from a registry: folders, links and repositories are not pinned.",
            )
    return path


def pinned(path: Path) -> list[str]:
    """Return what a lock file pins, as ``name@version``, without what is for development.

    Raises:
        UnciaError: it cannot be read.
    """
    prefix = f"{MODULES}/"
    return [
        f"{name.rpartition(prefix)[2]}@{entry.get('version')}"
        for name, entry in _packages(path).items()
        if name and not entry.get("dev")
    ]


def install(lock: Path, target: Target) -> Path:
    """Return the folder with the ``node_modules`` that a lock file pins, installed now or before.

    Args:
        lock: a ``package-lock.json`` beside its ``package.json``.
        target: the architecture that it is to run on; scripts of packages are not run.

    Returns:
        A folder of the cache, to be read only.

    Raises:
        UnciaError: there is no npm, or it failed; nothing is left of the attempt.
    """
    files = [lock.with_name(MANIFEST), lock]
    digest = hashlib.sha256(f"npm {_LAYOUT} {target.architecture}\n".encode())
    for file in files:
        digest.update(file.read_bytes() + b"\0")
    path = cache_folder("dependencies") / digest.hexdigest()[:32]

    def make(partial: Path) -> None:
        partial.mkdir()
        for file in files:
            shutil.copyfile(file, partial / file.name)
        machine = _MACHINES[target.architecture]
        command = ["ci", "--omit=dev", *_QUIET, "--os=linux", f"--cpu={machine}", "--libc=glibc"]
        output = _npm(command, partial)
        if output is not None:
            raise UnciaError(
                f"installing {lock} failed:\n{output}",
                hint="Nothing was kept. Check the network, and the lock: npm ci.",
                exit_code=1,
            )
        (partial / MODULES).mkdir(exist_ok=True)
        for file in files:
            (partial / file.name).unlink()
        # Links to programs, which a handler cannot use, and what npm notes for itself.
        for folder in partial.rglob(".bin"):
            shutil.rmtree(folder)
        (partial / MODULES / ".package-lock.json").unlink(missing_ok=True)

    return create_once(path, make)


def write_lock(folder: Path, *, upgrade: bool = False) -> Path:
    """Write the lock file of what a folder's ``package.json`` requires, without addresses.

    Args:
        folder: of the function's files in JavaScript.
        upgrade: take the newest versions, not those of an earlier lock.

    Raises:
        UnciaError: there is no npm, or no versions fit; an earlier lock file is kept.
    """
    path = folder / LOCK_NAME
    partial = folder / f".{LOCK_NAME}.partial"
    try:
        partial.mkdir(exist_ok=True)
        shutil.copyfile(folder / MANIFEST, partial / MANIFEST)
        if path.exists() and not upgrade:
            shutil.copyfile(path, partial / LOCK_NAME)
        command = ["install", "--package-lock-only", "--omit-lockfile-registry-resolved", *_QUIET]
        output = _npm(command, partial)
        if output is not None:
            raise RunFailedError(
                f"npm found no versions of {', '.join(requirements(folder))}:\n{output}",
                hint="Nothing was written. Check the names, and the network.",
            )
        # npm takes the name of the folder it runs in, where package.json has none.
        content = _read(partial / LOCK_NAME)
        if content.get("name") == partial.name:
            del content["name"]
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UnciaError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def _npm(arguments: Sequence[str], folder: Path) -> str | None:
    """Run npm in a folder; None if it did what it was asked for, else its last words.

    Raises:
        UnciaError: there is none.
    """
    program = shutil.which("npm")
    if program is None:
        raise UnciaError(
            "there is no npm to install a function's packages with",
            hint="Install it (Debian, Ubuntu: apt-get install npm).",
        )
    process = subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if process.returncode == 0:
        return None
    lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:])


def _packages(path: Path) -> dict[str, dict[str, Any]]:
    packages = _read(path).get("packages")
    if not isinstance(packages, dict) or not all(isinstance(it, dict) for it in packages.values()):
        raise UnciaError(
            f"{path} is no lock of npm 7 or newer: it has no packages",
            hint=f"Write it again: `uncia functions lock` in {path.parent}.",
        )
    return packages


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnciaError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UnciaError(f"{path} is not a JSON object")
    return content


def _first_loaded(folder: Path, required: Mapping[str, str]) -> tuple[Path, str] | None:
    """A file that loads one of these packages, with the package's name."""
    if not required:
        return None
    texts = {
        file: file.read_text(encoding="utf-8", errors="replace")
        for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES)
        if file.is_file() and MODULES not in file.relative_to(folder).parts
    }
    # Those of the catalogue that are laid beside the handler, where a file loads them.
    for shared in sorted((data("functions") / "_shared" / "node").iterdir()):
        if any(f"./{shared.stem}" in text for text in texts.values()):
            texts[shared] = shared.read_text(encoding="utf-8")
    for file, text in texts.items():
        for name in required:
            if re.search(
                rf"(\bfrom|\bimport|\brequire)\s*\(?\s*['\"]{re.escape(name)}['\"/]", text
            ):
                return file, name
    return None
