"""``uncia trace``: a module a command, found by its place; each defines ``register(app)``."""

import importlib
import pkgutil

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia trace``."""
    trace = typer.Typer(
        help="Turn traces of providers into tables.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.add_typer(trace, name="trace")
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "register"):
            module.register(trace)
