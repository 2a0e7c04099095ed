"""The page on intermittent execution: what bursts save and add, and when they pay."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.intermittent import BURSTS, LONG, Comparison
from uncia.report import numbers, vega
from uncia.report import page as pages
from uncia.report.numbers import figure, figure4, percent, relative
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Tile
from uncia.report.table import Column, Table

if TYPE_CHECKING:
    from uncia.bandwidth.intermittent import Result

_NANO: Final = 10**9
_WAYS: Final = {LONG: "one invocation", BURSTS: "in bursts"}
_NAMES: Final = tuple(_WAYS.values())


def page(result: Result) -> Page:
    """The page of a run of the experiment."""
    first = result.comparisons[0]
    blocks: list[Block] = [_timeline(result), Row([_fees(first), _bills(result)]), _table(result)]
    measured = result.measured()
    return Page(
        title="Intermittent execution",
        kicker="Uncia CPU bandwidth control",
        facts=[("Run", str(result.folder)), ("Tasks", f"{len(result.pairs):,}, each both ways")],
        warnings=result.problems(),
        tiles=[
            Tile("GB-seconds in bursts", relative(_negative(first.gb_s_saved)), "", first.tariff),
            Tile("bill in bursts", relative(first.bill_added), "", first.tariff),
            Tile("pays below", _nano(first.pays_below_usd), "nUSD a request", first.tariff),
            Tile("bursts", figure(float(first.bursts.invocations), 4), "a task"),
        ],
        sections=[
            Section(
                "ways",
                "A task as one invocation and in bursts",
                blocks,
                "A burst of CPU time within the quota runs at a CPU's full speed, and between"
                " bursts nothing is billed but the next invocation's fee. Both ways do the same"
                " work, which is checked, on the same instance, in turns.",
            ),
            Section("machine", "What was measured", [_machine(measured), Note(_WAITS)]),
        ],
        summary="What it saves to cut a task into bursts that fit the CPU quota, and what the"
        " invocation fees add.",
    )


_WAITS: Final = (
    "The client waits between bursts until the quota is refilled. These waits are not billed, but"
    " they make the task take longer."
)


def _nano(usd: Fraction) -> str:
    return figure(float(usd * _NANO))


def _timeline(result: Result) -> Chart:
    from uncia.bandwidth.intermittent import timeline

    rows: list[dict[str, Any]] = []
    for task in result.pairs[0]:
        for number, span in enumerate(timeline(task)[: vega.MAX_POINTS // 2]):
            rows.append({**span, "way": _WAYS[task.way], "request": number + 1})
    bars = vega.layer(
        "bar",
        rows,
        {"height": {"band": 0.7}},
        x=vega.quantity("start", "seconds after the task's first event arrived"),
        x2={"field": "end"},
        y=vega.names("way", _NAMES),
        color=vega.colours("way", _NAMES),
        tooltip=vega.tips(
            ("way", " "),
            ("request", "request", ""),
            ("start", "from, s", ".4f"),
            ("end", "to, s", ".4f"),
        ),
    )
    return Chart(
        "timeline",
        vega.chart(bars, height=110),
        "When the first task ran, as one invocation and in bursts",
        "The first task: when it ran, which is what is billed",
    )


def _fees(comparison: Comparison) -> Chart:
    """Draw the bill over the fee: two straight lines that meet at the break-even fee."""
    max_fee = (
        max(float(comparison.fee_usd), 2 * float(comparison.pays_below_usd), 1e-9) * _NANO * 1.1
    )
    rows = [
        {
            "way": _WAYS[way],
            "fee": fee,
            "bill": float(bill.resources_usd) * 1e6 + float(bill.invocations) * fee / 1e3,
        }
        for way, bill in ((LONG, comparison.long), (BURSTS, comparison.bursts))
        for fee in (0.0, max_fee)
    ]
    lines = vega.layer(
        "line",
        rows,
        {"strokeWidth": 2},
        x=vega.quantity("fee", "fee of an invocation, nUSD", scale={"nice": False}),
        y=vega.quantity("bill", "bill of a task, µUSD"),
        color=vega.colours("way", _NAMES),
    )
    fees = [{"at": float(comparison.fee_usd) * _NANO, "what": f"{comparison.tariff}'s fee"}]
    if comparison.pays_below_usd > 0:
        fees.append({"at": float(comparison.pays_below_usd) * _NANO, "what": "break-even"})
    at = vega.quantity("at")
    tooltip = vega.tips(("what", " "), ("at", "", ",.4~r"))
    rules = vega.layer("rule", fees, {"strokeDash": [4, 3]}, x=at, tooltip=tooltip)
    upright = {"angle": 270, "align": "right", "baseline": "bottom", "dx": -4, "dy": -3}
    what = {"field": "what", "type": "nominal"}
    words = vega.layer("text", fees, upright, x=at, y=vega.fixed(0), text=what)
    return Chart(
        "fees",
        vega.chart(lines, rules, words, height=260),
        "The bill of a task over the fee of an invocation, both ways",
        f"Below which fee bursts pay: {comparison.tariff}",
    )


def _bills(result: Result) -> Chart:
    rows = [
        {"tariff": comparison.tariff, "kind": kind, "way": _WAYS[way], "usd": float(value) * 1e6}
        for comparison in result.comparisons
        for way, bill in ((LONG, comparison.long), (BURSTS, comparison.bursts))
        for kind, value in (("resources", bill.resources_usd), ("fees", bill.fees_usd))
    ]
    parts = {"domain": ["resources", "fees"], "range": [1, 0.45]}
    bars = vega.layer(
        "bar",
        rows,
        x=vega.quantity("usd", "bill of a task, µUSD"),
        y=vega.names("tariff", [comparison.tariff for comparison in result.comparisons]),
        yOffset=vega.offset("way", _NAMES),
        color=vega.colours("way", _NAMES),
        opacity=vega.names("kind", scale=parts, legend=None),
        order=vega.names("kind", sort="descending"),
        tooltip=vega.tips(
            ("tariff", "tariff"), ("way", " "), ("kind", "for"), ("usd", "µUSD a task", ",.4~r")
        ),
    )
    return Chart(
        "bills",
        vega.chart(bars, height=vega.rows_height(len(result.comparisons), 48)),
        "The bill of a task under each tariff, both ways, resources and fees",
        "What a task costs: resources, and fees (light)",
    )


def _table(result: Result) -> Table:
    def micro(name: str, usd: Callable[[Any], Fraction]) -> Column:
        return Column(name, lambda row: float(usd(row)) * 1e6, figure, "µUSD")

    return Table(
        [
            Column("tariff", "tariff"),
            Column("billed", lambda row: row.long.gb_s, figure4, "GB-s", _WHOLE),
            Column("billed in bursts", lambda row: row.bursts.gb_s, figure4, "GB-s"),
            Column(
                "change of GB-s",
                lambda row: _negative(row.gb_s_saved),
                relative,
                explanation="Change of the billed GB-seconds when the task is cut into bursts.",
            ),
            micro("fees", lambda row: row.long.fees_usd),
            micro("fees in bursts", lambda row: row.bursts.fees_usd),
            micro("bill", lambda row: row.long.usd),
            micro("bill in bursts", lambda row: row.bursts.usd),
            Column(
                "change of bill",
                "bill_added",
                relative,
                explanation="Change of the bill when the task is cut into bursts.",
                note=_added,
            ),
            Column(
                "pays below",
                lambda row: row.pays_below_usd * _NANO,
                figure,
                "nUSD a request",
                "Bursts are cheaper if the invocation fee is below this.",
                note=_below,
            ),
            Column(
                "fee",
                lambda row: row.fee_usd * _NANO,
                figure,
                "nUSD a request",
                "The tariff's invocation fee.",
            ),
        ],
        result.comparisons,
        "Rows of the experiment tasks in invocations.parquet, billed by task and way"
        " (allocation × billable time, as each tariff counts them): means over the tasks that came"
        " to their end both ways. The fee below which bursts pay is (resources as one invocation"
        " - resources in bursts) / (bursts - 1); below zero they never do. In small: 95 %"
        " intervals, bootstrap over tasks.",
        "Billed and saved",
        stacked=True,
    )


_WHOLE: Final = "Per task, as one invocation."


def _negative(share: Fraction | None) -> Fraction | None:
    return None if share is None else -share


def _added(row: Comparison) -> str:
    return " to ".join(relative(bound) for bound in row.bill_interval or ())


def _below(row: Comparison) -> str:
    bounds = row.pays_below_interval
    return "" if bounds is None else numbers.span([bound * _NANO for bound in bounds])


def _machine(measured: dict[str, dict[str, float | None]]) -> Table:
    def ms(name: str, key: str, explanation: str = "") -> Column:
        def value(row: Any) -> float | None:
            return None if row[key] is None else row[key] * 1e3

        return Column(name, value, figure4, "ms", explanation)

    return Table(
        [
            Column("way", "way"),
            ms("execution", "execution_s"),
            ms("CPU time", "cpu_s"),
            ms("throttled", "throttled_s", "Time that the kernel held the task back."),
            Column(
                "requests throttled",
                "throttled_share",
                percent,
                explanation="Share of the requests that were throttled at least once.",
            ),
            ms("elapsed", "elapsed_s", "From sending the first request to the last answer."),
        ],
        [{"way": _WAYS[way], **means} for way, means in measured.items()],
        "Means over tasks: execution, cpu_user + cpu_system, throttled_time, throttled_count > 0,"
        " and received - sent of invocations.parquet.",
        "By the kernel and the clocks",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page of a run; see `uncia.report.page.write`."""
    return pages.write(page(result), path)
