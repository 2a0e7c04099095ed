"""``uncia suite``: a paper's experiments, claims and verdicts, a module for each command."""

import typer

from uncia.cli import groups


def register(app: typer.Typer) -> None:
    """Add the commands of this package to ``app`` as ``uncia suite``."""
    groups.add(
        app,
        __name__,
        __path__,
        "Experiments of papers: carried out, drawn beside what is printed, and judged.",
    )
