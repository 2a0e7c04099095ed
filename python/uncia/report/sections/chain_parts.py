"""Parts of chains: startup, communication and execution, and what is billed over own work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uncia.report import plots, theme
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import chain_parts
from uncia.units import NS_PER_MS

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 47
ROWS: Final = Rows("invocations")

_PALETTE: Final = (theme.CATEGORIES[1], theme.REFERENCE, theme.CATEGORIES[0])
_STARTED: Final = {True: "with starts", False: "without starts"}
_MEANING: Final = {
    "startup": "An invocation waits for an instance, and none works.",
    "communication": "Nothing works or waits for an instance: messages are under way.",
    "execution": "At least one invocation works, and does not merely wait for another.",
}
_OVERLAPPING: Final = {
    "startup": "At least one invocation waits for an instance.",
    "execution": "At least one invocation executes, be it that it waits for another.",
}


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show the parts of every experiment's chains; None if there are none."""
    summaries = run.summarise_each(
        rows, lambda part, experiment: chain_parts.summarise(part, run.spans, experiment)
    )
    if not summaries:
        return None
    groups = [
        {**group, "name": f"{_label(it, summaries)}, {_STARTED[group['started']]}"}
        for it in summaries
        for group in it["groups"]
    ]
    blocks: list[Block] = []
    if groups:
        blocks += [_chart(groups), _table(groups)]
        blocks += [Note(_bound(group)) for group in groups if group["guessed_ns"]]
    for it in summaries:
        blocks += [
            Note(
                f"{_label(it, summaries)}: the parts of {chains:,} of {it['complete']:,} chains"
                f" are withheld, as {why}.",
                "warning",
            )
            for why, chains in it["withheld"].items()
        ]
    return Section(
        "chain-parts",
        "Parts of chains",
        blocks,
        "What complete chains spent their latency on, from the scheduled time to the last answer."
        " Startup, communication and execution do not overlap and add up to the latency.",
    )


def _label(summary: dict[str, Any], summaries: list[dict[str, Any]]) -> str:
    """The experiment, and its chain where it has several."""
    shared = sum(it["experiment"] == summary["experiment"] for it in summaries) > 1
    name = str(summary["experiment"])
    return f"{name}: {summary['chain']}" if shared else name


def _bound(group: dict[str, Any]) -> str:
    """What is not known of waiting for what functions invoke on their own."""
    most = group["self_ns"] + group["guessed_ns"]
    factor = chain_parts.ratio(group["executed_ns"], most)
    return (
        f"{group['name']}: executed / own work and billed / own work are upper bounds. Nothing says"
        " whether functions waited for what they invoked on their own, or sent events and went on;"
        f" if none waited, executed / own work is {figure(factor)}."
    )


def _mean(group: dict[str, Any], part: str) -> float:
    return float(group[f"{part}_ns"] / group["chains"] / NS_PER_MS)


def _chart(groups: list[dict[str, Any]]) -> Chart:
    bars = [
        {
            "name": f"{group['name']} · {figure(_mean(group, 'latency'))} ms",
            "part": part,
            "value": _mean(group, part),
        }
        for group in groups
        for part in chain_parts.PARTS
    ]
    spec = plots.stacked(
        bars,
        chain_parts.PARTS,
        "share of the mean latency of chains",
        normalized=True,
        palette=_PALETTE,
    )
    return Chart("chain-parts", spec, "Parts of the mean latency of chains, as shares")


def _table(groups: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("chains", "name"),
            Column("n", "chains", count),
            Column("latency", lambda row: _mean(row, "latency"), figure, "ms"),
            *(_part(part) for part in chain_parts.PARTS),
            *(_overlapping(part) for part in _OVERLAPPING),
            Column(
                "billed / own work",
                "billed_over_self",
                figure,
                "x",
                "Double billing: what the platform bills for over the time of own work.",
            ),
            Column(
                "executed / own work",
                "executed_over_self",
                figure,
                "x",
                "The same of executions: without starts that are billed, and without rounding.",
            ),
        ],
        groups,
        "Means over complete chains. Of execution with waiting, and of startup besides execution,"
        " parts overlap: so does ServerlessBench count them. billed and execution are the columns;"
        " own work is execution without the calls in it.",
        "Parts of chains",
    )


def _part(name: str) -> Column:
    return Column(name, lambda row: _mean(row, name), figure, "ms", _MEANING[name])


def _overlapping(name: str) -> Column:
    def value(row: dict[str, Any]) -> float:
        return float(row["overlapping"][f"{name}_ns"] / row["chains"] / NS_PER_MS)

    return Column(f"{name}, overlapping", value, figure, "ms", _OVERLAPPING[name])
