"""``uncia trace``: traces of providers, a module for each command."""

import typer

from uncia.cli import groups


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia trace``."""
    groups.add(app, __name__, __path__, "Convert traces of providers to Uncia's tables.")
