"""What the run's monitors read, in the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.report.data import RunData
from uncia.report.monitored import summarise
from uncia.report.numbers import count, figure
from uncia.report.page import Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 121
ROWS: Final = Rows("machine", required=True)


def section(_run: RunData, rows: pa.Table) -> Section | None:
    """Show a line for each counter of each monitor, of the machine and of each control group."""
    summary = summarise(rows)
    if not summary:
        return None
    return Section(
        "monitored",
        "What monitors read",
        [
            Table(
                [
                    Column("monitor", lambda row: row["monitor"]),
                    Column("counter", lambda row: row["counter"]),
                    Column("of", lambda row: row["cgroup"] or "machine"),
                    Column("samples", lambda row: row["samples"], count),
                    Column("mean", lambda row: row["mean"], figure),
                    Column("per s", lambda row: row["per_s"], figure),
                ],
                summary,
                "Rows of the table machine with a monitor, by counter and control group.",
            )
        ],
        "What the monitors of the experiment file read. Counters by CPU are summed"
        " over CPUs; monitor.cpu_ns is what a monitor itself used.",
    )
