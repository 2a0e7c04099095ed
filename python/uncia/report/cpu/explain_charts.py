"""Charts of the chapter on CPU bandwidth control that come from the closed form and the tariffs.

What can be set in a chart is chosen among settings that were computed beforehand, by the models
themselves: the page filters, it does not compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import altair as alt

from uncia.bandwidth import closed_form
from uncia.bandwidth.closed_form import Control, control_of_memory, control_of_share
from uncia.bandwidth.cpu_time import constant
from uncia.report import charts, theme
from uncia.report.charts import Spec, inline
from uncia.report.cost.marks import finish
from uncia.report.cpu.explain_bills import BURST_TARIFFS, fees_that_pay, memory_bill
from uncia.report.cpu.explain_ticks import durations
from uncia.units import MICRO_PER_VCPU, NS_PER_MS

TASK: Final = 20 * NS_PER_MS
"""CPU time of the first example."""

LAMBDA: Final = closed_form.PLATFORMS["aws"]
WHOLE_MB: Final = 1769

PYAES: Final = 17_263_000
"""ns: mean duration of the published PyAES function on AWS Lambda at 1769 MB and more."""

STARTS: Final = "begins with a period"
ANYWHERE: Final = "begins anywhere (mean)"
TICKS: Final = "begins anywhere, accounted at ticks (simulated mean)"
RECIPROCAL: Final = "reciprocal (what the share says)"

_LAMBDA_HZ: Final = 250
_TENTH: Final = MICRO_PER_VCPU // 10
_MOST_MS: Final = 220


def quota() -> Spec:
    """A task of 20 ms CPU time: when it runs, for a share, a period and a phase to choose."""
    runs: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    refills: list[dict[str, Any]] = []
    for period_ms in (10, 20, 50, 100):
        period = period_ms * NS_PER_MS
        for quarter in range(4):
            phase = period * quarter // 4
            own: dict[str, Any] = {"period": f"{period_ms} ms", "phase": _phase(quarter)}
            refills += [
                {**own, "at": at / NS_PER_MS}
                for at in range((period - phase) % period, _MOST_MS * NS_PER_MS, period)
            ]
            for tenth in range(1, 11):
                control = control_of_share(period, tenth * _TENTH)
                setting = {**own, "share": tenth / 10}
                found = closed_form.timeline(control, TASK, phase)
                runs += [
                    {**setting, "from": a / NS_PER_MS, "to": b / NS_PER_MS, "row": "task runs"}
                    for a, b in found
                ]
                ends.append(
                    {
                        **setting,
                        "end": found[-1][1] / NS_PER_MS,
                        "reciprocal": float(TASK / control.share / NS_PER_MS),
                    }
                )
    params = [
        alt.param(
            name="share",
            value=0.3,
            bind=alt.binding_range(min=0.1, max=1, step=0.1, name="vCPU (quota / period) "),
        ),
        alt.param(
            name="period",
            value="20 ms",
            bind=alt.binding_select(options=["10 ms", "20 ms", "50 ms", "100 ms"], name="period "),
        ),
        alt.param(
            name="phase",
            value=_phase(0),
            bind=alt.binding_select(options=[_phase(n) for n in range(4)], name="task begins "),
        ),
    ]
    same = "datum.period == period && datum.phase == phase"
    here = f"{same} && abs(datum.share - share) < 0.01"
    x = alt.X(
        "from:Q",
        title="ms after the task began",
        scale=alt.Scale(domain=[0, _MOST_MS], nice=False),
        axis=alt.Axis(grid=False, tickCount=10),
    )
    refill = (
        alt.Chart(inline(refills))
        .transform_filter(same)
        .mark_rule(color=theme.REFERENCE, strokeDash=[2, 3], opacity=0.8)
        .encode(x=alt.X("at:Q", scale=alt.Scale(domain=[0, _MOST_MS], nice=False)))
    )
    bar = (
        alt.Chart(inline(runs))
        .transform_filter(here)
        .mark_bar(height=34, color=theme.CATEGORIES[0], minBandSize=1)
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("row:N", title=None, axis=alt.Axis(domain=False)),
            tooltip=[
                alt.Tooltip("from:Q", title="from, ms", format=".2f"),
                alt.Tooltip("to:Q", title="to, ms", format=".2f"),
            ],
        )
    )
    said: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("done after", "end", {"fontWeight": 600}),
        ("by the share alone:", "reciprocal", {}),
    )
    words = [
        alt.Chart(inline(ends))
        .transform_filter(here)
        .transform_calculate(words=f"'{before} ' + format(datum.{field}, '.1f') + ' ms'")
        .mark_text(align="left", baseline="top", y=4 + 17 * line, fontSize=13, **weight)
        .encode(x=alt.value(8), text="words:N")
        for line, (before, field, weight) in enumerate(said)
    ]
    return finish(alt.layer(refill, bar, *words).add_params(*params), 150, labels=("task runs",))


def steps() -> Spec:
    """A function on AWS Lambda over its memory: the closed form, the simulator, the reciprocal."""
    needs = (5_000_000, 10_000_000, PYAES, 30_000_000, 51_800_000)
    exact: list[dict[str, Any]] = []
    mean: list[dict[str, Any]] = []
    simulated: list[dict[str, Any]] = []
    ideal: list[dict[str, Any]] = []
    for need in needs:
        cpu, words = constant(need), _need(need)
        least = control_of_memory(LAMBDA.period_ns, LAMBDA.least, WHOLE_MB).quota_ns
        places = set(range(LAMBDA.least, WHOLE_MB + 1, 20)) | {WHOLE_MB}
        quotas = {LAMBDA.period_ns * place // WHOLE_MB for place in places}
        found = closed_form.jumps(LAMBDA.period_ns, [need], least, LAMBDA.period_ns)[0]
        edges = {one.quota_ns - less for one in found for less in (0, 1)} | {
            least,
            LAMBDA.period_ns,
        }
        for rows, phase, chosen in (
            (exact, 0, edges | quotas),
            (mean, "random", edges | quotas),
        ):
            controls = [Control(LAMBDA.period_ns, one) for one in sorted(chosen)]
            for row in closed_form.sweep(controls, cpu, 0 if phase == 0 else "random"):
                rows.append(_point(row, words))
        own = sorted(quotas)
        simulated += [
            {
                "need": words,
                "size": round(quota * WHOLE_MB / LAMBDA.period_ns, 4),
                "value": round(value / NS_PER_MS, 5),
            }
            for quota, value in zip(
                own, durations(need, own, LAMBDA.period_ns, _LAMBDA_HZ), strict=True
            )
        ]
        ideal += [
            {
                "need": words,
                "size": place,
                "value": need * WHOLE_MB / place / NS_PER_MS,
            }
            for place in sorted(places)
        ]
    choose = alt.param(
        name="need",
        value=_need(PYAES),
        bind=alt.binding_select(options=[_need(need) for need in needs], name="CPU time "),
    )
    return _series(
        {STARTS: exact, ANYWHERE: mean, TICKS: simulated, RECIPROCAL: ideal},
        choose,
        "duration, ms",
        "need",
    )


def bill() -> Spec:
    """What a million requests of the function cost over its memory: AWS Lambda's tariff."""
    places = set(range(LAMBDA.least, WHOLE_MB + 1, 4))
    for jump in closed_form.jumps(LAMBDA.period_ns, [PYAES], 1, LAMBDA.period_ns)[0]:
        size = jump.memory_mb(WHOLE_MB)
        places |= {size - 1, size} if size > LAMBDA.least else set()
    sizes = sorted(places)
    controls = [control_of_memory(LAMBDA.period_ns, size, WHOLE_MB) for size in sizes]
    rows = closed_form.sweep(controls, constant(PYAES))
    series: dict[str, list[dict[str, Any]]] = {STARTS: [], RECIPROCAL: []}
    for size, row in zip(sizes, rows, strict=True):
        for name, duration in ((STARTS, row.mean_ns), (RECIPROCAL, row.reciprocal_ns)):
            series[name].append(
                {
                    "size": size,
                    "value": float(memory_bill("aws-lambda-x86", size, duration) * 10**6),
                    "factor": None,
                }
            )
    return _series(series, None, "USD a million requests", None, logarithmic=False)


