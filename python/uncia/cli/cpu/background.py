"""``uncia cpu background``: the unbilled CPU time that a function gets during keep-alive."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.cost.options import ALL, TariffIds
from uncia.cli.cpu.laboratory import EarlierRun, Experiment, carry_out, positive
from uncia.cli.options import AsJson, Overwrite, Quiet, RunFolder

if TYPE_CHECKING:
    from uncia.bandwidth.background import Result

PAGE: Final = "background.html"


class KeepAliveCpu(StrEnum):
    """What the platform does with an instance that idles."""

    freeze = "freeze"
    scale_down = "scale-down"
    run = "run"
    all = "all"


def register(app: typer.Typer) -> None:
    """Add the command ``background`` to ``app``."""

    @app.command()
    @pages.with_figures
    def background(
        behaviour: KeepAliveCpu = typer.Option(
            KeepAliveCpu.all, help="What the platform does with an instance that idles."
        ),
        memory: str = typer.Option("512MB", help="Memory of the function; CPU scales with it."),
        idle: str = typer.Option(
            "5s", help="Time between the request that starts the work and the one that collects it."
        ),
        repeat: int = typer.Option(5, min=1, help="Rounds of each behaviour."),
        pause_after: str | None = typer.Option(
            None,
            help="Time after which an instance counts as idle. Default: 50ms.",
            show_default=False,
        ),
        tariff: TariffIds = ALL,
        run: EarlierRun = None,
        out: RunFolder = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Measure the unbilled CPU time that a function gets during keep-alive.

        A request starts work in a thread that continues after the answer; a second request
        collects the work. The result is the CPU time in between, under each behaviour of the
        platform, and what the same work would have cost within a request. Exits 1 when a request
        failed.
        """
        from uncia.bandwidth import background as lab
        from uncia.report.cpu import background as report
        from uncia.suites import background as study
        from uncia.suites import measure

        settings = study.Settings(
            behaviours=lab.BEHAVIOURS if behaviour is KeepAliveCpu.all else [behaviour.value],
            memory=positive("--memory", memory, "size"),
            idle_ns=positive("--idle", idle, "duration"),
            repeat=repeat,
            pause_after_ns=None
            if pause_after is None
            else positive("--pause-after", pause_after, "duration"),
        )
        experiment = Experiment(
            command="background",
            measure=lambda reporter: measure(
                study.document(settings),
                out=out,
                overwrite=overwrite,
                reporter=reporter,
            ),
            read=lambda folder: lab.read(folder, tariff or None),
            write=report.write,
            show=lambda result: show(result, as_json=as_json),
            page=PAGE,
        )
        carry_out(experiment, run=run, out=out, quiet=quiet)


def show(result: Result, *, as_json: bool) -> None:
    """Print the result: JSON, or a table."""
    from uncia.bandwidth.background import as_data

    data = as_data(result)
    if as_json:
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
        return
    import pandas as pd

    from uncia.cli.cost.options import emit
    from uncia.report import numbers

    rows: list[dict[str, Any]] = [
        {
            "behaviour": behaviour["keep_alive_cpu"],
            "rounds": behaviour["rounds"],
            "idle": behaviour["idle_s"],
            "cpu": behaviour["unbilled_cpu_s"],
            "vcpu": behaviour["unbilled_vcpu"],
            "interval": numbers.span(behaviour["unbilled_vcpu_interval"]),
            "allocation": f"{behaviour['share_of_allocation']:.1%}",
            "tariff": price["tariff"],
            "requests": price["requests_usd"] * 1e6,
            "work": price["work_billed_usd"] * 1e6,
            "saved": "-" if price["saved"] is None else f"{price['saved']:.1%}",
        }
        for behaviour in data["behaviours"]
        for price in behaviour["tariffs"]
    ]
    emit(
        pd.DataFrame(rows, dtype=object),
        as_json=False,
        columns={
            "behaviour": "keep-alive",
            "rounds": "rounds",
            "idle": "idle, s",
            "cpu": "CPU unbilled, s",
            "vcpu": "vCPU",
            "interval": "95 %",
            "allocation": "of its share",
            "tariff": "tariff",
            "requests": "billed, uUSD",
            "work": "in a request, uUSD",
            "saved": "saved",
        },
        notes=result.problems,
    )
    typer.echo(f"Page: {result.folder / PAGE}")
