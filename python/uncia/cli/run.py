"""``uncia run``: carries out an experiment file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia import terminal
from uncia.cli.options import OtherSeed, Overwrite, Quiet, RunFolder
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.experiment.plan import ExperimentPlan, Plan
    from uncia.experiment.runner import Outcome


def register(app: typer.Typer) -> None:
    """Add the command ``run`` to ``app``."""

    @app.command()
    def run(
        file: str = typer.Argument(
            help="An experiment file, the name of one that ships with uncia, or a function's"
            " folder (./mine)."
        ),
        out: RunFolder = None,
        seed: OtherSeed = None,
        only: list[str] = typer.Option(
            [], help="Run only this experiment; may be repeated.", show_default=False
        ),
        platform: str | None = typer.Option(
            None, help="Kind of platform to use instead of the file's.", show_default=False
        ),
        dry_run: bool = typer.Option(
            False, "--dry-run", help="Show the plan; start and send nothing."
        ),
        allow_failures: bool = typer.Option(
            False, "--allow-failures", help="Exit 0 even if requests ended other than declared."
        ),
        overwrite: Overwrite = False,
        quiet: Quiet = False,
    ) -> None:
        """Run an experiment file: deploy its functions, send requests, measure, bill and report.

        Exits 0 when every request ended ok or as the file's `expect:` declares, 1 when not.
        """
        from uncia.experiment import files

        path = files.find(file)
        outcome = perform(
            path,
            out=out,
            seed=seed,
            only=only,
            platform=platform,
            dry_run=dry_run,
            overwrite=overwrite,
            quiet=quiet,
        )
        if outcome is not None:
            finish(outcome, allow_failures=allow_failures)
            if path.is_dir() and not quiet:
                typer.echo(
                    f"Other sizes: uncia cost matrix {outcome.folder} estimates them; an experiment"
                    f" file with source: {file} and sweep: {{memory: [...]}} measures them.",
                    err=True,
                )


def perform(
    path: Path,
    *,
    out: Path | None = None,
    seed: int | None = None,
    only: list[str] | None = None,
    platform: str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Outcome | None:
    """Run an experiment file; return None after a dry run, which only shows the plan."""
    from uncia.experiment import cpus, deployable, files, locked, progress, runner
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources
    from uncia.runs.folder import check_free

    checked, document = files.load(path, platform=platform)
    if seed is not None:
        checked = checked.model_copy(update={"seed": seed})
    sources = Sources(document, path.resolve().parent)
    planned = plan(checked, sources, only or [])
    cpus.check(document, checked)
    deployable.check_here(planned, sources)
    if dry_run:
        if out is not None:
            check_free(out, overwrite=overwrite)
        show_plan(planned, locked.expected(planned, sources))
        return None
    reporter = progress.reporter(quiet=quiet)
    try:
        return runner.execute(
            planned, sources, out=out, reporter=reporter, seed=seed, overwrite=overwrite
        )
    finally:
        reporter.close()


def finish(outcome: Outcome, *, allow_failures: bool) -> None:
    """Print how a run ended, and exit accordingly.

    Raises:
        RunFailedError: requests ended other than declared, and failures are not allowed.
        UnciaError: the error that stopped the run.
        typer.Exit: the run was interrupted.
    """
    from uncia.experiment import runner
    from uncia.experiment.table import show

    show(outcome)
    if outcome.interrupted is not None:
        raise typer.Exit(outcome.interrupted)
    if outcome.error is not None:
        raise outcome.error
    if outcome.failures and not allow_failures:
        raise runner.failure(outcome)


def _requests(experiments: Sequence[ExperimentPlan]) -> str:
    """Count the requests of experiments; a plus says that more may depend on answers."""
    total = sum(experiment.expected_requests() for experiment in experiments)
    plus = "" if all(experiment.is_bounded() for experiment in experiments) else "+"
    return f"{total:,}{plus}"


def show_plan(plan: Plan, warnings: Sequence[str] = ()) -> None:
    """Print what a run would do, and warnings about it besides the plan's own."""
    from rich.console import Console
    from rich.table import Table

    from uncia.experiment.progress import sends
    from uncia.units import NS_PER_S

    table = Table(title=f"{plan.file.name} on {plan.platform}", title_justify="left")
    table.add_column("experiment")
    table.add_column("sends")
    table.add_column("requests", justify="right")
    table.add_column("at least", justify="right")
    for experiment in plan.experiments:
        table.add_row(
            experiment.name,
            sends(experiment),
            _requests([experiment]),
            f"{experiment.span_ns() / NS_PER_S:.1f} s",
        )
    table.add_section()
    replicas = sum(
        len(deployment.function.urls) or deployment.function.replicas
        for deployment in plan.deployments.values()
    )
    table.add_row(
        "all",
        plural(replicas, "function"),
        _requests(plan.experiments),
        f"{sum(experiment.span_ns() for experiment in plan.experiments) / NS_PER_S:.1f} s",
    )
    console = Console(markup=False, emoji=False)
    terminal.show(console, table)
    for warning in (*plan.warnings, *warnings):
        console.print(f"Warning: {warning}", highlight=False, soft_wrap=True)