def bursts() -> Spec:
    """The fee below which a task is cheaper in bursts that each fit the quota, and the fees."""
    rows: list[dict[str, Any]] = []
    fees: list[dict[str, Any]] = []
    shares = range(6, 100)
    for name, platform in BURST_TARIFFS.items():
        micro = [share * MICRO_PER_VCPU // 100 for share in shares]
        for share, found in zip(shares, fees_that_pay(name, platform, micro), strict=True):
            if found is not None:
                rows.append(
                    {
                        "tariff": name,
                        "share": share / 100,
                        "value": float(found.fee * 10**6),
                        "saved": float(found.saved),
                    }
                )
        fees.append({"tariff": name, "value": float(found_fee(name) * 10**6)})
    names = list(BURST_TARIFFS)
    colour = alt.Color(
        "tariff:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=theme.colours(len(names))),
    )
    values = [row["value"] for row in (*rows, *fees) if row["value"] > 0]
    y = alt.Y(
        "value:Q",
        title="fee, USD a million",
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(format=",~g", values=charts.log_ticks(min(values), max(values))),
    )
    line = (
        alt.Chart(inline([row for row in rows if row["value"] > 0]))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X(
                "share:Q",
                title="vCPU (quota / period)",
                scale=alt.Scale(domain=[0.05, 1], nice=False),
            ),
            y=y,
            color=colour,
            tooltip=[
                alt.Tooltip("tariff:N"),
                alt.Tooltip("share:Q", title="vCPU", format=".2f"),
                alt.Tooltip("value:Q", title="pays below, USD a million", format=",.3~g"),
                alt.Tooltip("saved:Q", title="billed time saved", format=".0%"),
            ],
        )
    )
    rule = (
        alt.Chart(inline(fees))
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.6)
        .encode(y=y, color=colour)
    )
    return finish(alt.layer(line, rule), 260, legend=names)


