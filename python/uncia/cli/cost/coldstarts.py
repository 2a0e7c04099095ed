"""``uncia cost coldstarts``: cold starts against what they served, and what billing them adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

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

if TYPE_CHECKING:
    from uncia.costs.starts import Match

_ALL: Final[list[str]] = []


def register(app: typer.Typer) -> None:
    """Add the command ``coldstarts`` to ``app``."""

    @app.command()
    def coldstarts(
        table: Tables,
        tariff: TariffIds = _ALL,
        instances: list[str] = typer.Option(
            [],
            "--instances",
            metavar="TABLE",
            help="The instances table; again for more. Default: the one beside the invocations, or"
            " the requests that waited for a start.",
        ),
        match: str = typer.Option(
            "ordered",
            "--match",
            metavar="ordered|paper",
            help="Which requests are of a start: those of its instance from then until its next"
            " start, or all of that name, as published.",
        ),
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """Compare what initializations hold with what their instances then execute."""
        from uncia.backends import connect
        from uncia.costs.coldstarts import analysed

        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            found = analysed(
                one_or_many(table),
                tariff or None,
                instances=one_or_many(instances) if instances else None,
                match=cast("Match", match),
                fit=fit_rule(fit),
                points=201 if report is not None else 0,
                backend=backend,
            )
        if report is not None:
            from uncia.report.cost.coldstarts import section

            write_report(
                report,
                "Cold starts",
                "What initializations hold against what their instances then execute.",
                [section(found.frame, found.cdf)],
                table,
            )
        facts = {} if found.frame.empty else dict(found.frame.iloc[0])
        emit(
            found.frame,
            as_json=as_json,
            columns={
                "tariff": "tariff",
                "bills_initialization": "bills it",
                "waited_rows": "rows that waited",
                "execution_usd": "USD, execution",
                "initialization_usd": "turnaround adds",
                "initialization_share": "share",
            },
            notes=[*found.notes, *lines(facts)],
        )


def lines(facts: dict[str, Any]) -> list[str]:
    """What the matching says, in words."""
    if not facts:
        return []
    said = [
        f"{facts['cold_starts']:,} cold starts, {facts['matched']:,} matched to"
        f" {facts['requests']:,} requests ({facts['match']})."
    ]
    for reason, count in facts["unmatched"].items():
        said.append(f"Not matched: {count:,} ({reason}).")
    for name, unit in (("cpu", "vCPU"), ("memory", "GB")):
        share = facts[f"{name}_not_repaid_share"]
        if share is not None:
            said.append(
                f"{share:.1%} of the starts held as much {unit} time as all their requests, or"
                " more."
            )
    return said
