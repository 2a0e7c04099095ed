"""What the run's monitors read, in the mean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.monitored import format_value, summarise
from uncia.report.numbers import count
from uncia.report.page import Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Format, Table

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 121
ROWS: Final = Rows("machine", required=True)


class _CounterValue(Column):
    """A value in the unit of its row's counter."""

    def _format(self, row: Any) -> Format:
        return partial(format_value, row["counter"])


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
                    _CounterValue("mean", "mean", align="number"),
                    _CounterValue("per s", "per_s", align="number"),
                ],
                summary,
                "Rows of the table machine with a monitor, by counter and control group.",
            )
        ],
        "What the monitors of the experiment file read. Counters by CPU are summed"
        " over CPUs; monitor.cpu_ns is what a monitor itself used.",
    )
