"""``uncia doctor``: what this machine can do, how noisy it is, and what each shortcoming costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli.options import AsJson

if TYPE_CHECKING:
    from uncia.doctor import Check, Report

_ADDRESS: Final = "127.0.0.1:9001"
_SIGNS: Final = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "missing": "[red]missing[/]"}


def register(app: typer.Typer) -> None:
    """Add the command ``doctor`` to ``app``."""

    @app.command()
    def doctor(
        as_json: AsJson = False,
        seconds: float = typer.Option(
            1.0, "--seconds", min=0.0, max=3600.0, help="How long to measure the noise; 0 skips it."
        ),
        endpoint: str | None = typer.Option(
            None,
            "--endpoint",
            envvar="UNCIA_ENDPOINT",
            metavar="ADDRESS",
            help="Say what the platform there warns of; by default the one at "
            f"{_ADDRESS}, if one answers.",
        ),
    ) -> None:
        """Report what this machine can do, how noisy it is, and what each missing thing costs."""
        from uncia.doctor import Report, examine

        running = _running_platform(endpoint)
        report = examine(seconds)
        report = Report((*report.checks, *running), report.facts)
        if as_json:
            typer.echo(json.dumps(report.to_dict(), indent=2))
        else:
            _show(report)


def _running_platform(endpoint: str | None) -> list[Check]:
    """Check the platform at an address; without one, that at the usual one, if it answers."""
    from uncia.doctor.checks import missing_platform, platform_checks
    from uncia.errors import UnciaError
    from uncia.platforms.served import Served, glimpse

    if endpoint is None:
        health = glimpse(_ADDRESS)
        return [] if health is None else platform_checks(_ADDRESS, health)
    try:
        served = Served(endpoint)
        return platform_checks(served.address, served.health())
    except UnciaError as error:
        return [missing_platform(error)]


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, emoji=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        table.add_row(_SIGNS[check.status], check.id, escape(check.finding))
        if check.consequence:
            table.add_row("", "", escape(check.consequence))
        if check.remedy and check.status != "ok":
            table.add_row("", "", f"[dim]{escape(check.remedy)}[/]")
    console.print(table)
    problems = sum(check.status != "ok" for check in report.checks)
    console.print(
        f"\n{len(report.checks) - problems} of {len(report.checks)} as they should be."
        + (" Reports of runs repeat what impairs their results." if problems else "")
    )
