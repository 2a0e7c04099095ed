"""Charts of the chapter on CPU bandwidth control that come from the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final, Literal

import altair as alt
import numpy as np

from uncia.bandwidth.simulate import Probe, Setting, Task, simulate
from uncia.report import theme
from uncia.report.charts import Spec, ecdf, inline
from uncia.report.cost.marks import finish
from uncia.report.page import Chart
from uncia.units import NS_PER_MS, NS_PER_S

PERIOD: Final = 20 * NS_PER_MS
LAMBDA_QUOTA: Final = 1_447_000
RATES: Final = (100, 250, 1000)

_WINDOW: Final = 260 * NS_PER_MS
_QUOTAS: Final = {"1.447 ms": LAMBDA_QUOTA, "3 ms": 3_000_000, "5 ms": 5_000_000, "8 ms": 8_000_000}
_AT_TICK: Final = "at a tick (to Linux 6.3)"
_BEFORE_TICK: Final = "0.6 of a tick before one (one group since 6.4)"
_PARTS: Final = {_AT_TICK: 0.0, _BEFORE_TICK: 0.6}
_POINTS: Final = 120
_GROUPS: Final = 150
_TASKS: Final = 120

# Table 3 of the cost paper says periods and tick rates; the sizes are those of its Figure 12.
_SOLD: Final = {
    "AWS Lambda, 128 MB": (20_000_000, LAMBDA_QUOTA, 250),
    "IBM, 0.25 vCPU": (10_000_000, 2_500_000, 250),
    "Google, 0.08 vCPU": (100_000_000, 8_000_000, 1000),
}


@dataclass(frozen=True)
class Trace:
    """What a task that never sleeps went through, in ns since it began.

    Attributes:
        runs: (from, to), the last one cut where the simulation ended.
        throttles: (from, to) between them.
        started: when it began, on the simulation's clock.
    """

    runs: list[tuple[int, int]]
    throttles: list[tuple[int, int]]
    started: int


def traces(settings: Sequence[Setting], seed: int = 1) -> dict[str, list[Trace]]:
    """Simulate probes: for each setting's name, a trace a run."""
    found = simulate(settings, seed)
    gaps: dict[str, list[tuple[int, int]]] = {}
    for row in found.spans.select(["invocation", "name", "start", "end"]).to_pylist():
        if row["name"] == "throttle":
            gaps.setdefault(row["invocation"], []).append((row["start"], row["end"]))
    traced: dict[str, list[Trace]] = {setting.name: [] for setting in settings}
    columns = ["function", "invocation", "started", "ended"]
    for row in found.invocations.select(columns).to_pylist():
        begun = row["started"]
        throttles = [(a - begun, b - begun) for a, b in sorted(gaps.get(row["invocation"], []))]
        edges = [0, *(edge for pair in throttles for edge in pair), row["ended"] - begun]
        runs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
        traced[row["function"]].append(Trace(runs, throttles, begun))
    return traced


def aligned(cases: Sequence[tuple[int, int, float]], duration: int) -> list[Trace]:
    """Traces of tasks that begin with a period, the next tick so many parts of a tick later.

    Where on its clock a simulated run begins is drawn from the seed alone; once that is known, the
    refills and the ticks are set to it.

    Args:
        cases: quota (ns, in `PERIOD`), ticks a second, and the part of a tick from a refill to the
            next tick; 0: they coincide.
        duration: ns.
    """

    def settings(places: Sequence[tuple[int, int]]) -> list[Setting]:
        return [
            Setting(
                name=str(number),
                period_ns=PERIOD,
                quota_ns=quota,
                hz=hz,
                tick_offset_ns=ticks,
                timer={"offset": offset},
                work=Probe(duration_ns=duration, threshold_ns=1),
            )
            for number, ((quota, hz, _), (offset, ticks)) in enumerate(
                zip(cases, places, strict=True)
            )
        ]

    found = traces(settings([(0, 0)] * len(cases)))
    places = []
    for number, (_, hz, part) in enumerate(cases):
        tick, began = NS_PER_S // hz, found[str(number)][0].started
        places.append((began % PERIOD, (began + round(part * tick)) % tick))
    found = traces(settings(places))
    return [found[str(number)][0] for number in range(len(cases))]


