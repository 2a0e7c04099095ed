"""``uncia suite show``: what a suite runs and claims."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from uncia.cli import completion
from uncia.cli.options import AsJson

if TYPE_CHECKING:
    from uncia.suites.catalogue import SuiteEntry


def register(app: typer.Typer) -> None:
    """Add the command ``show`` to ``app``."""

    @app.command()
    def show(
        suite: str = typer.Argument(
            help="A suite, or the folder of one of your own (./mine).",
            autocompletion=completion.suites,
        ),
        only: list[str] = typer.Option(
            [], help="Only these entries: fig6,table2; may be repeated.", show_default=False
        ),
        as_json: AsJson = False,
    ) -> None:
        """Show the entries of a suite: their experiments, claims and scale."""
        from uncia.suites import catalogue

        definition = catalogue.find(suite)
        entries = definition.choose(only)
        if as_json:
            listed = {
                entry.name: {
                    **entry.form.model_dump(mode="json", exclude_none=True),
                    "experiments": {run: list(names) for run, names in entry.experiments.items()},
                }
                for entry in entries
            }
            typer.echo(json.dumps(listed, indent=2, ensure_ascii=False))
            return
        typer.echo(f"{definition.form.title}\n{definition.form.citation}")
        for entry in entries:
            typer.echo(f"\n{entry.name}  {entry.form.shows}: {entry.form.title}")
            for line in _lines(entry):
                typer.echo(f"  {line}")


def _lines(entry: SuiteEntry) -> list[str]:
    """What an entry runs, at which scale, and what it claims."""
    lines = [
        f"runs {run}: {item.file} ({', '.join(entry.experiments[run])})"
        for run, item in entry.form.runs.items()
    ]
    if hardware := entry.form.needs.hardware:
        lines.append(f"needs counters of the processor: {', '.join(hardware)}")
    lines += [f"scaled, {item.factor}: {item.means}" for item in entry.form.scale]
    for name, (claim, _) in entry.claims.items():
        lines.append(f"claims {name}: {claim.paper} ({claim.place})")
        how = claim.claim or f"cannot be checked here: {claim.unavailable}"
        suffix = f" (shown, not judged, but on {claim.only_on})" if claim.only_on else ""
        lines.append(f"    {how}{suffix}")
    return lines
