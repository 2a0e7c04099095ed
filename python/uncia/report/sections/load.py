"""Load: whether each experiment's rate was sustained, and whether instances were kept busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.report.data import RunData
from uncia.report.numbers import ABSENT, figure
from uncia.report.page import Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import modes

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 12
ROWS: Final = Rows("invocations", required=True)

_WORDS: Final = {"sustained": "yes", "not": "no", "undecided": ABSENT}


def section(run: RunData, rows: pa.Table) -> Section | None:
    """A row for each experiment whose mode is known; None if there is none."""
    judged = []
    for name, table in run.by_experiment(rows).items():
        load = modes.of_rows(table)
        if load is None or load.mode is None:
            continue
        slope = load.slope
        judged.append(
            {
                "name": name,
                "mode": load.mode,
                "sustained": _WORDS[load.verdict],
                "rate": load.rate,
                "slope": None if slope is None else 100 * slope.value,
                "low": None if slope is None else 100 * slope.low,
                "high": None if slope is None else 100 * slope.high,
                "starts": None if load.start_share is None else 100 * load.start_share,
            }
        )
    if not judged:
        return None
    table = Table(
        [
            Column("experiment", "name"),
            Column("mode", "mode"),
            Column("offered", "rate", figure, "1/s"),
            Column("sustained", "sustained"),
            Column(
                "slope", "slope", figure, "%", explanation="what latency gains along the schedule"
            ),
            Column("from", "low", figure, "%", explanation="its lower 95 % bound"),
            Column("to", "high", figure, "%", explanation="its upper 95 % bound"),
            Column(
                "starts",
                "starts",
                figure,
                "%",
                explanation="requests after the first starts that met a cold or paused instance",
            ),
        ],
        judged,
        "Requests of open loops, in the order of their schedule.",
        "Load",
    )
    return Section(
        "load",
        "Load",
        [table],
        "Over-invoked: more is sent than is served, so that latency grows by (rate - capacity) /"
        " capacity, or requests fail. Under-invoked: instances end or are paused between requests."
        " Balanced: neither.",
    )
