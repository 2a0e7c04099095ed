"""``uncia bill``: prices an invocation table under tariffs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.cost.options import (
    AsJson,
    EngineName,
    Master,
    MemoryLimit,
    Tables,
    TariffIds,
    one_or_many,
    plain_console,
)
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from fractions import Fraction

    from uncia.tariffs import Line

_ALL: Final[list[str]] = []
_WIDE = 150  # columns, where no terminal says how wide it is


class Fit(StrEnum):
    """How rows get the sizes that they are billed at."""

    allocated = "allocated"
    used_peak = "used-peak"
    paper = "paper"


class By(StrEnum):
    """What rows are billed apart by."""

    experiment = "experiment"
    function = "function"


_FIT_WORDS = {
    Fit.allocated: "How allocations become each platform's sizes: uncia tariffs show ID.",
    Fit.used_peak: "Sizes cover what each function used at its peak; the whole rule: --json (fit).",
    Fit.paper: "Sizes are those of the cost paper's artifact; the whole rule: --json (fit).",
}


def register(app: typer.Typer) -> None:
    """Add the command ``bill`` to ``app``."""

    @app.command()
    def bill(
        table: Tables,
        tariff: TariffIds = _ALL,
        by: list[By] = typer.Option([], "--by", help="Bill each experiment or function apart."),
        fit: Fit = typer.Option(
            Fit.allocated,
            "--fit",
            help="Price the size that covers what was allocated, or what the function used at its"
            " peak; or as the cost paper's artifact did.",
        ),
        free_tier: bool = typer.Option(
            False,
            "--free-tier",
            help="Take each tariff's free tier off, once: the table is a month.",
        ),
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
    ) -> None:
        """Price every invocation of a table under each tariff: what would it cost, and why?"""
        from uncia.backends import connect
        from uncia.tariffs import bill as price
        from uncia.tariffs import ids

        for path in table:
            if path in ids() and not Path(path).exists():
                raise UnciaError(
                    f"{path} is a tariff, and there is no table of that name",
                    f"Write --tariff before each tariff: --tariff {path}",
                )
        groups = list(dict.fromkeys(str(one) for one in by))
        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            lines = price(
                one_or_many(table),
                tariff or None,
                groups,
                backend,
                fit=fit.value,
                free_tier=free_tier,
            )
        if as_json:
            typer.echo(json.dumps([entry(line) for line in lines], indent=2))
        else:
            _print(lines, groups, fit)


def entry(line: Line) -> dict[str, Any]:
    """A line as JSON: its group, the figures of ``summary.json``, and the exact amounts as text."""
    from uncia.tariffs import summary_entry

    quantities = (
        "billable_micro_vcpu_ns",
        "billable_byte_ns",
        "used_micro_vcpu_ns",
        "used_byte_ns",
    )
    exact: dict[str, str | None] = {}
    for name in quantities:
        quantity = getattr(line, name)
        exact[name] = None if quantity is None else str(quantity)
    for name in ("fee_usd", "rounding_usd", "free_usd", "cost_usd"):
        money = getattr(line, name)
        exact[name] = None if money is None else format(money, "f")
    return {
        "tariff": line.tariff,
        **line.group,
        "total_rows": line.total_rows,
        **summary_entry(line),
        **exact,
    }


def _print(lines: list[Line], groups: list[str], fit: Fit) -> None:
    from rich.table import Table

    console = plain_console(_WIDE)
    by_group: dict[tuple[str | None, ...], list[Line]] = {}
    for line in lines:
        by_group.setdefault(tuple(line.group[name] for name in groups), []).append(line)
    for group, members in by_group.items():
        title = ", ".join(f"{name} {value}" for name, value in zip(groups, group, strict=True))
        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
        table.add_column("tariff", no_wrap=True)
        headings = ("rows", "vCPU-s", "x used", "GB-s", "x used", "fee", "rounding")
        for heading in (*headings, "USD a million"):
            table.add_column(heading, justify="right", no_wrap=True)
        for line in sorted(members, key=_cheapest_first):
            table.add_row(
                line.tariff,
                f"{line.rows:,}",
                _amount(line.billable_vcpu_s),
                _ratio(line.inflation_vcpu),
                _amount(line.billable_gb_s),
                _ratio(line.inflation_memory),
                _percent(line.fee_share),
                _percent(line.rounding_share),
                _amount(line.cost_usd_per_million),
            )
        console.print(table)
        for note in _notes(members):
            console.print(note, style="yellow")
        console.print()
    console.print(
        "x used: billed for, over what was used (CPU time, average memory).  fee, rounding: their"
        f" share of the bill.  -: not known.\n{_FIT_WORDS[fit]}",
        style="dim",
    )


def _cheapest_first(line: Line) -> tuple[bool, Fraction, str]:
    from fractions import Fraction

    cost = line.cost_usd_per_million
    return cost is None, cost or Fraction(0), line.tariff


def _notes(lines: list[Line]) -> list[str]:
    """What the figures leave out: rows that nobody bills, and rows that a tariff cannot price."""
    notes: list[str] = []
    first = lines[0]
    if first.not_billable:
        reasons = _reasons(first.not_billable)
        notes.append(f"Not billed by any platform, of {_rows(first.total_rows)}: {reasons}.")
    same: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for line in lines:
        if line.unpriced:
            same.setdefault(tuple(line.unpriced.items()), []).append(line.tariff)
    for unpriced, tariffs in same.items():
        notes.append(f"Not in the bill of {', '.join(tariffs)}: {_reasons(dict(unpriced))}.")
    for line in lines:
        if line.beyond_limits:
            notes.append(
                f"{line.tariff}: of the rows priced, {_rows(line.beyond_limits)} beyond what the"
                " platform allows (time or memory)."
            )
    return notes


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{_rows(count)} ({reason})" for reason, count in counts.items())


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _amount(value: Fraction | None) -> str:
    if value is None:
        return "-"
    return f"{float(value):,.4g}" if abs(value) < 1000 else f"{float(value):,.0f}"


def _ratio(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):,.2f}"


def _percent(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):.1%}"