def found_fee(tariff: str) -> Fraction:
    """The invocation fee of a tariff in USD."""
    from uncia.tariffs import catalogue

    return Fraction(catalogue.get(tariff).fee.price or 0)


def _series(
    series: Mapping[str, Sequence[Mapping[str, Any]]],
    choose: Any,
    title: str,
    field: str | None,
    *,
    logarithmic: bool = True,
) -> Spec:
    """Curves over memory by name; the reciprocal, and whatever comes last, dashed in grey."""
    names = list(series)
    colours = [*theme.colours(len(names) - 1), theme.REFERENCE]
    colour = alt.Color(
        "name:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(labelLimit=0),
    )
    values = [row["value"] for rows in series.values() for row in rows]
    ticks: dict[str, Any] = {"tickCount": 5}
    scale = alt.Scale(zero=False)
    if logarithmic:
        ticks = {"values": charts.log_ticks(min(values), max(values))}
        scale = alt.Scale(type="log", nice=False, padding=8)
    layers = []
    for name, rows in series.items():
        chart = alt.Chart(inline([{**row, "name": name} for row in rows]))
        if field is not None:
            chart = chart.transform_filter(f"datum.{field} == {field}")
        style: dict[str, Any] = (
            {"strokeDash": [5, 4], "strokeWidth": 1.6} if name == names[-1] else {"strokeWidth": 2}
        )
        layers.append(
            chart.mark_line(**style).encode(
                x=alt.X(
                    "size:Q",
                    title="memory, MB",
                    scale=alt.Scale(domain=[LAMBDA.least, WHOLE_MB], nice=False),
                    axis=alt.Axis(tickCount=8),
                ),
                y=alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format=",~g", **ticks)),
                color=colour,
                tooltip=[
                    alt.Tooltip("name:N", title=" "),
                    alt.Tooltip("size:Q", title="MB", format=",.0f"),
                    alt.Tooltip("value:Q", title=title, format=",.4~g"),
                ],
            )
        )
    whole = alt.layer(*layers)
    return finish(whole if choose is None else whole.add_params(choose), 320, legend=names)


def _point(row: closed_form.Expected, words: str) -> dict[str, Any]:
    return {
        "need": words,
        "size": round(float(row.control.share * WHOLE_MB), 4),
        "value": round(float(row.mean_ns / NS_PER_MS), 5),
    }


def _need(ns: int) -> str:
    return f"{ns / NS_PER_MS:.4g} ms"


def _phase(quarter: int) -> str:
    return (
        "with a period",
        "a quarter into a period",
        "half into a period",
        "three quarters into a period",
    )[quarter]
