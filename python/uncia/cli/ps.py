"""``uncia ps``: what runs on a platform: its functions and their instances."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.options import AsJson, Endpoint
from uncia.units import MIB, NS_PER_S, format_duration, format_size

if TYPE_CHECKING:
    from uncia.platforms.served import Row, Served

_STATES: Final = ("starting", "busy", "idle", "stopping")
_INSTANCE_COLUMNS: Final = ("function", "start", "age", "invocations")


def register(app: typer.Typer) -> None:
    """Add the command ``ps`` to ``app``."""

    @app.command()
    def ps(
        instances: bool = typer.Option(
            False, "--instances", "-i", help="List each instance that lives, too."
        ),
        as_json: AsJson = False,
        endpoint: Endpoint = "127.0.0.1:9001",
    ) -> None:
        """List the functions of a running platform, and how many instances of each live."""
        from uncia.platforms.served import Served

        served = Served(endpoint)
        health = served.health()
        functions = [_entry(served, it) for it in served.functions()]
        living = served.living_instances(_warn)
        counts = Counter(row["function"] for row in living)
        for entry in functions:
            entry["instances"] = counts[entry["function"]]
        if as_json:
            document = {
                "address": served.address,
                "waiting": health["waiting"],
                "instances": health["instances"],
                "functions": functions,
                "living": [_instance(row) for row in living],
            }
            typer.echo(json.dumps(document, indent=2))
            return
        _print(served, health, functions, living if instances else None)


def _entry(served: Served, configuration: dict[str, Any]) -> dict[str, Any]:
    name = str(configuration["FunctionName"])
    return {
        "function": name,
        "runtime": configuration.get("Runtime"),
        "memory_bytes": int(configuration["MemorySize"]) * MIB,
        "timeout_ns": int(configuration["Timeout"]) * NS_PER_S,
        "url": served.url(name),
    }


def _instance(row: Row) -> dict[str, Any]:
    return {
        "function": row["function"],
        "instance": row["instance"],
        "worker": row["worker"],
        "start": row["start"],
        "started_unix_ns": row["started"],
        "invocations": row["invocations"],
        "allocated_memory_bytes": row["allocated_memory"],
    }


def _print(
    served: Served,
    health: dict[str, Any],
    functions: list[dict[str, Any]],
    living: list[Row] | None,
) -> None:
    typer.echo(f"{served.address}: instances: {_states(health)}")
    if not functions:
        typer.echo("It has no functions yet: `uncia deploy ./mine`.")
        return
    rows = [("function", "runtime", "memory", "instances", "url")]
    for it in functions:
        size = format_size(it["memory_bytes"])
        rows.append(
            (it["function"], it["runtime"] or "-", size, str(it["instances"]), it["url"] or "-")
        )
    _print_rows(rows, right=(2, 3))
    if living:
        # Outside a cluster there is none to name.
        has_workers = any(row["worker"] is not None for row in living)
        table: list[tuple[str, ...]]
        table = [("instance", *(["worker"] if has_workers else []), *_INSTANCE_COLUMNS)]
        now = time.time_ns()
        for row in living:
            # Of a clock that was set back, no age at all.
            age = format_duration(max(0, now - row["started"]) // NS_PER_S * NS_PER_S)
            count = "-" if row["invocations"] is None else f"{row['invocations']:,}"
            where = [row["worker"] or "-"] if has_workers else []
            table.append(
                (row["instance"], *where, row["function"], row["start"] or "-", age, count)
            )
        _print_rows(table, right=(4, 5) if has_workers else (3, 4))


def _states(health: dict[str, Any]) -> str:
    """Write how many instances are in which state: ``1 busy, 3 idle (2 of them frozen)``."""
    counts = health["instances"]
    paused = [f"{counts[it]} {it}" for it in ("frozen", "scaled_down") if counts[it]]
    among = f" ({' and '.join(paused)})".replace("_", " ") if paused else ""
    states = [f"{counts[it]} {it}{among if it == 'idle' else ''}" for it in _STATES if counts[it]]
    waiting = f"; {health['waiting']} requests wait" if health["waiting"] else ""
    return (", ".join(states) or "none") + waiting


def _print_rows(rows: Sequence[Sequence[str]], right: tuple[int, ...]) -> None:
    """Print rows as columns, some of them aligned to the right; long cells are not wrapped."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)
