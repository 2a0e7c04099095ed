"""``uncia cost rounding``: fees as billable time, and what granularities and minimums add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from uncia.cli.cost.options import (
    AsJson,
    EngineName,
    Fit,
    Master,
    MemoryLimit,
    ReportFile,
    TariffIds,
    emit,
    fit_rule,
    one_or_many,
    write_report,
)
from uncia.cli.quantities import quantity

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.rounding import Rounding


def register(app: typer.Typer) -> None:
    """Add the command ``rounding`` to ``app``."""

    @app.command()
    def rounding(
        table: list[str] = typer.Argument(
            None,
            metavar="[TABLE...]",
            help="Run or import folders, Parquet or *.arrows files. Without one: the fees alone.",
        ),
        tariff: TariffIds = [],  # noqa: B006
        size: list[str] = typer.Option(
            [],
            "--size",
            metavar="MEMORY/VCPU",
            help="A size that the fee is compared with, such as 512MB/0.5vCPU; again for more."
            " Default: sizes of each tariff's own.",
        ),
        at_least: str = typer.Option(
            "1ms", "--at-least", metavar="TIME", help="Leave shorter executions out; 0ms: none."
        ),
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """The invocation fee in billable milliseconds, and what rounding up adds."""
        from uncia.backends import connect
        from uncia.costs.rounding import fee_equivalents, measure
        from uncia.costs.sizes import parse_allocation

        chosen, least = tariff or None, _duration(at_least)
        sizes = [parse_allocation(text) for text in size]
        added: Rounding | None = None
        fees = fee_equivalents(chosen, sizes)
        if table:
            with connect(engine, memory_limit=memory_limit, master=master) as backend:
                added = measure(
                    one_or_many(table),
                    chosen,
                    at_least=least,
                    fit=fit_rule(fit),
                    backend=backend,
                )
        if report is not None:
            from uncia.report.cost.rounding import section

            write_report(
                report,
                "Fees and rounding",
                "The invocation fee as time, and what granularities and minimums add.",
                [section(fees, added)],
                table or [],
            )
        if as_json:
            emit(_together(fees, added), as_json=True)
            return
        emit(
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
            emit(_shown(added.frame), as_json=False, notes=_notes(added.frame))


def _together(fees: pd.DataFrame, added: Rounding | None) -> pd.DataFrame:
    """The rows of both, told apart by ``resource``: fee, time, memory."""
    import pandas as pd

    fees = fees.assign(resource="fee")
    return fees if added is None else pd.concat([fees, added.frame], ignore_index=True)


def _duration(text: str) -> int:
    from uncia.units import parse_duration

    return 0 if text == "0" else quantity("--at-least", text, parse_duration)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    def unit(row: Any) -> str:
        return "ms" if row["resource"] == "time" else "GB-s"

    return pd.DataFrame(
        [
            {
                "rounded": row["rule"],
                "of": row["resource"],
                "rows": row["rows"],
                "unit": unit(row),
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
    from uncia.costs.rows import said

    found = list(dict.fromkeys(said(left) for left in frame["left_out"] if left))
    return [f"Left out: {words}." for words in found]
