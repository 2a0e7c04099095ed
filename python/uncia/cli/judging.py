"""What ``uncia compare`` and ``uncia gate`` print and write of a comparison, and how they exit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from uncia.report.compare import Candidate, Comparison
    from uncia.stats.comparison import Change
    from uncia.stats.verdicts import Finding

_WIDTH = 132  # columns, unless a terminal has another width

_TABLES = (
    ("Latency, ms", ("p50", "p90", "p99", "mean")),
    ("Ratios", ("mr", "tr", "tmr")),
    ("Failures and starts, %; generator lag (p99), ms", ("failed", "cold", "lag")),
)

MARKDOWN: Path | None = typer.Option(
    None,
    "--markdown",
    metavar="FILE",
    help="Also write the verdicts as Markdown, for a pull request.",
)
JUNIT: Path | None = typer.Option(
    None, "--junit", metavar="FILE", help="Also write the verdicts as JUnit XML."
)
ALLOW_NOT_JUDGED: bool = typer.Option(
    False,
    "--allow-not-judged",
    help="Exit 0 where no condition is violated, even if some could not be judged. What could not"
    " be computed at all still fails.",
)


@dataclass(frozen=True)
class Output:
    """Where results go, and what they lead to.

    Attributes:
        as_json: print JSON instead of tables.
        html, markdown, junit: files to write; None for none.
        allow_not_judged: conditions that are not judged do not fail.
    """

    as_json: bool
    html: Path | None
    markdown: Path | None
    junit: Path | None
    allow_not_judged: bool

    def write_files(self, comparison: Comparison, findings: Sequence[Finding]) -> None:
        """Write the files that were asked for, each complete or not at all."""
        from uncia.backends.atomic_write import atomic_path
        from uncia.report import compare_markdown, compare_page, junit, page

        if self.html is not None:
            page.write(compare_page.page(comparison, findings), self.html)
        texts = []
        if self.markdown is not None:
            texts.append((self.markdown, compare_markdown.markdown(comparison, findings)))
        if self.junit is not None:
            report = junit.junit(findings, allow_not_judged=self.allow_not_judged)
            texts.append((self.junit, report))
        for path, text in texts:
            with atomic_path(path, directory=False) as partial:
                partial.write_text(text, encoding="utf-8")

    def emit(
        self, comparison: Comparison, findings: Sequence[Finding], *, tables: bool = True
    ) -> int:
        """Print and write everything; returns the exit code that the verdicts lead to.

        Args:
            comparison: what was compared.
            findings: the verdicts.
            tables: print every metric, not only the conditions.
        """
        from uncia.report import compare as comparing

        self.write_files(comparison, findings)
        if self.as_json:
            typer.echo(json.dumps(comparing.as_json(comparison, findings), indent=2))
        else:
            console = _console()
            if tables:
                _print_changes(console, comparison)
            _print_notes(console, comparison)
            _print_findings(console, findings)
        return comparing.exit_code(findings, allow_not_judged=self.allow_not_judged)


def explain(findings: Sequence[Finding], *, allow_not_judged: bool) -> None:
    """Write to stderr what made the command fail, one line for each metric."""
    from uncia.report.compare import exit_code

    for finding in findings:
        if exit_code([finding], allow_not_judged=allow_not_judged):
            typer.echo(
                f"{finding.gate.text}: {finding.run}: {finding.subject} {finding.verdict}:"
                f" {finding.reason}",
                err=True,
            )


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, emoji=False, width=_WIDTH)
    return console


def _print_changes(console: Console, comparison: Comparison) -> None:
    for candidate in comparison.candidates:
        console.print(f"[bold]{_plain(comparison.baseline.label)} → {_plain(candidate.label)}[/]\n")
        for title, metrics in _TABLES:
            terminal.show(console, _metrics(comparison, candidate, title, metrics))
        if comparison.tariffs:
            terminal.show(console, _bills(comparison, candidate))
    console.print(
        "[a to b]: 95 % interval of the change.  *: it excludes no change."
        "  †: too few rows for one.",
        style="dim",
        markup=False,
    )


def _print_notes(console: Console, comparison: Comparison) -> None:
    for text in comparison.warnings:
        console.print(f"note: {text}", style="yellow", markup=False)


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    from uncia.report.compare import summarize

    if not findings:
        return
    styles = {"holds": "green", "violated": "bold red", "not judged": "yellow"}
    several = len({finding.run for finding in findings}) > 1
    table = _table("\nConditions", "condition", ())
    table.add_column("subject", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("reason")
    for finding in findings:
        subject = f"{finding.run}: {finding.subject}" if several else finding.subject
        table.add_row(
            _plain(finding.gate.text),
            _plain(subject),
            f"[{styles[finding.verdict]}]{finding.verdict}[/]",
            _plain(finding.reason),
        )
    terminal.show(console, table)
    console.print(f"\n{summarize(findings)}", style="bold", markup=False)


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
