"""Compiles a function in Java: its sources, to classes that any Java from 17 on runs."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError

OLDEST: Final = 17
"""The oldest Java that runs the classes, and that compiles them."""

OLDEST_WITH_PROFILES: Final = 25
"""The oldest Java whose caches hold how often methods ran."""

HINT: Final = (
    f"Install Java {OLDEST} or newer with its compiler (Debian, Ubuntu: apt-get install"
    f" openjdk-{OLDEST}-jre-headless)."
)

SUFFIX: Final = ".java"

# The compiler is a module of Java's, which distributions' JREs have too; only its command is a
# JDK's.
_COMPILER: Final = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
_MACHINE: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_OPTIONS: Final = (
    "--release",
    str(OLDEST),
    "-proc:none",
    "-g",
    "-parameters",
    "-encoding",
    "UTF-8",
)
_LAST_LINES: Final = 12


def find() -> tuple[Path, str]:
    """Find the Java on the PATH, which has to have a compiler.

    Returns:
        Its path and its version.

    Raises:
        UnciaError: there is none, it is too old, or it has no compiler.
    """
    command = shutil.which("java")
    if command is None:
        raise UnciaError("there is no java on the PATH to compile functions with", hint=HINT)
    path = Path(command).resolve()
    release = path.parents[1] / "release"
    try:
        values = dict(re.findall(r'^(\w+)="([^"]*)"', release.read_text(encoding="utf-8"), re.M))
    except OSError as error:
        raise UnciaError(f"{release}, which says its version, cannot be read", hint=HINT) from error
    version = values.get("JAVA_VERSION", "")
    match = re.match(r"\d+", version)
    if match is None or int(match[0]) < OLDEST:
        raise UnciaError(f"{path} is Java {version}, too old to compile functions with", hint=HINT)
    if "jdk.compiler" not in values.get("MODULES", "").split():
        raise UnciaError(f"{path} has no compiler (the module jdk.compiler)", hint=HINT)
    return path, version


def find_with_profiles() -> None:
    """Check that the Java on the PATH makes caches with profiles (``share_state: profile``).

    Raises:
        UnciaError: there is none, or it is too old.
    """
    path, version = find()
    if int(version.partition(".")[0].partition("-")[0]) < OLDEST_WITH_PROFILES:
        raise UnciaError(
            f"{path} is Java {version}, and caches with profiles take Java {OLDEST_WITH_PROFILES}",
            hint=f"Put a JDK {OLDEST_WITH_PROFILES} or newer first on the PATH.",
        )


def compile_java(folder: Path, files: Mapping[str, Path], shared: Path) -> dict[str, Path]:
    """Return the classes of a function, compiled now or before.

    Args:
        folder: the function's, for messages.
        files: all files of the package by their names in it: sources, and in ``lib/`` the jars
            that they are compiled with.
        shared: a folder of sources; those are compiled, too, that the function needs.

    Returns:
        Files of the cache by their names in the package, to be read only.

    Raises:
        UnciaError: there is no Java with a compiler, or a source is wrong; nothing is left of the
            attempt.
    """
    sources = {name: path for name, path in sorted(files.items()) if name.endswith(SUFFIX)}
    jars = [path for name, path in sorted(files.items()) if re.fullmatch(r"lib/[^/]+\.jar", name)]
    program, version = find()
    digest = hashlib.sha256(f"{version} {_OPTIONS}\n".encode())
    beside = [*jars, *sorted(shared.rglob(f"*{SUFFIX}"))]
    for name, path in [*sources.items(), *((path.name, path) for path in beside)]:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    made = cache_folder("classes") / digest.hexdigest()[:32]

    def make(partial: Path) -> None:
        partial.mkdir()
        command = [str(program), *_MACHINE, *_COMPILER, *_OPTIONS, "-implicit:class"]
        # An empty path would be the folder that this runs in.
        command += ["-cp", ":".join(map(str, jars)) or str(partial), "-d", str(partial)]
        command += ["-sourcepath", str(shared)]
        process = subprocess.run(
            [*command, *map(str, sources.values())],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if process.returncode != 0:
            lines = (process.stdout + process.stderr).splitlines()
            raise UnciaError(
                f"compiling {folder} failed:\n" + "\n".join(lines[:_LAST_LINES]), exit_code=1
            )

    create_once(made, make)
    return {path.relative_to(made).as_posix(): path for path in sorted(made.rglob("*.class"))}
