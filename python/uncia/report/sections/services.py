"""Services: the bytes that passed between functions and the services that they reach."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import traffic

POSITION: Final = 48
ROWS: Final = Rows("invocations")


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show what each function of every experiment sent and received, if any reaches one."""
    summaries = run.summarise_each(rows, lambda part, _: traffic.summarise(part))
    if not summaries:
        return None
    return Section(
        "services",
        "Services",
        [_table(summaries)],
        "Bytes on the connections between instances and services, protocol included, as the worker"
        " passed them on. What passed outside of invocations, such as while instances started, is"
        " in none.",
    )


def _table(summaries: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("experiment", "experiment"),
            Column("function", "function"),
            Column("service", "service"),
            Column(
                "invocations",
                "invocations",
                count,
                explanation="Of which it is known: not of those that shared an instance.",
            ),
            *(
                Column(f"{way} {name}", f"{way}_{name}", form, "B", explanation)
                for way in ("sent", "received")
                for name, form, explanation in (
                    ("mean", figure, "By an invocation, on average."),
                    ("max", count, "By an invocation, at most."),
                    ("total", count, "By all of them."),
                )
            ),
        ],
        summaries,
        "The column services of invocations.",
    )
