"""``uncia cost``: analyses of bills, a module for each command."""

import typer

from uncia.cli import groups


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia cost``."""
    groups.add(
        app, __name__, __path__, "What a workload costs on each platform, why, and what to change."
    )
