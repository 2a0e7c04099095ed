"""``uncia cpu``: the kernel's CPU bandwidth control, a module for each command."""

import typer

from uncia.cli import groups


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia cpu``."""
    groups.add(
        app,
        __name__,
        __path__,
        "The kernel's CPU bandwidth control: measured, modelled and inferred.",
    )
