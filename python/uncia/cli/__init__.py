"""The command ``uncia``, with one module for each command.

Every module here that defines ``register(app)`` adds the command or group of commands of its name
to the application; there is no list to edit. Heavy imports belong inside the functions, so that
``uncia --help`` stays quick.
"""

import errno
import gc
import importlib
import os
import pkgutil
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console
from typer.exceptions import TyperException
from typer.main import get_command

from uncia import __version__
from uncia.cli.spellings import renewed
from uncia.errors import UnciaError

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_EXIT_TERMINATED = 143  # 128 + SIGTERM

_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_OBJECTS_PER_COLLECTION = 50_000
"""New objects after which Python looks for cycles. With Python's default of 700, that would take a
tenth of a command's time: its expressions and queries are large trees without cycles."""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"uncia {__version__}")
        raise typer.Exit


def build(command: str | None = None) -> typer.Typer:
    """Build the application with every command of this package, in order of name.

    Args:
        command: the command to be run, if known: then only that one is registered, because Typer
            reads the signature of each registered command at every start.
    """
    app = typer.Typer(
        name="uncia",
        help="Weighs serverless functions: what they cost in time, in money and in machine.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ) -> None:
        del version

    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    if command not in names or not _register(app, command):
        for name in names:
            _register(app, name)
    return app


def _register(app: typer.Typer, name: str) -> bool:
    """Add the commands of a module of this package; return False if it has none."""
    register = getattr(importlib.import_module(f"{__name__}.{name}"), "register", None)
    if register is not None:
        register(app)
    return register is not None


def _show_usage(error: TyperException) -> None:
    """Write an error in the arguments, and where the command's options are listed."""
    context = getattr(error, "ctx", None)
    message = error.format_message().removesuffix(".")
    parameter = getattr(error, "param", None)
    if parameter is not None and parameter.param_type_name == "argument":
        # As the usage has it, also where the command gives it no name for people.
        message = message.replace(f"'{parameter.name}'", f"'{parameter.name.upper()}'")
    if message:  # empty where the help has been printed instead
        hint = f"{context.command_path} --help" if context is not None else None
        _show(UnciaError(message[:1].lower() + message[1:], hint))


class _Ending:
    """Ends the process by an exception on a signal, so that temporary files are removed.

    Attributes:
        code: the exit code that a signal asked for; None before one came.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        signal.signal(signal.SIGTERM, self._terminate)
        # A shell's background processes may ignore it.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def _terminate(self, signum: int, frame: FrameType | None) -> NoReturn:
        del signum, frame
        self.code = _EXIT_TERMINATED
        raise SystemExit(_EXIT_TERMINATED)

    def _interrupt(self, signum: int, frame: FrameType | None) -> NoReturn:
        del signum, frame
        self.code = _EXIT_INTERRUPTED
        raise KeyboardInterrupt


def _show(error: UnciaError) -> None:
    """Write an error and its hint to stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    console.print("[bold red]error:[/]", end=" ")
    console.print(error.message, markup=False)
    if error.hint:
        console.print("[bold]hint:[/]", end=" ")
        console.print(error.hint, markup=False)


def main() -> NoReturn:
    """Run the command line; an error becomes a sentence on stderr and an exit code."""
    ending = _Ending()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    try:
        try:
            arguments = sys.argv[1:]
            command = get_command(build(next(iter(arguments), None)))
            code = command.main(
                args=renewed(command, arguments), prog_name="uncia", standalone_mode=False
            )
        finally:
            if sys.stdout is not None:  # None if it was closed
                sys.stdout.flush()
    except UnciaError as error:
        _show(error)
        sys.exit(error.exit_code)
    except TyperException as error:
        _show_usage(error)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(1)
    except OSError as error:
        # Errors of files name the file; an error without a name is that of the standard output.
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            raise
        if error.errno != errno.EPIPE:  # the reader of the pipe has seen enough
            _show(UnciaError(f"cannot write the output: {error.strerror}"))
        # Python would try to flush the rest of the buffer at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    except RuntimeError:
        # DuckDB raises it in the place of a signal's exception: "Query interrupted".
        if ending.code is None:
            raise
        sys.exit(ending.code)
    sys.exit(code)
