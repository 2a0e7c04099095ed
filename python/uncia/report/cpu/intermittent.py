"""The page on intermittent execution: what bursts save, what they add, below which fee they pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.intermittent import BURSTS, LONG, Comparison
from uncia.report import numbers, vega
from uncia.report import page as pages
from uncia.report.numbers import figure, figure4, percent
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
            Tile("GB-seconds in bursts", _change(first.gb_s_saved, -1), "", first.tariff),
            Tile("bill in bursts", _change(first.bill_added, 1), "", first.tariff),
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
            Section("machine", "What was measured", [_machine(measured), Note(_SAYS)]),
        ],
        summary="What it saves to cut a task into bursts that fit the CPU quota, and what the"
        " invocation fees add.",
    )


_SAYS: Final = (
    "Waits between bursts let the quota come back; they are the client's and not billed, but the"
    " task takes as long as they do."
)


def _change(share: Fraction | None, sign: int) -> str:
    return numbers.ABSENT if share is None else numbers.change(1 + sign * float(share))


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


def _fees(one: Comparison) -> Chart:
    """The bill over the fee: two straight lines that meet at the break-even fee."""
    far = max(float(one.fee_usd), 2 * float(one.pays_below_usd), 1e-9) * _NANO * 1.1
    rows = [
        {
            "way": _WAYS[way],
            "fee": fee,
            "bill": float(own.resources_usd) * 1e6 + float(own.invocations) * fee / 1e3,
        }
        for way, own in ((LONG, one.long), (BURSTS, one.bursts))
        for fee in (0.0, far)
    ]
    lines = vega.layer(
        "line",
        rows,
        {"strokeWidth": 2},
        x=vega.quantity("fee", "fee of an invocation, nUSD", scale={"nice": False}),
        y=vega.quantity("bill", "bill of a task, µUSD"),
        color=vega.colours("way", _NAMES),
    )
    fees = [{"at": float(one.fee_usd) * _NANO, "what": f"{one.tariff}'s fee"}]
    if one.pays_below_usd > 0:
        fees.append({"at": float(one.pays_below_usd) * _NANO, "what": "break-even"})
    at = vega.quantity("at")
    tooltip = vega.tips(("what", " "), ("at", "", ",.4~g"))
    rules = vega.layer("rule", fees, {"strokeDash": [4, 3]}, x=at, tooltip=tooltip)
    upright = {"angle": 270, "align": "right", "baseline": "bottom", "dx": -4, "dy": -3}
    what = {"field": "what", "type": "nominal"}
    words = vega.layer("text", fees, upright, x=at, y=vega.fixed(0), text=what)
    return Chart(
        "fees",
        vega.chart(lines, rules, words, height=260),
        "The bill of a task over the fee of an invocation, both ways",
        f"Below which fee bursts pay: {one.tariff}",
    )


def _bills(result: Result) -> Chart:
    rows = [
        {"tariff": one.tariff, "kind": kind, "way": _WAYS[way], "usd": float(value) * 1e6}
        for one in result.comparisons
        for way, own in ((LONG, one.long), (BURSTS, one.bursts))
        for kind, value in (("resources", own.resources_usd), ("fees", own.fees_usd))
    ]
    parts = {"domain": ["resources", "fees"], "range": [1, 0.45]}
    bars = vega.layer(
        "bar",
        rows,
        x=vega.quantity("usd", "bill of a task, µUSD"),
        y=vega.names("tariff", [one.tariff for one in result.comparisons]),
        yOffset=vega.offset("way", _NAMES),
        color=vega.colours("way", _NAMES),
        opacity=vega.names("kind", scale=parts, legend=None),
        order=vega.names("kind", sort="descending"),
        tooltip=vega.tips(
            ("tariff", "tariff"), ("way", " "), ("kind", "for"), ("usd", "µUSD a task", ",.4~g")
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

    def bursts(column: Column, times: int) -> Column:
        # Headings differ by the blanks after them.
        return replace(column, name="in bursts" + " " * times, unit="")

    def change(
        name: str, share: Callable[[Any], Fraction | None], sign: int, **more: Any
    ) -> Column:
        return Column(name, lambda row: _change(share(row), sign), str, **more)

    return Table(
        [
            Column("tariff", "tariff"),
            Column("GB-s", lambda row: row.long.gb_s, figure4),
            Column("in bursts", lambda row: row.bursts.gb_s, figure4),
            change("change", lambda row: row.gb_s_saved, -1),
            micro("fees", lambda row: row.long.fees_usd),
            bursts(micro("", lambda row: row.bursts.fees_usd), 1),
            micro("bill", lambda row: row.long.usd),
            bursts(micro("", lambda row: row.bursts.usd), 2),
            change("change ", lambda row: row.bill_added, 1, note=_added),
            Column(
                "pays below",
                lambda row: row.pays_below_usd * _NANO,
                figure,
                "nUSD a request",
                note=_below,
            ),
            Column("its fee", lambda row: row.fee_usd * _NANO, figure),
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


def _added(row: Comparison) -> str:
    return " to ".join(numbers.change(1 + bound) for bound in row.bill_interval or ())


def _below(row: Comparison) -> str:
    bounds = row.pays_below_interval
    return "" if bounds is None else numbers.span([bound * _NANO for bound in bounds])


def _machine(measured: dict[str, dict[str, float | None]]) -> Table:
    def ms(name: str, key: str) -> Column:
        def value(row: Any) -> float | None:
            return None if row[key] is None else row[key] * 1e3

        return Column(name, value, figure4, "ms")

    return Table(
        [
            Column("way", "way"),
            ms("execution", "execution_s"),
            ms("CPU time", "cpu_s"),
            ms("throttled", "throttled_s"),
            Column("requests held back", "throttled_share", percent),
            ms("from first to last", "elapsed_s"),
        ],
        [{"way": _WAYS[way], **found} for way, found in measured.items()],
        "Means over tasks: execution, cpu_user + cpu_system, throttled_time, throttled_count > 0,"
        " and received - sent of invocations.parquet.",
        "By the kernel and the clocks",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page of a run; see `uncia.report.page.write`."""
    return pages.write(page(result), path)
