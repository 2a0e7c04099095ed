"""``uncia suite report``: judges the claims again, from the rows that there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli import pages
from uncia.cli.options import AsJson

if TYPE_CHECKING:
    from uncia.suites.results import Results


def register(app: typer.Typer) -> None:
    """Add the command ``report`` to ``app``."""

    @app.command()
    @pages.with_figures
    def report(
        folder: Path = typer.Argument(help="The folder of a suite's results."),
        as_json: AsJson = False,
    ) -> None:
        """Judge the claims and write claims.json and report.html from the rows of a suite's runs.

        Nothing is run. Exits 1 when a run failed, or what it wrote is gone or damaged; then the
        files stay as they are.
        """
        from uncia.suites import catalogue, perform, results

        state = perform.State.read(folder)
        read = results.read(state, catalogue.find(state.suite))
        read.check_undamaged()
        emit(read, as_json=as_json)
        if read.failures:
            raise typer.Exit(1)


def emit(results: Results, *, as_json: bool) -> None:
    """Write the claims and the report of results, and print the verdicts and what failed."""
    from uncia.suites import claims, page

    path = results.write_claims()
    written = page.write(results)
    for sentence in results.failures:
        typer.echo(f"Failed: {sentence}", err=True)
    if as_json:
        typer.echo(path.read_text(encoding="utf-8"), nl=False)
        return
    chosen = [entry for entry in results.entries if not entry.was_not_run]
    findings = [finding for entry in chosen for finding in entry.findings]
    for finding in findings:
        typer.echo(f"{finding.id}: {finding.verdict}\n    {finding.why}")
    typer.echo(claims.summarize(findings))
    typer.echo(f"Report: {written}")
