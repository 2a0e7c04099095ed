"""``uncia bill``: prices an invocation table under tariffs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia import terminal
from uncia.cli import unpriced
from uncia.cli.cost import options
from uncia.errors import UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from fractions import Fraction

    from uncia.backends import Backend
    from uncia.tariffs import FitRule, Line

_WIDTH: Final = 150  # columns, unless a terminal has another width

_EXACT_QUANTITIES: Final = (
    "billable_micro_vcpu_ns",
    "billable_byte_ns",
    "used_micro_vcpu_ns",
    "used_byte_ns",
)
_EXACT_AMOUNTS: Final = ("fee_usd", "rounding_usd", "free_usd", "cost_usd")


class By(StrEnum):
    """What rows can be billed separately by."""

    experiment = "experiment"
    function = "function"
    memory = "memory"


_FIT_NOTES: Final = {
    "allocated": "How allocations become each platform's sizes: uncia tariffs show ID.",
    "used-peak": "Sizes cover what each function used at its peak; the whole rule: --json (fit).",
    "paper": "Sizes are those of the cost paper's artifact; the whole rule: --json (fit).",
}


def register(app: typer.Typer) -> None:
    """Add the command ``bill`` to ``app``."""

    @app.command()
    def bill(
        table: options.Tables,
        tariff: options.TariffIds = options.ALL,
        by: list[By] = typer.Option(
            [],
            "--by",
            help="Bill each experiment, function or allocated memory separately; may be repeated.",
        ),
        common: bool = typer.Option(
            False, "--common", help="Bill only the rows that every one of these tariffs can price."
        ),
        fit: options.Fit = "allocated",
        free_tier: bool = typer.Option(
            False,
            "--free-tier",
            help="Subtract each tariff's monthly free tier once, as if the table were a month.",
        ),
        strict: bool = typer.Option(
            False, "--strict", help="Exit 1 if a tariff can price none of the rows."
        ),
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
    ) -> None:
        """Price every invocation of a table under each tariff, and show what drives the price."""
        from uncia.cli.querying import open_backend
        from uncia.costs.billed_rows import select_rows, with_memory_names
        from uncia.costs.span import span_note
        from uncia.tariffs import bill as price
        from uncia.tariffs import ids
        from uncia.tariffs.catalogue import resolve

        for path in table:
            if path in ids() and not Path(path).exists():
                raise UnciaError(
                    f"{path} is a tariff, and there is no table of that name",
                    f"Write --tariff before each tariff: --tariff {path}",
                )
        groups = options.unique(by)
        rule = options.fit_rule(fit)
        notes: list[str] = []
        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            selected = select_rows(table, tariff or None, groups, backend, fit=rule, common=common)
            lines = price(
                selected.rows,
                tariff or None,
                groups,
                backend,
                fit=rule,
                free_tier=free_tier,
                facts=selected.facts,
                instances=_instances(table, tariff or None, groups, backend, notes),
            )
            lines = with_memory_names(lines)
            empty = unpriced.empty_bills(lines)
            of_trace = bool(empty) and unpriced.is_trace(backend, backend.table(selected.rows))
            if free_tier and any(item.free_tier for item in resolve(tariff or None)):
                span = span_note(table, backend.table(selected.rows), backend)
                notes += [] if span is None else [span]
            warnings = [*selected.warnings, *_repeated_instances(table, tariff or None, backend)]
        notes = [*selected.notes, *notes]
        for warning in warnings:
            typer.echo(f"note: {warning}", err=True)
        for sentence in (*empty, *unpriced.remedies(lines, of_trace=of_trace)):
            typer.echo(sentence, err=as_json)
        if as_json:
            typer.echo(json.dumps([entry(line) for line in lines], indent=2))
            for note in notes:
                typer.echo(f"note: {note}", err=True)
        else:
            models = {item.id for item in resolve(tariff or None) if not item.sold}
            _print(lines, groups, rule, notes, models)
        if strict and empty:
            raise typer.Exit(1)


def _instances(
    table: list[str],
    tariffs: list[str] | None,
    groups: list[str],
    backend: Backend,
    notes: list[str],
) -> list[str] | None:
    """Where the instances are whose idle time on the account of hints is billed, if there are any.

    Args:
        table: paths of the bill.
        tariffs: of the bill.
        groups: columns that it is by.
        backend: reads them.
        notes: receives why they are left out.
    """
    from uncia.tariffs import idle
    from uncia.tariffs.catalogue import resolve

    priced = [tariff.id for tariff in resolve(tariffs) if tariff.idle is not None]
    if not priced:
        return None
    why = None
    if set(groups) - set(idle.GROUPS):
        why = f"instances belong to no {' and no '.join(set(groups) - set(idle.GROUPS))}"
    elif not backend.has(table, "instances"):
        why = "there is no table of instances here (name the folder of a run)"
    if why is not None:
        notes.append(
            f"{', '.join(priced)}: without what instances cost that hints had kept or started:"
            f" {why}."
        )
    return table if why is None else None


def _repeated_instances(
    table: list[str], tariffs: list[str] | None, backend: Backend
) -> Iterator[str]:
    """Say which instances are there more than once, where their idle time is billed."""
    from uncia.costs.repeated import INSTANCES, repeated_note
    from uncia.tariffs.catalogue import resolve

    if any(item.idle is not None for item in resolve(tariffs)) and backend.has(table, "instances"):
        rows = backend.table(table, "instances")
        if (note := repeated_note(table, rows, INSTANCES, backend)) is not None:
            yield note


def entry(line: Line) -> dict[str, Any]:
    """Return a line as JSON: its group, the figures of ``summary.json``, exact amounts as text."""
    from uncia.tariffs import summary_entry

    exact = {name: _digits(line, name, "d") for name in _EXACT_QUANTITIES}
    exact |= {name: _digits(line, name, "f") for name in _EXACT_AMOUNTS}
    if line.hint_usd is not None:
        exact["hint_usd"] = _digits(line, "hint_usd", "f")
    return {
        "tariff": line.tariff,
        **line.group,
        "total_rows": line.total_rows,
        **summary_entry(line),
        **exact,
    }


def _digits(line: Line, name: str, form: str) -> str | None:
    value = getattr(line, name)
    return None if value is None else format(value, form)


def _print(
    lines: list[Line], groups: list[str], fit: FitRule, notes: list[str], models: set[str]
) -> None:
    """Print a table for each group.

    Args:
        lines: the bill.
        groups: columns that it is by.
        fit: how allocations became sizes.
        notes: on rows that are not in it.
        models: ids of tariffs that nobody sells by, which stand below the others.
    """
    from rich.table import Table

    console = options.plain_console(_WIDTH)
    by_group: dict[tuple[str | None, ...], list[Line]] = {}
    for line in lines:
        by_group.setdefault(tuple(line.group[name] for name in groups), []).append(line)
    for group, members in by_group.items():
        title = ", ".join(f"{name} {value}" for name, value in zip(groups, group, strict=True))
        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
        table.add_column("tariff", no_wrap=True)
        headings = ["rows", "vCPU-s", "x used", "GB-s", "x used", "fee", "rounding"]
        has_idle = any(line.hint_byte_ns is not None for line in members)
        headings += ["hint GB-s", "hints"] if has_idle else []
        for heading in (*headings, "USD a million"):
            table.add_column(heading, justify="right", no_wrap=True)
        covered = any(line.unpriced_rows for line in members)
        ordered = sorted(members, key=lambda line: (line.tariff in models, *_cheapest(line)))
        for index, line in enumerate(ordered):
            if line.tariff in models and index and ordered[index - 1].tariff not in models:
                table.add_row("not sold:", style="dim")
            table.add_row(
                line.tariff,
                _coverage(line) if covered else f"{line.rows:,}",
                _amount(line.billable_vcpu_s),
                _ratio(line.inflation_vcpu),
                _amount(line.billable_gb_s),
                _ratio(line.inflation_memory),
                _percent(line.fee_share),
                _percent(line.rounding_share),
                *([_amount(line.hint_gb_s), _percent(line.hint_share)] if has_idle else []),
                _amount(line.cost_usd_per_million),
            )
        terminal.show(console, table)
        for note in _notes(members):
            console.print(note, style="yellow")
        console.print()
    for note in notes:
        console.print(note, style="yellow")
    if any(line.tariff in models for line in lines):
        console.print("not sold: billing models of papers, by which nobody sells.", style="dim")
    if any(line.hint_byte_ns is not None for line in lines):
        console.print(
            "hint GB-s: what instances held that hints had kept or started.  hints: their share of"
            " the bill.",
            style="dim",
        )
    console.print(
        "x used: billed for, over what was used (CPU time, average memory).  fee, rounding: their"
        f" share of the bill.  -: not known.\n{_FIT_NOTES[fit]}",
        style="dim",
    )


def _coverage(line: Line) -> str:
    """The rows that were priced, and their share of those that any platform bills."""
    billable = line.rows + line.unpriced_rows
    share = line.rows / billable if billable else 0.0
    return f"{line.rows:,} ({share:.1%})"


def _cheapest(line: Line) -> tuple[bool, Fraction, str]:
    from fractions import Fraction

    cost = line.cost_usd_per_million
    return cost is None, cost or Fraction(0), line.tariff


def _notes(lines: list[Line]) -> list[str]:
    """Say which rows the figures omit: those nobody bills, and those a tariff cannot price."""
    notes: list[str] = []
    first = lines[0]
    if first.not_billable:
        total, reasons = plural(first.total_rows, "row"), options.reasons(first.not_billable)
        notes.append(f"Not billed by any platform, of {total}: {reasons}.")
    notes += options.unpriced_notes((line.tariff, line.unpriced) for line in lines)
    if len({line.rows for line in lines}) > 1:
        notes.append("These bills are over different rows; over the same: --common.")
    notes += [
        f"{line.tariff}: of the rows priced, {plural(line.beyond_limits, 'row')} beyond what"
        " the platform allows (time or memory)."
        for line in lines
        if line.beyond_limits
    ]
    notes += [
        f"{line.tariff}: without what {plural(line.hint_unknown, 'instance')} idled on the account"
        " of hints, because they still ran, or their worker crashed."
        for line in lines
        if line.hint_unknown
    ]
    return notes


def _amount(value: Fraction | None) -> str:
    if value is None:
        return "-"
    return f"{float(value):,.4g}" if abs(value) < 1000 else f"{float(value):,.0f}"


def _ratio(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):,.2f}"


def _percent(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):.1%}"
