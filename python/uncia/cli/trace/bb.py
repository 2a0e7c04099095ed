"""``uncia trace bb``: a trace with phases, for simulations of billing models."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli.options import AsJson, Quiet, Seed
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from pydantic import ValidationError


class Size(StrEnum):
    """Inputs of the suite's functions."""

    small = "small"
    medium = "medium"
    large = "large"
    mixed = "mixed"


class Placement(StrEnum):
    """Where in its minute an invocation is."""

    equidistant = "equidistant"
    uniform = "uniform"
    exponential = "exponential"


def register(trace: typer.Typer) -> None:
    """Add the command to ``trace``."""

    @trace.command("bb")
    def bb(
        folder: Path | None = typer.Argument(
            None, metavar="[FOLDER]", help="An import with arrivals and profiles, as of azure2019."
        ),
        synthetic: bool = typer.Option(
            False, "--synthetic", help="Draw the functions instead, as Azure's of 2019 are."
        ),
        out: Path = typer.Option(..., "--out", metavar="DIR", help="A new or empty folder."),
        functions: int = typer.Option(
            1000, "--functions", metavar="N", help="Functions; of an import, a random sample."
        ),
        hour: int = typer.Option(1, "--hour", metavar="H", help="Hour of the trace, from 1."),
        seed: Seed = 0,
        profiles: Path | None = typer.Option(
            None,
            "--profiles",
            metavar="FILE",
            help="Measured profiles of the suite's functions (YAML). Default: drawn.",
        ),
        size: Size = typer.Option(
            Size.medium, "--size", help="Input of the suite's functions; mixed: each by chance."
        ),
        placement: Placement = typer.Option(
            Placement.exponential, "--placement", help="Where in its minute an invocation is."
        ),
        utilization: float | None = typer.Option(
            None,
            "--utilization",
            metavar="SHARE",
            help="Mean share of its CPU limit that a function uses, above 0 and up to 1. Default:"
            " as its profile says.",
        ),
        deviation: float = typer.Option(
            0.1,
            "--utilization-deviation",
            metavar="SHARE",
            help="Standard deviation of that between functions.",
        ),
        batch_share: float | None = typer.Option(
            None,
            "--batch-share",
            metavar="SHARE",
            help="Share of the invocations that are batch, from 0 to 1. Default: as the suite's"
            " functions are.",
        ),
        load: float = typer.Option(
            1.0, "--load", metavar="FACTOR", help="What the counts a minute are multiplied by."
        ),
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        """Make a BB Trace (Leopard, NSDI 2025): invocations with threads and memory by phase.

        Writes an invocation table, which uncia bill and uncia cost take, and one of functions.
        """
        from pydantic import ValidationError

        from uncia.experiment import bb_trace, progress
        from uncia.traces.bb import Settings

        if (folder is None) != synthetic:
            raise UnciaError(
                "name either the folder of an import or --synthetic",
                hint="uncia trace import azure2019 FILES --out FOLDER makes one of Azure's files.",
            )
        try:
            settings = Settings(
                functions=functions,
                hour=hour,
                seed=seed,
                size=size.value,
                placement=placement.value,
                utilization=utilization,
                utilization_deviation=deviation,
                batch_share=batch_share,
                load=load,
            )
        except ValidationError as error:
            raise _usage_error(error) from None
        reporter = progress.reporter(quiet=quiet or as_json)
        try:
            made = bb_trace.make(
                settings,
                out,
                folder=folder,
                profiles=profiles,
                on_progress=lambda minute, rows: (
                    reporter.note(f"Minute {minute}: {rows:,} invocations.")
                    if minute % 10 == 0
                    else None
                ),
            )
        finally:
            reporter.close()
        if as_json:
            typer.echo(json.dumps({**vars(made), "out": str(out)}, indent=2))
            return
        for warning in made.warnings:
            typer.echo(f"warning: {warning}", err=True)
        share = made.batch / made.invocations
        typer.echo(
            f"{out}: {made.invocations:,} invocations of {made.functions:,} functions,"
            f" {share:.1%} batch"
        )


def _usage_error(error: ValidationError) -> UnciaError:
    """A wrong value, by the name of its option."""
    first = error.errors()[0]
    option = "--" + str(first["loc"][0]).replace("_", "-")
    return UnciaError(f"{option} {first['input']}: {first['msg'].lower()}")
