"""The reference page of the command line.

To write it: ``python -m uncia.cli.markdown > docs/reference/cli.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

_HEAD: Final = """# The command line

*Generated from `python/uncia/cli`; do not edit.*

Mistakes in the input end with a sentence on standard error and exit code 2; a run or check that
failed ends with 1; an interruption with 130 (SIGINT) or 143 (SIGTERM).

After `uncia --install-completion` the shell completes commands, options and the names of tariffs,
traces, suites and forms.
"""


def markdown() -> str:
    """The page's text: a section a command, a row an argument or option."""
    from uncia.cli import build

    root = get_command(build())
    assert isinstance(root, TyperGroup), "uncia has commands"
    return _HEAD + "".join(_commands(root, "uncia"))


def _commands(group: TyperGroup, prefix: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        full = f"{prefix} {name}"
        if isinstance(command, TyperGroup):
            yield from _commands(command, full)
            continue
        if command.hidden:
            continue
        parameters = [p for p in command.params if p.name != "help"]
        arguments = [p for p in parameters if isinstance(p, TyperArgument)]
        context = typer.Context(command)
        options = [p for p in parameters if isinstance(p, TyperOption) and not p.hidden]
        usage = " ".join([full, *(_metavar(argument) for argument in arguments)])
        yield f"\n## {full}\n\n```\n{usage}{' [OPTIONS]' if options else ''}\n```\n\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
        if parameters:
            yield "\n| | default | |\n|---|---|---|\n"
        for argument in arguments:
            yield _row(f"`{_metavar(argument)}`", argument)
        for option in options:
            flags = [*option.opts, *option.secondary_opts]
            if not option.is_flag:
                flags[-1] += " " + (
                    option.metavar
                    or option.display_type(context).replace("list[", "").replace("]", "")
                )
            yield _row(", ".join(f"`{flag}`" for flag in flags).replace("|", "\\|"), option)


def _metavar(argument: TyperArgument) -> str:
    text = argument.metavar or (argument.name or "").upper()
    return text if argument.required else f"[{text}]"


def _row(names: str, parameter: TyperArgument | TyperOption) -> str:
    default = parameter.default
    shown = ""
    is_flag = isinstance(parameter, TyperOption) and parameter.is_flag
    if parameter.show_default and default not in (None, [], ()) and not is_flag:
        shown = f"`{default}`"
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {names} | {shown} | {text} |\n"


if __name__ == "__main__":
    typer.echo(markdown(), nl=False)
