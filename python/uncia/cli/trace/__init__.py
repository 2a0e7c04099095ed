"""``uncia trace``: a module a command, found by its place; each defines ``register(app)``."""

import typer

from uncia.cli import groups


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia trace``."""
    groups.add(app, __name__, __path__, "Turn traces of providers into tables.")
