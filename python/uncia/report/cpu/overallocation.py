"""The page on over-allocation: Figure 10's form, with models under the measured points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from uncia.report import charts, numbers, theme
from uncia.report.cost import marks
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Table, Tile
from uncia.units import MIB

if TYPE_CHECKING:
    from uncia.bandwidth.overallocation import Result

_MEASURED: Final = "measured"


def page(result: Result) -> Page:
    """The page of a run."""
    from uncia import __version__

    tiles = [
        Tile(name, numbers.figure(100 * share), "% off", f"mean over sizes, {enforcement}")
        for enforcement in result.enforcements()
        for name, share in result.errors(enforcement).items()
    ]
    kernel = result.kernel
    left_out = [f"Left out: {count:,} rows ({why})." for why, count in result.left_out.items()]
    return Page(
        title="Over-allocation",
        kicker="Uncia CPU bandwidth control",
        verdict="",
        good=True,
        facts=[
            ("Run", str(result.folder)),
            ("Function", result.function),
            ("Period", f"{kernel.period_ns / 1e6:g} ms"),
            ("Simulated", f"{kernel.scheduler}, {kernel.hz} Hz, throttling by {kernel.throttling}"),
        ],
        warnings=left_out,
        tiles=tiles,
        sections=[
            *(_section(result, enforcement) for enforcement in result.enforcements()),
            *([_compared(result)] if len(result.enforcements()) > 1 else []),
        ],
        summary="How long a function takes at each memory size, what models say it would, and how"
        " much CPU time it gets for the time that is paid.",
        footer=f"Written by uncia {__version__}. This page loads nothing from anywhere.",
    )


def _section(result: Result, enforcement: str) -> Section:
    known = result.full[enforcement]
    blocks: list[Block] = [
        _figure(result, enforcement),
        Row([_shares(result, enforcement), _off(result, enforcement)]),
        Note(
            "All models start from the rows at a whole vCPU alone:"
            f" {numbers.figure(known.mean_ns / 1e6, 4)} ms of CPU time on average, and"
            f" {numbers.figure(known.beyond_ns / 1e6)} ms beyond it, which they add."
        ),
        _table(result, enforcement),
    ]
    return Section(
        enforcement,
        f"Held to the quota by the kernel{'' if enforcement == 'kernel' else ' and by timers'}",
        blocks,
        "Points: the average of each size, with a line from the 5th to the 95th percentile.",
    )


def _memory_axis() -> Any:
    return alt.X(
        "mb:Q",
        title="memory, MB",
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(tickCount=6, format=",~f"),
    )


def _figure(result: Result, enforcement: str) -> Chart:
    import numpy as np

    own = result.of(enforcement)
    models = list(result.models[enforcement])
    lines = [
        {"model": name, "mb": size.memory / MIB, "ms": result.models[enforcement][name][at] / 1e6}
        for name in models
        for at, size in enumerate(own)
    ]
    points: list[dict[str, Any]] = []
    for size in own:
        low, high = (float(value) / 1e6 for value in np.quantile(size.durations, [0.05, 0.95]))
        points.append(
            {
                "model": _MEASURED,
                "mb": size.memory / MIB,
                "ms": size.mean_ns / 1e6,
                "low": low,
                "high": high,
                "rows": size.rows,
            }
        )
    names = [_MEASURED, *models]
    first, _, equation, simulated = theme.colours(4)
    scale = alt.Scale(domain=names, range=[first, theme.REFERENCE, equation, simulated])
    colour = alt.Color("model:N", title=None, sort=names, scale=scale)
    x = _memory_axis()
    lowest = min(point["low"] for point in points) / 1.1
    highest = max(*(point["high"] for point in points), *(line["ms"] for line in lines)) * 1.1
    y = alt.Y(
        "ms:Q",
        title="duration, ms (logarithmic)",
        scale=alt.Scale(type="log", domain=[lowest, highest], nice=False),
        axis=alt.Axis(values=charts.log_ticks(lowest, highest), format=",~g"),
    )
    drawn = (
        alt.Chart(charts.inline(lines))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=x,
            y=y,
            color=colour,
            strokeDash=alt.StrokeDash(
                "model:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=[[1, 0], [5, 4], [1, 0], [1, 0]]),
            ),
            tooltip=[
                alt.Tooltip("model:N", title=" "),
                alt.Tooltip("mb:Q", title="MB"),
                alt.Tooltip("ms:Q", title="ms", format=",.4~g"),
            ],
        )
    )
    base = alt.Chart(charts.inline(points))
    spread = base.mark_rule(strokeWidth=1.2, opacity=0.55).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour
    )
    dots = base.mark_circle(size=34, opacity=1).encode(
        x=x,
        y=y,
        color=colour,
        tooltip=[
            alt.Tooltip("mb:Q", title="MB"),
            alt.Tooltip("ms:Q", title="mean, ms", format=",.4~g"),
            alt.Tooltip("low:Q", title="p5, ms", format=",.4~g"),
            alt.Tooltip("high:Q", title="p95, ms", format=",.4~g"),
            alt.Tooltip("rows:Q", title="requests"),
        ],
    )
    return Chart(
        f"figure-{enforcement}",
        marks.finish(alt.layer(drawn, spread, dots), 380, legend=names),
        "Duration over memory size: measured, and by each model",
        "Duration by memory size, and by models that know only the whole vCPU",
    )


def _shares(result: Result, enforcement: str) -> Chart:
    rows = [
        {"mb": size.memory / MIB, "share": size.overallocation}
        for size in result.of(enforcement)
        if size.overallocation is not None
    ]
    line = (
        alt.Chart(charts.inline(rows))
        .mark_line(strokeWidth=1.6, point=True)
        .encode(
            x=_memory_axis(),
            y=alt.Y("share:Q", title="CPU time used / paid for", scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("mb:Q", title="MB"),
                alt.Tooltip("share:Q", title="used / paid for", format=".3f"),
            ],
        )
    )
    paid = (
        alt.Chart(charts.inline([{"share": 1.0}])).mark_rule(strokeDash=[4, 3]).encode(y="share:Q")
    )
    return Chart(
        f"share-{enforcement}",
        marks.finish(alt.layer(line, paid), 240),
        "CPU time used over CPU time allocated for the execution, by memory size",
        "CPU time for what is paid: above 1, more than allocated",
    )


def _off(result: Result, enforcement: str) -> Chart:
    models = list(result.models[enforcement])
    rows = [
        {
            "model": name,
            "mb": size.memory / MIB,
            "off": result.models[enforcement][name][at] / size.mean_ns - 1,
        }
        for name in models
        for at, size in enumerate(result.of(enforcement))
        if not size.whole
    ]
    colours = theme.colours(4)
    chart = (
        alt.Chart(charts.inline(rows))
        .mark_line(strokeWidth=1.6, point={"size": 18})
        .encode(
            x=_memory_axis(),
            y=alt.Y("off:Q", title="model over measured", axis=alt.Axis(format="+%")),
            color=alt.Color(
                "model:N",
                title=None,
                sort=models,
                scale=alt.Scale(domain=models, range=[theme.REFERENCE, *colours[2:]]),
            ),
            tooltip=[
                alt.Tooltip("model:N", title=" "),
                alt.Tooltip("mb:Q", title="MB"),
                alt.Tooltip("off:Q", title="off by", format="+.1%"),
            ],
        )
    )
    return Chart(
        f"off-{enforcement}",
        marks.finish(chart, 240, legend=models),
        "By how much each model is off at each size",
        "How far off each model is",
    )


def _table(result: Result, enforcement: str) -> Table:
    def ms(value: float) -> str:
        return numbers.figure(value / 1e6, 4)

    told = result.models[enforcement]
    return Table(
        (
            "memory",
            "requests",
            "mean, ms",
            "CPU time, ms",
            *told,
            "held back",
            "used / paid for",
        ),
        [
            [
                numbers.megabytes(size.memory),
                numbers.count(size.rows),
                ms(size.mean_ns),
                numbers.ABSENT if size.cpu is None else ms(float(size.cpu.mean())),
                *(ms(values[at]) for values in told.values()),
                numbers.percent(None if size.throttled is None else size.throttled / size.rows),
                numbers.figure(size.overallocation),
            ]
            for at, size in enumerate(result.of(enforcement))
        ],
        "execution, cpu_user + cpu_system, throttled_count > 0 and allocated_cpu of"
        " invocations.parquet; warm requests that ended ok.",
        "Every size",
    )


def _compared(result: Result) -> Section:
    rows = [
        {
            "who": enforcement,
            "mb": size.memory / MIB,
            "share": size.overallocation,
            "ms": size.mean_ns / 1e6,
        }
        for enforcement in result.enforcements()
        for size in result.of(enforcement)
        if size.overallocation is not None
    ]
    names = result.enforcements()
    drawn = []
    for name, field, title in (
        ("enforced-share", "share", "CPU time used / paid for"),
        ("enforced-duration", "ms", "duration, ms (logarithmic)"),
    ):
        scale = alt.Scale(type="log") if field == "ms" else alt.Scale(zero=False)
        chart = (
            alt.Chart(charts.inline(rows))
            .mark_line(strokeWidth=1.8, point={"size": 20})
            .encode(
                x=_memory_axis(),
                y=alt.Y(f"{field}:Q", title=title, scale=scale),
                color=alt.Color(
                    "who:N",
                    title=None,
                    sort=names,
                    scale=alt.Scale(domain=names, range=theme.colours(len(names))),
                ),
                tooltip=[
                    alt.Tooltip("who:N", title=" "),
                    alt.Tooltip("mb:Q", title="MB"),
                    alt.Tooltip(f"{field}:Q", title=title, format=",.4~g"),
                ],
            )
        )
        drawn.append(Chart(name, marks.finish(chart, 260, legend=names), title, title))
    return Section(
        "enforcement",
        "The kernel's enforcement and event-driven",
        [Row(drawn)],
        "The kernel accounts for CPU time at its ticks; timers that fire when the quota is used up"
        " do so at once.",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page.

    Raises:
        UnciaError: it cannot be written.
    """
    from uncia.report import page as pages

    return pages.write(page(result), path)
