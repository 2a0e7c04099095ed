"""What the experiments on the embedded platform share: options, and how they are carried out."""

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
    typer.Option("--run", help="Measure nothing: an earlier run's folder.", show_default=False),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The run's folder. Default: results/ID.", show_default=False),
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@dataclass(frozen=True)
class Experiment(Generic[Result]):
    """An experiment of the laboratory.

    Attributes:
        measure: carries it out, and reports progress to what it is given.
        read: its result from the folder of a run.
        write: its page, to this file.
        show: prints the result.
        page: name of the file.
    """

    measure: Callable[[Reporter], Outcome]
    read: Callable[[Path], Result]
    write: Callable[[Result, Path], object]
    show: Callable[[Result], None]
    page: str


def carry_out(
    experiment: Experiment[Result], *, run: Path | None, out: Path | None, quiet: bool
) -> None:
    """Measure, or take an earlier run; write the page and print the result.

    Args:
        experiment: what it is.
        run: an earlier run, instead of measuring.
        out: where the run is to be; not with ``run``.
        quiet: whether to report no progress.

    Raises:
        UnciaError: both folders are given, or something stopped the run.
        RunFailedError: requests failed; the page is written and the result printed all the same.
        typer.Exit: it was interrupted.
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
            typer.echo(f"Interrupted; what was measured is in {outcome.folder}.", err=True)
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
    """A size or a duration above zero; a size without a unit is in MB, as in the other commands.

    Raises:
        UnciaError: it is none; with the option's name.
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
