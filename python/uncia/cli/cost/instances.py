"""``uncia cost instances`` and ``uncia cost break-even``: paying for instances, not requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from uncia.cli.cost.options import (
    AsJson,
    EngineName,
    Fit,
    Master,
    MemoryLimit,
    ReportFile,
    Tables,
    TariffIds,
    emit,
    fit_rule,
    one_or_many,
    write_report,
)
from uncia.units import NS_PER_H

if TYPE_CHECKING:
    import pandas as pd


_ALL: Final[list[str]] = []


def register(app: typer.Typer) -> None:
    """Add the commands ``instances`` and ``break-even`` to ``app``."""

    @app.command()
    def instances(
        table: Tables,
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            help="A tariff that bills instance time, or its file; again for more. Default: all.",
        ),
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """Price the life of every instance of an instances table."""
        from uncia.backends import connect
        from uncia.costs.instances import instances as compute

        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            frame = compute(one_or_many(table), tariff or None, backend=backend)
        if report is not None:
            from uncia.report.cost.instances import section

            title = "What the instances cost"
            write_report(report, title, "Instances, paid for their life.", [section(frame)], table)
        shown = frame.rename(columns={"billed_ns": "hours"})
        shown["hours"] = [None if ns is None else ns / NS_PER_H for ns in shown["hours"]]
        emit(
            frame if as_json else shown,
            as_json=as_json,
            columns={
                "tariff": "tariff",
                "priced": "instances",
                "hours": "hours billed",
                "rounding_usd": "rounding, USD",
                "cost_usd": "USD",
                "usd_per_instance_hour": "USD an hour",
            },
            notes=notes(frame),
        )

    @app.command("break-even")
    def break_even(
        table: Tables,
        tariff: TariffIds = _ALL,
        function: str | None = typer.Option(
            None, "--function", metavar="NAME", help="Only the rows of this function."
        ),
        concurrency: int = typer.Option(
            1, "--concurrency", metavar="N", help="Requests that an instance serves at once."
        ),
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """Find the request rate from which on an instance is cheaper than paying by request.

        --tariff names tariffs of both kinds; a kind of which none is named means all of that kind.
        """
        from uncia.backends import connect
        from uncia.costs.breakeven import break_even as compute
        from uncia.tariffs import find

        named = [find(name) for name in tariff]
        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            frame = compute(
                one_or_many(table),
                [one for one in named if not one.by_instance] or None,
                [one for one in named if one.by_instance] or None,
                function=function,
                concurrency=concurrency,
                fit=fit_rule(fit),
                backend=backend,
            )
        if report is not None:
            from uncia.report.cost.instances import break_even_section

            write_report(
                report,
                "Requests or instances",
                "From which request rate on an instance is cheaper.",
                [break_even_section(frame)],
                table,
            )
        shown = frame[[rate is not None for rate in frame["rate_per_s"]]]
        emit(
            frame if as_json else shown,
            as_json=as_json,
            columns={
                "request_tariff": "by request",
                "instance_tariff": "by instance",
                "usd_per_request": "USD a request",
                "usd_per_hour": "USD an hour",
                "rate_per_s": "cheaper from, /s",
                "capacity_per_s": "holds, /s",
                "feasible": "feasible",
            },
            notes=_unpriced(frame),
        )


def notes(frame: pd.DataFrame) -> list[str]:
    """What a table of instances leaves out or assumes."""
    said: list[str] = []
    for _, row in frame.iterrows():
        if row["note"] is not None:
            said.append(f"{row['tariff']}: {row['note']}.")
        for reason, count in row["unpriced"].items():
            said.append(f"{row['tariff']}: not priced: {count:,} ({reason}).")
        if row["beyond_size"]:
            said.append(
                f"{row['tariff']}: {row['beyond_size']:,} of the instances priced are larger than"
                " its only size."
            )
    running = max(frame["running"], default=0)
    if running:
        said.append(
            f"Still alive: {running:,}; billed until the last time that the tables of their run"
            " know."
        )
    return said


def _unpriced(frame: pd.DataFrame) -> list[str]:
    gone = frame[[rate is None for rate in frame["rate_per_s"]]]
    pairs = dict.fromkeys(zip(gone["instance_tariff"], gone["note"], strict=True))
    return [f"{tariff}: {note}." for tariff, note in pairs if note is not None]
