"""Groups of commands, such as ``uncia cost``: a package each, with a module for each command."""

import importlib
import pkgutil
from collections.abc import Iterable

import typer


def add(app: typer.Typer, package: str, path: Iterable[str], help: str) -> None:
    """Add the commands of a package to ``app``, as a group that is called like the package.

    Each module that defines ``register(group)`` is a command.

    Args:
        app: the application, or the group above.
        package: the package's full name.
        path: its ``__path__``.
        help: a sentence on what the group is for.
    """
    group = typer.Typer(
        help=help, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.add_typer(group, name=package.rpartition(".")[2])
    for info in sorted(pkgutil.iter_modules(path), key=lambda info: info.name):
        module = importlib.import_module(f"{package}.{info.name}")
        if hasattr(module, "register"):
            module.register(group)
