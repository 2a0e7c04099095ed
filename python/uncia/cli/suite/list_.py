"""``uncia suite list``: the suites that ship with Uncia."""

from __future__ import annotations

import json

import typer

from uncia import terminal
from uncia.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command ``list`` to ``app``."""

    @app.command("list")
    def list_(as_json: AsJson = False) -> None:
        """List the suites, with their entries and how long these take."""
        from rich.console import Console
        from rich.table import Table

        from uncia.suites import catalogue, lengths

        suites = [catalogue.find(name) for name in catalogue.names()]
        takes = {
            suite.name: {
                name: tuple(lengths.of_entry(suite, entry, quick=it) for it in (False, True))
                for name, entry in suite.entries.items()
            }
            for suite in suites
        }
        if as_json:
            listed = [
                {
                    "suite": suite.name,
                    "title": suite.form.title,
                    "entries": list(suite.entries),
                    "takes": {
                        name: {"whole": whole.data(), "quick": quick.data()}
                        for name, (whole, quick) in takes[suite.name].items()
                    },
                }
                for suite in suites
            ]
            typer.echo(json.dumps(listed, indent=2))
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("suite, entries")
        table.add_column("shows")
        for heading in ("takes", "--quick"):
            table.add_column(heading, justify="right")
        for suite in suites:
            of_suite = takes[suite.name].values()
            sums = [lengths.total(list(it)).words() for it in zip(*of_suite, strict=True)]
            table.add_row(suite.name, suite.form.title, *sums)
            for name, entry in suite.entries.items():
                words = [it.words() for it in takes[suite.name][name]]
                table.add_row(f"  {name}", f"{entry.form.shows}: {entry.form.title}", *words)
        console = Console(markup=False, emoji=False, highlight=False)
        terminal.show(console, table)
        console.print(
            'Measured on two CPUs with nothing else running; "over" is what the schedules alone'
            ' come to, or what --quick takes, "-" not known.'
        )
