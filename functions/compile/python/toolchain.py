"""Runs the C compiler so that the same files always give the same bytes.

Commands run in a folder of their own, in which paths are relative, so that its name is in nothing
that they make; what needs an absolute path, as debuggers do, has one by which any process finds the
folder that it works in. `coordinate.py` builds locally by the same commands.
"""

import functools
import os
import subprocess
from pathlib import Path, PurePosixPath

# Whatever the machine's own settings say.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "SOURCE_DATE_EPOCH": "0",
    # __TIMESTAMP__ is a file's time as it is here.
    "TZ": "UTC",
    # The compiler writes this name of its folder, as it is one, in what it makes for debuggers.
    "PWD": "/proc/self/cwd",
}
TIMEOUT_S = 60
MOST_ERROR = 4_000
# What runs programs, what writes files beside the ones that are asked for, and what makes something
# else than objects and programs: options that begin so. Each of gcc's that begins with two hyphens
# is another's long name, but for those that are taken.
REFUSED = (
    *("-fplugin", "-wrapper", "-specs", "-B", "@", "-o", "-save-temps", "-time"),
    *("-Wa,", "-Wl,", "-Wp,", "-X", "-aux-info", "-d", "-fcallgraph-info", "-fdump", "-fopt-info"),
    *("-fsave-optimization-record", "-fstack-usage", "-gsplit-dwarf", "-M", "-fsyntax-only"),
    *("-fprofile-note", "-fprofile-dir", "-fdiagnostics-format", "-fcompare-debug", "-iplugindir"),
    *("-print", "-###", "--"),
)
REFUSED_ALONE = ("-", "-c", "-E", "-S", "-v")
LONG = ("--param=", "--std=")


class CompileError(Exception):
    """The compiler or the linker failed, in its own words, or the program cannot be run."""


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
    """Options of the compiler, which are given when objects are linked, too."""
    flags = text.split()
    for flag in flags:
        is_refused = flag.startswith(REFUSED) and not flag.startswith(LONG)
        if not flag.startswith("-") or is_refused or flag in REFUSED_ALONE:
            raise ValueError(f"flags: {flag!r} is not taken; name options that change the code")
    return flags


def write(folder, files):
    """Write a project's files, path -> bytes, below a folder."""
    for path, content in files.items():
        target = folder / checked_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        # __TIMESTAMP__ is when it was changed last.
        os.utime(target, (0, 0))


def compile_file(folder, path, flags):
    """The object of a C file."""
    source, target = str(checked_path(path)), "object.o"
    seed = f"-frandom-seed={source}"
    _run(["gcc", "-I.", *flags, seed, "-c", f"./{source}", "-o", target], folder)
    return (folder / target).read_bytes()


def link(folder, objects, flags):
    """The program of objects, bytes in the order in which they are linked.

    Flags are those of the objects: some name a library, as -fopenmp does, or the code is made only
    here (-flto).
    """
    names = []
    for number, content in enumerate(objects):
        names.append(f"{number:04}.o")
        (folder / names[-1]).write_bytes(content)
    # Behind the objects, where the linker takes of a library what those before it lack.
    _run(["gcc", *names, *flags, "-frandom-seed=program", "-lm", "-o", "program"], folder)
    return (folder / "program").read_bytes()


def run(folder):
    """What the program prints, and its exit code, negative where a signal has ended it."""
    done = _process(["./program"], folder)
    return done.stdout, done.returncode


def _run(command, folder):
    done = _process(command, folder)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[:MOST_ERROR]
        raise CompileError(words or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def _process(command, folder):
    environment = {**ENVIRONMENT, "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} took more than {TIMEOUT_S} s") from None
    except OSError as error:
        if command[0] == "gcc" and isinstance(error, FileNotFoundError):
            raise CompileError("there is no gcc: bring a root with gcc and libc6-dev") from None
        raise CompileError(f"{command[0]} cannot be run: {error.strerror}") from None
