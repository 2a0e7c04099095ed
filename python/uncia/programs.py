"""Programs that are run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError

_LAST_LINES: Final = 8


def run(
    command: Sequence[str],
    failure: str,
    *,
    hint: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    names: tuple[str, str] = ("", ""),
) -> str:
    """Run a program to its end, with nothing on its standard input.

    Args:
        command: the program and its arguments.
        failure: the sentence of the error, without its end; the last lines that the program wrote
            stand below it.
        hint: what to do about it.
        folder: where it runs.
        environment: all of its variables; by default those of this process.
        names: a text of what it writes, and what stands for it in the error.

    Returns:
        What it wrote to its standard output.

    Raises:
        UnciaError: its exit code is not 0.
    """
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        check=False,
    )
    if process.returncode != 0:
        written = last_lines(process.stdout + process.stderr)
        if names[0]:
            written = written.replace(*names)
        raise UnciaError(f"{failure}:\n{written}", hint=hint, exit_code=1)
    return process.stdout


def last_lines(text: str, count: int = _LAST_LINES) -> str:
    """The last lines of a text that are not empty."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
