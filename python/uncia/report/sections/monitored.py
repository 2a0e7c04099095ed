"""What the run's monitors read, in the mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.doctor.monitor import NOISE
from uncia.report.data import RunData
from uncia.report.monitored import clock_sentence, format_value, is_bin, summarise
from uncia.report.numbers import count
from uncia.report.page import Note, Section
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


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show a line for each counter of each monitor, of the machine and of each control group."""
    # What watches beside every run has a section of its own.
    summary = [
        row for row in summarise(rows) if row["monitor"] != NOISE and not is_bin(row["counter"])
    ]
    if not summary:
        return None
    hosts = run.meta.get("hosts")
    hosts = hosts if isinstance(hosts, Mapping) else {}
    return Section(
        "monitored",
        "What monitors read",
        [
            Table(
                [
                    Column("monitor", lambda row: row["monitor"]),
                    Column("counter", lambda row: row["counter"]),
                    *([Column("host", lambda row: row["host"] or "local")] if hosts else []),
                    Column("of", lambda row: row["cgroup"] or "machine"),
                    Column("samples", lambda row: row["samples"], count),
                    _CounterValue("mean", "mean", align="number"),
                    _CounterValue("per s", "per_s", align="number"),
                ],
                summary,
                "Rows of the table machine with a monitor, by counter and control group.",
            ),
            *(Note(clock_sentence(name, facts["clock"])) for name, facts in hosts.items()),
        ],
        "What the monitors of the experiment file read. Counters by CPU are summed"
        " over CPUs; monitor.cpu_ns is what a monitor itself used. Bins of histograms are in the"
        " table alone.",
    )
