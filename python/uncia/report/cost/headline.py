"""The advice on a function in one sentence: ``512 MB on AWS: 0.29 USD a million, p95 22.8 ms``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uncia.report.numbers import ABSENT, figure
from uncia.report.table import records

if TYPE_CHECKING:
    import pandas as pd


def headlines(choices: pd.DataFrame) -> dict[str, str]:
    """Write the best choice of each function that has any, and what it is compared with.

    Args:
        choices: of `uncia.costs.advice.frames.choice_frame`.
    """
    usable = choices[choices["rank"].notna()]
    present = choices.attrs["present"]
    return {
        function: f"{_best(rows, choices.attrs)} Now: {present[function]}."
        for function, rows in _by_function(usable).items()
    }


def _by_function(choices: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    functions: dict[str, list[dict[str, Any]]] = {}
    for row in records(choices):
        functions.setdefault(row["function"], []).append(row)
    return functions


def best_choice(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Select what to recommend of a function's choices: the first by rank that may keep the bound.

    If none may, the first by rank.
    """
    return min(rows, key=lambda row: (row["meets_bound"] is False, row["rank"]))


def _best(rows: Sequence[Mapping[str, Any]], attrs: Mapping[Any, Any]) -> str:
    row = best_choice(rows)
    bound = attrs["bound_ms"]
    where = f"{attrs['sellers'][row['tariff']]} ({row['tariff']})"
    sentence = (
        f"{size(row, rows)} on {where}: {figure(row['cost_usd_per_million'])} USD a million,"
        f" p95 {figure(row['p95_ms'])} ms, {row['basis']}"
    )
    if bound is not None:
        kept = {True: "keeps", False: "nothing keeps"}.get(row["meets_bound"], "may keep")
        sentence += f"; {kept} {bound:g} ms"
    return f"{sentence}."


def size(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the size of a choice: ``512 MB``; with its vCPU, where that tells it from another.

    Args:
        row: the choice.
        rows: all choices of its function.
    """
    memory, vcpu = row["memory_mb"], row["vcpu"]
    parts = [] if memory is None else [f"{memory:,.0f} MB"]
    shares = {
        other["vcpu"]
        for other in rows
        if other["tariff"] == row["tariff"] and other["memory_mb"] == memory
    }
    if vcpu is not None and (len(shares) > 1 or not parts):
        parts.append(f"{figure(vcpu, 2)} vCPU")
    return ", ".join(parts) or ABSENT
