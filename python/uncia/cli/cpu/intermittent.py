"""``uncia cpu intermittent``: a task as one invocation, and in bursts that fit the CPU quota."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.cost.options import AsJson, TariffIds
from uncia.cli.cpu.laboratory import (
    EarlierRun,
    Experiment,
    Out,
    Overwrite,
    Quiet,
    carry_out,
    positive,
)

if TYPE_CHECKING:
    from uncia.bandwidth.intermittent import Result

PAGE: Final = "intermittent.html"


def register(app: typer.Typer) -> None:
    """Add the command ``intermittent`` to ``app``."""

    @app.command()
    def intermittent(
        memory: str = typer.Option("128MB", help="Of the function; CPU is in proportion."),
        cpu_time: str = typer.Option("200ms", help="CPU time of the task, about."),
        bursts: str = typer.Option(
            "auto", metavar="auto|N", help="How many; auto: as few as fit the quota."
        ),
        repeat: int = typer.Option(100, min=1, help="Tasks, each both ways."),
        period: str = typer.Option("20ms", help="Of the CPU quota."),
        margin: float = typer.Option(
            0.1, min=0, max=0.9, help="Share of the quota that bursts leave free."
        ),
        tariff: TariffIds = [],  # noqa: B006
        run: EarlierRun = None,
        out: Out = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """What cutting a task into bursts within the CPU quota saves and adds, and the fee below
        which it pays.

        Runs a task on the embedded platform as one invocation and in bursts, each of which goes on
        from the answer before. By default billed by Lambda's tariff and those of no platform.
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
    """How many bursts; None: as few as fit the quota.

    Raises:
        UnciaError: it is neither auto nor a number of at least 2.
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
        f"{len(result.pairs):,} tasks, each as one invocation and in"
        f" {float(first.bursts.invocations):,.4g} bursts"
    )
    rows: list[dict[str, Any]] = []
    for one in result.comparisons:
        low_high = one.pays_below_interval
        rows.append(
            {
                "tariff": one.tariff,
                "gb_s": _times(one.long.gb_s),
                "gb_s_bursts": _times(one.bursts.gb_s),
                "saved": "-" if one.gb_s_saved is None else f"{float(one.gb_s_saved):.1%}",
                "fees": float(one.long.fees_usd) * 1e6,
                "fees_bursts": float(one.bursts.fees_usd) * 1e6,
                "bill": float(one.long.usd) * 1e6,
                "bill_bursts": float(one.bursts.usd) * 1e6,
                "change": "-" if one.bill_added is None else f"{float(one.bill_added):+.1%}",
                "below": f"{float(one.pays_below_usd) * 1e9:.4g}",
                "interval": numbers.span([bound * 1e9 for bound in low_high]) if low_high else "-",
                "fee": float(one.fee_usd) * 1e9,
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


def _times(value: Any) -> float | None:
    return None if value is None else float(value)
