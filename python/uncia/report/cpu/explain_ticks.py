"""Charts of the chapter on CPU bandwidth control that come from the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final, Literal

import numpy as np

from uncia.bandwidth.simulate import Probe, Setting, Task, simulate
from uncia.profiles.cpu import GCP, IBM, LAMBDA
from uncia.report import theme, vega
from uncia.report.page import Chart
from uncia.report.plots import ecdf
from uncia.units import NS_PER_MS, NS_PER_S

PERIOD: Final = LAMBDA.period_ns
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

# The sizes are those of Figure 12 of the cost paper.
_SOLD: Final = {
    "AWS Lambda, 128 MB": (LAMBDA.period_ns, LAMBDA_QUOTA, LAMBDA.hz),
    "IBM, 0.25 vCPU": (IBM.period_ns, 2_500_000, IBM.hz),
    "Google, 0.08 vCPU": (GCP.period_ns, 8_000_000, GCP.hz),
}


@dataclass(frozen=True)
class Trace:
    """The runs and throttles of a task that never sleeps, in ns since it began.

    Attributes:
        runs: (from, to); the end of the simulation cuts the last one.
        throttles: (from, to) between the runs.
        started: when the task began, on the simulation's clock.
    """

    runs: list[tuple[int, int]]
    throttles: list[tuple[int, int]]
    started: int


def traces(settings: Sequence[Setting], seed: int = 1) -> dict[str, list[Trace]]:
    """Simulate probes; return the traces of each setting's runs, by its name."""
    simulated = simulate(settings, seed)
    gaps: dict[str, list[tuple[int, int]]] = {}
    for row in simulated.spans.select(["invocation", "name", "start", "end"]).to_pylist():
        if row["name"] == "throttle":
            gaps.setdefault(row["invocation"], []).append((row["start"], row["end"]))
    traced: dict[str, list[Trace]] = {setting.name: [] for setting in settings}
    columns = ["function", "invocation", "started", "ended"]
    for row in simulated.invocations.select(columns).to_pylist():
        begun = row["started"]
        throttles = [(a - begun, b - begun) for a, b in sorted(gaps.get(row["invocation"], []))]
        edges = [0, *(edge for pair in throttles for edge in pair), row["ended"] - begun]
        runs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
        traced[row["function"]].append(Trace(runs, throttles, begun))
    return traced


def aligned(cases: Sequence[tuple[int, int, float]], duration: int) -> list[Trace]:
    """Simulate tasks that begin with a period, with a given time until the next tick.

    The seed alone decides when a simulated run begins. A first simulation finds that time, and a
    second one sets refills and ticks relative to it.

    Args:
        cases: quota (ns, in `PERIOD`), ticks a second, and the fraction of a tick between a refill
            and the next tick; 0: they coincide.
        duration: ns.
    """

    def settings(offsets: Sequence[tuple[int, int]]) -> list[Setting]:
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
                zip(cases, offsets, strict=True)
            )
        ]

    first = traces(settings([(0, 0)] * len(cases)))
    offsets = []
    for number, (_, hz, part) in enumerate(cases):
        tick, began = NS_PER_S // hz, first[str(number)][0].started
        offsets.append((began % PERIOD, (began + round(part * tick)) % tick))
    aligned_traces = traces(settings(offsets))
    return [aligned_traces[str(number)][0] for number in range(len(cases))]


def balanced(trace: Trace, quota: int) -> list[tuple[int, int]]:
    """Compute the runtime left over time: (ns since the task began, ns), for a line of points.

    It is the initial quota, plus a quota for each refill since, less the runtime used: the kernel's
    balance for a task that begins with a period and uses every quota up.
    """
    points = [(0, quota)]
    runtime, now = quota, 0
    refill = PERIOD
    for start, end in trace.runs:
        while refill <= start:
            points += [(refill, runtime), (refill, runtime + quota)]
            runtime += quota
            refill += PERIOD
        points.append((start, runtime))
        now = start
        while refill < end:
            runtime -= refill - now
            points += [(refill, runtime), (refill, runtime + quota)]
            runtime, now = runtime + quota, refill
            refill += PERIOD
        runtime -= end - now
        points.append((end, runtime))
    return points


