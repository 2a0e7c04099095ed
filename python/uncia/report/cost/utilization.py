"""The section on what requests use of their allocation (Figure 3 of the cost paper)."""

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


def section(found: Utilization) -> Section:
    """Tables and charts of what `uncia.costs.utilization.measure` returns."""
    from uncia.costs.rows import NOTHING_MEASURED

    blocks: list[Block] = []
    if not found.rows:
        blocks.append(Note(NOTHING_MEASURED, "warning"))
    else:
        blocks.append(Row([_curves(found), _density(found)]))
    names = [f"p{p * 100:g}" for p in PROBABILITIES]
    blocks.append(
        Table(
            [
                Column("resource", lambda row: _WORDS[row["resource"]]),
                Column("rows", "rows", count),
                Column("mean", "mean", percent),
                *(Column(f"below {part} %", f"below_{part}", percent) for part in (25, 50, 75)),
                *(Column(name, name, percent) for name in names),
                Column("most", "most", percent),
            ],
            records(found.frame),
            "CPU: (cpu_user + cpu_system) / (allocated_cpu x execution). Memory: memory_avg /"
            " allocated_memory. Quantiles are at most 0.54 % too high.",
            "Utilization",
        )
    )
    if found.pearson is not None and found.spearman.value is not None:
        blocks.append(
            Note(
                f"CPU and memory utilization together: Pearson {found.pearson:.3f}, Spearman"
                f" {found.spearman.value:.3f} (from bins; at most {found.spearman.error:.3f} off)."
            )
        )
    return Section(
        "utilization",
        "Utilization",
        blocks,
        "What requests use of the CPU and the memory that are allocated to them while they run.",
    )


def _curves(found: Utilization) -> Chart:
    curves = {
        word: (own["value"].to_numpy(), own["share"].to_numpy())
        for resource, word in _WORDS.items()
        if len(own := found.cdf[found.cdf["resource"] == resource])
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


def _density(found: Utilization) -> Chart:
    cells = [
        {"x": row["cpu"], "y": row["memory"], "share": row["share"]}
        for row in records(found.density)
    ]
    return Chart(
        "utilization-density",
        plots.density(cells, 1 / CELLS, ("CPU used", "memory used"), "requests"),
        "How many requests use so much of their CPU and so much of their memory; what is above"
        " 100 % is in the last cell",
        "CPU and memory together",
    )
