"""The page on over-allocation: durations by memory size, measured and modelled, like Figure 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.report import numbers, theme, vega
from uncia.report import page as pages
from uncia.report.numbers import count, figure, figure4, percent
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Tile
from uncia.report.table import Column, Table
from uncia.stats.quantiles import quantiles_of
from uncia.text import plural
from uncia.units import MIB

if TYPE_CHECKING:
    from uncia.bandwidth.overallocation import Result

_MEASURED: Final = "measured"


def page(result: Result) -> Page:
    """The page of a run."""
    tiles = [
        Tile(name, figure(100 * share), "% off", f"mean over sizes, {enforcement}")
        for enforcement in result.enforcements()
        for name, share in result.errors(enforcement).items()
    ]
    kernel = result.kernel
    left_out = [
        f"Left out: {plural(count, 'row')} ({why})." for why, count in result.left_out.items()
    ]
    return Page(
        title="Over-allocation",
        kicker="Uncia CPU bandwidth control",
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
        summary="How long a function takes at each memory size, what models predict, and how much"
        " CPU time it gets for the time that is paid.",
    )


def _section(result: Result, enforcement: str) -> Section:
    full = result.full[enforcement]
    blocks: list[Block] = [
        _figure(result, enforcement),
        Row([_shares(result, enforcement), _off(result, enforcement)]),
        Note(
            "All models use only the rows at a whole vCPU:"
            f" {figure(full.mean_ns / 1e6, 4)} ms of CPU time on average, and"
            f" {figure(full.beyond_ns / 1e6)} ms beyond it, which they add."
        ),
        _table(result, enforcement),
    ]
    return Section(
        enforcement,
        f"Held to the quota by the kernel{'' if enforcement == 'kernel' else ' and by timers'}",
        blocks,
        "Points: the average of each size, with a line from the 5th to the 95th percentile.",
    )


_MEMORY: Final = vega.quantity(
    "mb",
    "memory, MB",
    scale={"zero": False, "nice": False},
    axis={"tickCount": 6, "format": ",~f"},
)


def _figure(result: Result, enforcement: str) -> Chart:

    sizes = result.of(enforcement)
    models = list(result.models[enforcement])
    lines = [
        {
            "model": name,
            "mb": size.memory / MIB,
            "ms": result.models[enforcement][name][index] / 1e6,
        }
        for name in models
        for index, size in enumerate(sizes)
    ]
    points: list[dict[str, Any]] = []
    for size in sizes:
        low, high = (value / 1e6 for value in quantiles_of(size.durations, [0.05, 0.95]))
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
    order = [_MEASURED, *models]
    first, _, equation, simulated = theme.colours(4)
    colour = vega.colours("model", order, [first, theme.REFERENCE, equation, simulated])
    lowest = min(point["low"] for point in points) / 1.1
    highest = max(*(point["high"] for point in points), *(line["ms"] for line in lines)) * 1.1
    y = vega.quantity(
        "ms",
        "duration, ms (logarithmic)",
        **vega.logarithmic([lowest, highest], domain=[lowest, highest]),
    )
    drawn = vega.layer(
        "line",
        lines,
        {"strokeWidth": 1.8},
        x=_MEMORY,
        y=y,
        color=colour,
        strokeDash=vega.dashes("model", order, models[:1], vega.DASHED),
        tooltip=vega.tips(("model", " "), ("mb", "MB", ""), ("ms", "ms", ",.4~r")),
    )
    spread = vega.layer(
        "rule",
        points,
        {"strokeWidth": 1.2, "opacity": 0.55},
        x=_MEMORY,
        y=vega.quantity("low"),
        y2={"field": "high"},
        color=colour,
    )
    dots = vega.layer(
        "circle",
        points,
        {"size": 34, "opacity": 1},
        x=_MEMORY,
        y=y,
        color=colour,
        tooltip=vega.tips(
            ("mb", "MB", ""),
            ("ms", "mean, ms", ",.4~r"),
            ("low", "p5, ms", ",.4~r"),
            ("high", "p95, ms", ",.4~r"),
            ("rows", "requests", ""),
        ),
    )
    return Chart(
        f"figure-{enforcement}",
        vega.chart(drawn, spread, dots, height=380),
        "Duration over memory size: measured, and by each model",
        "Duration by memory size, and by models that know only the whole vCPU",
    )


def _shares(result: Result, enforcement: str) -> Chart:
    rows = [
        {"mb": size.memory / MIB, "share": size.overallocation}
        for size in result.of(enforcement)
        if size.overallocation is not None
    ]
    line = vega.layer(
        "line",
        rows,
        {"strokeWidth": 1.6, "point": True},
        x=_MEMORY,
        y=vega.quantity("share", "CPU time used / paid for", scale={"zero": False}),
        tooltip=vega.tips(("mb", "MB", ""), ("share", "used / paid for", ".3f")),
    )
    paid = vega.rule(1.0, "y", color=None, strokeWidth=None)
    return Chart(
        f"share-{enforcement}",
        vega.chart(line, paid, height=240),
        "CPU time used over CPU time allocated for the execution, by memory size",
        "CPU time for what is paid: above 1, more than allocated",
    )


def _off(result: Result, enforcement: str) -> Chart:
    models = list(result.models[enforcement])
    rows = [
        {
            "model": name,
            "mb": size.memory / MIB,
            "off": result.models[enforcement][name][index] / size.mean_ns - 1,
        }
        for name in models
        for index, size in enumerate(result.of(enforcement))
        if not size.whole
    ]
    line = vega.layer(
        "line",
        rows,
        {"strokeWidth": 1.6, "point": {"size": 18}},
        x=_MEMORY,
        y=vega.quantity("off", "model over measured", axis={"format": "+%"}),
        color=vega.colours("model", models, [theme.REFERENCE, *theme.colours(4)[2:]]),
        tooltip=vega.tips(("model", " "), ("mb", "MB", ""), ("off", "off by", "+.1%")),
    )
    return Chart(
        f"off-{enforcement}",
        vega.chart(line, height=240),
        "By how much each model is off at each size",
        "How far off each model is",
    )


def _table(result: Result, enforcement: str) -> Table:
    def ms(name: str, ns: Callable[[Any], float | None], explanation: str = "") -> Column:
        def value(row: Any) -> float | None:
            return None if (time := ns(row)) is None else time / 1e6

        return Column(name, value, figure4, "ms", explanation)

    def model(name: str, values: Sequence[float]) -> Column:
        return ms(name, lambda row: values[row[0]], "Mean duration by this model.")

    return Table(
        [
            Column("memory", lambda row: row[1].memory / MIB, numbers.whole, "MB"),
            Column("requests", lambda row: row[1].rows, count),
            ms("mean", lambda row: row[1].mean_ns, "Mean duration."),
            ms("CPU time", lambda row: None if row[1].cpu is None else float(row[1].cpu.mean())),
            *(model(name, values) for name, values in result.models[enforcement].items()),
            Column(
                "throttled",
                lambda row: None if row[1].throttled is None else row[1].throttled / row[1].rows,
                percent,
                explanation="Share of the requests that were throttled at least once.",
            ),
            Column(
                "used / paid for",
                lambda row: row[1].overallocation,
                figure,
                explanation="CPU time used over CPU time allocated for the execution.",
            ),
        ],
        list(enumerate(result.of(enforcement))),
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
    order = result.enforcements()
    drawn = []
    for name, field, title in (
        ("enforced-share", "share", "CPU time used / paid for"),
        ("enforced-duration", "ms", "duration, ms (logarithmic)"),
    ):
        line = vega.layer(
            "line",
            rows,
            {"strokeWidth": 1.8, "point": {"size": 20}},
            x=_MEMORY,
            y=vega.quantity(
                field, title, scale={"type": "log"} if field == "ms" else {"zero": False}
            ),
            color=vega.colours("who", order),
            tooltip=vega.tips(("who", " "), ("mb", "MB", ""), (field, title, ",.4~r")),
        )
        drawn.append(Chart(name, vega.chart(line, height=260), title, title))
    return Section(
        "enforcement",
        "The kernel's enforcement and event-driven",
        [Row(drawn)],
        "The kernel accounts for CPU time at its ticks; timers that fire when the quota is used up"
        " do so at once.",
    )


def write(result: Result, path: Path) -> Path:
    """Write the page of a run; see `uncia.report.page.write`."""
    return pages.write(page(result), path)
