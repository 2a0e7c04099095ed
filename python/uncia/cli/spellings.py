"""Earlier spellings of options: understood for one release, with a warning."""

from __future__ import annotations

from typing import Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

EARLIER: Final = {
    "--engine": "--backend",
    "--report": "--html",
    "--out": "--html",
    "--output": "--out",
    "-o": "--out",
    "--force": "--overwrite",
}
"""Earlier spelling to present one. It counts where a command has only the present one."""


def renewed(root: object, args: list[str]) -> list[str]:
    """Return the arguments in today's spelling; for each that changes, warn on standard error.

    What follows ``--`` stays as it is.
    """
    command = root
    start = 0
    while isinstance(command, TyperGroup) and start < len(args):
        command = command.commands.get(args[start])
        start += 1
    if not isinstance(command, TyperCommand):
        return args
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    end = args.index("--") if "--" in args else len(args)
    return [
        _present(text, known) if start <= index < end else text for index, text in enumerate(args)
    ]


def _present(text: str, known: set[str]) -> str:
    name, equals, value = text.partition("=")
    present = EARLIER.get(name)
    if present is None or name in known or present not in known:
        return text
    typer.echo(f"warning: {name} is called {present} now", err=True)
    return f"{present}{equals}{value}"
