"""The section on what tariffs bill for over what was used (Figure 2 of the cost paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots
from uncia.report.numbers import count, figure4, times, usd
from uncia.report.page import Block, Chart, Note, Row, Section
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    import pandas as pd

_USED: Final = "used"
_FIRST: Final = (
    "aws-lambda-x86",
    "gcp-run-request",
    "azure-consumption",
    "huawei-functiongraph",
    "cloudflare-workers",
)
_MOST_CURVES: Final = 7
_MOST_ROWS: Final = 60
_VCPU_S: Final = 10**9
_GB_S: Final = 2**30 * 10**9
_AXES: Final = {"vcpu": ("CPU", "vCPU-s a request"), "memory": ("memory", "GB-s a request")}


def section(frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> Section:
    """Tables and charts of `uncia.costs.inflation.inflation` and of its distributions.

    Args:
        frame: what `inflation` returns, with groups or without.
        curves: what `inflation_cdf` returns, if it was asked for.
    """
    from uncia.costs.rows import NOTHING_MEASURED

    groups = list(frame.columns[1 : list(frame.columns).index("fit")])
    blocks: list[Block] = []
    if not frame["rows"].sum():
        blocks.append(Note(NOTHING_MEASURED, "warning"))
    rows = records(frame)
    ratios = [
        {"name": _name(row, groups), "kind": kind, "value": row[key], "low": None, "high": None}
        for row in rows[:_MOST_ROWS]
        for kind, key in (("CPU", "vcpu"), ("memory", "memory"))
        if row[key]
    ]
    if ratios:
        blocks.append(
            Chart(
                "inflation",
                plots.ratios(ratios, "billed / used (logarithmic)", 1.0, ["CPU", "memory"]),
                "Billable resources divided by used ones, under each tariff; the line stands at 1",
                "Billed for each unit used",
            )
        )
    if curves is not None and len(curves):
        blocks += _distributions(curves)
    blocks.append(_table(rows, groups))
    return Section(
        "inflation",
        "Inflation",
        blocks,
        "What is billed over what was used, both over the same rows: those whose CPU time, average"
        " memory and execution are known. Rows that use no CPU time are left out.",
    )


def _distributions(curves: pd.DataFrame) -> list[Block]:
    names = [name for name in dict.fromkeys(curves["tariff"]) if name != _USED]
    if len(names) > _MOST_CURVES:
        names = [name for name in _FIRST if name in names] or names[:_MOST_CURVES]
    drawn: list[Chart] = []
    for resource, (word, axis) in _AXES.items():
        found: dict[str, Any] = {}
        for name in [_USED, *names]:
            own = curves[(curves["tariff"] == name) & (curves["resource"] == resource)]
            if len(own):
                found[name] = own["value"].to_numpy(), own["share"].to_numpy()
        if found:
            drawn.append(
                Chart(
                    f"inflation-{resource}",
                    plots.curves(found, axis, "requests", reference=[_USED]),
                    f"Distribution of the {word} that is billed and used per request",
                    f"Billable {word} per request",
                )
            )
    if not drawn:
        return []
    return [
        Row(drawn),
        Note(
            "Distributions from logarithmic bins 1.1 % wide. A tariff that does not bill a resource"
            " has no curve of it; uncia cost inflation --cdf --json has the curves of all tariffs."
        ),
    ]


def _table(rows: list[Any], groups: list[str]) -> Table:
    return Table(
        [
            Column("tariff", "tariff"),
            *(Column(name, name) for name in groups),
            Column("rows", "rows", count),
            Column("vCPU-s billed", lambda row: _over(row["billable_vcpu_ns"], _VCPU_S), figure4),
            Column("× used", "vcpu", times, explanation="CPU time billed for each second used"),
            Column("GB-s billed", lambda row: _over(row["billable_byte_ns"], _GB_S), figure4),
            Column("× used ", "memory", times, explanation="memory billed for each GB-s used"),
            Column("fees", "fee_usd", usd),
            Column("rounding", "rounding_usd", usd),
            Column("bill", "cost_usd", usd),
            Column("left out", lambda row: sum(row["left_out"].values()), count),
        ],
        rows,
        "billable_vcpu_ns, billable_byte_ns, vcpu, memory, fee_usd, rounding_usd, cost_usd and"
        " left_out (all reasons) of uncia cost inflation --json; sums over the rows, in US dollars."
        " Sizes: the fit of each tariff there.",
        "Billed and used",
    )


def _name(row: Any, groups: list[str]) -> str:
    return " ".join([str(row["tariff"]), *(str(row[name]) for name in groups)])


def _over(value: Any, unit: int) -> float | None:
    return None if value is None else float(value) / unit