def durations(cpu_ns: int, quotas: Sequence[int], period: int, hz: int) -> list[float]:
    """Simulate the mean duration in ns, for each quota, of a task that begins at any time.

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


def obtained(group: Sequence[Trace]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Compute the CPU times between two throttles of a trace, in ns, ascending."""
    return np.sort(
        np.array(
            [start - end for trace in group for (_, end), (start, _) in pairwise(trace.throttles)],
            dtype=np.int64,
        )
    )


def balance() -> vega.Spec:
    """Draw runs of a task that never sleeps, and its runtime left, for settings to choose."""
    lines: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    chosen = list(product(_QUOTAS.items(), RATES, _PARTS.items()))
    cases = [(quota, hz, part) for (_, quota), hz, (_, part) in chosen]
    group = aligned(cases, 2 * _WINDOW)
    for ((label, quota), hz, (offset, _)), trace in zip(chosen, group, strict=True):
        setting = {"quota": label, "hz": hz, "offset": offset}
        lines += [
            {**setting, "at": at / NS_PER_MS, "left": left / NS_PER_MS, "order": order}
            for order, (at, left) in enumerate(balanced(trace, quota))
            if at <= _WINDOW
        ]
        bars += [
            {
                **setting,
                "from": a / NS_PER_MS,
                "to": min(b, _WINDOW) / NS_PER_MS,
                "ran": (b - a) / NS_PER_MS,
            }
            for a, b in trace.runs
            if a < _WINDOW
        ]
    params = [
        vega.choice("quota", "1.447 ms", "quota ", list(_QUOTAS)),
        vega.choice("hz", 250, "ticks a second ", list(RATES)),
        vega.choice("offset", _AT_TICK, "refills ", list(_PARTS)),
    ]
    selected = "datum.quota == quota && datum.hz == hz && datum.offset == offset"
    scale = {"domain": [0, _WINDOW / NS_PER_MS], "nice": False}
    axis = {
        "values": list(range(0, _WINDOW // NS_PER_MS + 1, PERIOD // NS_PER_MS)),
        "grid": True,
        "gridDash": [2, 3],
        "gridColor": theme.REFERENCE,
        "gridOpacity": 0.7,
    }

    def x(field: str) -> vega.Channel:
        title = "ms after the task began (refills at the dotted lines)"
        return vega.quantity(field, title, scale=scale, axis=axis)

    bar = vega.layer(
        "rect",
        bars,
        {"color": theme.CATEGORIES[0]},
        where=selected,
        x=x("from"),
        x2={"field": "to"},
        y=vega.fixed(0),
        y2=vega.fixed(16),
        tooltip=vega.tips(
            ("from", "runs from, ms", ".2f"),
            ("to", "to, ms", ".2f"),
            ("ran", "CPU time, ms", ".3f"),
        ),
    )
    debt = vega.layer(
        "line",
        lines,
        {"color": theme.CATEGORIES[3], "strokeWidth": 1.8},
        where=selected,
        x=x("at"),
        y=vega.quantity(
            "left",
            "runtime left, ms",
            scale={"zero": True, "nice": False, "padding": 26},
            axis={"tickCount": 6},
        ),
        order=vega.quantity("order"),
        tooltip=vega.tips(("at", "at, ms", ".2f"), ("left", "runtime left, ms", ".3f")),
    )
    zero = vega.rule(0, "y", color=theme.REFERENCE, strokeDash=None, strokeWidth=None)
    return vega.chart(zero, debt, bar, height=300, params=params)


def offsets() -> vega.Spec:
    """Draw the CPU time per run of many groups: timers at ticks, and with random offsets."""
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
    by_setting = traces(settings)
    rows = [
        {"hz": hz, "name": name, "value": value / NS_PER_MS, "share": share}
        for hz in RATES
        for name in names
        for value, share in _curve(obtained(by_setting[f"{hz}/{name}"]))
    ]
    choose = vega.choice("hz", 250, "ticks a second ", list(RATES))
    return _distribution(
        rows, list(names), "CPU time between two throttles, ms", [choose], "datum.hz == hz"
    )


def profiles() -> list[Chart]:
    """Draw simulated profiles: intervals, throttles and CPU times."""
    by_setting = traces(
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
            for value, share in _curve(_profile(by_setting[name], part))
        ]
        charts.append(
            Chart(
                f"profile-{part}",
                _distribution(rows, list(_SOLD), title),
                f"Distribution: {title}",
                {"interval": "Intervals", "throttle": "Throttles", "cpu": "CPU time"}[part]
                + " in a simulated profile",
            )
        )
    return charts


def overrun() -> vega.Spec:
    """Draw the longest run by quota and tick rate: up to a tick longer than the quota.

    The largest quota is the one at which a run with the slowest ticks would reach the next refill.
    """
    quotas = [step * NS_PER_MS // 4 for step in range(4, 41)]
    by_setting = traces(
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
    order = [*(f"{hz} ticks a second" for hz in RATES), exact]
    rows = [
        {
            "name": f"{hz} ticks a second",
            "quota": quota / NS_PER_MS,
            "value": int(obtained(by_setting[f"{hz}/{quota}"])[-1]) / NS_PER_MS,
        }
        for hz in RATES
        for quota in quotas
    ]
    ideal = [{"name": exact, "quota": q / NS_PER_MS, "value": q / NS_PER_MS} for q in quotas]
    shades = [*theme.colours(len(RATES), in_order=True), theme.REFERENCE]
    channels: dict[str, Any] = {
        "x": vega.quantity("quota", "quota in a period of 20 ms, ms", scale={"nice": False}),
        "y": vega.quantity("value", "longest run, ms"),
        "color": vega.colours("name", order, shades, long=True),
        "tooltip": vega.tips(
            ("name", " "), ("quota", "quota, ms", ".2f"), ("value", "longest run, ms", ".2f")
        ),
    }
    # A run of more than n ticks begins just above a quota of n ticks.
    stairs = {"strokeWidth": 2, "interpolate": "step-before"}
    line = {"strokeWidth": 1.6, "strokeDash": vega.DASHED}
    return vega.chart(
        vega.layer("line", ideal, line, **channels),
        vega.layer("line", rows, stairs, **channels),
        height=280,
    )


def _curve(ordered: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[int, float]]:
    points = ecdf(ordered, _POINTS)
    return [(points[0][0], 0.0), *points] if points else []


def _profile(group: Sequence[Trace], part: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Compute the numbers of a profile without the first throttle of each run, ascending, in ns."""
    values: list[int] = []
    for trace in group:
        ends = [end for _, end in trace.throttles]
        lengths = [end - start for start, end in trace.throttles]
        for before, end, length in zip(ends, ends[1:], lengths[1:], strict=False):
            interval = end - before
            values.append(
                {"interval": interval, "throttle": length, "cpu": interval - length}[part]
            )
    return np.sort(np.array(values, dtype=np.int64))


def _distribution(
    rows: vega.Rows,
    order: Sequence[str],
    title: str,
    params: Sequence[vega.Spec] = (),
    where: str = "",
) -> vega.Spec:
    line = vega.layer(
        "line",
        rows,
        {"interpolate": "step-after", "strokeWidth": 2},
        where=where,
        x=vega.quantity(
            "value",
            title,
            scale={"zero": True, "nice": False, "padding": 12},
            axis={"tickCount": 10},
        ),
        y=vega.quantity(
            "share",
            "share",
            scale={"domain": [0, 1]},
            axis={"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]},
        ),
        color=vega.colours("name", order, long=True),
        tooltip=vega.tips(("name", " "), ("value", "ms", ".3f"), ("share", "at most that", ".1%")),
    )
    return vega.chart(line, height=210, params=params)
