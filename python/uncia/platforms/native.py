"""Functions as bare processes on this machine, without a sandbox: the baseline of everything else.

A small server on the loopback interface stands before the processes of each function; it passes one
event to a process at a time, as a line of JSON.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from uncia.errors import UnciaError
from uncia.platforms import Capabilities, Context, FunctionSpec, PlatformForm
from uncia.platforms.bare import (
    SETTINGS,
    SHIMS,
    BarePlatform,
    Host,
    clean,
    groups_of,
    language,
    variables,
)

__all__ = ["CAPABILITIES", "LANGUAGES", "NativePlatform", "Options", "clean", "command", "connect"]

_RUNTIMES: Final = {
    "python": (sys.executable, "python_handler.py"),
    "node": ("node", "node_handler.cjs"),
}
LANGUAGES: Final = tuple(_RUNTIMES)
"""Those that there are bare processes in, the one to prefer first."""


CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=False,
    settings=SETTINGS,
    languages=lambda _options: LANGUAGES,
    groups=groups_of("native"),
)


class Options(PlatformForm):
    """Bare processes on this machine."""

    kind: Literal["native"]
    mode: Literal["start", "warm"] = Field(
        "warm",
        description="start: an interpreter is started for each request; warm: it goes to one that"
        " runs, and has loaded the function",
    )
    processes: int = Field(
        1, ge=1, le=256, description="How many run at once, of each function; others wait in order"
    )


class NativePlatform(BarePlatform):
    """The functions of one run."""

    KIND = "native"

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(context)
        self._options = options

    def check(self, function: FunctionSpec) -> None:
        command(function)

    def host(self, function: FunctionSpec, folder: Path, timeout_s: float) -> Host:
        del timeout_s
        config = {
            "mode": self._options.mode,
            "processes": self._options.processes,
            "command": command(function),
            "environment": variables(function, folder),
        }
        return Host("native_host.py", config)


def command(function: FunctionSpec) -> list[str]:
    """The command of a function's process, to be run in the folder of its package.

    Raises:
        UnciaError: there are no bare processes in its language, or no interpreter here.
    """
    known = language(function.runtime)
    if known not in _RUNTIMES:
        all_known = " and ".join(LANGUAGES)
        raise UnciaError(f"{function.name}: bare processes are of {all_known}, not {known}")
    program, shim = _RUNTIMES[known]
    if shutil.which(program) is None:
        raise UnciaError(f"{function.name}: there is no {program} here", hint=f"Install {program}.")
    return [program, str(SHIMS / shim), function.handler or "handler.handler", function.name]


def connect(options: Options, context: Context) -> NativePlatform:
    """Return the platform of one run; nothing runs before a function is deployed."""
    return NativePlatform(options, context)
