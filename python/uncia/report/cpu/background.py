"""The page on background work during keep-alive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.report import page as pages
from uncia.report import theme, vega
from uncia.report.numbers import count, figure, figure4, percent, span
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Tile
from uncia.report.table import Column, Table
from uncia.units import MIB, NS_PER_S

if TYPE_CHECKING:
    from uncia.bandwidth.background import Behaviour, Result

_KINDS: Final = ("the two requests", "the work, in a request")


def page(result: Result) -> Page:
    """The page of a run."""
    blocks: list[Block] = [
        Row([_shares(result), _costs(result)]),
        _measured(result),
        Note(
            "An instance counts as idle some time after its last answer (pause_after); until then"
            " it runs as before, whatever the behaviour. The function's window begins when its"
            " handler ends; until the platform has the answer (well below a millisecond), CPU time"
            " still belongs to the request."
        ),
        _priced(result),
    ]
    return Page(
        title="Background work in keep-alive",
        kicker="Uncia CPU bandwidth control",
        facts=[
            ("Run", str(result.folder)),
            ("Memory", f"{result.memory / MIB:,.0f} MB"),
            ("Allocated", f"{result.vcpu:.3f} vCPU"),
        ],
        warnings=list(result.problems),
        tiles=[
            Tile(behaviour.name, figure(float(behaviour.vcpu)), "vCPU", "unbilled, in keep-alive")
            for behaviour in result.behaviours
        ],
        sections=[
            Section(
                "unbilled",
                "CPU time between requests",
                blocks,
                "A request starts work in another thread and answers at once; the next request"
                " collects the work. No bill contains the CPU time in between.",
            )
        ],
        summary="The CPU time that a function gets between its requests under each keep-alive"
        " behaviour, and what the same work would have cost within a request.",
    )


def _shares(result: Result) -> Chart:
    rows: list[dict[str, Any]] = []
    for behaviour in result.behaviours:
        low, high = behaviour.interval or (float(behaviour.vcpu), float(behaviour.vcpu))
        rows.append(
            {"name": behaviour.name, "vcpu": float(behaviour.vcpu), "low": low, "high": high}
        )
    y = vega.names("name", [row["name"] for row in rows])
    bars = vega.layer(
        "bar",
        rows,
        {"height": {"band": 0.6}, "color": theme.colours(1)[0]},
        x=vega.quantity("vcpu", "vCPU, unbilled"),
        y=y,
        tooltip=vega.tips(
            ("name", " "), ("vcpu", "vCPU", ".4f"), ("low", "from", ".4f"), ("high", "to", ".4f")
        ),
    )
    spread = vega.layer(
        "rule", rows, {"strokeWidth": 1.5}, x=vega.quantity("low"), x2={"field": "high"}, y=y
    )
    paid = vega.rule(result.vcpu, color=None, strokeWidth=None)
    return Chart(
        "shares",
        vega.chart(bars, spread, paid, height=vega.rows_height(len(rows), 60)),
        "CPU had between requests, by keep-alive behaviour; the line stands at the allocation",
        "CPU between requests (dashed: the allocation)",
    )


def _costs(result: Result) -> Chart:
    tariff = result.behaviours[0].prices[0].tariff
    rows = [
        {"name": behaviour.name, "kind": kind, "usd": float(value) * 1e6}
        for behaviour in result.behaviours
        for kind, value in zip(
            _KINDS, (behaviour.prices[0].requests_usd, behaviour.prices[0].work_usd), strict=True
        )
    ]
    bars = vega.layer(
        "bar",
        rows,
        x=vega.quantity("usd", "bill of a round, µUSD"),
        y=vega.names("name", [behaviour.name for behaviour in result.behaviours]),
        yOffset=vega.offset("kind", _KINDS),
        color=vega.colours("kind", _KINDS),
        tooltip=vega.tips(("name", " "), ("kind", "for"), ("usd", "µUSD", ",.4~r")),
    )
    return Chart(
        "costs",
        vega.chart(bars, height=vega.rows_height(len(result.behaviours), 60)),
        f"What a round was billed, and what its work would have been within a request: {tariff}",
        f"Billed, and what the work would have cost: {tariff}",
    )


def _seconds(name: str, key: str, explanation: str) -> Column:
    """Make the column of a time that is given in ns."""

    def seconds(row: Behaviour) -> float | None:
        value = getattr(row, key)
        return None if value is None else float(value) / NS_PER_S

    return Column(name, seconds, figure4, "s", explanation)


def _measured(result: Result) -> Table:
    return Table(
        [
            Column("keep-alive", "name"),
            Column("rounds", lambda row: len(row.good), count),
            _seconds("idle", "idle_ns", "Mean time between the two requests."),
            _seconds("CPU unbilled", "unbilled_ns", "Mean CPU time of the work in that time."),
            Column(
                "vCPU",
                "vcpu",
                figure,
                explanation="Unbilled CPU time divided by idle time.",
                note=lambda row: span(row.interval),
            ),
            Column(
                "of its allocation",
                lambda row: float(row.vcpu) / result.vcpu,
                percent,
                explanation="The same as a share of the vCPU allocated.",
            ),
            _seconds(
                "instance, idle",
                "instance_idle_ns",
                "CPU time of the instance while it served nothing, by the platform's count.",
            ),
        ],
        result.behaviours,
        "Spans background, and spans background_cpu, which are as long as the CPU time meanwhile by"
        " the working thread's own clock: averages over rounds; in small a 95 % interval, bootstrap"
        " over rounds. Last column: idle_cpu of instances.parquet, all CPU time that the platform"
        " counted of the instance while it served nothing, over its whole life.",
        "By the function's clock and the platform's",
        stacked=True,
    )


def _priced(result: Result) -> Table:
    return Table(
        [
            Column("keep-alive", lambda row: row[0].name),
            Column("tariff", lambda row: row[1].tariff),
            Column(
                "billed",
                lambda row: float(row[1].requests_usd) * 1e6,
                figure,
                "µUSD",
                "The bill of the two requests.",
            ),
            Column(
                "within a request",
                lambda row: float(row[1].work_usd) * 1e6,
                figure,
                "µUSD",
                "The bill of a request that does the same work before it answers.",
            ),
            Column("saved", lambda row: row[1].saved, percent),
        ],
        [(behaviour, price) for behaviour in result.behaviours for price in behaviour.prices],
        "A round: the bill of its two requests; and its unbilled CPU time at what CPU time cost in"
        " the requests of the experiment billed, which did such work within themselves, and a fee.",
        "What it would have cost",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page of a run; see `uncia.report.page.write`."""
    return pages.write(page(result), path)
