"""``uncia cost instances`` and ``break-even``: paying for instances instead of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from uncia.cli import completion, pages
from uncia.cli.cost import options
from uncia.units import NS_PER_H

if TYPE_CHECKING:
    import pandas as pd


def register(app: typer.Typer) -> None:
    """Add the commands ``instances`` and ``break-even`` to ``app``."""

    @app.command()
    @pages.with_figures
    def instances(
        table: options.InstanceTables,
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="A tariff that bills instance time, or its file; may be repeated. Default: all.",
        ),
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Price the whole lifetime of every instance of an instances table."""
        from uncia.cli.querying import open_backend
        from uncia.costs.instances import instances as compute
        from uncia.costs.repeated import INSTANCES, repeated_note

        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            frame = compute(table, tariff or None, backend=backend)
            rows = backend.table(table, "instances")
            repeated = repeated_note(table, rows, INSTANCES, backend)
        if repeated is not None:
            typer.echo(f"note: {repeated}", err=True)
        if html is not None:
            from uncia.report.cost.instances import section

            title = "What the instances cost"
            options.write_report(
                html, title, "Instances, paid for their life.", [section(frame)], table
            )
        shown = frame.rename(columns={"billed_ns": "hours"})
        shown["hours"] = [None if ns is None else ns / NS_PER_H for ns in shown["hours"]]
        options.emit(
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
    @pages.with_figures
    def break_even(
        table: options.Tables,
        tariff: options.TariffIds = options.ALL,
        function: str | None = typer.Option(
            None, "--function", metavar="NAME", help="Only the rows of this function."
        ),
        concurrency: int = typer.Option(
            1, "--concurrency", metavar="N", help="Requests that an instance serves at a time."
        ),
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Find the request rate above which an instance is cheaper than paying by request.

        --tariff takes tariffs that bill by request and tariffs that bill by instance. Without any
        of a kind, all tariffs of that kind are compared.
        """
        from uncia.cli.querying import open_backend
        from uncia.costs.breakeven import break_even as compute
        from uncia.tariffs import find

        tariffs = [find(name) for name in tariff]
        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            frame = compute(
                options.results(table, backend),
                [item for item in tariffs if not item.by_instance] or None,
                [item for item in tariffs if item.by_instance] or None,
                function=function,
                concurrency=concurrency,
                fit=options.fit_rule(fit),
                backend=backend,
            )
        if html is not None:
            from uncia.report.cost.instances import break_even_section

            options.write_report(
                html,
                "Requests or instances",
                "The request rate above which an instance is cheaper.",
                [break_even_section(frame)],
                table,
            )
        shown = frame[[rate is not None for rate in frame["rate_per_s"]]]
        options.emit(
            frame if as_json else shown,
            as_json=as_json,
            keys=2,
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
    """Say what a table of instances leaves out or assumes."""
    sentences: list[str] = []
    for _, row in frame.iterrows():
        if row["note"] is not None:
            sentences.append(f"{row['tariff']}: {row['note']}.")
        for reason, count in row["unpriced"].items():
            sentences.append(f"{row['tariff']}: not priced: {count:,} ({reason}).")
        if row["beyond_size"]:
            sentences.append(
                f"{row['tariff']}: {row['beyond_size']:,} of the instances priced are larger than"
                " its only size."
            )
    running = max(frame["running"], default=0)
    if running:
        sentences.append(
            f"Still alive: {running:,}; billed until the latest time in the tables of their run."
        )
    return sentences


def _unpriced(frame: pd.DataFrame) -> list[str]:
    unpriced = frame[[rate is None for rate in frame["rate_per_s"]]]
    pairs = dict.fromkeys(zip(unpriced["instance_tariff"], unpriced["note"], strict=True))
    return [f"{tariff}: {note}." for tariff, note in pairs if note is not None]
