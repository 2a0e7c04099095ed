"""Advice for a page: what each choice costs against its p95, the choices, and the hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia.report import charts, numbers, theme
from uncia.report.page import Block, Cell, Chart, Note, Section, Table

if TYPE_CHECKING:
    import pandas as pd

_FUNCTIONS: Final = 6
"""Functions with a chart; all are in the table."""

_CHOICES: Final = 5
"""Choices of a function in the table, measured and estimated apart."""


def section(choices: pd.DataFrame, hints: pd.DataFrame, bound_ms: float | None = None) -> Section:
    """The part of a page on what to choose.

    Args:
        choices: of `uncia.costs.advice.advice`.
        hints: of `uncia.costs.advice.hints`.
        bound_ms: bound of the p95, for a line in the charts.
    """
    usable = choices[choices["rank"].notna()]
    functions = list(dict.fromkeys(usable["function"]))
    blocks: list[Block] = []
    for place, function in enumerate(functions[:_FUNCTIONS]):
        own = usable[usable["function"] == function]
        blocks.append(
            Chart(
                f"advice-{place}",
                _cost_and_time(own, bound_ms),
                f"Cost of a million requests against p95, for each choice of {function}",
                function,
            )
        )
    if len(functions) > _FUNCTIONS:
        blocks.append(
            Note(f"{len(functions) - _FUNCTIONS:,} more functions are in the table alone.")
        )
    blocks.append(_choice_table(usable))
    if len(hints):
        blocks.append(_hint_table(hints))
    blocks += [Note(note, "warning") for note in choices.attrs.get("notes", ())]
    return Section(
        "advice",
        "What to choose",
        blocks,
        "Choices that were measured come first; of these the cheapest that keeps the bound, if"
        " there is one. An estimated choice rests on the assumption that stands beside it.",
    )


def _cost_and_time(own: pd.DataFrame, bound_ms: float | None) -> dict[str, Any]:
    import altair as alt

    rows = [
        {
            "tariff": row["tariff"],
            "basis": row["basis"],
            "size": _size(row),
            "p95": row["p95_ms"],
            "cost": float(row["cost_usd_per_million"]),
        }
        for row in _records(own.head(charts.MAX_POINTS))
        if row["p95_ms"] and row["cost_usd_per_million"]
    ]
    tariffs = list(dict.fromkeys(row["tariff"] for row in rows))
    points = (
        alt.Chart(charts.inline(rows))
        .mark_point(filled=True, size=80, opacity=0.9)
        .encode(
            x=alt.X("p95:Q", title="p95, ms", scale=alt.Scale(type="log", nice=False, padding=10)),
            y=alt.Y("cost:Q", title="USD a million", scale=alt.Scale(type="log", padding=10)),
            color=alt.Color(
                "tariff:N",
                title=None,
                scale=alt.Scale(domain=tariffs, range=theme.colours(len(tariffs))),
            ),
            shape=alt.Shape(
                "basis:N",
                title=None,
                scale=alt.Scale(domain=["measured", "estimated"], range=["circle", "cross"]),
            ),
            tooltip=[
                alt.Tooltip("tariff:N"),
                alt.Tooltip("size:N"),
                alt.Tooltip("basis:N"),
                alt.Tooltip("p95:Q", title="p95, ms", format=",.4~g"),
                alt.Tooltip("cost:Q", title="USD a million", format=",.4~g"),
            ],
        )
    )
    chart: Any = points
    if bound_ms is not None:
        line = alt.Chart(charts.inline([{"bound": bound_ms}])).mark_rule(
            color=theme.ALERT, strokeDash=[4, 3]
        )
        chart = points + line.encode(x="bound:Q")
    chart = chart.properties(
        width="container",
        height=260,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec = charts.specification(chart)
    longest = max((len(name) for name in tariffs), default=0)
    spec["usermeta"] = {"legend": longest, "labels": len("1,000")}
    return spec


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as they are; pandas would make a row of texts and None one of texts and NaN."""
    return [
        dict(zip(map(str, frame.columns), row, strict=True))
        for row in frame.itertuples(index=False, name=None)
    ]


def _size(row: Mapping[str, Any]) -> str:
    parts = []
    if row["vcpu"] is not None:
        parts.append(f"{numbers.figure(row['vcpu'])} vCPU")
    if row["memory_mb"] is not None:
        parts.append(f"{row['memory_mb']:,.0f} MB")
    return ", ".join(parts) or numbers.ABSENT


def _choice_table(usable: pd.DataFrame) -> Table:
    heads = usable.groupby(["function", "basis"], sort=False).head(_CHOICES)
    rows: list[list[Cell | str]] = []
    for row in _records(heads):
        low, high = row["p95_low_ms"], row["p95_high_ms"]
        interval = "" if low is None else f"{numbers.figure(low)} to {numbers.figure(high)}"
        meets = {True: "yes", False: "no"}.get(row["meets_bound"], numbers.ABSENT)
        rows.append(
            [
                row["function"],
                f"{row['rank']}",
                row["tariff"],
                _size(row),
                Cell(row["basis"], mark="" if row["basis"] == "measured" else "few"),
                Cell(numbers.figure(row["p95_ms"]), interval),
                Cell(meets, mark="bad" if row["meets_bound"] is False else ""),
                numbers.percent(row["confidence"], 4),
                numbers.usd(float(row["cost_usd_per_million"])),
                _money(row["saving_vs_present"]),
                Cell(row["note"], mark="wrap"),
            ]
        )
    head = (
        "<function",
        "rank",
        "<tariff",
        "<size",
        "<basis",
        "p95, ms",
        "keeps the bound",
        "confidence",
        "a million",
        "saves",
        "<note",
    )
    return Table(
        head,
        rows,
        "The p95 is an order statistic of the rows of invocations that ran, at each allocation;"
        " the amounts are exact sums of what the tariff bills for these rows, for a million of"
        f" them. At most {_CHOICES} measured and {_CHOICES} estimated choices of each function.",
        "Choices",
    )


def _hint_table(hints: pd.DataFrame) -> Table:
    rows: list[list[Cell | str]] = [
        [
            row["function"],
            row["hint"],
            row["tariff"] or numbers.ABSENT,
            _money(row["saving_usd_per_million"]),
            Cell(row["basis"] or numbers.ABSENT),
            Cell(row["advice"] or row["note"], mark="wrap"),
            Cell(row["assumption"] or numbers.ABSENT, mark="wrap"),
        ]
        for row in _records(hints)
    ]
    head = ("<function", "<hint", "<tariff", "saves, a million", "<basis", "<what", "<if")
    return Table(head, rows, "Savings of a million requests at the present size.", "Hints")


def _money(value: Any) -> str:
    return numbers.ABSENT if value is None else numbers.usd(float(value))
