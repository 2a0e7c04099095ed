"""The compact table that a run ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uncia.experiment.folder import REPORT
from uncia.experiment.plan import WARMUP_SUFFIX

if TYPE_CHECKING:
    from uncia.experiment.runner import Outcome


def show(outcome: Outcome) -> None:
    """Print what came out, and where the report is."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    experiments = outcome.summary.get("experiments", {})
    shown = {name: found for name, found in experiments.items() if not name.endswith(WARMUP_SUFFIX)}
    if shown:
        summary_table(shown)
    bills = {
        name: found["cost_usd_per_million"]
        for name, found in outcome.summary.get("tariffs", {}).items()
        if found.get("cost_usd_per_million") is not None
    }
    if bills:
        low, high = min(bills, key=lambda name: bills[name]), max(bills, key=lambda n: bills[n])
        console.print(
            f"A million requests like these cost {bills[low]:.2f} USD ({low})"
            f" to {bills[high]:.2f} USD ({high}); {len(bills)} tariffs in the report."
        )
    warnings = outcome.summary.get("warnings", [])
    if warnings:
        console.print(f"{len(warnings)} warnings in the report.")
    report = outcome.folder / REPORT
    if report.exists():
        console.print(f"Report: {report}", markup=False)
    else:
        console.print(f"Rows: {outcome.folder}", markup=False)


def summary_table(experiments: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the summaries of experiments, a line each."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("experiment")
    for title in ("requests", "failed", "cold", "p50 ms", "p99 ms", "max ms", "MR", "TR", "TMR"):
        table.add_column(title, justify="right")
    for name, found in experiments.items():
        latency = found["latency_ms"]
        table.add_row(
            name,
            f"{found['invocations']:,}",
            f"{found['failed']:,}",
            f"{found['cold']:,}",
            *(_number(latency[key]) for key in ("p50", "p99", "max")),
            *(_number(found[key]) for key in ("mr", "tr", "tmr")),
        )
    Console(highlight=False).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
