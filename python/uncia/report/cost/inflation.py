"""The section on inflation: billed over used resources (Figure 2 of the cost paper)."""

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
_MAX_CURVES: Final = 7
_MAX_ROWS: Final = 60
_VCPU_S: Final = 10**9
_GB_S: Final = 2**30 * 10**9
_AXES: Final = {"vcpu": ("CPU", "vCPU-s a request"), "memory": ("memory", "GB-s a request")}


def section(frame: pd.DataFrame, curves: pd.DataFrame | None = None) -> Section:
    """Show what `uncia.costs.inflation.inflation` returns, and its distributions.

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
        for row in rows[:_MAX_ROWS]
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
        if len(rows) > _MAX_ROWS:
            blocks.append(
                Note(f"Drawn: the first {_MAX_ROWS} of {len(rows):,} lines; all are in the table.")
            )
    if curves is not None and len(curves):
        blocks += _distributions(curves)
    blocks.append(_table(rows, groups))
    return Section(
        "inflation",
        "Inflation",
        blocks,
        "What is billed divided by what was used, over the rows whose CPU time, average memory and"
        " execution are known. Rows that use no CPU time are left out.",
    )


def _distributions(curves: pd.DataFrame) -> list[Block]:
    names = [name for name in dict.fromkeys(curves["tariff"]) if name != _USED]
    if len(names) > _MAX_CURVES:
        names = [name for name in _FIRST if name in names] or names[:_MAX_CURVES]
    drawn: list[Chart] = []
    for resource, (title, axis) in _AXES.items():
        points: dict[str, Any] = {}
        for name in [_USED, *names]:
            curve = curves[(curves["tariff"] == name) & (curves["resource"] == resource)]
            if len(curve):
                points[name] = curve["value"].to_numpy(), curve["share"].to_numpy()
        if points:
            drawn.append(
                Chart(
                    f"inflation-{resource}",
                    plots.curves(points, axis, "requests", reference=[_USED]),
                    f"Distribution of the {title} that is billed and used per request",
                    f"Billable {title} per request",
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
            Column(
                "CPU billed", lambda row: _over(row["billable_vcpu_ns"], _VCPU_S), figure4, "vCPU-s"
            ),
            Column(
                "CPU × used",
                "vcpu",
                times,
                explanation="vCPU-seconds billed for each second of CPU time used.",
            ),
            Column(
                "memory billed", lambda row: _over(row["billable_byte_ns"], _GB_S), figure4, "GB-s"
            ),
            Column(
                "memory × used",
                "memory",
                times,
                explanation="GB-seconds billed for each GB-second used.",
            ),
            Column("fees", "fee_usd", usd, "USD", "The fees per request, summed."),
            Column("rounding", "rounding_usd", usd, "USD", "What granularities and minimums add."),
            Column("bill", "cost_usd", usd, "USD"),
            Column(
                "left out",
                lambda row: sum(row["left_out"].values()),
                count,
                explanation="Rows that lack what the comparison needs.",
            ),
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
