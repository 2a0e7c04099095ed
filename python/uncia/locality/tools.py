"""The programs it needs: QEMU's user mode and valgrind from Debian, and two compiled here.

The folder ``c`` has the tracer, a plugin of QEMU, and the program that runs the predictors on
traces. A predictor is a file of ``c/predictors``, found by its place.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from uncia import programs
from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.services.debian import Program

QEMU: Final = Program("qemu-x86_64", "runs functions whose branches are traced", "qemu-user")
VALGRIND: Final = Program("valgrind", "simulates caches")

SOURCES: Final = Path(__file__).with_name("c")
_OPTIONS: Final = ("-std=c11", "-O2", "-D_GNU_SOURCE")
_WORD: Final = 8
"""Bytes of a word of a trace."""


def require_architecture() -> None:
    """Check that programs here are of the architecture whose branches the tracer knows.

    Raises:
        UnciaError: they are of another.
    """
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in ("x86_64", "AMD64"):
        raise UnciaError(
            f"branches are traced on x86_64 under Linux, and this machine is {machine} under"
            f" {platform.system()}",
            hint="Run the command on such a machine.",
        )


def tracer() -> Path:
    """The plugin of QEMU, compiled now or before.

    Raises:
        UnciaError: there is no C compiler, or it failed.
    """
    files = [SOURCES / "tracer.c", SOURCES / "qemu.h", SOURCES / "words.h"]
    return _compiled("tracer.so", files, ("-shared", "-fPIC", "-fvisibility=hidden"))


def predict() -> Path:
    """The program that runs the predictors, compiled now or before.

    Raises:
        UnciaError: there is no C compiler, or it failed.
    """
    predictors = sorted((SOURCES / "predictors").glob("*.c"))
    names = " ".join(f"EACH({file.stem})" for file in predictors)
    files = [SOURCES / "predict.c", *predictors, SOURCES / "predictor.h", SOURCES / "words.h"]
    return _compiled("predict", files, (f"-DPREDICTORS={names}",))


def models(program: Path) -> list[tuple[str, int]]:
    """Each predictor's name, and the bytes of its tables, in the order of the program's numbers."""
    lines = _run([str(program), "models"]).splitlines()
    return [(name, int(size)) for name, size in (line.split() for line in lines)]


def model_names() -> list[str]:
    """The names of the predictors, as their files have them: no compiler is needed."""
    defined = re.compile(r'^static const struct predictor \w+ = \{"([^"]+)"', re.MULTILINE)
    return [
        name
        for file in sorted((SOURCES / "predictors").glob("*.c"))
        for name in defined.findall(file.read_text(encoding="utf-8"))
    ]


def predictions(model: str, trace: bytes) -> list[bool]:
    """What a predictor says of each branch of a trace, before it learns what the branch did.

    Args:
        model: such as ``gshare-4KB``.
        trace: words of 64 bits, little endian: bit 0 whether the branch was taken, bits 1 to 47 its
            address; the rest counts instructions, and does not matter here (``c/words.h``).

    Returns:
        Whether each branch was predicted to be taken; words whose address is below 4,096 are none.

    Raises:
        UnciaError: there is no such predictor or no C compiler, or the trace ends within a word.
    """
    program = predict()
    names = [name for name, _ in models(program)]
    if model not in names:
        raise UnciaError(f"there is no predictor {model!r}", hint=f"There are {', '.join(names)}.")
    if len(trace) % _WORD:
        raise UnciaError(f"the trace of {len(trace)} bytes ends within a word of {_WORD}")
    process = subprocess.run(
        [str(program), "predictions", model], input=trace, capture_output=True, check=True
    )
    return [mark == ord("1") for mark in process.stdout.strip()]


def versions(*, caches: bool) -> dict[str, str]:
    """The first lines of what the programs that were used say of their version."""
    if caches:
        commands = {VALGRIND.name: [str(VALGRIND.find())]}
    else:
        commands = {QEMU.name: [str(QEMU.find())], "cc": compiler()}
    return {
        name: _run([*command, "--version"]).partition("\n")[0] for name, command in commands.items()
    }


def compiler() -> list[str]:
    """The command of the C compiler: ``$CC``, else ``cc``.

    Raises:
        UnciaError: there is none.
    """
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise UnciaError(
            f"there is no C compiler {command[0]}, which compiles the tracer and the predictors",
            hint="Install it: apt-get install gcc libc6-dev; or set CC.",
        )
    return command


def _compiled(name: str, files: Sequence[Path], options: Sequence[str]) -> Path:
    command = compiler()
    version = _run([*command, "--version"]).splitlines()[:1]
    digest = hashlib.sha256(f"{command} {version} {_OPTIONS} {options}\n".encode())
    for file in files:
        digest.update(file.read_bytes())
    path = cache_folder("locality") / f"{digest.hexdigest()[:32]}-{name}"
    sources = [str(file) for file in files if file.suffix == ".c"]

    def make(partial: Path) -> None:
        _run([*command, *_OPTIONS, *options, "-o", str(partial), *sources])

    return create_once(path, make)


def _run(command: list[str]) -> str:
    return programs.run(
        command,
        f"{' '.join(command[:2])} failed",
        hint="Compiling takes gcc or clang, and the C library's headers (libc6-dev).",
    )
