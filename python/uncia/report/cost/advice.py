"""Advice for a page: what each choice costs against its p95, the choices, and the hints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.report import vega
from uncia.report.numbers import ABSENT, figure, percent, usd, yes_no
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.plots import order_of
from uncia.report.table import Column, Table, records

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
    for index, function in enumerate(functions[:_FUNCTIONS]):
        own = records(usable[usable["function"] == function])
        blocks.append(
            Chart(
                f"advice-{index}",
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


def _cost_and_time(own: list[dict[str, Any]], bound_ms: float | None) -> vega.Spec:
    rows = [
        {
            "tariff": row["tariff"],
            "basis": row["basis"],
            "size": _size(row),
            "p95": row["p95_ms"],
            "cost": float(row["cost_usd_per_million"]),
        }
        for row in own[: vega.MAX_POINTS]
        if row["p95_ms"] and row["cost_usd_per_million"]
    ]
    shapes = {"domain": ["measured", "estimated"], "range": ["circle", "cross"]}
    log = {"type": "log", "padding": 10}
    points = vega.layer(
        "point",
        rows,
        {"filled": True, "size": 80, "opacity": 0.9},
        x=vega.quantity("p95", "p95, ms", scale={**log, "nice": False}),
        y=vega.quantity("cost", "USD a million", scale=log),
        color=vega.colours("tariff", order_of(rows, "tariff")),
        shape=vega.names("basis", scale=shapes),
        tooltip=vega.tips(
            ("tariff",),
            ("size",),
            ("basis",),
            ("p95", "p95, ms", ",.4~g"),
            ("cost", "USD a million", ",.4~g"),
        ),
    )
    return vega.chart(points, *([] if bound_ms is None else [vega.rule(bound_ms)]), height=260)


def _size(row: Mapping[str, Any]) -> str:
    parts = []
    if row["vcpu"] is not None:
        parts.append(f"{figure(row['vcpu'])} vCPU")
    if row["memory_mb"] is not None:
        parts.append(f"{row['memory_mb']:,.0f} MB")
    return ", ".join(parts) or ABSENT


def _choice_table(usable: pd.DataFrame) -> Table:
    def interval(row: Any) -> str:
        low, high = row["p95_low_ms"], row["p95_high_ms"]
        return "" if low is None else f"{figure(low)} to {figure(high)}"

    return Table(
        [
            Column("function", "function"),
            Column("rank", "rank", str),
            Column("tariff", "tariff"),
            Column("size", _size),
            Column("basis", "basis", mark=lambda row: "" if row["basis"] == "measured" else "few"),
            Column("p95", "p95_ms", figure, "ms", note=interval),
            Column(
                "keeps the bound",
                "meets_bound",
                yes_no,
                mark=lambda row: "bad" if row["meets_bound"] is False else "",
            ),
            Column("confidence", "confidence", partial(percent, digits=4)),
            Column("a million", "cost_usd_per_million", usd),
            Column("saves", "saving_vs_present", usd),
            Column("note", "note", mark="wrap"),
        ],
        records(usable.groupby(["function", "basis"], sort=False).head(_CHOICES)),
        "The p95 is an order statistic of the rows of invocations that ran, at each allocation;"
        " the amounts are exact sums of what the tariff bills for these rows, for a million of"
        f" them. At most {_CHOICES} measured and {_CHOICES} estimated choices of each function.",
        "Choices",
    )


def _hint_table(hints: pd.DataFrame) -> Table:
    return Table(
        [
            Column("function", "function"),
            Column("hint", "hint"),
            Column("tariff", lambda row: row["tariff"] or None),
            Column("saves, a million", "saving_usd_per_million", usd),
            Column("basis", lambda row: row["basis"] or None),
            Column("what", lambda row: row["advice"] or row["note"], mark="wrap"),
            Column("if", lambda row: row["assumption"] or None, mark="wrap"),
        ],
        records(hints),
        "Savings of a million requests at the present size.",
        "Hints",
    )
