"""``uncia suite list``: the suites that ship with Uncia."""

from __future__ import annotations

import json

import typer

from uncia.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command ``list`` to ``app``."""

    @app.command("list")
    def list_(as_json: AsJson = False) -> None:
        """List the suites, with their entries."""
        from rich.console import Console
        from rich.table import Table

        from uncia.suites import catalogue

        suites = [catalogue.find(name) for name in catalogue.names()]
        if as_json:
            listed = [
                {"suite": suite.name, "title": suite.form.title, "entries": list(suite.entries)}
                for suite in suites
            ]
            typer.echo(json.dumps(listed, indent=2))
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("suite", "title", "entries"):
            table.add_column(heading)
        for suite in suites:
            table.add_row(suite.name, suite.form.title, ", ".join(suite.entries))
        Console(markup=False, emoji=False, highlight=False).print(table)
