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

from uncia import programs
from uncia.cache import cache_folder, create_once
from uncia.errors import RunFailedError, UnciaError
from uncia.functions.dependencies import Target
from uncia.paths import data

MANIFEST: Final = "package.json"
LOCK_NAME: Final = "package-lock.json"
MODULES: Final = "node_modules"

_LAYOUT: Final = 1  # counts up when what is kept of an installation changes
_SOURCES: Final = (".js", ".mjs", ".cjs")
_MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}
_INTEGRITY: Final = re.compile(r"(sha(256|384|512)-[A-Za-z0-9+/]+=*(\s+|$))+")
_SETTINGS: Final = ".npmrc"  # of a function: the registries of its packages, for example
# Scripts of packages would run here what nobody has read.
_QUIET: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def requirements(folder: Path) -> dict[str, str]:
    """Return the packages that a folder's ``package.json`` requires: name -> range of versions.

    Raises:
        UnciaError: the file is no JSON object, its dependencies are none, or one is of no registry.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    required = _required(_read(path), path)
    for name, version in required.items():
        if ":" in version.removeprefix("npm:") or "/" in version.partition("npm:")[0]:
            raise UnciaError(
                f"{path}: {name} is {version}, which no hash of a registry pins",
                hint="Take it from a registry, or keep it in node_modules.",
            )
    return required


def _required(content: Mapping[str, Any], path: Path) -> dict[str, str]:
    """What a manifest requires at run time."""
    required: dict[str, str] = {}
    for key in ("dependencies", "optionalDependencies"):
        given = content.get(key, {})
        if not isinstance(given, dict) or not all(isinstance(it, str) for it in given.values()):
            raise UnciaError(f"{path}: {key} is not an object of versions")
        required |= given
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
    if _required(packages.get("", {}), path) != required:
        raise UnciaError(
            f"{path} locks other packages than {folder / MANIFEST} requires", hint=make
        )
    for name, entry in packages.items():
        if name and not (entry.get("dev") or _is_pinned(name, packages)):
            raise UnciaError(
                f"{path}: {name} has no integrity (sha512-...), so it could be any",
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
    files = _files(lock.parent, lock)
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
        _check_installed(lock, partial, machine)
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
        for file in _files(folder, *([path] if path.exists() and not upgrade else [])):
            shutil.copyfile(file, partial / file.name)
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


def _files(folder: Path, *locks: Path) -> list[Path]:
    """The files by which npm decides what it takes, and from where."""
    settings = folder / _SETTINGS
    return [folder / MANIFEST, *locks, *([settings] if settings.is_file() else [])]


def _is_pinned(name: str, packages: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a package of a lock is one file alone: by its hash, or in one that is."""
    entry = packages[name]
    if entry.get("inBundle"):
        around, _, short = name.rpartition(f"/{MODULES}/")
        while around in packages and packages[around].get("inBundle"):
            around = around.rpartition(f"/{MODULES}/")[0]
        bundled = packages.get(around, {}).get("bundleDependencies", [])
        return bool(around) and (bundled is True or bool(bundled)) and bool(short)
    return _INTEGRITY.fullmatch(str(entry.get("integrity", ""))) is not None


def _check_installed(lock: Path, folder: Path, machine: str) -> None:
    """Check that npm installed what a lock pins for the target, and nothing for another.

    It is content where an optional package fails, and old ones look at their own machine alone.

    Raises:
        UnciaError: something is missing or too many.
    """
    for name, entry in _packages(lock).items():
        if not name or entry.get("dev") or entry.get("peer") or entry.get("devOptional"):
            continue
        fits = all(
            _takes(entry.get(key), value)
            for key, value in (("os", "linux"), ("cpu", machine), ("libc", "glibc"))
        )
        if fits and not (folder / name).is_dir():
            raise UnciaError(
                f"installing {lock}: npm left {name} out",
                hint="Nothing was kept. Check the network, and the lock: npm ci.",
                exit_code=1,
            )
        if not fits and (folder / name).is_dir():
            raise UnciaError(
                f"installing {lock}: npm took {name}, which is for another machine than {machine}",
                hint="Nothing was kept. npm 10.4 or newer installs for others.",
                exit_code=1,
            )


def _takes(allowed: object, value: str) -> bool:
    """Whether a package's list of machines, such as ``["!win32"]``, has one; without it, all."""
    if not isinstance(allowed, list) or not allowed:
        return True
    if f"!{value}" in allowed:
        return False
    return value in allowed or all(str(it).startswith("!") for it in allowed)


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
    return programs.last_lines(process.stdout + process.stderr)


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
    texts = {
        file: file.read_text(encoding="utf-8", errors="replace")
        for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES)
        if file.is_file() and MODULES not in file.relative_to(folder).parts
    }
    # Those of the catalogue that are laid beside the handler, where a file loads them.
    for shared in sorted((data("functions") / "_shared" / "node").iterdir()):
        if any(f"./{shared.stem}" in text for text in texts.values()):
            texts[shared] = text = shared.read_text(encoding="utf-8")
            needed = set(re.findall(r'require\("([a-z][^"/:]*)"\)', text))
            if missing := sorted(needed - set(required)):
                raise UnciaError(
                    f"a file in {folder} loads {shared.name}, which needs {', '.join(missing)}",
                    hint=f"Write it into {folder / MANIFEST}: dependencies, and lock it with"
                    " `uncia functions lock`.",
                )
    for file, text in texts.items():
        for name in required:
            if re.search(
                rf"(\bfrom|\bimport|\brequire)\s*\(?\s*['\"]{re.escape(name)}['\"/]", text
            ):
                return file, name
    return None
