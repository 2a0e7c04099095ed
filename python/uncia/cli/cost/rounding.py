"""``uncia cost rounding``: fees as billable time, and what rounding up adds to bills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from uncia.cli import pages
from uncia.cli.cost import options
from uncia.cli.quantities import quantity

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.rounding import Rounding


def register(app: typer.Typer) -> None:
    """Add the command ``rounding`` to ``app``."""

    @app.command()
    @pages.with_figures
    def rounding(
        table: list[str] = typer.Argument(
            None,
            metavar="TABLE...",
            help="Run or import folders, Parquet or *.arrows files. Without any, only fees are"
            " shown.",
        ),
        tariff: options.TariffIds = options.ALL,
        size: list[str] = typer.Option(
            [],
            "--size",
            metavar="MEMORY/VCPU",
            help="A size to express the fee in, such as 512MB/0.5vCPU; may be repeated. Default:"
            " sizes of each tariff.",
        ),
        at_least: str = typer.Option(
            "1ms", "--at-least", metavar="TIME", help="Ignore shorter executions; 0ms: ignore none."
        ),
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Express invocation fees in billable milliseconds, and measure what rounding up adds."""
        import pandas as pd

        from uncia.cli.querying import open_backend
        from uncia.costs.rounding import fee_equivalents, measure
        from uncia.costs.sizes import parse_allocation

        tariffs, shortest = tariff or None, _duration(at_least)
        sizes = [parse_allocation(text) for text in size]
        added: Rounding | None = None
        fees = fee_equivalents(tariffs, sizes)
        if table:
            rule = options.fit_rule(fit)
            with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
                rows = options.results(table, backend)
                added = measure(rows, tariffs, at_least=shortest, fit=rule, backend=backend)
        if html is not None:
            from uncia.report.cost.rounding import section

            options.write_report(
                html,
                "Fees and rounding",
                "The invocation fee as time, and what granularities and minimums add.",
                [section(fees, added)],
                table or [],
            )
        if as_json:
            frame = fees.assign(resource="fee")
            if added is not None:
                frame = pd.concat([frame, added.frame], ignore_index=True)
            options.emit(frame, as_json=True)
            return
        options.emit(
            fees,
            as_json=False,
            columns={
                "tariff": "tariff",
                "size": "size",
                "usd_per_s": "USD a second",
                "fee_usd": "fee, USD",
                "fee_ms": "fee, ms billed",
            },
        )
        if added is not None:
            options.emit(_readable(added.frame), as_json=False, notes=_notes(added.frame))


def _duration(text: str) -> int:
    from uncia.units import parse_duration

    return 0 if text == "0" else quantity("--at-least", text, parse_duration)


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "rounded": row["rule"],
                "of": row["resource"],
                "rows": row["rows"],
                "unit": "ms" if row["resource"] == "time" else "GB-s",
                "before": row["plain_mean"],
                "adds": row["mean"],
                **{name: row[name] for name in ("p5", "p50", "p95", "p99", "most")},
                "tariffs": row["tariffs"],
            }
            for _, row in frame.iterrows()
        ],
        dtype=object,
    )


def _notes(frame: pd.DataFrame) -> list[str]:
    from uncia.costs.rows import describe_reasons

    if frame.empty:
        return ["These tariffs round nothing up."]
    sentences = options.unique(describe_reasons(counts) for counts in frame["left_out"] if counts)
    return [f"Left out: {sentence}." for sentence in sentences]
