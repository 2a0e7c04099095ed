"""``uncia suite repeat``: a suite again and again, each time compared with those before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import completion
from uncia.cli.options import Quiet
from uncia.cli.quantities import quantity
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.suites.history.judging import Judged

_EXIT_FAILED: Final = 1


def register(app: typer.Typer) -> None:
    """Add the command ``repeat`` to ``app``."""

    @app.command()
    def repeat(
        suite: str = typer.Argument(
            help="A suite, or the folder of one of your own (./mine).",
            autocompletion=completion.suites,
        ),
        history: Path = typer.Option(
            ..., "--history", metavar="DIR", help="The folder that keeps a folder for each time."
        ),
        every: str | None = typer.Option(
            None,
            "--every",
            metavar="TIME",
            help="Go on at this interval, from start to start: 7d, 12h.",
            show_default=False,
        ),
        once: bool = typer.Option(False, "--once", help="Carry it out once; so it is by default."),
        on_regression: str | None = typer.Option(
            None,
            "--on-regression",
            metavar="CMD",
            help="Run this in a shell after a time that violates a condition; the verdicts are on"
            " its standard input, the folder in UNCIA_RUN.",
            show_default=False,
        ),
        fail_on: list[str] = typer.Option(
            [],
            "--fail-on",
            metavar="CONDITION",
            help="Judge this condition, for example 'p99>10%', 'fig3.warm.p50>5%'; may be repeated."
            " Default: p50>10%, p99>20%, failed>1% and cold>5%.",
            show_default=False,
        ),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="Costs under this tariff; may be repeated. Default: aws-lambda-x86.",
            show_default=False,
        ),
        only: list[str] = typer.Option(
            [], help="Only these entries: fig6,table2; may be repeated.", show_default=False
        ),
        quick: bool = typer.Option(
            False, "--quick", help="Fewer experiments and requests, as the entries say."
        ),
        quiet: Quiet = False,
    ) -> None:
        """Carry a suite out into a history, and compare it with the times before.

        Exits 1 when it failed or violates a condition; with --every, only a signal or a history
        that cannot be written ends it.
        """
        from uncia.experiment import progress
        from uncia.interrupt import Interruption
        from uncia.stats import gates
        from uncia.suites import catalogue
        from uncia.suites.history import folders, judging
        from uncia.suites.history import repeat as repeating
        from uncia.tariffs.catalogue import resolve
        from uncia.units import parse_interval

        if every is not None and once:
            raise UnciaError("--every and --once exclude each other", hint="Give one of them.")
        interval = None if every is None else quantity("--every", every, parse_interval)
        conditions = fail_on or list(judging.CONDITIONS)
        for text in conditions:
            gates.parse(text)
        tariffs = tariff or [repeating.TARIFF]
        resolve(tariffs)
        definition = catalogue.find(suite)
        entries = definition.choose(only)
        plan = repeating.Plan(
            history, definition, entries, quick, conditions, tariffs, on_regression
        )
        repeating.check(plan)
        folders.open_history(history, definition.source)
        reporter = progress.reporter(quiet=quiet)
        interruption = Interruption()
        try:
            with folders.locked(history), interruption.listening():
                if interval is not None:
                    code = repeating.forever(plan, interval, reporter, _print)
                    raise typer.Exit(code)
                judged, code_of_signal = repeating.once(plan, reporter)
        except KeyboardInterrupt:
            typer.echo("Ended.", err=True)
            raise typer.Exit(interruption.exit_code) from None
        finally:
            reporter.close()
        _print(judged)
        if code_of_signal is not None:
            raise typer.Exit(code_of_signal)
        if judged.time.status != "whole" or judged.violated:
            raise typer.Exit(_EXIT_FAILED)


def _print(judged: Judged) -> None:
    from uncia.suites.history.repeat import describe

    for line in describe(judged):
        typer.echo(line)
