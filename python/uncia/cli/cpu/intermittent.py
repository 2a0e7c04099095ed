"""``uncia cpu intermittent``: a task as one invocation, and in bursts that fit the CPU quota."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.cost.options import AsJson, TariffIds

if TYPE_CHECKING:
    from uncia.bandwidth.intermittent_result import Result
    from uncia.experiment.runner import Outcome

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
        run: Path | None = typer.Option(
            None, help="Measure nothing: an earlier run's folder.", show_default=False
        ),
        out: Path | None = typer.Option(
            None, help="The run's folder [default: results/NAME-TIME].", show_default=False
        ),
        overwrite: bool = typer.Option(
            False, "--overwrite", help="Replace an earlier run in --out."
        ),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
        as_json: AsJson = False,
    ) -> None:
        """What cutting a task into bursts within the CPU quota saves and adds, and the fee below
        which it pays.

        Runs a task on the embedded platform as one invocation and in bursts, each of which goes on
        from the answer before. By default billed by Lambda's tariff and those of no platform.
        Exits 1 when a request failed.
        """
        from uncia.bandwidth import intermittent_result
        from uncia.report.cpu import intermittent as report

        if run is not None:
            from uncia.errors import UnciaError

            if out is not None:
                raise UnciaError("--run reads a run and --out makes one: give one of the two")
            result = intermittent_result.read(run, tariff or None)
            report.write(result, run / PAGE)
            show(result, as_json=as_json)
            return
        outcome = measure(
            memory=memory,
            cpu_time=cpu_time,
            bursts=bursts,
            repeat=repeat,
            period=period,
            margin=margin,
            out=out,
            overwrite=overwrite,
            quiet=quiet,
        )
        ended_early(outcome)
        result = intermittent_result.read(outcome.folder, tariff or None)
        report.write(result, outcome.folder / PAGE)
        show(result, as_json=as_json)
        failed(outcome)


def measure(
    *,
    memory: str,
    cpu_time: str,
    bursts: str,
    repeat: int,
    period: str,
    margin: float,
    out: Path | None,
    overwrite: bool,
    quiet: bool,
) -> Outcome:
    """Carry the experiment out with the options as text.

    Raises:
        UnciaError: an option is not right.
    """
    from uncia.bandwidth.intermittent_run import Settings
    from uncia.bandwidth.intermittent_run import measure as carry_out
    from uncia.errors import UnciaError
    from uncia.experiment import progress

    if bursts != "auto" and (not bursts.isascii() or not bursts.isdigit() or int(bursts) < 2):
        raise UnciaError(f"--bursts: {bursts!r} is neither auto nor a number of at least 2")
    settings = Settings(
        memory=quantity("--memory", memory, "size"),
        cpu_ns=quantity("--cpu-time", cpu_time, "duration"),
        bursts=None if bursts == "auto" else int(bursts),
        repeat=repeat,
        period_ns=quantity("--period", period, "duration"),
        margin=margin,
    )
    reporter = progress.reporter(quiet=quiet)
    try:
        return carry_out(settings, out=out, overwrite=overwrite, reporter=reporter)
    finally:
        reporter.close()


def quantity(option: str, text: str, kind: str) -> int:
    """A size or a duration above zero.

    Raises:
        UnciaError: it is none; with the option's name.
    """
    from uncia.errors import UnciaError
    from uncia.units import UnitError, parse_duration, parse_size

    try:
        value = parse_size(text) if kind == "size" else parse_duration(text)
    except UnitError as error:
        raise UnciaError(f"{option}: {error}") from error
    if value <= 0:
        raise UnciaError(f"{option}: {text} is not above zero")
    return value


def ended_early(outcome: Outcome) -> None:
    """Exit when a run was interrupted or something stopped it.

    Raises:
        UnciaError: what stopped it.
        typer.Exit: it was interrupted.
    """
    if outcome.interrupted is not None:
        typer.echo(f"Interrupted; what was measured is in {outcome.folder}.", err=True)
        raise typer.Exit(outcome.interrupted)
    if outcome.error is not None:
        raise outcome.error


def failed(outcome: Outcome) -> None:
    """Exit when requests of a run failed.

    Raises:
        RunFailedError: some did.
    """
    if outcome.failures:
        from uncia.experiment import runner

        raise runner.failure(outcome)


def show(result: Result, *, as_json: bool) -> None:
    """Print the result: JSON, or a table."""
    from uncia.bandwidth.intermittent_result import as_data

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
