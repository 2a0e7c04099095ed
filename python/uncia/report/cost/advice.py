"""The section on advice: cost against p95 of each choice, the choices, and the hints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.report import theme, vega
from uncia.report.cost.headline import headlines
from uncia.report.numbers import ABSENT, figure, percent, usd, whole, yes_no
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.plots import order_of
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    import pandas as pd

_FUNCTIONS: Final = 6
"""Functions with a chart; all are in the table."""

_SENTENCES: Final = 20
"""Functions with a sentence."""

_SHAPES: Final = {"measured": "circle", "estimated": "cross"}

_CHOICES: Final = 5
"""Measured choices of a function in the table, and as many estimated ones."""


def section(choices: pd.DataFrame, hints: pd.DataFrame) -> Section:
    """Make the section on what to choose.

    Args:
        choices: of `uncia.costs.advice.advice`.
        hints: of `uncia.costs.advice.hints`.
    """
    bound_ms: float | None = choices.attrs["bound_ms"]
    usable = choices[choices["rank"].notna()]
    shown = usable.groupby(["function", "basis"], sort=False).head(_CHOICES)
    functions = list(dict.fromkeys(usable["function"]))
    sentences = [f"{function}: {text}" for function, text in headlines(choices).items()]
    blocks: list[Block] = [*map(Note, sentences[:_SENTENCES])]
    for index, function in enumerate(functions[:_FUNCTIONS]):
        function_choices = records(shown[shown["function"] == function])
        blocks.append(
            Chart(
                f"advice-{index}",
                _cost_and_time(function_choices, bound_ms),
                f"Cost of a million requests against p95, for each choice of {function}",
                function,
            )
        )
    if len(functions) > _FUNCTIONS:
        blocks.append(
            Note(f"{len(functions) - _FUNCTIONS:,} more functions are only in the table.")
        )
    blocks.append(_choice_table(shown))
    if len(hints):
        blocks.append(_hint_table(hints))
    blocks += [Note(note, "warning") for note in choices.attrs.get("notes", ())]
    return Section(
        "advice",
        "What to choose",
        blocks,
        "Measured is what ran on the platform that is billed. Such choices come first, the cheapest"
        " that keeps the bound before the others; an estimated one rests on the assumption in its"
        " note.",
    )


def _cost_and_time(choices: list[dict[str, Any]], bound_ms: float | None) -> vega.Spec:
    rows = [
        {
            "tariff": row["tariff"],
            "basis": row["basis"],
            "size": _size(row),
            "p95": row["p95_ms"],
            "cost": float(row["cost_usd_per_million"]),
        }
        for row in choices[: vega.MAX_POINTS]
        if row["p95_ms"] and row["cost_usd_per_million"]
    ]
    shapes = {
        basis: shape
        for basis, shape in _SHAPES.items()
        if any(row["basis"] == basis for row in rows)
    }
    points = vega.layer(
        "point",
        rows,
        {"filled": True, "size": 80, "opacity": 0.9},
        x=vega.quantity(
            "p95",
            "p95, ms",
            **vega.logarithmic([bound_ms, *(row["p95"] for row in rows)], padding=10),
        ),
        y=vega.quantity(
            "cost", "USD a million", **vega.logarithmic((row["cost"] for row in rows), padding=10)
        ),
        color=vega.colours("tariff", order_of(rows, "tariff")),
        shape=vega.names(
            "basis",
            scale={"domain": list(shapes), "range": list(shapes.values())},
            legend={"symbolFillColor": theme.REFERENCE},
        ),
        tooltip=vega.tips(
            ("tariff",),
            ("size",),
            ("basis",),
            ("p95", "p95, ms", ",.4~r"),
            ("cost", "USD a million", ",.4~r"),
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


def _choice_table(shown: pd.DataFrame) -> Table:
    def interval(row: Any) -> str:
        low, high = row["p95_low_ms"], row["p95_high_ms"]
        return "" if low is None else f"{figure(low)} to {figure(high)}"

    return Table(
        [
            Column("function", "function"),
            Column("rank", "rank", str),
            Column("tariff", "tariff"),
            Column(
                "size",
                _size,
                parts=[
                    Column("vCPU", "vcpu", figure),
                    Column("memory", "memory_mb", whole, "MB"),
                ],
            ),
            Column(
                "basis",
                "basis",
                explanation="Measured: the function ran at this size. Estimated: it did not.",
                mark=lambda row: "" if row["basis"] == "measured" else "few",
            ),
            Column(
                "p95", "p95_ms", figure, "ms", "95 % of the requests took no longer.", note=interval
            ),
            Column(
                "keeps the bound",
                "meets_bound",
                yes_no,
                explanation="Whether the p95 is below the bound that was asked for.",
                mark=lambda row: "bad" if row["meets_bound"] is False else "",
            ),
            Column(
                "confidence",
                "confidence",
                partial(percent, digits=4),
                explanation="Probability with which the p95 keeps the bound.",
            ),
            Column("a million", "cost_usd_per_million", usd, "USD", "Cost of a million requests."),
            Column(
                "saves",
                "saving_vs_present",
                usd,
                "USD",
                "What a million requests cost less than at the present size.",
            ),
            Column("note", "note", mark="wrap"),
        ],
        records(shown),
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
            Column(
                "saves",
                "saving_usd_per_million",
                usd,
                "USD",
                "What a million requests would cost less.",
            ),
            Column(
                "basis",
                lambda row: row["basis"] or None,
                explanation="How sure the saving is: exact, an upper bound, or estimated.",
            ),
            Column("advice", lambda row: row["advice"] or row["note"], mark="wrap"),
            Column(
                "assumption",
                lambda row: row["assumption"] or None,
                explanation="What must be true for the saving.",
                mark="wrap",
            ),
        ],
        records(hints),
        "Savings for a million requests at the present size.",
        "Hints",
    )
