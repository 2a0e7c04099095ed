"""Comparisons as Markdown tables: medians over the rounds, the range, and ratios to Uncia."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

REFERENCE = "uncia"
"""What the names of Uncia's contenders begin with."""


@dataclass(frozen=True)
class Column:
    """A figure: its key in the records, its title, its decimals; as a range if ``spread``."""

    key: str
    title: str
    decimals: int = 0
    spread: bool = False


@dataclass(frozen=True)
class Table:
    """The columns of a comparison, and the figure whose ratio to Uncia's is given.

    Others are set against the first of Uncia's contenders that ran. ``inverse``: more is better, so
    that the ratio is Uncia's to the other's.
    """

    columns: tuple[Column, ...]
    ratio: str | None = None
    ratio_title: str = ""
    inverse: bool = False


TABLES = {
    "timing": Table(
        (
            Column("asked", "asked"),
            Column("arrived", "arrived"),
            Column("kernel_p50_us", "error p50, us", 1),
            Column("kernel_p99_us", "p99", 1, spread=True),
            Column("kernel_p999_us", "p99.9", 1),
            Column("kernel_max_us", "max", 0),
            Column("read_p99_us", "p99 by the server's clock", 1),
            Column("lag_p99_us", "lag p99, us", 1, spread=True),
            Column("lag_max_us", "max", 0),
            Column("cores", "CPU of a core", 2, spread=True),
        ),
        ratio="kernel_p99_us",
        ratio_title="p99, times that of Uncia",
    ),
    "throughput": Table(
        (
            Column("per_cpu_s", "requests per CPU-second", 0, spread=True),
            Column("rate", "requests/s"),
            Column("failed", "failed"),
            Column("cores", "CPU of a core", 2),
            Column("p99_ms", "p99 it reports, ms", 2),
            Column("peak_mib", "most memory, MiB", 0),
        ),
        ratio="per_cpu_s",
        ratio_title="Uncia does so many times as much",
        inverse=True,
    ),
    "burst": Table(
        (
            Column("failed", "failed"),
            Column("sent_first_ms", "first burst, sent, ms", 2, spread=True),
            Column("sent_ms", "median burst", 2, spread=True),
            Column("sent_max_ms", "worst", 2),
            Column("arrived_first_ms", "first burst, arrived, ms", 2),
            Column("arrived_ms", "median burst", 2),
            Column("arrived_max_ms", "worst", 2),
            Column("connections", "connections"),
        ),
    ),
    "stall": Table(
        (
            Column("asked", "asked"),
            Column("arrived", "arrived"),
            Column("asked_stalled", "asked during the stall"),
            Column("stalled", "arrived during the stall"),
            Column("error_p99_us", "arrival error p99, us", 1),
            Column("failed", "failed"),
            Column("p99_ms", "p99 it reports, ms", 1, spread=True),
            Column("expected_p99_ms", "p99 of the schedule asked for, ms", 1),
        ),
    ),
    "memory": Table(
        (
            Column("rows", "rows"),
            Column("failed", "failed"),
            Column("peak_mib", "most memory, MiB", 0, spread=True),
            Column("file_mib", "rows' file, MiB", 0),
            Column("per_cpu_s", "requests per CPU-second", 0),
        ),
    ),
}


def render(
    command: str,
    records: list[dict[str, Any]],
    machine: dict[str, Any],
    versions: dict[str, str],
) -> str:
    """The table of a comparison, with what could not be run, the noise, machine and versions."""
    table = TABLES[command]
    labels = list(dict.fromkeys(record["contender"] for record in records))
    figures = {
        label: [r["figures"] for r in records if r["contender"] == label and "figures" in r]
        for label in labels
    }
    ran = [label for label in labels if figures[label]]
    titles = ["generator", *(column.title for column in table.columns)]
    reference = next((label for label in ran if label.startswith(REFERENCE)), None)
    if table.ratio is not None:
        titles.append(f"{table.ratio_title} ({reference})")
    lines = [_row(titles), "|---" * len(titles) + "|"]
    for label in ran:
        cells = [label, *(_cell(figures[label], column) for column in table.columns)]
        if table.ratio is not None:
            cells.append(_ratio(table, figures, label, reference))
        lines.append(_row(cells))
    lines.append("")
    for label in labels:
        answer = [r["unable"] for r in records if r["contender"] == label and "unable" in r]
        if answer:
            lines.append(f"* {label}: {len(answer)} runs without figures: {answer[0]}")
    busy = sum(not record["quiet"] for record in records)
    lines.append(f"* {busy} of {len(records)} runs began on a machine that was not quiet.")
    gib = machine["memory_bytes"] / 2**30
    lines.append(
        f"* Machine: {machine['cpus']} CPUs of {machine['cpu']}, {gib:.0f} GiB, "
        f"Linux {machine['kernel']}."
    )
    lines.append(f"* Versions: {'; '.join(versions.values())}.")
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _values(figures: list[dict[str, float | None]], key: str) -> list[float]:
    return [value for item in figures if (value := item.get(key)) is not None]


def _cell(figures: list[dict[str, float | None]], column: Column) -> str:
    values = _values(figures, column.key)
    if not values:
        return ""
    median, least, most = (
        f"{value:,.{column.decimals}f}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({least} to {most})" if column.spread and len(values) > 1 else median


def _ratio(
    table: Table,
    figures: dict[str, list[dict[str, float | None]]],
    label: str,
    reference: str | None,
) -> str:
    if reference is None or table.ratio is None:
        return ""
    selected, others = (_values(figures[name], table.ratio) for name in (reference, label))
    if not selected or not others:
        return ""
    ratio = statistics.median(others) / statistics.median(selected)
    return f"{1 / ratio if table.inverse else ratio:.2f}"
