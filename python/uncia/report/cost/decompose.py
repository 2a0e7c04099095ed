"""The section on what each part of a bill pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots
from uncia.report.numbers import count, general, share
from uncia.report.page import Chart, Section
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    import pandas as pd

_WORDS: Final = {
    "use": "use",
    "over_allocation": "over-allocation",
    "idle": "idle time",
    "unmeasured": "use not measured",
    "initialization": "initialization",
    "rounding": "rounding",
    "minimum": "minimum",
    "credit": "credit",
    "fee": "fee",
}
_MEANING: Final = {
    "use": "What the used CPU time and memory cost.",
    "over_allocation": "What was allocated beyond the use while the function ran.",
    "idle": "What was allocated while the function waited.",
    "unmeasured": "Execution whose use was not measured.",
    "initialization": "What initialization of instances adds.",
    "rounding": "What rounding up to granularities adds.",
    "minimum": "What minimums add.",
    "credit": "What the tariff gives back.",
    "fee": "The fees per request.",
}
_TIME_WORDS: Final = {
    "cpu": "on a CPU",
    "throttled": "throttled",
    "cpu_wait": "waiting for a CPU",
    "blocked": "blocked",
    "unmeasured": "not measured",
    "rest": "rest",
}
_TIME_MEANING: Final = {
    "cpu": "Execution in which it ran, and all that is billed by use.",
    "throttled": "Execution in which its CPU quota was used up.",
    "cpu_wait": "Execution in which it could have run and others had the CPUs.",
    "blocked": "Execution in which it waited for something else: sleep, input, output.",
    "unmeasured": "Execution of which this was not measured.",
    "rest": "Initialization, rounding, minimums, fees, less credits.",
}
_MAX_BARS: Final = 200  # x 9 parts: below `uncia.report.vega.MAX_POINTS`


_EXPLANATION: Final = (
    "The parts sum to the bill. Idle time is wall-clock time in which the allocation did not run;"
    " over-allocation is what it held beyond the use while it ran, and is negative where more was"
    " used than the tariff's size has."
)


def section(frame: pd.DataFrame, *, by_time: bool = False) -> Section:
    """Show what `uncia.costs.decompose.decompose` returns, so or `by_time`."""
    words, meaning = (_TIME_WORDS, _TIME_MEANING) if by_time else (_WORDS, _MEANING)
    groups = list(frame.columns[1 : list(frame.columns).index("fit")])
    priced = frame[[cost is not None for cost in frame["cost_usd"]]]
    bars = []
    by_cost = sorted(records(priced.head(_MAX_BARS)), key=lambda row: row["cost_usd"] / row["rows"])
    for row in by_cost:
        for part in words:
            amount = row[f"{part}_usd"]
            if amount:
                value = float(amount) * 1e6 / row["rows"]
                bars.append({"name": _name(row, groups), "part": words[part], "value": value})
    drawn = {bar["part"] for bar in bars}
    parts = [word for word in words.values() if word in drawn]
    blocks: list[Any] = []
    if bars:
        spec = plots.stacked(bars, parts, "USD a million rows", ticks=",~f", cut=True)
        blocks.append(
            Chart(
                "decompose",
                spec,
                "Bars of what a million rows cost under each tariff, stacked by part.",
            )
        )
    blocks.append(
        Table(
            [
                Column("tariff", "tariff"),
                *(Column(name, name) for name in groups),
                Column("rows", "rows", count),
                Column("a million", _per_million, general, "USD", "Cost of a million rows."),
                *(
                    Column(
                        name,
                        f"{part}_share",
                        share,
                        explanation=f"{meaning[part]} A share of the bill.",
                    )
                    for part, name in words.items()
                ),
            ],
            records(frame),
            "cost_usd and <part>_usd of uncia cost decompose --json",
        )
    )
    return Section(
        "decompose",
        "What the bill pays for",
        blocks,
        ("The parts sum to the bill, by what executions did." if by_time else _EXPLANATION)
        + (
            f" The chart shows the first {_MAX_BARS} bills of {len(priced)}."
            if len(priced) > _MAX_BARS
            else ""
        ),
    )


def _name(row: dict[str, Any], groups: list[str]) -> str:
    return " ".join([str(row["tariff"]), *(str(row[name]) for name in groups)])


def _per_million(row: dict[str, Any]) -> float | None:
    cost = row["cost_usd"]
    return None if cost is None else float(cost) * 1e6 / row["rows"]
