"""The page on intermittent execution: what bursts save, what they add, below which fee they pay."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from uncia.bandwidth.intermittent import BURSTS, LONG, Comparison
from uncia.report import numbers, theme
from uncia.report.charts import MAX_POINTS, inline
from uncia.report.cost import marks
from uncia.report.page import Block, Cell, Chart, Note, Page, Row, Section, Table, Tile

if TYPE_CHECKING:
    from uncia.bandwidth.intermittent_result import Result

_NANO: Final = 10**9
_WAYS: Final = {LONG: "one invocation", BURSTS: "in bursts"}


def page(result: Result) -> Page:
    """The page of a run of the experiment."""
    from uncia import __version__

    first = result.comparisons[0]
    blocks: list[Block] = [_timeline(result), Row([_fees(first), _bills(result)]), _table(result)]
    measured = result.measured()
    return Page(
        title="Intermittent execution",
        kicker="Uncia CPU bandwidth control",
        verdict="",
        good=True,
        facts=[("Run", str(result.folder)), ("Tasks", f"{len(result.pairs):,}, each both ways")],
        warnings=result.problems(),
        tiles=[
            Tile("GB-seconds in bursts", _change(first.gb_s_saved, -1), "", first.tariff),
            Tile("bill in bursts", _change(first.bill_added, 1), "", first.tariff),
            Tile("pays below", _nano(first.pays_below_usd), "nUSD a request", first.tariff),
            Tile("bursts", numbers.figure(float(first.bursts.invocations), 4), "a task"),
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
        footer=f"Written by uncia {__version__}. This page loads nothing from anywhere.",
    )


_SAYS: Final = (
    "Waits between bursts let the quota come back; they are the client's and not billed, but the"
    " task takes as long as they do."
)


def _change(share: Fraction | None, sign: int) -> str:
    return numbers.ABSENT if share is None else numbers.change(1 + sign * float(share))


def _nano(usd: Fraction) -> str:
    return numbers.figure(float(usd * _NANO))


def _timeline(result: Result) -> Chart:
    from uncia.bandwidth.intermittent_result import timeline

    rows: list[dict[str, Any]] = []
    for task in result.pairs[0]:
        for number, span in enumerate(timeline(task)[: MAX_POINTS // 2]):
            rows.append({**span, "way": _WAYS[task.way], "request": number + 1})
    names = list(_WAYS.values())
    chart = (
        alt.Chart(inline(rows))
        .mark_bar(height={"band": 0.7})
        .encode(
            x=alt.X("start:Q", title="seconds after the task's first event arrived"),
            x2="end:Q",
            y=alt.Y("way:N", sort=names, title=None),
            color=_colour(names),
            tooltip=[
                alt.Tooltip("way:N", title=" "),
                alt.Tooltip("request:Q", title="request"),
                alt.Tooltip("start:Q", title="from, s", format=".4f"),
                alt.Tooltip("end:Q", title="to, s", format=".4f"),
            ],
        )
    )
    return Chart(
        "timeline",
        marks.finish(chart, 110, labels=names),
        "When the first task ran, as one invocation and in bursts",
        "The first task: when it ran, which is what is billed",
    )


def _colour(names: Sequence[str]) -> Any:
    scale = alt.Scale(domain=list(names), range=theme.colours(len(names)))
    return alt.Color("way:N", title=None, sort=list(names), scale=scale)


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
    names = list(_WAYS.values())
    lines = (
        alt.Chart(inline(rows))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("fee:Q", title="fee of an invocation, nUSD", scale=alt.Scale(nice=False)),
            y=alt.Y("bill:Q", title="bill of a task, µUSD"),
            color=_colour(names),
        )
    )
    places = [{"at": float(one.fee_usd) * _NANO, "what": f"{one.tariff}'s fee"}]
    if one.pays_below_usd > 0:
        places.append({"at": float(one.pays_below_usd) * _NANO, "what": "break-even"})
    points = alt.Chart(inline(places))
    rule = points.mark_rule(strokeDash=[4, 3]).encode(
        x="at:Q", tooltip=[alt.Tooltip("what:N", title=" "), alt.Tooltip("at:Q", format=",.4~g")]
    )
    text = points.mark_text(angle=270, align="right", baseline="bottom", dx=-4, dy=-3).encode(
        x="at:Q", y=alt.value(0), text="what:N"
    )
    return Chart(
        "fees",
        marks.finish(alt.layer(lines, rule, text), 260, legend=names),
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
    names = list(_WAYS.values())
    chart = (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            y=alt.Y("tariff:N", title=None, sort=[one.tariff for one in result.comparisons]),
            yOffset=alt.YOffset("way:N", sort=names),
            x=alt.X("usd:Q", title="bill of a task, µUSD"),
            color=_colour(names),
            opacity=alt.Opacity(
                "kind:N",
                legend=None,
                scale=alt.Scale(domain=["resources", "fees"], range=[1, 0.45]),
            ),
            order=alt.Order("kind:N", sort="descending"),
            tooltip=[
                alt.Tooltip("tariff:N", title="tariff"),
                alt.Tooltip("way:N", title=" "),
                alt.Tooltip("kind:N", title="for"),
                alt.Tooltip("usd:Q", title="µUSD a task", format=",.4~g"),
            ],
        )
    )
    return Chart(
        "bills",
        marks.finish(
            chart,
            max(2, len(result.comparisons)) * 48,
            legend=[*names, "resources"],
            labels=[one.tariff for one in result.comparisons],
        ),
        "The bill of a task under each tariff, both ways, resources and fees",
        "What a task costs: resources, and fees (light)",
    )


def _table(result: Result) -> Table:
    return Table(
        (
            "<tariff",
            "GB-s",
            "in bursts",
            "change",
            "fees, µUSD",
            "in bursts ",
            "bill, µUSD",
            "in bursts  ",
            "change ",
            "pays below, nUSD a request",
            "its fee",
        ),
        [
            [
                one.tariff,
                numbers.figure(_float(one.long.gb_s), 4),
                numbers.figure(_float(one.bursts.gb_s), 4),
                numbers.change(None if one.gb_s_saved is None else 1 - float(one.gb_s_saved)),
                numbers.figure(float(one.long.fees_usd) * 1e6),
                numbers.figure(float(one.bursts.fees_usd) * 1e6),
                numbers.figure(float(one.long.usd) * 1e6),
                numbers.figure(float(one.bursts.usd) * 1e6),
                Cell(
                    _change(one.bill_added, 1),
                    " to ".join(numbers.change(1 + bound) for bound in one.bill_interval or ()),
                ),
                Cell(
                    _nano(one.pays_below_usd),
                    ""
                    if one.pays_below_interval is None
                    else numbers.span([bound * _NANO for bound in one.pays_below_interval]),
                ),
                _nano(one.fee_usd),
            ]
            for one in result.comparisons
        ],
        "Rows of the experiments long and bursts in invocations.parquet, billed by task"
        " (allocation × billable time, as each tariff counts them): means over the tasks that came"
        " to their end both ways. The fee below which bursts pay is (resources as one invocation"
        " - resources in bursts) / (bursts - 1); below zero they never do. In small: 95 %"
        " intervals, bootstrap over tasks.",
        "Billed and saved",
        stacked=True,
    )


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _machine(measured: dict[str, dict[str, float | None]]) -> Table:
    def ms(value: float | None) -> str:
        return numbers.ABSENT if value is None else numbers.figure(value * 1e3, 4)

    return Table(
        (
            "<way",
            "execution, ms",
            "CPU time, ms",
            "throttled, ms",
            "requests held back",
            "from first to last, ms",
        ),
        [
            [
                _WAYS[way],
                ms(found["execution_s"]),
                ms(found["cpu_s"]),
                ms(found["throttled_s"]),
                numbers.percent(found["throttled_share"]),
                ms(found["elapsed_s"]),
            ]
            for way, found in measured.items()
        ],
        "Means over tasks: execution, cpu_user + cpu_system, throttled_time, throttled_count > 0,"
        " and received - sent of invocations.parquet.",
        "By the kernel and the clocks",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page.

    Raises:
        UnciaError: it cannot be written.
    """
    from uncia.report import page as pages

    return pages.write(page(result), path)
