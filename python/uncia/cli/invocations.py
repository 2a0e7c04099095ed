"""What ``uncia serve`` prints: functions when it starts, and a line for each invocation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.units import NS_PER_MS, NS_PER_S, format_size

if TYPE_CHECKING:
    from fractions import Fraction

    from uncia.tariffs import Tariff

MOST_LINES: Final = 20
"""Lines printed at a time, a quarter of a second; of further invocations only their number."""

_TIMES: Final = ("started", "ended", "queued", "initialization", "execution", "billed")


@dataclass(frozen=True)
class Printer:
    """Prints invocations, with their costs under a tariff.

    Attributes:
        tariff: bills by request.
        as_json: an object a line, for all of them.
    """

    tariff: Tariff
    as_json: bool

    def print(self, rows: Sequence[Mapping[str, Any]], most: int | None = MOST_LINES) -> None:
        """Print rows of the invocation table, in Unix time.

        Args:
            rows: the rows.
            most: of more than these only the number is printed; None: all are.
        """
        if self.as_json:
            for row in rows:
                typer.echo(json.dumps(self._entry(row)))
            return
        for row in rows[:most]:
            typer.echo(self.line(row))
        rest = [] if most is None else rows[most:]
        if rest:
            typer.echo(f"{'':12}  and {len(rest):,} more: {_kinds(rest)}")

    def print_output(self, row: Mapping[str, Any], outputs: Sequence[str]) -> None:
        """Print what a function printed during an invocation, indented below it.

        Args:
            row: of the invocation.
            outputs: a text for each attempt.
        """
        for output in outputs:
            if self.as_json:
                entry = {"event": "output", "request_id": row["request_id"], "output": output}
                typer.echo(json.dumps(entry))
                continue
            for text in output.splitlines():
                # A function's text must not reach the terminal's controls.
                shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
                typer.echo(f"{'':12}  | {shown}")

    def line(self, row: Mapping[str, Any]) -> str:
        """Write a row in a line: its end, function, start, execution, cost, worker and error.

        The cost stands with its tariff: it need not be the one that the platform was started with.
        """
        ended = row["ended"] if row["ended"] is not None else row["started"]
        time = "" if ended is None else f"{datetime.fromtimestamp(ended / NS_PER_S):%H:%M:%S.%f}"
        parts = [f"{time[:-3]:12}", f"{row['function']:<16}", f"{row['start'] or '-':<8}"]
        parts.append(f"{_milliseconds(row['execution']):>10}")
        parts.append(f"{self._price(row):>24}")
        if row["initialization"]:
            parts.append(f"initialization {_milliseconds(row['initialization'])}")
        if row["worker"] is not None:
            parts.append(f"on {row['worker']}")
        if row["outcome"] != "ok":
            text = row["error"] or ""
            parts.append(f"{row['outcome']}: {text.splitlines()[0] if text else 'no reason given'}")
        return "  ".join(parts)

    def _price(self, row: Mapping[str, Any]) -> str:
        cost = self._cost(row)
        return (
            "-"
            if cost is None
            else f"{float(cost * 1_000_000):.4g} USD a million on {self.tariff.id}"
        )

    def _entry(self, row: Mapping[str, Any]) -> dict[str, Any]:
        cost = self._cost(row)
        return {
            "event": "invocation",
            **{
                name: row[name]
                for name in ("function", "request_id", "instance", "worker", "start")
            },
            **{name: row[name] for name in ("outcome", "error")},
            **{f"{name}_ns": row[name] for name in _TIMES},
            "allocated_memory_bytes": row["allocated_memory"],
            "tariff": self.tariff.id,
            "cost_usd": None if cost is None else float(cost),
        }

    def _cost(self, row: Mapping[str, Any]) -> Fraction | None:
        from uncia.tariffs.request import cost, total_cpu_time

        cpu_time = total_cpu_time(row["cpu_user"], row["cpu_system"])
        return cost(self.tariff, {**row, "cpu_time": cpu_time})


def print_functions(functions: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each function, from its configuration in Lambda's words."""
    if not functions:
        typer.echo("It has no functions yet: create one with any Lambda client.")
    for function in functions:
        size = format_size(int(function["MemorySize"]) * 1024 * 1024)
        typer.echo(
            f"  {function['FunctionName']:<16}  {function.get('Runtime') or '-':<14}  {size:>8}"
            f"  {function.get('Handler') or ''}"
        )


def _kinds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write how many there are of each kind of start or failure: ``1,190 warm, 3 throttled``."""
    kinds = Counter(
        (row["start"] or "unknown start") if row["outcome"] == "ok" else row["outcome"]
        for row in rows
    )
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())


def _milliseconds(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / NS_PER_MS:,.2f} ms"
