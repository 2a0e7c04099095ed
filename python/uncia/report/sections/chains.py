"""Chains: how many were whole, and how long stages and the time between them took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import chains

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 45
ROWS: Final = Rows("invocations")


def section(run: RunData, rows: pa.Table) -> Section | None:
    """The chains of every experiment that has some; None if none has."""
    blocks: list[Block] = []
    for name, part in run.each(rows).items():
        for summary in chains.summarise(part, run.experiment_meta.get(name)):
            blocks += [Note(_sentence(name, summary)), _stages(summary)]
    if not blocks:
        return None
    return Section(
        "chains",
        "Chains",
        blocks,
        "Requests that were sent when others had been answered. The latencies above are those of"
        " first stages: what follows an answer has no scheduled time.",
    )


def _sentence(name: str, summary: dict[str, Any]) -> str:
    begun, complete, latency = summary["begun"], summary["complete"], summary["latency_ms"]
    text = f"{name}: {count(complete)} of {count(begun)} chains were whole"
    if complete:
        text += (
            f"; from when they were scheduled to the last answer: p50 {figure(latency['p50'])} ms,"
            f" p99 {figure(latency['p99'])} ms, max {figure(latency['max'])} ms"
        )
    return text + "."


def _stages(summary: dict[str, Any]) -> Table:
    return Table(
        [
            Column("stage", "stage"),
            Column("function", "function"),
            Column("requests", "requests", count),
            Column("ok", "ok", count),
            *(_time("response_ms", name, name) for name in ("p50", "p99", "max")),
            *(_time("between_ms", name, f"between {name}") for name in ("p50", "max")),
        ],
        summary["stages"],
        "Response: received − sent of requests with outcome ok. Between: sent − received of the row"
        " that `parent` names.",
    )


def _time(key: str, name: str, heading: str) -> Column:
    return Column(heading, lambda stage: stage[key][name], figure, "ms")