def balanced(trace: Trace, quota: int) -> list[tuple[int, int]]:
    """The runtime left over time: (ns since the task began, ns), for lines between the points.

    The quota at the beginning, plus one for each refill since, less what was used. It is the
    kernel's own balance for a task that begins with a period and leaves nothing of any quota.
    """
    points = [(0, quota)]
    left, now = quota, 0
    refill = PERIOD
    for start, end in trace.runs:
        while refill <= start:
            points += [(refill, left), (refill, left + quota)]
            left += quota
            refill += PERIOD
        points.append((start, left))
        now = start
        while refill < end:
            left -= refill - now
            points += [(refill, left), (refill, left + quota)]
            left, now = left + quota, refill
            refill += PERIOD
        left -= end - now
        points.append((end, left))
    return points


def durations(cpu_ns: int, quotas: Sequence[int], period: int, hz: int) -> list[float]:
    """Mean durations in ns of a task that begins anywhere, for each quota, accounted at ticks.

    Refills are at ticks, and the task sleeps for more than three periods before it begins.
    """
    settings = [
        Setting(
            name=str(quota),
            period_ns=period,
            quota_ns=quota,
            hz=hz,
            runs=_TASKS,
            work=Task(cpu_ns=[cpu_ns]),
        )
        for quota in quotas
    ]
    rows = simulate(settings, 1).invocations.select(["function", "execution"])
    sums = dict.fromkeys(map(str, quotas), 0)
    for row in rows.to_pylist():
        sums[row["function"]] += row["execution"]
    return [sums[str(quota)] / _TASKS for quota in quotas]


