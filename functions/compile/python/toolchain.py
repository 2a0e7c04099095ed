"""Runs the C compiler so that the same files always give the same bytes.

Commands run in a folder of their own, in which paths are relative, so that its name is in nothing
that they make. `coordinate.py` builds locally by the same commands.
"""

import functools
import os
import subprocess
from pathlib import Path, PurePosixPath

# Whatever the machine's own settings say.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
TIMEOUT_S = 60
MOST_ERROR = 4_000
# What runs programs or writes files beside the ones that are asked for.
REFUSED = ("-fplugin", "-wrapper", "-specs", "-o", "-save-temps", "-B", "@", "-Wl", "-Xlinker")


class CompileError(Exception):
    """The compiler, the linker or the program failed; in its own words."""


@functools.cache
def version():
    """What the compiler calls itself."""
    return _run(["gcc", "--version"], Path("/")).decode().splitlines()[0]


def checked_path(path):
    """A path of a project: relative, and not out of it."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise ValueError(f"{path!r} is no path within the project")
    return pure


def checked_flags(text):
    """Options of the compiler."""
    flags = text.split()
    for flag in flags:
        if not flag.startswith("-") or flag.startswith(REFUSED):
            raise ValueError(f"flags: {flag!r} is not taken; name options that change the code")
    return flags


def write(folder, files):
    """Write a project's files, path -> bytes, below a folder."""
    for path, content in files.items():
        target = folder / checked_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def compile_file(folder, path, flags):
    """The object of a C file."""
    source, target = str(checked_path(path)), "object.o"
    seed = f"-frandom-seed={source}"
    _run(["gcc", "-I.", *flags, seed, "-c", f"./{source}", "-o", target], folder)
    return (folder / target).read_bytes()


def link(folder, objects):
    """The program of objects, bytes in the order in which they are linked."""
    names = []
    for number, content in enumerate(objects):
        names.append(f"{number:04}.o")
        (folder / names[-1]).write_bytes(content)
    _run(["gcc", *names, "-lm", "-o", "program"], folder)
    return (folder / "program").read_bytes()


def run(folder):
    """What the program prints."""
    return _run(["./program"], folder)


def _run(command, folder):
    environment = {**ENVIRONMENT, "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} took more than {TIMEOUT_S} s") from None
    except FileNotFoundError:
        raise CompileError(
            f"there is no {command[0]}: bring a root with gcc and libc6-dev"
        ) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[:MOST_ERROR]
        raise CompileError(words or f"{command[0]} ended with {done.returncode}")
    return done.stdout
