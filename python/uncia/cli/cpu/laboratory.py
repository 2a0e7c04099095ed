"""Experiments on the embedded platform: their common options, and how they run and report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeAlias, TypeVar

import typer

from uncia.cli.quantities import quantity

if TYPE_CHECKING:
    from uncia.experiment.progress import Reporter
    from uncia.experiment.runner import Outcome

Result = TypeVar("Result")

EarlierRun: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="Folder of an earlier run to show instead of measuring.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Experiment(Generic[Result]):
    """An experiment: how to measure, read, write and show it.

    Attributes:
        command: its name on the command line.
        measure: runs it, and passes progress to the reporter.
        read: reads the result from the folder of a run.
        write: writes the page of a result to a file.
        show: prints a result.
        page: name of the page's file.
    """

    command: str
    measure: Callable[[Reporter], Outcome]
    read: Callable[[Path], Result]
    write: Callable[[Result, Path], object]
    show: Callable[[Result], None]
    page: str


def carry_out(
    experiment: Experiment[Result], *, run: Path | None, out: Path | None, quiet: bool
) -> None:
    """Measure, or read an earlier run; write the page and print the result.

    Args:
        experiment: the experiment.
        run: the folder of an earlier run, instead of measuring.
        out: the folder of the new run; not with ``run``.
        quiet: show no progress.

    Raises:
        UnciaError: both folders are given, or something stopped the run.
        RunFailedError: requests failed; the page and the result are written nevertheless.
        typer.Exit: the run was interrupted.
    """
    from uncia.errors import UnciaError
    from uncia.experiment import progress, runner

    if run is not None and out is not None:
        raise UnciaError("--run reads a run and --out makes one: give one of the two")
    outcome = None
    if run is None:
        reporter = progress.reporter(quiet=quiet)
        try:
            outcome = experiment.measure(reporter)
        finally:
            reporter.close()
        if outcome.interrupted is not None:
            typer.echo(
                f"Interrupted; what was measured is in {outcome.folder}. To see what it says:"
                f" uncia cpu {experiment.command} --run {outcome.folder}",
                err=True,
            )
            raise typer.Exit(outcome.interrupted)
        if outcome.error is not None:
            raise outcome.error
        run = outcome.folder
    result = experiment.read(run)
    experiment.write(result, run / experiment.page)
    experiment.show(result)
    if outcome is not None and outcome.failures:
        raise runner.failure(outcome)


def positive(option: str, text: str, kind: str) -> int:
    """Parse a size in bytes or a duration in ns that must be positive; plain sizes are in MB.

    Raises:
        UnciaError: the text is none; the message names the option.
    """
    from uncia.errors import UnciaError
    from uncia.units import parse_duration, parse_size

    if kind == "size":
        value = quantity(option, f"{text}MB" if text.isdecimal() else text, parse_size)
    else:
        value = quantity(option, text, parse_duration)
    if value <= 0:
        raise UnciaError(f"{option}: {text} is not above zero")
    return value
