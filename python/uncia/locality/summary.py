"""What the rows of the table ``locality`` come to, a line for each function and predictor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]


def mpki(rows: Iterable[Row]) -> float | None:
    """Misses for a thousand instructions; None of nothing."""
    rows = list(rows)
    instructions = sum(row["instructions"] for row in rows)
    return 1_000 * sum(row["misses"] for row in rows) / instructions if instructions else None


def branch_lines(table: pa.Table) -> list[dict[str, Any]]:
    """What predictors made of functions, in the order of the rows.

    Args:
        table: rows of the table ``locality``.

    Returns:
        For each function and predictor, of its start and first invocation: ``instructions``,
        conditional ``branches``, ``mispredicted``, ``mpki``, and the ``start_share`` of the
        instructions. Then mispredictions for a thousand instructions: ``start_mpki``, of the start;
        ``first_mpki``, of the first invocation; and of the last one with tables that are warm from
        those before (``warm_mpki``), empty (``cold_mpki``), or shared with the other functions,
        which took turns (``shared_mpki``, None where there were none).
    """
    lines = []
    for (function, model, size), rows in _groups(table, "branch_predictor").items():
        kept = [row for row in rows if row["state"] in ("kept", None)]
        last = max(row["part"] for row in rows)
        cold_run = [row for row in kept if row["part"] <= 1]
        start, first = _part(kept, 0), _part(kept, 1)
        warm = _part(kept, last) if last > 1 else []
        at_last = {state: _part(rows, last, state) for state in ("cleared", "shared")}
        lines.append(
            {
                "function": function,
                "predictor": model,
                "table_bytes": size,
                "instructions": _total(cold_run, "instructions"),
                "branches": _total(cold_run, "accesses"),
                "mispredicted": _total(cold_run, "misses"),
                "mpki": mpki(cold_run),
                "start_share": _share(start, cold_run),
                "start_mpki": mpki(start),
                "first_mpki": mpki(first),
                "warm_mpki": mpki(warm),
                "cold_mpki": mpki(at_last["cleared"]),
                "shared_mpki": mpki(at_last["shared"]),
                "simulated": rows[0]["simulated"],
            }
        )
    return lines


def cache_lines(table: pa.Table) -> list[dict[str, Any]]:
    """What last-level caches made of cold starts, in the order of the rows.

    Args:
        table: rows of the table ``locality``.

    Returns:
        For each function and cache (``model``), of its start and first invocation:
        ``instructions``, ``accesses`` that reached the cache, ``misses``, ``mpki`` (misses for a
        thousand instructions), and the ``start_share`` of the instructions; then the
        ``start_mpki`` and ``first_mpki`` of both apart.
    """
    lines = []
    for (function, model, size), rows in _groups(table, "last_level_cache").items():
        start = _part(rows, 0)
        lines.append(
            {
                "function": function,
                "model": model,
                "cache_bytes": size,
                "instructions": _total(rows, "instructions"),
                "accesses": _total(rows, "accesses"),
                "misses": _total(rows, "misses"),
                "mpki": mpki(rows),
                "start_share": _share(start, rows),
                "start_mpki": mpki(start),
                "first_mpki": mpki(_part(rows, 1)),
                "simulated": rows[0]["simulated"],
            }
        )
    return lines


def _groups(table: pa.Table, structure: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.to_pylist():
        if row["structure"] == structure:
            key = (row["function"], row["model"], row["bytes"])
            groups.setdefault(key, []).append(row)
    return groups


def _part(rows: Iterable[Row], part: int, state: str | None = None) -> list[Row]:
    return [row for row in rows if row["part"] == part and state in (None, row["state"])]


def _total(rows: Iterable[Row], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def _share(part: Iterable[Row], whole: Iterable[Row]) -> float | None:
    instructions = _total(whole, "instructions")
    return _total(part, "instructions") / instructions if instructions else None
