"""``uncia cpu intermittent``: compares a task as one invocation with the same task in bursts."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.cost.options import ALL, TariffIds
from uncia.cli.cpu.laboratory import EarlierRun, Experiment, carry_out, positive
from uncia.cli.options import AsJson, Overwrite, Quiet, RunFolder
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.bandwidth.intermittent import Result

PAGE: Final = "intermittent.html"


def register(app: typer.Typer) -> None:
    """Add the command ``intermittent`` to ``app``."""

    @app.command()
    @pages.with_figures
    def intermittent(
        memory: str = typer.Option("128MB", help="Memory of the function; CPU scales with it."),
        cpu_time: str = typer.Option("200ms", help="Approximate CPU time of the task."),
        bursts: str = typer.Option(
            "auto", metavar="auto|N", help="Bursts per task; auto: the fewest that fit the quota."
        ),
        repeat: int = typer.Option(100, min=1, help="Tasks to run; each runs both ways."),
        period: str = typer.Option("20ms", help="Period of the CPU quota."),
        margin: float = typer.Option(
            0.1, min=0, max=0.9, help="Share of the quota that bursts leave unused."
        ),
        tariff: TariffIds = ALL,
        run: EarlierRun = None,
        out: RunFolder = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Measure what cutting a task into bursts that fit the CPU quota saves and adds.

        Runs a task on the embedded platform as one invocation, and as bursts that each continue
        from the answer of the one before. Bills both, by default under Lambda's tariff and the
        tariffs that belong to no platform, and computes the fee below which bursts are cheaper.
        Exits 1 when a request failed.
        """
        from uncia.bandwidth import intermittent as lab
        from uncia.report.cpu import intermittent as report
        from uncia.suites import intermittent as study
        from uncia.suites import measure

        settings = study.Settings(
            memory=positive("--memory", memory, "size"),
            cpu_ns=positive("--cpu-time", cpu_time, "duration"),
            bursts=_bursts(bursts),
            repeat=repeat,
            period_ns=positive("--period", period, "duration"),
            margin=margin,
        )
        experiment = Experiment(
            command="intermittent",
            measure=lambda reporter: measure(
                study.document(settings),
                out=out,
                overwrite=overwrite,
                reporter=reporter,
                go_on=partial(study.go_on, settings),
            ),
            read=lambda folder: lab.read(folder, tariff or None),
            write=report.write,
            show=lambda result: show(result, as_json=as_json),
            page=PAGE,
        )
        carry_out(experiment, run=run, out=out, quiet=quiet)


def _bursts(text: str) -> int | None:
    """Parse the number of bursts; None stands for as few as fit the quota.

    Raises:
        UnciaError: the text is neither auto nor a number of at least 2.
    """
    from uncia.errors import UnciaError

    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 2:
        raise UnciaError(f"--bursts: {text!r} is neither auto nor a number of at least 2")
    return int(text)


def show(result: Result, *, as_json: bool) -> None:
    """Print the result: JSON, or a table."""
    from uncia.bandwidth.intermittent import as_data

    if as_json:
        typer.echo(json.dumps(as_data(result), indent=2, allow_nan=False))
        return
    import pandas as pd

    from uncia.cli.cost.options import emit
    from uncia.report import numbers

    first = result.comparisons[0]
    typer.echo(
        f"{plural(len(result.pairs), 'task')}, each as one invocation and in"
        f" {float(first.bursts.invocations):,.4g} bursts"
    )
    rows: list[dict[str, Any]] = []
    for item in result.comparisons:
        bounds = item.pays_below_interval
        rows.append(
            {
                "tariff": item.tariff,
                "gb_s": _float(item.long.gb_s),
                "gb_s_bursts": _float(item.bursts.gb_s),
                "saved": "-" if item.gb_s_saved is None else f"{float(item.gb_s_saved):.1%}",
                "fees": float(item.long.fees_usd) * 1e6,
                "fees_bursts": float(item.bursts.fees_usd) * 1e6,
                "bill": float(item.long.usd) * 1e6,
                "bill_bursts": float(item.bursts.usd) * 1e6,
                "change": "-" if item.bill_added is None else f"{float(item.bill_added):+.1%}",
                "below": f"{float(item.pays_below_usd) * 1e9:.4g}",
                "interval": numbers.span([bound * 1e9 for bound in bounds]) if bounds else "-",
                "fee": float(item.fee_usd) * 1e9,
            }
        )
    emit(
        pd.DataFrame(rows, dtype=object),
        as_json=False,
        columns={
            "tariff": "tariff",
            "gb_s": "GB-s",
            "gb_s_bursts": "in bursts",
            "saved": "saved",
            "fees": "fees, uUSD",
            "fees_bursts": "in bursts ",
            "bill": "bill, uUSD",
            "bill_bursts": "in bursts  ",
            "change": "change",
            "below": "pays below, nUSD",
            "interval": "95 %",
            "fee": "fee, nUSD",
        },
        notes=result.problems(),
    )
    typer.echo(f"Page: {result.folder / PAGE}")


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