def obtained(found: Sequence[Trace]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """CPU time between two throttles of a trace, in ns, ascending."""
    return np.sort(
        np.array(
            [start - end for trace in found for (_, end), (start, _) in pairwise(trace.throttles)],
            dtype=np.int64,
        )
    )


def balance() -> Spec:
    """Runs of a task that never sleeps, and its runtime left; quota, rate and offset to choose."""
    lines: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    chosen = list(product(_QUOTAS.items(), RATES, _PARTS.items()))
    cases = [(quota, hz, part) for (_, quota), hz, (_, part) in chosen]
    found = aligned(cases, 2 * _WINDOW)
    for ((words, quota), hz, (offset, _)), trace in zip(chosen, found, strict=True):
        own = {"quota": words, "hz": hz, "offset": offset}
        lines += [
            {**own, "at": at / NS_PER_MS, "left": left / NS_PER_MS, "order": order}
            for order, (at, left) in enumerate(balanced(trace, quota))
            if at <= _WINDOW
        ]
        bars += [
            {
                **own,
                "from": a / NS_PER_MS,
                "to": min(b, _WINDOW) / NS_PER_MS,
                "ran": (b - a) / NS_PER_MS,
            }
            for a, b in trace.runs
            if a < _WINDOW
        ]
    params = [
        alt.param(
            name="quota",
            value="1.447 ms",
            bind=alt.binding_select(options=list(_QUOTAS), name="quota "),
        ),
        alt.param(
            name="hz",
            value=250,
            bind=alt.binding_select(options=list(RATES), name="ticks a second "),
        ),
        alt.param(
            name="offset",
            value=_AT_TICK,
            bind=alt.binding_select(options=list(_PARTS), name="refills "),
        ),
    ]
    here = "datum.quota == quota && datum.hz == hz && datum.offset == offset"
    axis: dict[str, Any] = {
        "title": "ms after the task began (refills at the dotted lines)",
        "scale": alt.Scale(domain=[0, _WINDOW / NS_PER_MS], nice=False),
        "axis": alt.Axis(
            values=list(range(0, _WINDOW // NS_PER_MS + 1, PERIOD // NS_PER_MS)),
            grid=True,
            gridDash=[2, 3],
            gridColor=theme.REFERENCE,
            gridOpacity=0.7,
        ),
    }
    bar = (
        alt.Chart(inline(bars))
        .transform_filter(here)
        .mark_rect(color=theme.CATEGORIES[0])
        .encode(
            x=alt.X("from:Q", **axis),
            x2="to:Q",
            y=alt.value(0),
            y2=alt.value(16),
            tooltip=[
                alt.Tooltip("from:Q", title="runs from, ms", format=".2f"),
                alt.Tooltip("to:Q", title="to, ms", format=".2f"),
                alt.Tooltip("ran:Q", title="CPU time, ms", format=".3f"),
            ],
        )
    )
    left = alt.Y(
        "left:Q",
        title="runtime left, ms",
        scale=alt.Scale(zero=True, nice=False, padding=26),
        axis=alt.Axis(tickCount=6),
    )
    debt = (
        alt.Chart(inline(lines))
        .transform_filter(here)
        .mark_line(color=theme.CATEGORIES[3], strokeWidth=1.8)
        .encode(
            x=alt.X("at:Q", **axis),
            y=left,
            order="order:Q",
            tooltip=[
                alt.Tooltip("at:Q", title="at, ms", format=".2f"),
                alt.Tooltip("left:Q", title="runtime left, ms", format=".3f"),
            ],
        )
    )
    zero = (
        alt.Chart(inline([{"zero": 0}])).mark_rule(color=theme.REFERENCE).encode(y=alt.Y("zero:Q"))
    )
    return finish(alt.layer(zero, debt, bar).add_params(*params), 300)


def offsets() -> Spec:
    """CPU time obtained in a run of many groups: timers at ticks, and with random offsets."""
    names: dict[str, Literal["absolute", "random"]] = {
        _AT_TICK: "absolute",
        "random offset (since 6.4)": "random",
    }
    settings = [
        Setting(
            name=f"{hz}/{name}",
            period_ns=PERIOD,
            quota_ns=LAMBDA_QUOTA,
            hz=hz,
            timer=timer,
            runs=_GROUPS,
            work=Probe(duration_ns=NS_PER_S),
        )
        for hz in RATES
        for name, timer in names.items()
    ]
    found = traces(settings)
    rows = [
        {"hz": hz, "name": name, "value": value / NS_PER_MS, "share": share}
        for hz in RATES
        for name in names
        for value, share in _curve(obtained(found[f"{hz}/{name}"]))
    ]
    choose = alt.param(
        name="hz",
        value=250,
        bind=alt.binding_select(options=list(RATES), name="ticks a second "),
    )
    return _distribution(
        rows, list(names), "CPU time between two throttles, ms", choose, "datum.hz == hz"
    )


def profiles() -> list[Chart]:
    """What the probe sees, simulated: intervals, throttles and CPU times."""
    found = traces(
        [
            Setting(
                name=name,
                period_ns=period,
                quota_ns=quota,
                hz=hz,
                runs=8,
                work=Probe(duration_ns=5 * NS_PER_S),
            )
            for name, (period, quota, hz) in _SOLD.items()
        ]
    )
    charts = []
    for part, title in (
        ("interval", "from the end of a throttle to that of the next, ms"),
        ("throttle", "length of a throttle, ms"),
        ("cpu", "CPU time between two throttles, ms"),
    ):
        rows = [
            {"name": name, "value": value / NS_PER_MS, "share": share}
            for name in _SOLD
            for value, share in _curve(_profile(found[name], part))
        ]
        charts.append(
            Chart(
                f"profile-{part}",
                _distribution(rows, list(_SOLD), title, None, None),
                f"Distribution: {title}",
                {"interval": "Intervals", "throttle": "Throttles", "cpu": "CPU time"}[part]
                + " in a simulated profile",
            )
        )
    return charts


def overrun() -> Spec:
    """The longest run by quota and tick rate: up to a tick longer than the quota.

    Quotas end where a run of the slowest ticks would reach the next refill, and go on with it.
    """
    quotas = [step * NS_PER_MS // 4 for step in range(4, 41)]
    found = traces(
        [
            Setting(
                name=f"{hz}/{quota}",
                period_ns=PERIOD,
                quota_ns=quota,
                hz=hz,
                work=Probe(duration_ns=2 * NS_PER_S),
            )
            for hz in RATES
            for quota in quotas
        ]
    )
    exact = "event-driven (the quota itself)"
    names = [*(f"{hz} ticks a second" for hz in RATES), exact]
    rows = [
        {
            "name": f"{hz} ticks a second",
            "quota": quota / NS_PER_MS,
            "value": int(obtained(found[f"{hz}/{quota}"])[-1]) / NS_PER_MS,
        }
        for hz in RATES
        for quota in quotas
    ]
    ideal = [{"name": exact, "quota": q / NS_PER_MS, "value": q / NS_PER_MS} for q in quotas]
    colours = [*theme.colours(len(RATES), in_order=True), theme.REFERENCE]
    encoding: dict[str, Any] = {
        "x": alt.X("quota:Q", title="quota in a period of 20 ms, ms", scale=alt.Scale(nice=False)),
        "y": alt.Y("value:Q", title="longest run, ms"),
        "color": alt.Color(
            "name:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=colours),
            legend=alt.Legend(labelLimit=0),
        ),
        "tooltip": [
            alt.Tooltip("name:N", title=" "),
            alt.Tooltip("quota:Q", title="quota, ms", format=".2f"),
            alt.Tooltip("value:Q", title="longest run, ms", format=".2f"),
        ],
    }
    # A run of more than n ticks begins just above a quota of n ticks.
    stairs = alt.Chart(inline(rows)).mark_line(strokeWidth=2, interpolate="step-before")
    line = alt.Chart(inline(ideal)).mark_line(strokeWidth=1.6, strokeDash=[5, 4])
    chart = alt.layer(line.encode(**encoding), stairs.encode(**encoding))
    return finish(chart, 280, legend=names)


def _curve(ordered: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[int, float]]:
    points = ecdf(ordered, _POINTS)
    return [(points[0][0], 0.0), *points] if points else []


def _profile(found: Sequence[Trace], part: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of a profile: of each throttle but the first of a run, ascending, ns."""
    values: list[int] = []
    for trace in found:
        ends = [end for _, end in trace.throttles]
        lengths = [end - start for start, end in trace.throttles]
        for before, end, length in zip(ends, ends[1:], lengths[1:], strict=False):
            interval = end - before
            values.append(
                {"interval": interval, "throttle": length, "cpu": interval - length}[part]
            )
    return np.sort(np.array(values, dtype=np.int64))


def _distribution(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    title: str,
    choose: Any,
    condition: str | None,
) -> Spec:
    chart = alt.Chart(inline(rows))
    if condition is not None:
        chart = chart.transform_filter(condition)
    line = chart.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=alt.X(
            "value:Q",
            title=title,
            scale=alt.Scale(zero=True, nice=False, padding=12),
            axis=alt.Axis(tickCount=10),
        ),
        y=alt.Y(
            "share:Q",
            title="share",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        ),
        color=alt.Color(
            "name:N",
            title=None,
            sort=list(names),
            scale=alt.Scale(domain=list(names), range=theme.colours(len(names))),
            legend=alt.Legend(labelLimit=0),
        ),
        tooltip=[
            alt.Tooltip("name:N", title=" "),
            alt.Tooltip("value:Q", title="ms", format=".3f"),
            alt.Tooltip("share:Q", title="at most that", format=".1%"),
        ],
    )
    return finish(line if choose is None else line.add_params(choose), 210, legend=names)
