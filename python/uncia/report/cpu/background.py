"""The page on work in the background of an instance that idles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import altair as alt

from uncia.report import numbers, theme
from uncia.report.charts import inline
from uncia.report.cost import marks
from uncia.report.page import Block, Cell, Chart, Note, Page, Row, Section, Table, Tile
from uncia.units import MIB, NS_PER_S

if TYPE_CHECKING:
    from uncia.bandwidth.background import Behaviour, Result

_KINDS: Final = ("the two requests", "the work, in a request")


def page(result: Result) -> Page:
    """The page of a run."""
    from uncia import __version__

    blocks: list[Block] = [
        Row([_shares(result), _costs(result)]),
        _measured(result),
        Note(
            "An instance counts as idle some time after its last answer (pause_after); until then"
            " it runs as before, whatever the behaviour. The function's window begins when its"
            " handler ends; until the answer is with the platform (well below a millisecond) CPU"
            " time is still the request's."
        ),
        _priced(result),
    ]
    return Page(
        title="Background work in keep-alive",
        kicker="Uncia CPU bandwidth control",
        verdict="",
        good=True,
        facts=[
            ("Run", str(result.folder)),
            ("Memory", f"{result.memory / MIB:,.0f} MB"),
            ("Allocated", f"{result.vcpu:.3f} vCPU"),
        ],
        warnings=list(result.problems),
        tiles=[
            Tile(one.name, numbers.figure(float(one.vcpu)), "vCPU", "unbilled, in keep-alive")
            for one in result.behaviours
        ],
        sections=[
            Section(
                "unbilled",
                "What a function gets done while it idles",
                blocks,
                "A request begins work in another thread and answers at once; the next request"
                " collects what was done. What lies between is in no bill.",
            )
        ],
        summary="CPU time that keep-alive behaviours let a function have between its requests, and"
        " what the same work would have cost within a request.",
        footer=f"Written by uncia {__version__}. This page loads nothing from anywhere.",
    )


def _shares(result: Result) -> Chart:
    rows = []
    for one in result.behaviours:
        low, high = one.interval or (float(one.vcpu), float(one.vcpu))
        rows.append({"name": one.name, "vcpu": float(one.vcpu), "low": low, "high": high})
    names = [one.name for one in result.behaviours]
    base = alt.Chart(inline(rows))
    y = alt.Y("name:N", sort=names, title=None)
    tooltip = [
        alt.Tooltip("name:N", title=" "),
        alt.Tooltip("vcpu:Q", title="vCPU", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
    ]
    bars = base.mark_bar(height={"band": 0.6}, color=theme.colours(1)[0]).encode(
        x=alt.X("vcpu:Q", title="vCPU, unbilled"), y=y, tooltip=tooltip
    )
    spread = base.mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q", y=y)
    paid = alt.Chart(inline([{"at": result.vcpu}])).mark_rule(strokeDash=[4, 3]).encode(x="at:Q")
    return Chart(
        "shares",
        marks.finish(alt.layer(bars, spread, paid), 60 * max(2, len(names)), labels=names),
        "CPU had between requests, by keep-alive behaviour; the line stands at the allocation",
        "CPU between requests (dashed: the allocation)",
    )


def _costs(result: Result) -> Chart:
    tariff = result.behaviours[0].prices[0].tariff
    rows = [
        {"name": one.name, "kind": kind, "usd": float(value) * 1e6}
        for one in result.behaviours
        for kind, value in zip(
            _KINDS, (one.prices[0].requests_usd, one.prices[0].work_usd), strict=True
        )
    ]
    names = [one.name for one in result.behaviours]
    chart = (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", sort=names, title=None),
            yOffset=alt.YOffset("kind:N", sort=list(_KINDS)),
            x=alt.X("usd:Q", title="bill of a round, µUSD"),
            color=alt.Color(
                "kind:N",
                title=None,
                sort=list(_KINDS),
                scale=alt.Scale(domain=list(_KINDS), range=theme.colours(2)),
            ),
            tooltip=[
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("kind:N", title="for"),
                alt.Tooltip("usd:Q", title="µUSD", format=",.4~g"),
            ],
        )
    )
    return Chart(
        "costs",
        marks.finish(chart, 60 * max(2, len(names)), legend=_KINDS, labels=names),
        f"What a round was billed, and what its work would have been within a request: {tariff}",
        f"Billed, and what the work would have cost: {tariff}",
    )


def _seconds(value: float | None) -> str:
    return numbers.ABSENT if value is None else numbers.figure(value / NS_PER_S, 4)


def _measured(result: Result) -> Table:
    def row(one: Behaviour) -> list[Cell | str]:
        return [
            one.name,
            numbers.count(len(one.good)),
            _seconds(float(one.idle_ns)),
            _seconds(float(one.unbilled_ns)),
            Cell(numbers.figure(float(one.vcpu)), numbers.span(one.interval)),
            numbers.percent(float(one.vcpu) / result.vcpu),
            _seconds(None if one.instance_idle_ns is None else float(one.instance_idle_ns)),
        ]

    return Table(
        (
            "<keep-alive",
            "rounds",
            "idle, s",
            "CPU unbilled, s",
            "vCPU",
            "of its allocation",
            "instance, idle, s",
        ),
        [row(one) for one in result.behaviours],
        "Spans background, and the readings background_cpu_ns of machine.parquet at their ends: the"
        " working thread's own CPU clock, averages over rounds; in small a 95 % interval, bootstrap"
        " over rounds. Last column: idle_cpu of instances.parquet, all CPU time that the platform"
        " counted of the instance while it served nothing, over its whole life.",
        "By the function's clock and the platform's",
        stacked=True,
    )


def _priced(result: Result) -> Table:
    return Table(
        ("<keep-alive", "<tariff", "billed, µUSD", "within a request, µUSD", "saved"),
        [
            [
                one.name,
                price.tariff,
                numbers.figure(float(price.requests_usd) * 1e6),
                numbers.figure(float(price.work_usd) * 1e6),
                numbers.percent(None if price.saved is None else float(price.saved)),
            ]
            for one in result.behaviours
            for price in one.prices
        ],
        "A round: the bill of its two requests; and its unbilled CPU time at what CPU time cost in"
        " the requests of the experiment billed, which did such work within themselves, and a fee.",
        "What it would have cost",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page.

    Raises:
        UnciaError: it cannot be written.
    """
    from uncia.report import page as pages

    return pages.write(page(result), path)
