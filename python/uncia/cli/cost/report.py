"""``uncia cost report``: every analysis of a table on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import pages
from uncia.cli.cost import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uncia.backends import Backend
    from uncia.report.page import Section
    from uncia.tariffs.compare import FitRule

_POINTS: Final = 201  # per curve of cold starts


def register(app: typer.Typer) -> None:
    """Add the command ``report`` to ``app``."""

    @app.command()
    @pages.with_figures
    def report(
        table: options.Tables,
        html: Path = typer.Option(..., "--html", metavar="FILE", help="The page to write."),
        tariff: options.TariffIds = options.ALL,
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
    ) -> None:
        """Write one page with every analysis: inflation, utilization, decomposition, cold starts,
        rounding, prices, and the rate above which an instance is cheaper.

        Advice, which treats each function by itself, has its own page: uncia cost advice --html.
        """
        from uncia.cli.querying import open_backend

        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            sections = _sections(table, tariff or None, options.fit_rule(fit), backend)
        options.write_report(
            html, "What it costs, and why", "Every analysis of these rows.", sections, table
        )


def _sections(
    source: Sequence[str], tariffs: Sequence[str] | None, fit: FitRule, backend: Backend
) -> list[Section]:
    from uncia.costs.breakeven import break_even
    from uncia.costs.coldstarts import analysed, obstacle
    from uncia.costs.decompose import decompose
    from uncia.costs.distributions import inflation_cdf
    from uncia.costs.fees import fee_equivalents
    from uncia.costs.inflation import inflation
    from uncia.costs.prices import AGAINST, BUNDLE, prices
    from uncia.costs.rounding import AT_LEAST
    from uncia.costs.rounding import measure as rounding
    from uncia.costs.utilization import measure as utilization
    from uncia.report.cost import coldstarts as coldstarts_page
    from uncia.report.cost import decompose as decompose_page
    from uncia.report.cost import inflation as inflation_page
    from uncia.report.cost import instances as instances_page
    from uncia.report.cost import prices as prices_page
    from uncia.report.cost import rounding as rounding_page
    from uncia.report.cost import utilization as utilization_page

    starts = None
    wrong = obstacle(source, backend)
    if wrong is not None:
        typer.echo(f"note: without cold starts, as {wrong}", err=True)
    else:
        starts = analysed(source, tariffs, fit=fit, points=_POINTS, backend=backend)
    # Of starts those of warm-ups count too: their instances are in the table beside.
    rows = options.results(source, backend)
    return [
        inflation_page.section(
            inflation(rows, tariffs, fit=fit, backend=backend),
            inflation_cdf(rows, tariffs, fit=fit, backend=backend),
        ),
        utilization_page.section(utilization(rows, fit=fit, backend=backend)),
        decompose_page.section(decompose(rows, tariffs, fit=fit, backend=backend)),
        *([] if starts is None else [coldstarts_page.section(starts.frame, starts.cdf)]),
        rounding_page.section(
            fee_equivalents(tariffs),
            rounding(rows, tariffs, at_least=AT_LEAST, fit=fit, backend=backend),
        ),
        prices_page.section(prices(tariffs), BUNDLE, AGAINST),
        instances_page.break_even_section(
            break_even(rows, tariffs, None, fit=fit, backend=backend)
        ),
    ]
