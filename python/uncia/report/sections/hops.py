"""Hops: chains that functions or the platform carried on, and what each stage added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report.data import RunData
from uncia.report.numbers import count, figure, usd
from uncia.report.page import Block, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table, time_column
from uncia.stats import hops

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 46
ROWS: Final = Rows("invocations")

_LATENCY: Final = (
    "Of complete chains: from the scheduled time to the answer; of asynchronous ones to the end of"
    " their last stage."
)
_OVERHEAD: Final = "What the call took beside the handler: both are durations, each by its clock."
_BETWEEN: Final = "From the end of a stage to the start of the next, by the platform's clock."
_TRANSFER: Final = (
    "From the call to the start of the handler that it is for; of a payload, from before it was"
    " sent or stored until the function had it."
)
_BANDWIDTH: Final = (
    "The payload over the median transfer time; none where the bound reaches that, or half of the"
    " times are withheld."
)
_BOUND: Final = (
    "How far the transfer time may be off, as the clocks of two functions differ; 0 on one kernel."
)


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show the hops of every experiment; None if there are none."""
    summaries = run.summarise_each(
        rows, lambda part, experiment: hops.summarise(part, run.spans, experiment)
    )
    if not summaries:
        return None
    blocks: list[Block] = [_chains(summaries), *map(_stages, summaries)]
    twice = [
        {"tariff": tariff, **totals}
        for tariff, totals in run.tariffs.items()
        if totals.get("billed_twice_usd") is not None
    ]
    if twice:
        blocks.append(_billed_twice(twice))
    return Section(
        "hops",
        "Hops",
        blocks,
        "Invocations that no client sent: functions invoked them, or the platform did. Latencies"
        " elsewhere are those of the requests that began the chains.",
    )


def _chains(summaries: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("experiment", "experiment"),
            Column("chain", "chain"),
            Column("kind", "kind"),
            Column("begun", "begun", count),
            Column(
                "complete",
                "complete",
                count,
                explanation="Chains of which every stage was reached and ended well.",
                mark=lambda chain: "bad" if chain["complete"] < chain["begun"] else "",
            ),
            Column("hops", "hops", count),
            *(time_column("latency_ms", name, name, _LATENCY) for name in ("p50", "p99", "max")),
        ],
        summaries,
        "A hop is a row whose parent is another invocation, and which no client sent.",
        "Chains that go on by themselves",
    )


def _stages(summary: dict[str, Any]) -> Table:
    return Table(
        [
            Column("stage", "stage"),
            Column("functions", lambda row: ", ".join(row["functions"])),
            Column("hops", "hops", count),
            Column("ok", "ok", count, explanation="Hops whose outcome is ok."),
            Column("cold", "cold", count, explanation="Hops that waited for a cold start."),
            time_column(
                "execution_ms", "p50", "execution p50", "Execution, with what it waited for."
            ),
            time_column("queued_ms", "p50", "queued p50", "Waited for an instance."),
            *(time_column("overhead_ms", it, f"overhead {it}", _OVERHEAD) for it in ("p50", "p99")),
            *(time_column("between_ms", it, f"between {it}", _BETWEEN) for it in ("p50", "p99")),
            *(time_column("transfer_ms", it, f"transfer {it}", _TRANSFER) for it in ("p50", "p99")),
            time_column("transfer_bound_ms", "max", "bound", _BOUND),
            Column("payload", "payload_bytes", count, "B", "What each hop was handed."),
            Column("bandwidth", "bandwidth_mbps", figure, "Mb/s", _BANDWIDTH),
            Column(
                "withheld",
                "transfers_withheld",
                count,
                explanation="Transfer times that are not known well enough to be shown.",
            ),
        ],
        summary["stages"],
        "A stage that is repeated has all its turns in one line.",
        f"Stages of {summary['chain']} in {summary['experiment']}",
        fold=True,
    )


def _billed_twice(twice: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("tariff", "tariff"),
            Column("bill", "cost_usd", usd, "USD", "All invocations, hops included."),
            Column(
                "billed twice",
                "billed_twice_usd",
                usd,
                "USD",
                "What callers were charged for while they waited.",
            ),
            Column(
                "share",
                lambda row: (
                    row["billed_twice_usd"] / row["cost_usd"] * 100 if row.get("cost_usd") else None
                ),
                figure,
                "%",
            ),
        ],
        twice,
        "The time in which a function waits for one that it has invoked is charged in both: here,"
        " the bill of the callers less their bill without that time.",
        "What was billed twice",
        fold=True,
    )
