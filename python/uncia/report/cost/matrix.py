"""The section on sizes by tariffs: cost and p95 of each, the best marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from uncia.report.cost.headline import headlines
from uncia.report.numbers import ABSENT, figure, usd
from uncia.report.page import Block, Note, Section
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    import pandas as pd

LEGEND: Final = "*: best. ~: estimated."
"""The marks of a cell."""

BROKEN: Final = "!: breaks the bound."
"""The mark of a cell whose p95 is above the bound."""

_FUNCTIONS: Final = 12
"""Functions with a table; all are in JSON."""


def section(cells: pd.DataFrame, *, headings: bool = True) -> Section:
    """Make the section on sizes by tariffs.

    Args:
        cells: of `uncia.costs.advice.frames.matrix_frame`.
        headings: whether a sentence on the best choice stands above each function's table, and the
            notes on all rows below; not on a page that has them already.
    """
    blocks: list[Block] = []
    sentences = headlines(cells)
    for function, rows in list(grids(cells).items())[:_FUNCTIONS]:
        if headings:
            blocks.append(Note(f"{function}: {sentences[function]}"))
        blocks.append(_table(function, rows, tariffs_of(rows), cells.attrs["bound_ms"]))
    if len(sentences) > _FUNCTIONS:
        blocks.append(Note(f"{len(sentences) - _FUNCTIONS:,} more functions: uncia cost matrix."))
    if headings:
        blocks += [Note(note, "warning") for note in cells.attrs["notes"]]
    return Section(
        "matrix",
        "What each size costs",
        blocks,
        "A million requests like these at each size that a provider sells, and their p95. Measured"
        " is what ran on the platform that is billed; what ran elsewhere is estimated.",
    )


def grids(cells: pd.DataFrame) -> dict[str, dict[float | None, dict[str, dict[str, Any]]]]:
    """Arrange cells by function, memory (MB, ascending) and tariff."""
    result: dict[str, dict[float | None, dict[str, dict[str, Any]]]] = {}
    for cell in records(cells):
        by_size = result.setdefault(cell["function"], {})
        by_size.setdefault(cell["memory_mb"], {})[cell["tariff"]] = cell
    return result


def tariffs_of(rows: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """List the tariffs of a function's matrix, that of the best cell first, then the cheaper."""
    costs: dict[str, tuple[bool, float]] = {}
    for cells in rows.values():
        for tariff, cell in cells.items():
            order = (not cell["best"], float(cell["cost_usd_per_million"]))
            costs[tariff] = min(costs.get(tariff, order), order)
    return sorted(costs, key=lambda tariff: (*costs[tariff], tariff))


def p95_text(cell: Mapping[str, Any]) -> str:
    """Write the p95 of a cell: ``~22.8 ms``; with a mark if it breaks the bound."""
    estimated = "~" if cell["basis"] == "estimated" else ""
    broken = " !" if cell["meets_bound"] is False else ""
    return f"{estimated}{figure(cell['p95_ms'])} ms{broken}"


def cost_text(cell: Mapping[str, Any]) -> str:
    """Write the cost of a cell, USD a million; with a mark if it is the best."""
    return f"{figure(cell['cost_usd_per_million'])}{' *' if cell['best'] else ''}"


def _table(
    function: str,
    rows: Mapping[float | None, Mapping[str, Any]],
    tariffs: Sequence[str],
    bound_ms: float | None,
) -> Table:
    def column(tariff: str) -> Column:
        def value(key: str) -> Any:
            return lambda row: row[1].get(tariff, {}).get(key)

        def note(row: Any) -> str:
            cell = row[1].get(tariff)
            return "" if cell is None else p95_text(cell)

        def mark(row: Any) -> str:
            cell = row[1].get(tariff, {})
            if cell.get("best"):
                return "best"
            return "bad" if cell.get("meets_bound") is False else ""

        return Column(
            tariff,
            value("cost_usd_per_million"),
            usd,
            "USD",
            "Cost of a million requests, and their p95.",
            note=note,
            mark=mark,
            parts=[
                Column(tariff, value("cost_usd_per_million"), usd, "USD"),
                Column(f"{tariff} p95", value("p95_ms"), figure, "ms"),
                Column(f"{tariff} vCPU", value("vcpu"), figure),
                Column(f"{tariff} basis", value("basis")),
            ],
        )

    bound = "" if bound_ms is None else f" Red: the p95 is above {bound_ms:g} ms."
    return Table(
        [
            Column("memory", lambda row: ABSENT if row[0] is None else f"{row[0]:,.0f} MB"),
            *(column(tariff) for tariff in tariffs),
        ],
        list(rows.items()),
        "USD for a million requests; below it the p95, with ~ where it is estimated. Of several"
        " vCPU with the same memory, the best; CSV has which. Green: the best of all." + bound,
        f"{function}: cost and p95 by size",
        stacked=True,
        fold=False,
    )
