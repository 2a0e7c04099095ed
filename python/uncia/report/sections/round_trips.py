"""Round trips: what the network between the client and each endpoint took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 105
ROWS: Final = Rows("invocations")

_LESS: Final = "Less the median round trip, as the experiment file asks for; rows are as measured."


def section(run: RunData, _rows: pa.Table) -> Section | None:
    """Show the round trips before and after every experiment; None if none was measured."""
    experiments = run.stored.get("experiments")
    stored = experiments if isinstance(experiments, dict) else {}
    probed = [
        {"experiment": name, "endpoint": endpoint, "when": when, **measured}
        for name, figures in stored.items()
        for endpoint, both in (figures.get("round_trips") or {}).items()
        for when, measured in both.items()
    ]
    if not probed:
        return None
    blocks: list[Block] = [_table(probed)]
    shorter = [
        {"experiment": name, **figures}
        for name, figures in stored.items()
        if "subtracted_rtt_ms" in figures
    ]
    if shorter:
        blocks.append(_shorter(shorter))
        if any(row["subtracted_rtt_ms"] is None for row in shorter):
            blocks.append(
                Note(
                    "Nothing is subtracted where no probe succeeded, or where an experiment has"
                    " several endpoints: rows do not say which one's round trip is in theirs."
                )
            )
    return Section(
        "round-trips",
        "Round trips",
        blocks,
        "How long TCP took to connect to each endpoint, which is one round trip of the network."
        " Latencies contain it, and are shown as measured everywhere else.",
    )


def _table(probed: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("experiment", "experiment"),
            Column("endpoint", "endpoint"),
            Column("when", "when"),
            Column("probes", "probes", count),
            Column("min", "min_ms", figure, "ms"),
            Column("median", "median_ms", figure, "ms"),
            Column("error", lambda row: row.get("error") or ""),
        ],
        probed,
        "round_trips of the experiments in summary.json.",
        fold=True,
    )


def _shorter(rows: list[dict[str, Any]]) -> Table:
    def less(name: str) -> Column:
        return Column(
            f"{name} less round trip",
            lambda row: (row["latency_less_rtt_ms"] or {}).get(name),
            figure,
            "ms",
            _LESS,
        )

    return Table(
        [
            Column("experiment", "experiment"),
            Column("subtracted", "subtracted_rtt_ms", figure, "ms"),
            less("p50"),
            less("p99"),
        ],
        rows,
        "subtracted_rtt_ms and latency_less_rtt_ms of the experiments in summary.json.",
        "Latencies less the round trip",
    )
