"""Installs a Java function's jars, pinned and hashed, from the user's Maven repositories."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from uncia.cache import cache_folder, create_once
from uncia.errors import RunFailedError, UnciaError
from uncia.functions.dependencies import requirement_lines

LIBRARY: Final = "lib"
"""The folder of a package in which the platform's Java finds jars."""

REQUIREMENT: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+(:[\w.+-]+)?")
"""A requirement: ``group:artifact:version``, or with a classifier behind it."""

_LAYOUT: Final = 1  # counts up when what is kept of an installation changes
_PIN: Final = re.compile(rf"({REQUIREMENT.pattern})\s+--hash=sha256:([0-9a-f]{{64}})")
_LAST_LINES: Final = 8


def check_lock(path: Path, required: Sequence[str], function: Path) -> Path:
    """Check that a lock file pins what is required, and return its path.

    Args:
        path: the lock file.
        required: artifacts, each ``group:artifact:version``.
        function: the function's folder, for messages.

    Raises:
        UnciaError: it is missing, lacks a requirement or a hash, or has another version.
    """
    make = f"`uncia functions lock {function}` writes it."
    pins = dict(_pins(path, make))
    for requirement in required:
        if requirement not in pins:
            raise UnciaError(
                f"{path} does not pin {requirement}, which the function requires", hint=make
            )
    return path


def pinned(path: Path) -> list[str]:
    """Return what a lock file pins, as ``group:artifact:version``.

    Raises:
        UnciaError: it cannot be read.
    """
    return [artifact for artifact, _ in _pins(path)]


def install(lock: Path) -> Path:
    """Return the folder with the ``lib`` of jars that a lock file pins, fetched now or before.

    Args:
        lock: a file whose every line is ``group:artifact:version --hash=sha256:...``.

    Returns:
        A folder of the cache, to be read only.

    Raises:
        UnciaError: there is no Maven, it failed, or a jar has another hash; nothing is left of the
            attempt.
    """
    pins = _pins(lock)
    digest = hashlib.sha256(f"maven {_LAYOUT} {sorted(pins)}".encode())
    path = cache_folder("dependencies") / digest.hexdigest()[:32]

    def make(partial: Path) -> None:
        library = partial / LIBRARY
        library.mkdir(parents=True)
        project = _project([artifact for artifact, _ in pins])
        # Artifacts of different groups may have the same name.
        options = ("-DexcludeTransitive=true", "-Dmdep.prependGroupId=true")
        output = _copy(project, partial, library, *options)
        if output is not None:
            raise UnciaError(
                f"fetching what {lock} pins failed:\n{output}",
                hint="Nothing was kept. Check the network, and Maven's settings.",
                exit_code=1,
            )
        for artifact, expected in pins:
            group, *name = artifact.split(":")
            jar = library / f"{group}.{'-'.join(name)}.jar"
            if not jar.is_file():
                raise UnciaError(f"{lock}: {artifact} is no jar", exit_code=1)
            if (actual := _sha256(jar)) != expected:
                raise UnciaError(
                    f"{lock}: the jar of {artifact} has the SHA-256 {actual}, not {expected}",
                    hint="Nothing was kept: it is another file than was locked.",
                    exit_code=1,
                )

    return create_once(path, make)


def write_lock(required: Sequence[str], path: Path) -> Path:
    """Write the lock file of artifacts and all that they need at run time.

    Args:
        required: artifacts, each ``group:artifact:version``.
        path: the lock file.

    Raises:
        UnciaError: there is no Maven, or no artifact of this name; an earlier lock file is kept.
    """
    work = path.with_name(f".{path.name}.partial")
    try:
        shutil.rmtree(work, ignore_errors=True)
        (work / LIBRARY).mkdir(parents=True)
        output = _copy(
            _project(required),
            work,
            work / LIBRARY,
            "-DincludeScope=runtime",
            "-Dmdep.useRepositoryLayout=true",
        )
        if output is not None:
            raise RunFailedError(
                f"Maven does not find {', '.join(required)}:\n{output}",
                hint="Nothing was written. Check the names and versions, and the network.",
            )
        lines = []
        for jar in sorted((work / LIBRARY).rglob("*.jar")):
            # GROUP/WITH/SLASHES/ARTIFACT/VERSION/ARTIFACT-VERSION[-CLASSIFIER].jar
            *group, name, version, file = jar.relative_to(work / LIBRARY).parts
            classifier = file.removesuffix(".jar").removeprefix(f"{name}-{version}")
            artifact = ":".join((".".join(group), name, version)) + classifier.replace("-", ":", 1)
            lines.append(f"{artifact} --hash=sha256:{_sha256(jar)}\n")
        path.write_text("".join(sorted(lines)), encoding="utf-8")
    except OSError as error:
        raise UnciaError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def _project(artifacts: Sequence[str]) -> str:
    """A Maven project that depends on artifacts."""
    keys = ("groupId", "artifactId", "version", "classifier")
    dependencies = "".join(
        "<dependency>"
        + "".join(
            f"<{key}>{escape(it)}</{key}>" for key, it in zip(keys, text.split(":"), strict=False)
        )
        + "</dependency>"
        for text in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>function</groupId><artifactId>function</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _copy(project: str, work: Path, library: Path, *options: str) -> str | None:
    """Copy the jars of a project's artifacts; None if all are there, else Maven's last words.

    Raises:
        UnciaError: there is no Maven.
    """
    program = shutil.which("mvn")
    if program is None:
        raise UnciaError(
            "there is no Maven to fetch a function's jars with",
            hint="Install it (Debian, Ubuntu: apt-get install maven), or keep the jars in the"
            " function's folder java/lib.",
        )
    file = work / "pom.xml"
    file.write_text(project, encoding="utf-8")
    process = subprocess.run(
        [
            *(program, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(file)),
            *("dependency:copy-dependencies", f"-DoutputDirectory={library}", *options),
        ],
        cwd=work,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    file.unlink()
    if process.returncode == 0:
        return None
    lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    return "\n".join(lines[:_LAST_LINES])


def _pins(path: Path, hint: str | None = None) -> list[tuple[str, str]]:
    """The artifact and the SHA-256 of each line.

    Raises:
        UnciaError: the file cannot be read, or a line pins nothing.
    """
    pins = []
    for number, line in requirement_lines(path, hint):
        match = _PIN.fullmatch(line)
        if match is None:
            raise UnciaError(
                f"{path}:{number}: not group:artifact:version --hash=sha256:...: {line.split()[0]}",
                hint=hint,
            )
        pins.append((match[1], match[3]))
    return pins


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
