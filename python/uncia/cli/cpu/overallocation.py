"""``uncia cpu overallocation``: durations by memory size, measured and modelled."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.cpu.laboratory import EarlierRun, Experiment, carry_out, positive
from uncia.cli.options import AsJson, Overwrite, Quiet, RunFolder
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.bandwidth.overallocation import Result

PAGE: Final = "overallocation.html"


class Enforcement(StrEnum):
    """How functions are held to their quota."""

    kernel = "kernel"
    event_driven = "event-driven"
    both = "both"


def register(app: typer.Typer) -> None:
    """Add the command ``overallocation`` to ``app``."""

    @app.command()
    @pages.with_figures
    def overallocation(
        function: str = typer.Option("pyaes", help="A function of the catalogue."),
        memory: str = typer.Option(
            "128..1769",
            help="Memory sizes in MB: 128..1769, 128..1769/50 (in steps of 50), or 128,512.",
        ),
        sizes: int = typer.Option(40, min=2, help="Number of sizes in a range without steps."),
        samples: int = typer.Option(
            100, min=1, help="Requests at each size; four times as many at a whole vCPU."
        ),
        enforcement: Enforcement = typer.Option(
            Enforcement.kernel, help="How functions are held to their quota."
        ),
        period: str = typer.Option("20ms", help="Period of the CPU quota."),
        hz: int | None = typer.Option(
            None,
            min=24,
            max=10_000,
            help="Tick rate of the modelled kernel, in Hz. Default: this machine's, or 250.",
            show_default=False,
        ),
        run: EarlierRun = None,
        out: RunFolder = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Measure how long a function takes at each memory size, and compare with models.

        Requests go to the sizes in turn, one at a time. The models (reciprocal scaling, Equation
        (2), and the simulated kernel or exact timers) are given the rows at a whole vCPU only. The
        result includes the CPU time that a function gets beyond what is paid for. Exits 1 when a
        request failed.
        """
        from uncia.bandwidth import overallocation as lab
        from uncia.report.cpu import overallocation as report
        from uncia.suites import measure
        from uncia.suites import overallocation as study

        settings = study.Settings(
            function=function,
            memory_mb=study.sizes(memory, sizes),
            samples=samples,
            enforcement=[
                name
                for name in (lab.KERNEL, lab.EVENT_DRIVEN)
                if enforcement in (Enforcement.both, name)
            ],
            period_ns=positive("--period", period, "duration"),
        )
        experiment = Experiment(
            command="overallocation",
            measure=lambda reporter: measure(
                study.document(settings), out=out, overwrite=overwrite, reporter=reporter
            ),
            read=lambda folder: lab.read(folder, hz),
            write=report.write,
            show=lambda result: show(result, as_json=as_json),
            page=PAGE,
        )
        carry_out(experiment, run=run, out=out, quiet=quiet)


def show(result: Result, *, as_json: bool) -> None:
    """Print the result: JSON, or a table."""
    from uncia.bandwidth.overallocation import as_data

    data = as_data(result)
    if as_json:
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
        return
    import pandas as pd

    from uncia.cli.cost.options import emit

    models = list(dict.fromkeys(name for size in data["sizes"] for name in size["models_ms"]))
    rows: list[dict[str, Any]] = [
        {
            **dict.fromkeys(models),
            **size,
            **size["models_ms"],
            "memory_mb": f"{size['memory_mb']:g}",
        }
        for size in data["sizes"]
    ]
    emit(
        pd.DataFrame(rows, dtype=object),
        as_json=False,
        columns={
            "enforcement": "enforced by",
            "memory_mb": "MB",
            "rows": "requests",
            "mean_ms": "mean, ms",
            "cpu_ms": "CPU, ms",
            **{name: name for name in models},
            "overallocation": "used / paid for",
        },
        notes=[
            f"Left out: {plural(count, 'row')} ({cause})."
            for cause, count in result.left_out.items()
        ],
    )
    for enforcement, errors in data["mape"].items():
        figures = ", ".join(f"{name} {share:.1%}" for name, share in errors.items())
        typer.echo(f"Mean absolute error over sizes below a vCPU ({enforcement}): {figures}")
    typer.echo(f"Page: {result.folder / PAGE}")
