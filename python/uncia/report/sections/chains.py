"""Chains: how many were complete, and how long their stages took, with the time between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import chains
from uncia.text import plural

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 45
ROWS: Final = Rows("invocations")


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show the chains of every experiment; None if there are none."""
    blocks: list[Block] = []
    for name, part in run.by_experiment(rows).items():
        for summary in chains.summarise(part, run.experiment_meta.get(name)):
            blocks += [Note(_sentence(name, summary)), _stages(summary)]
    if not blocks:
        return None
    return Section(
        "chains",
        "Chains",
        blocks,
        "Requests that were sent when others had been answered. The latencies above are those of"
        " first stages, because later stages have no scheduled time.",
    )


def _sentence(name: str, summary: dict[str, Any]) -> str:
    begun, complete, latency = summary["begun"], summary["complete"], summary["latency_ms"]
    text = f"{name}: {count(complete)} of {plural(begun, 'chain')} complete"
    if complete:
        text += (
            f"; from their scheduled time to the last answer: p50 {figure(latency['p50'])} ms,"
            f" p99 {figure(latency['p99'])} ms, max {figure(latency['max'])} ms"
        )
    return text + "."


def _stages(summary: dict[str, Any]) -> Table:
    return Table(
        [
            Column("stage", "stage"),
            Column("function", "function"),
            Column("requests", "requests", count),
            Column("ok", "ok", count, explanation="Requests whose outcome is ok."),
            *(_time("response_ms", name, name, _RESPONSE) for name in ("p50", "p99", "max")),
            *(_time("between_ms", name, f"between {name}", _BETWEEN) for name in ("p50", "max")),
        ],
        summary["stages"],
        "Response: received − sent of requests with outcome ok. Between: sent − received of the row"
        " that the column parent names.",
    )


_RESPONSE: Final = "Response time: from sending a request to the end of its answer."
_BETWEEN: Final = "Time from the answer of the parent stage until this stage's request was sent."


def _time(key: str, name: str, heading: str, explanation: str) -> Column:
    return Column(heading, lambda stage: stage[key][name], figure, "ms", explanation)
