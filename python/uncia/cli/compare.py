"""``uncia compare``: runs side by side, and a gate for continuous integration."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli import pages

if TYPE_CHECKING:
    from rich.table import Table

    from uncia.report.compare import Candidate, Comparison
    from uncia.stats.comparison import Change
    from uncia.stats.gates import Finding

_WIDTH = 132  # columns, unless a terminal has another width

_TABLES = (
    ("Latency, ms", ("p50", "p90", "p99", "mean")),
    ("Ratios", ("mr", "tr", "tmr")),
    ("Failures and starts, %; generator lag (p99), ms", ("failed", "cold", "lag")),
)


def register(app: typer.Typer) -> None:
    """Add the command ``compare`` to ``app``."""

    @app.command()
    @pages.with_figures
    def compare(
        runs: list[Path] = typer.Argument(
            metavar="BASELINE RUN...",
            help="Run folders; the first is the baseline of all comparisons.",
        ),
        fail_on: list[str] = typer.Option(
            [],
            "--fail-on",
            metavar="CONDITION",
            help="Exit 1 if this condition is met, for example 'p99>10%', 'warm.p50>5ms',"
            " 'cost>5%', 'failed>0'; may be repeated.",
        ),
        strict: bool = typer.Option(
            False,
            "--strict",
            help="Judge conditions by the measured change alone, even if chance may explain it.",
        ),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            help="Bill under this tariff (id or file); may be repeated. Default: all that bill by"
            " request.",
        ),
        as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
        html: Path | None = typer.Option(
            None, "--html", metavar="FILE", help="Also write the comparison as one HTML page."
        ),
        seed: int | None = typer.Option(
            None, "--seed", min=0, help="Seed of the bootstrap. Default: always the same."
        ),
    ) -> None:
        """Compare runs: quantiles, ratios, failures and bills, with 95 % intervals."""
        from uncia.report import compare as comparing
        from uncia.stats import bootstrap, gates

        # Conditions first: a typing error should not wait for the bills.
        conditions = [gates.parse(text) for text in fail_on]
        comparison = comparing.build(runs, tariff or None, bootstrap.SEED if seed is None else seed)
        findings = comparing.verdicts(comparison, conditions, strict=strict)
        if html is not None:
            from uncia.report import compare_page, page

            page.write(compare_page.page(comparison, findings), html)
        if as_json:
            typer.echo(json.dumps(comparing.as_json(comparison, findings), indent=2))
        else:
            _print(comparison, findings)
        failed = comparing.broken(findings)
        if failed:
            count = len({finding.gate.text for finding in failed})
            typer.echo(f"{count} of {len(conditions)} conditions failed:", err=True)
            for finding in failed:
                typer.echo(f"  {finding.gate.text}: {_sentence(finding)}", err=True)
            raise typer.Exit(1)


def _sentence(finding: Finding) -> str:
    return f"{finding.run}: {finding.subject} {finding.verdict}: {finding.reason}"


def _print(comparison: Comparison, findings: Sequence[Finding]) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, emoji=False, width=_WIDTH)
    for candidate in comparison.candidates:
        console.print(f"[bold]{_plain(comparison.label)} → {_plain(candidate.label)}[/]\n")
        for title, metrics in _TABLES:
            console.print(_metrics(comparison, candidate, title, metrics))
        console.print(_bills(comparison, candidate))
    console.print(
        "[a to b]: 95 % interval of the change.  *: it excludes no change."
        "  †: too few rows for one.",
        style="dim",
        markup=False,
    )
    for text in comparison.warnings:
        console.print(f"note: {text}", style="yellow", markup=False)
    by_gate: dict[str, list[Finding]] = {}
    for finding in findings:
        by_gate.setdefault(finding.gate.text, []).append(finding)
    for text, gate_findings in by_gate.items():
        counts = Counter(finding.verdict for finding in gate_findings)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        console.print(f"\n[bold]{_plain(text)}[/]  {verdicts}")
        for finding in gate_findings:
            if finding.verdict != "within":
                console.print(f"  {_sentence(finding)}", markup=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _metrics(
    comparison: Comparison, candidate: Candidate, title: str, metrics: Sequence[str]
) -> Table:
    table = _table(title, "experiment", metrics)
    for experiment in comparison.experiments:
        cells = [_cell(candidate.find(experiment, metric)) for metric in metrics]
        table.add_row(_plain(experiment), *cells)
    return table


def _bills(comparison: Comparison, candidate: Candidate) -> Table:
    from uncia.stats.comparison import WHOLE_RUN

    table = _table("USD per million requests, whole run", "tariff", ("cost",))
    for tariff in comparison.tariffs:
        table.add_row(_plain(tariff), _cell(candidate.find(WHOLE_RUN, "cost", tariff)))
    return table


def _cell(change: Change | None) -> str:
    """Two lines: ``0.83 → 0.91`` and ``+9.6 % [+7.1 to +12]*``; one line without a change."""
    from uncia.report import numbers
    from uncia.report.compare import moved, spread

    if change is None or (change.baseline.value is None and change.candidate.value is None):
        return numbers.ABSENT
    before, after = change.baseline.value, change.candidate.value
    if change.kind == "points" and before == after:
        return numbers.figure(before)
    text = moved(change)
    if spread(change):
        text += f" \\[{spread(change)}]"
    if change.significant and not text.startswith("±"):
        text = f"[bold]{text}*[/]"
    elif change.baseline.few or change.candidate.few:
        text += " †"
    return f"{numbers.figure(before)} → {numbers.figure(after)}\n{text}"
