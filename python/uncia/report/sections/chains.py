"""Chains: how many were complete and how long they took; folded below, their stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.numbers import count
from uncia.report.page import Block, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table, time_column
from uncia.stats import chains

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 45
ROWS: Final = Rows("invocations")

_RESPONSE: Final = "Response time: from sending a request to the end of its answer."
_BETWEEN: Final = "Time from the answer of the parent stage until this stage's request was sent."
_LATENCY: Final = "From the scheduled time of a chain's first request to its last answer."


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show the chains of every experiment; None if there are none."""
    summaries = run.summarise_each(rows, chains.summarise)
    if not summaries:
        return None
    blocks: list[Block] = [_chains(summaries), *map(_stages, summaries)]
    return Section(
        "chains",
        "Chains",
        blocks,
        "Requests that were sent when others had been answered. The latencies above are those of"
        " first stages, because later stages have no scheduled time.",
    )


def _chains(summaries: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("experiment", "experiment"),
            Column("stages", _names),
            Column("begun", "begun", count),
            Column(
                "complete",
                "complete",
                count,
                explanation="Chains with an ok request of every stage.",
                mark=lambda chain: "bad" if chain["complete"] < chain["begun"] else "",
            ),
            *(time_column("latency_ms", name, name, _LATENCY) for name in ("p50", "p99", "max")),
        ],
        summaries,
        "A chain is a row of invocations without a parent and all rows that lead to it by parent."
        " Times are of complete chains: the last received − the first scheduled.",
        "Chains",
    )


def _stages(summary: dict[str, Any]) -> Table:
    return Table(
        [
            Column("stage", "stage"),
            Column("function", "function"),
            Column("requests", "requests", count),
            Column("ok", "ok", count, explanation="Requests whose outcome is ok."),
            *(time_column("response_ms", name, name, _RESPONSE) for name in ("p50", "p99", "max")),
            *(
                time_column("between_ms", name, f"between {name}", _BETWEEN)
                for name in ("p50", "max")
            ),
        ],
        summary["stages"],
        "Response: received − sent of requests with outcome ok. Between: sent − received of the row"
        " that the column parent names.",
        f"Stages of {summary['experiment']}: {_names(summary)}",
        fold=True,
    )


def _names(summary: dict[str, Any]) -> str:
    return " > ".join(stage["stage"] for stage in summary["stages"])
