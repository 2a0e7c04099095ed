"""The section on utilization: how much of their allocation requests use (Figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.costs.utilization import CELLS, PROBABILITIES
from uncia.report import plots
from uncia.report.numbers import count, percent
from uncia.report.page import Block, Chart, Note, Row, Section
from uncia.report.table import Column, Table, records

if TYPE_CHECKING:
    from uncia.costs.utilization import Utilization

_WORDS: Final = {"cpu": "CPU", "memory": "memory"}


def section(usage: Utilization) -> Section:
    """Show what `uncia.costs.utilization.measure` returns."""
    from uncia.costs.rows import NOTHING_MEASURED

    blocks: list[Block] = []
    if not usage.rows:
        blocks.append(Note(NOTHING_MEASURED, "warning"))
    else:
        blocks.append(Row([_curves(usage), _density(usage)]))
        above = [_WORDS[row["resource"]] for row in records(usage.frame) if row["most"] > 1]
        if above:
            blocks.append(
                Note(
                    f"Of {' and '.join(above)} some requests use more than 100 % of what is"
                    " allocated: the curves end at 100 %, and the table has the maximum."
                )
            )
    names = [f"p{p * 100:g}" for p in PROBABILITIES]
    blocks.append(
        Table(
            [
                Column("resource", lambda row: _WORDS[row["resource"]]),
                Column("rows", "rows", count),
                Column("mean", "mean", percent),
                *(
                    Column(
                        f"below {bound} %",
                        f"below_{bound}",
                        percent,
                        explanation=f"Share of the requests that use less than {bound} %.",
                    )
                    for bound in (25, 50, 75)
                ),
                *(
                    Column(name, name, percent, explanation="Quantile of the share that is used.")
                    for name in names
                ),
                Column("max", "most", percent),
            ],
            records(usage.frame),
            "CPU: (cpu_user + cpu_system) / (allocated_cpu x execution). Memory: memory_avg /"
            " allocated_memory. Quantiles are at most 0.54 % too high.",
            "Utilization",
        )
    )
    if usage.pearson is not None and usage.spearman.value is not None:
        blocks.append(
            Note(
                f"Correlation of CPU and memory utilization: Pearson {usage.pearson:.3f}, Spearman"
                f" {usage.spearman.value:.3f} (from bins; at most {usage.spearman.error:.3f} off)."
            )
        )
    return Section(
        "utilization",
        "Utilization",
        blocks,
        "The share of their allocated CPU and memory that requests use while they run.",
    )


def _curves(usage: Utilization) -> Chart:
    curves = {
        title: (points["value"].to_numpy(), points["share"].to_numpy())
        for resource, title in _WORDS.items()
        if len(points := usage.cdf[usage.cdf["resource"] == resource])
    }
    return Chart(
        "utilization",
        plots.curves(
            curves,
            "used / allocated",
            "requests",
            log=False,
            percent=True,
            bounds=(0.0, 1.0),
        ),
        "Distribution of the CPU and the memory that requests use of their allocation",
        "Used of what is allocated",
    )


def _density(usage: Utilization) -> Chart:
    cells = [
        {"x": row["cpu"], "y": row["memory"], "share": row["share"]}
        for row in records(usage.density)
    ]
    return Chart(
        "utilization-density",
        plots.density(cells, 1 / CELLS, ("CPU used", "memory used"), "requests"),
        "How many requests use so much of their CPU and so much of their memory; what is above"
        " 100 % is in the last cell",
        "CPU and memory together",
    )
