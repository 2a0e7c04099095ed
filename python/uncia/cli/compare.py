"""``uncia compare``: runs side by side, and conditions for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from uncia import terminal
from uncia.cli import judging, pages
from uncia.cli.cost.options import ALL, TariffIds
from uncia.cli.options import AsJson, Html
from uncia.errors import UnciaError


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
        by: str | None = typer.Option(
            None,
            "--by",
            metavar="KEY",
            help="Show the experiments of many runs grouped by this key of their run.yaml, such as"
            " platform.kind, instead of comparing with a baseline.",
            show_default=False,
        ),
        chart: list[Path] = typer.Option(
            [],
            "--chart",
            metavar="FILE",
            help="With --by and --html: a chart of your own, a Python file with a function"
            " chart(lines, runs); may be repeated.",
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
        if by is not None:
            judged = against or fail_on or markdown or junit or rows_only or allow_not_judged
            if judged or tariff or seed is not None:
                raise UnciaError(
                    "--by shows groups, and judges and bills nothing: leave the other options",
                    hint="It goes with --chart, --html and --json.",
                )
            if chart and html is None:
                raise UnciaError(
                    "--chart draws on a page, and there is none", hint="Add --html FILE."
                )
            grouped(runs, by, chart, as_json=as_json, html=html)
            return
        if chart:
            raise UnciaError("--chart goes with --by")
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


_SHOWN = {
    "requests": "requests",
    "failed": "failed",
    "offered/s": "offered_per_s",
    "ok/s": "throughput_per_s",
    "p50 ms": "p50_ms",
    "p99 ms": "p99_ms",
    "execution ms": "execution_ms",
}


def grouped(
    paths: list[Path], key: str, charts: list[Path], *, as_json: bool, html: Path | None
) -> None:
    """Show the experiments of many runs by a key of their descriptions.

    Raises:
        UnciaError: a folder holds no run, or no run has the key.
    """
    from rich.console import Console
    from rich.table import Table

    from uncia.report import by_key, data, numbers, page
    from uncia.report.sections.latency import FEW

    runs = [data.load(path) for path in paths]
    lines = by_key.lines(runs, key)
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in (key, "run", "experiment"):
            table.add_column(title)
        for title in _SHOWN:
            table.add_column(title, justify="right")
        for line in lines:
            values = (line[name] for name in _SHOWN.values())
            shown = [
                "-"
                if it is None
                else numbers.count(it)
                if isinstance(it, int)
                else numbers.figure4(it)
                for it in values
            ]
            few = line["unsupported_quantiles"]
            marked = (
                f"{text} †" if name.removesuffix(" ms") in few else text
                for name, text in zip(_SHOWN, shown, strict=True)
            )
            table.add_row(line["group"], line["run"], line["experiment"], *marked)
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        terminal.show(console, table, keys=3)
        if any("p99" in line["unsupported_quantiles"] for line in lines):
            console.print(FEW)
    if html is not None:
        page.write(by_key.page(lines, runs, key, charts), html)
