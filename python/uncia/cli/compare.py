"""``uncia compare``: runs side by side, and conditions for continuous integration."""

from __future__ import annotations

from pathlib import Path

import typer

from uncia.cli import judging, pages
from uncia.cli.cost.options import ALL, TariffIds
from uncia.cli.options import AsJson, Html


def register(app: typer.Typer) -> None:
    """Add the command ``compare`` to ``app``."""

    @app.command()
    @pages.with_figures
    def compare(
        runs: list[Path] = typer.Argument(
            metavar="BASELINE RUN...",
            help="Run folders, folders of repeated runs, or files of rows; the first is the"
            " baseline of all comparisons.",
        ),
        against: list[Path] = typer.Option(
            [],
            "--against",
            metavar="RUN",
            help="A run of the candidate; may be repeated. All arguments are then runs of the"
            " baseline.",
        ),
        fail_on: list[str] = typer.Option(
            [],
            "--fail-on",
            metavar="CONDITION",
            help="Judge this condition, for example 'p99>10%', 'warm.p50>5ms', 'cost>5%',"
            " 'failed>0'; may be repeated. Exit 1 if one is violated, 3 if one is not judged.",
        ),
        rows_only: bool = typer.Option(
            False,
            "--rows-only",
            help="Judge single runs by how their rows vary, as if runs of the same code did not"
            " differ.",
        ),
        allow_not_judged: bool = judging.ALLOW_NOT_JUDGED,
        tariff: TariffIds = ALL,
        as_json: AsJson = False,
        html: Html = None,
        markdown: Path | None = judging.MARKDOWN,
        junit: Path | None = judging.JUNIT,
        seed: int | None = typer.Option(
            None, "--seed", min=0, help="Seed of the bootstrap. Default: always the same."
        ),
    ) -> None:
        """Compare runs: quantiles, ratios, failures and bills, with 95 % intervals."""
        from uncia.report import compare as comparing
        from uncia.report import run_sets
        from uncia.stats import bootstrap, gates

        # Conditions first: a typing error should not wait for the bills.
        conditions = [gates.parse(text) for text in fail_on]
        sides = [run_sets.find(path) for path in runs]
        if against:
            candidate = run_sets.join([run_sets.find(path) for path in against])
            sides = [run_sets.join(sides), candidate]
        comparison = comparing.build(
            sides, tariff or None, bootstrap.SEED if seed is None else seed
        )
        findings = comparing.verdicts(comparison, conditions, rows_only=rows_only)
        output = judging.Output(as_json, html, markdown, junit, allow_not_judged)
        code = output.emit(comparison, findings)
        judging.explain(findings, allow_not_judged=allow_not_judged)
        raise typer.Exit(code)
