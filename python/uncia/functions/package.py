"""Packages a function as the zip file that a Lambda-compatible platform takes.

The same input gives the same bytes: entries are sorted, times and modes fixed, requirements pinned
by hash, and no bytecode is included (it depends on the interpreter that compiled it).
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.functions import calls, dependencies, golang, java, maven, npm
from uncia.functions.catalogue import load
from uncia.functions.compiler import compile_c
from uncia.functions.form import BOOTSTRAP, Function
from uncia.functions.handlers import check_handler
from uncia.functions.plain import LOCK, REQUIREMENTS
from uncia.paths import data
from uncia.units import MIB

FILLER_NAME: Final = "uncia-filler.bin"
FILLER_SEED: Final = 20_250_515

_LAYOUT: Final = 1  # counts up when the same input is to give another zip
_TIME: Final = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
_LEVEL: Final = 6
_CHUNK: Final = MIB
_DOCUMENTS: Final = re.compile(rb"^\s*(?:from|import)\s+uncia_documents\b", re.MULTILINE)
# The client that `uncia_documents` takes, as a requirement, with or without extras and a version.
_CLIENT: Final = re.compile(r"redis(?![\w.-])", re.IGNORECASE)


@dataclass(frozen=True)
class Package:
    """A function's zip file in the cache.

    Attributes:
        function: the function's name.
        runtime: such as ``python``.
        handler: ``module.function`` in the zip; ``bootstrap`` for ``provided`` and ``go``.
        path: the file, to be read only.
        sha256: of the file, hexadecimal.
        size: of the file in bytes.
        unzipped_size: of its contents in bytes.
    """

    function: str
    runtime: str
    handler: str
    path: Path
    sha256: str
    size: int
    unzipped_size: int

    def read_bytes(self) -> bytes:
        """Return the contents of the zip file."""
        return self.path.read_bytes()

    def __fspath__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class _Entry:
    """One file of a zip: its name there, its source, and whether it is executable."""

    name: str
    source: Path
    executable: bool


def package(
    function: str | os.PathLike[str] | Function,
    runtime: str | None = None,
    *,
    python_version: str | None = None,
    architecture: str | None = None,
    filler: int = 0,
    invokes: bool = False,
) -> Package:
    """Package a function, or return its package from the cache.

    Args:
        function: a name in the catalogue, a folder, or a loaded function.
        runtime: such as ``python``; by default the function's first.
        python_version: ``major.minor`` that its requirements are installed for; by default this
            interpreter's. Without meaning for a function that has none.
        architecture: ``x86_64`` or ``arm64``; by default this machine's.
        filler: bytes of incompressible data to add, for measuring what size costs.
        invokes: add what it takes to invoke other functions, as stages of chains do.

    Raises:
        UnciaError: no such function or runtime, the handler is missing, a file is a link out of the
            folder, requirements are not pinned or not available, there is no C compiler or it
            failed, functions in its language invoke none, or the cache cannot be written.
    """
    if not isinstance(function, Function):
        function = load(function)
    runtime = _runtime(function, runtime)
    if filler < 0:
        raise UnciaError(f"a filler of {filler} bytes is impossible")
    lock = check(function, runtime)
    target = dependencies.Target.of(python_version, architecture)
    installed = {
        f"{prefix}{entry.name}": replace(entry, name=f"{prefix}{entry.name}")
        for folder, prefix in _installed(runtime, lock, target, invokes=invokes)
        for entry in _files(folder, folder)
    }
    entries = _entries(function, runtime, architecture, installed, invokes=invokes)
    identity = hashlib.sha256(f"{_LAYOUT} {zlib.ZLIB_RUNTIME_VERSION} {filler}\n".encode())
    if filler and FILLER_NAME in entries:
        raise UnciaError(f"{function.name} has a file {FILLER_NAME}, which is the filler's name")
    ordered = [entries[name] for name in sorted(entries)]
    form = getattr(function.runtimes, runtime)
    for entry in ordered:
        content = hashlib.sha256(entry.source.read_bytes()).hexdigest()
        identity.update(f"{entry.name}\0{entry.executable}\0{content}\n".encode())
    name = f"{function.name}-{runtime}-{identity.hexdigest()[:32]}.zip"
    path = create_once(
        cache_folder("packages") / name, lambda partial: _write(partial, ordered, filler)
    )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    unzipped = sum(entry.source.stat().st_size for entry in ordered) + filler
    return Package(
        function.name, runtime, form.handler, path, digest, path.stat().st_size, unzipped
    )


def check(
    function: Function, runtime: str | None = None, handler: str | None = None
) -> Path | None:
    """Check what a package needs, without making one: the handler, and the lock of requirements.

    Args:
        function: the function.
        runtime: such as ``python``; by default the function's first.
        handler: instead of the function's own.

    Returns:
        The lock file, if the function has requirements.

    Raises:
        UnciaError: the runtime or its handler is missing, or requirements are not pinned.
    """
    runtime = _runtime(function, runtime)
    folder = function.runtime_folder(runtime)
    form = getattr(function.runtimes, runtime)
    if runtime == "provided" and form.source is not None:
        if not (folder / form.source).is_file():
            raise UnciaError(f"there is no file {folder / form.source} to compile")
        return None
    if runtime == "go":
        golang.check(folder)
        return None
    check_handler(runtime, handler or form.handler, folder)
    if runtime == "node":
        return npm.lock_path(folder)
    if runtime == "python":
        _check_client(function, folder)
    requirements = function.requirements(runtime)
    if not requirements:
        return None
    check_lock = maven.check_lock if runtime == "java" else dependencies.check_lock
    return check_lock(function.lock_path(runtime), requirements, function.folder)


def _installed(
    runtime: str, lock: Path | None, target: dependencies.Target, *, invokes: bool
) -> Iterator[tuple[Path, str]]:
    """The folders with what a function requires, each with its place in the package."""
    if lock is not None and runtime == "node":
        yield npm.install(lock, target), ""
    elif lock is not None and runtime == "java":
        yield maven.install(lock), ""
    elif lock is not None:
        yield dependencies.install(lock, target), ""
    if invokes and runtime == "python" and (added := calls.lock(lock)) is not None:
        yield dependencies.install(added, target), ""
    if invokes and runtime == "node":
        yield npm.install(calls.node_lock(), target), f"{calls.NODE_FOLDER}/"


def _check_client(function: Function, folder: Path) -> None:
    """Check that a function which keeps documents has the client that this takes.

    Raises:
        UnciaError: it is not among its requirements.
    """
    if any(_CLIENT.match(requirement) for requirement in function.requirements("python")):
        return
    for path in sorted(folder.glob("*.py")):
        if _DOCUMENTS.search(path.read_bytes()):
            raise UnciaError(
                f"{path} imports uncia_documents, which needs redis, and that is not among its"
                " requirements",
                hint=f"{function.requirements_hint()} Then pin them:"
                f" `uncia functions lock {function.folder}`.",
            )


def _entries(
    function: Function,
    runtime: str,
    architecture: str | None,
    installed: dict[str, _Entry],
    *,
    invokes: bool,
) -> dict[str, _Entry]:
    """What the package holds, by name."""
    added = {it.name: it for it in _added(runtime)} if invokes else {}
    folder = function.runtime_folder(runtime)
    form = getattr(function.runtimes, runtime)
    shared = data("functions") / "_shared" / runtime
    if runtime == "provided" and form.source is not None:
        executable = compile_c(folder / form.source, architecture, shared)
        return {BOOTSTRAP: _Entry(BOOTSTRAP, executable, True)}
    entries = {entry.name: entry for entry in _files(folder, folder)}
    # The compiler of Java takes of these what the function needs.
    if shared.is_dir() and runtime not in ("provided", "java"):
        for entry in _files(shared, shared):
            entries.setdefault(entry.name, entry)
    if runtime == "go":
        files = {name: entry.source for name, entry in entries.items()}
        client = {name: entry.source for name, entry in added.items()}
        executable = golang.build(folder, files, architecture, client)
        return {BOOTSTRAP: _Entry(BOOTSTRAP, executable, True)}
    entries |= added
    for name, entry in installed.items():
        if name in entries:
            raise UnciaError(
                f"{function.name} has a file {name}, and so has one of its requirements"
            )
        entries[name] = entry
    if runtime == "java" and any(name.endswith(java.SUFFIX) for name in entries):
        files = {name: entry.source for name, entry in entries.items()}
        kept = {name: it for name, it in entries.items() if not name.endswith(java.SUFFIX)}
        classes = java.compile_java(folder, files, shared)
        return kept | {name: _Entry(name, path, False) for name, path in classes.items()}
    return entries


def _added(runtime: str) -> Iterator[_Entry]:
    """The files that are added to packages of functions that invoke others."""
    folder = calls.folder(runtime)
    return _files(folder, folder)


def _runtime(function: Function, runtime: str | None) -> str:
    names = function.runtime_names
    if runtime is None:
        return names[0]
    if runtime not in names:
        raise UnciaError(
            f"{function.name} has no runtime {runtime!r} (allowed: {', '.join(names)})"
        )
    return runtime


def _files(folder: Path, root: Path) -> Iterator[_Entry]:
    """Yield the files below a folder, without bytecode, hidden files, the lock and runs."""
    for child in sorted(folder.iterdir()):
        if child.name.startswith(".") or child.name == "__pycache__" or child.suffix == ".pyc":
            continue
        if folder == root and child.name in (REQUIREMENTS, LOCK):
            continue
        if (child / "run.yaml").is_file():
            continue  # results of a run, beside the handler
        # Packages have thousands of files, and only links lead out of their folder.
        is_link = child.is_symlink()
        if is_link and not (resolved := child.resolve()).is_relative_to(root.resolve()):
            raise UnciaError(f"{child} is a link out of its folder, to {resolved}")
        if child.is_dir():
            if is_link:
                raise UnciaError(f"{child} is a link to a folder; copy the folder instead")
            yield from _files(child, root)
        elif child.is_file():
            executable = bool(child.stat().st_mode & stat.S_IXUSR)
            yield _Entry(child.relative_to(root).as_posix(), child, executable)
        else:
            raise UnciaError(f"{child} is neither a file nor a folder")


def filler_blocks(size: int) -> Iterator[bytes]:
    """Yield incompressible bytes, always the same, without holding them."""
    numbers = random.Random(FILLER_SEED)
    for start in range(0, size, _CHUNK):
        yield numbers.randbytes(min(_CHUNK, size - start))


def _write(path: Path, entries: list[_Entry], filler: int) -> None:
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for entry in entries:
            info = _info(entry.name, 0o755 if entry.executable else 0o644)
            archive.writestr(info, entry.source.read_bytes())
        if filler:
            info = _info(FILLER_NAME, 0o644)
            info.compress_type = zipfile.ZIP_STORED
            info.file_size = filler
            with archive.open(info, "w") as target:
                for block in filler_blocks(filler):
                    target.write(block)


def _info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system = 3  # Unix, whatever the machine, so that the mode counts
    info.external_attr = (stat.S_IFREG | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info
