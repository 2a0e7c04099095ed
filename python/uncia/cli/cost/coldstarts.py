"""``uncia cost coldstarts``: what cold starts hold, what they serve, and what billing them adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import typer

from uncia.cli import pages
from uncia.cli.cost import options
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.costs.starts import Match


def register(app: typer.Typer) -> None:
    """Add the command ``coldstarts`` to ``app``."""

    @app.command()
    @pages.with_figures
    def coldstarts(
        table: options.Tables,
        tariff: options.TariffIds = options.ALL,
        instances: list[str] = typer.Option(
            [],
            "--instances",
            metavar="TABLE",
            help="An instances table; may be repeated. Default: the one in the same folder, or the"
            " requests that waited for a start.",
        ),
        match: str = typer.Option(
            "ordered",
            "--match",
            metavar="ordered|paper",
            help="Which requests belong to a start: those of its instance until the instance's next"
            " start, or all with its name, as in the cost paper.",
        ),
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Compare the resources that initializations hold with those that their requests use."""
        from uncia.cli.querying import open_backend
        from uncia.costs.coldstarts import analysed

        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            analysis = analysed(
                table,
                tariff or None,
                instances=instances or None,
                match=cast("Match", match),
                fit=options.fit_rule(fit),
                points=201 if html is not None else 0,
                backend=backend,
            )
        if html is not None:
            from uncia.report.cost.coldstarts import section

            options.write_report(
                html,
                "Cold starts",
                "What initializations hold against what their instances then execute.",
                [section(analysis.frame, analysis.cdf)],
                table,
            )
        facts = {} if analysis.frame.empty else dict(analysis.frame.iloc[0])
        options.emit(
            analysis.frame,
            as_json=as_json,
            columns={
                "tariff": "tariff",
                "bills_initialization": "bills it",
                "waited_rows": "rows that waited",
                "execution_usd": "USD, execution",
                "initialization_usd": "turnaround adds",
                "initialization_share": "share",
            },
            notes=[*analysis.notes, *lines(facts)],
        )


def lines(facts: dict[str, Any]) -> list[str]:
    """Write what the matching of starts and requests shows, in sentences."""
    if not facts:
        return []
    sentences = [
        f"{plural(facts['cold_starts'], 'cold start')}, {facts['matched']:,} matched to"
        f" {plural(facts['requests'], 'request')} ({facts['match']})."
    ]
    for reason, count in facts["unmatched"].items():
        sentences.append(f"Not matched: {count:,} ({reason}).")
    for name, unit in (("cpu", "vCPU"), ("memory", "GB")):
        share = facts[f"{name}_not_repaid_share"]
        if share is not None:
            sentences.append(
                f"{share:.1%} of the starts held as much {unit} time as all their requests, or"
                " more."
            )
    return sentences
