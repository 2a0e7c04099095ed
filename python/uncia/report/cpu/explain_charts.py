"""Charts of the chapter on CPU bandwidth control that come from the closed form and the tariffs.

Every setting that a reader can choose was computed beforehand by the models: the page filters, it
does not compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from uncia.bandwidth import closed_form
from uncia.bandwidth.closed_form import Control, control_of_memory, control_of_share
from uncia.bandwidth.cpu_time import constant
from uncia.profiles.cpu import LAMBDA
from uncia.providers import LAMBDA_MB
from uncia.report import theme, vega
from uncia.report.cpu.explain_bills import BURST_TARIFFS, fees_that_pay, memory_bill
from uncia.report.cpu.explain_ticks import durations
from uncia.units import MICRO_PER_VCPU, NS_PER_MS

TASK: Final = 20 * NS_PER_MS
"""CPU time of the first example."""

PYAES: Final = 17_263_000
"""ns: mean duration of the published PyAES function on AWS Lambda at 1769 MB and more."""

STARTS: Final = "begins with a period"
ANYWHERE: Final = "begins anywhere (mean)"
TICKS: Final = "begins anywhere, accounted at ticks (simulated mean)"
RECIPROCAL: Final = "reciprocal (what the share says)"

_TENTH: Final = MICRO_PER_VCPU // 10
_WINDOW_MS: Final = 220


def quota() -> vega.Spec:
    """Draw when a task of 20 ms CPU time runs, for a share, a period and a phase to choose."""
    runs: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    refills: list[dict[str, Any]] = []
    for period_ms in (10, 20, 50, 100):
        period = period_ms * NS_PER_MS
        for quarter in range(4):
            phase = period * quarter // 4
            chosen: dict[str, Any] = {"period": f"{period_ms} ms", "phase": _phase(quarter)}
            refills += [
                {**chosen, "at": at / NS_PER_MS}
                for at in range((period - phase) % period, _WINDOW_MS * NS_PER_MS, period)
            ]
            for tenth in range(1, 11):
                control = control_of_share(period, tenth * _TENTH)
                setting = {**chosen, "share": tenth / 10}
                intervals = closed_form.timeline(control, TASK, phase)
                runs += [
                    {**setting, "from": a / NS_PER_MS, "to": b / NS_PER_MS, "row": "task runs"}
                    for a, b in intervals
                ]
                ends.append(
                    {
                        **setting,
                        "end": intervals[-1][1] / NS_PER_MS,
                        "reciprocal": float(TASK / control.share / NS_PER_MS),
                    }
                )
    params = [
        {
            "name": "share",
            "value": 0.3,
            "bind": {
                "input": "range",
                "min": 0.1,
                "max": 1,
                "step": 0.1,
                "name": "vCPU (quota / period) ",
            },
        },
        vega.choice("period", "20 ms", "period ", ["10 ms", "20 ms", "50 ms", "100 ms"]),
        vega.choice("phase", _phase(0), "task begins ", [_phase(quarter) for quarter in range(4)]),
    ]
    matches = "datum.period == period && datum.phase == phase"
    selected = f"{matches} && abs(datum.share - share) < 0.01"
    scale = {"domain": [0, _WINDOW_MS], "nice": False}
    axis = {"grid": False, "tickCount": 10}
    refill = vega.layer(
        "rule",
        refills,
        {"color": theme.REFERENCE, "strokeDash": [2, 3], "opacity": 0.8},
        where=matches,
        x=vega.quantity("at", scale=scale),
    )
    bar = vega.layer(
        "bar",
        runs,
        {"height": 34, "color": theme.CATEGORIES[0], "minBandSize": 1},
        where=selected,
        x=vega.quantity("from", "ms after the task began", scale=scale, axis=axis),
        x2={"field": "to"},
        y=vega.names("row", axis={"domain": False}),
        tooltip=vega.tips(("from", "from, ms", ".2f"), ("to", "to, ms", ".2f")),
    )
    captions: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("done after", "end", {"fontWeight": 600}),
        ("by the share alone:", "reciprocal", {}),
    )
    texts = [
        vega.layer(
            "text",
            ends,
            {"align": "left", "baseline": "top", "y": 4 + 17 * line, "fontSize": 13, **weight},
            where=selected,
            transform=[
                {
                    "calculate": f"'{before} ' + format(datum.{field}, '.1f') + ' ms'",
                    "as": "words",
                }
            ],
            x=vega.fixed(8),
            text={"field": "words", "type": "nominal"},
        )
        for line, (before, field, weight) in enumerate(captions)
    ]
    return vega.chart(refill, bar, *texts, height=150, params=params)


def steps() -> vega.Spec:
    """Draw durations over memory on AWS Lambda: closed form, simulator and reciprocal."""
    needs = (5_000_000, 10_000_000, PYAES, 30_000_000, 51_800_000)
    exact: list[dict[str, Any]] = []
    mean: list[dict[str, Any]] = []
    simulated: list[dict[str, Any]] = []
    ideal: list[dict[str, Any]] = []
    for need in needs:
        cpu, label = constant(need), _need(need)
        smallest = control_of_memory(LAMBDA.period_ns, LAMBDA.min_size, LAMBDA_MB).quota_ns
        memory_mb = set(range(LAMBDA.min_size, LAMBDA_MB + 1, 20)) | {LAMBDA_MB}
        quotas = {LAMBDA.period_ns * mb // LAMBDA_MB for mb in memory_mb}
        jumps = closed_form.jumps(LAMBDA.period_ns, [need], smallest, LAMBDA.period_ns)[0]
        edges = {jump.quota_ns - offset for jump in jumps for offset in (0, 1)} | {
            smallest,
            LAMBDA.period_ns,
        }
        controls = [Control(LAMBDA.period_ns, quota) for quota in sorted(edges | quotas)]
        exact += [_point(row, label) for row in closed_form.sweep(controls, cpu)]
        mean += [_point(row, label) for row in closed_form.sweep(controls, cpu, "random")]
        ordered = sorted(quotas)
        simulated += [
            {
                "need": label,
                "size": round(quota * LAMBDA_MB / LAMBDA.period_ns, 4),
                "value": round(value / NS_PER_MS, 5),
            }
            for quota, value in zip(
                ordered, durations(need, ordered, LAMBDA.period_ns, LAMBDA.hz), strict=True
            )
        ]
        ideal += [
            {"need": label, "size": mb, "value": need * LAMBDA_MB / mb / NS_PER_MS}
            for mb in sorted(memory_mb)
        ]
    choose = vega.choice("need", _need(PYAES), "CPU time ", [_need(need) for need in needs])
    return _series(
        {STARTS: exact, ANYWHERE: mean, TICKS: simulated, RECIPROCAL: ideal},
        choose,
        "duration, ms",
        "need",
    )


def bill() -> vega.Spec:
    """Draw the cost of a million requests over memory, under AWS Lambda's tariff."""
    memory_mb = set(range(LAMBDA.min_size, LAMBDA_MB + 1, 4))
    for jump in closed_form.jumps(LAMBDA.period_ns, [PYAES], 1, LAMBDA.period_ns)[0]:
        size = jump.memory_mb(LAMBDA_MB)
        memory_mb |= {size - 1, size} if size > LAMBDA.min_size else set()
    sizes = sorted(memory_mb)
    controls = [control_of_memory(LAMBDA.period_ns, size, LAMBDA_MB) for size in sizes]
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
    return _series(series, None, "USD a million requests", None, log=False)


def bursts() -> vega.Spec:
    """Draw the fee below which a task is cheaper in bursts that fit the quota, and real fees."""
    rows: list[dict[str, Any]] = []
    fees: list[dict[str, Any]] = []
    shares = range(6, 100)
    for name, platform in BURST_TARIFFS.items():
        micro = [share * MICRO_PER_VCPU // 100 for share in shares]
        for share, burst in zip(shares, fees_that_pay(name, platform, micro), strict=True):
            if burst is not None:
                rows.append(
                    {
                        "tariff": name,
                        "share": share / 100,
                        "value": float(burst.fee * 10**6),
                        "saved": float(burst.saved),
                    }
                )
        fees.append({"tariff": name, "value": float(invocation_fee(name) * 10**6)})
    colour = vega.colours("tariff", list(BURST_TARIFFS))
    shown = [row for row in rows if row["value"] > 0]
    y = vega.quantity(
        "value",
        "fee, USD a million",
        **vega.logarithmic((row["value"] for row in (*rows, *fees)), padding=10),
    )
    line = vega.layer(
        "line",
        shown,
        {"strokeWidth": 2},
        x=vega.quantity(
            "share", "vCPU (quota / period)", scale={"domain": [0.05, 1], "nice": False}
        ),
        y=y,
        color=colour,
        tooltip=vega.tips(
            ("tariff",),
            ("share", "vCPU", ".2f"),
            ("value", "pays below, USD a million", ",.3~r"),
            ("saved", "billed time saved", ".0%"),
        ),
    )
    dashed = vega.layer(
        "rule", fees, {"strokeDash": vega.DASHED, "strokeWidth": 1.6}, y=y, color=colour
    )
    return vega.chart(line, dashed, height=260)


def invocation_fee(tariff: str) -> Fraction:
    """Look up the invocation fee of a tariff, in USD."""
    from uncia.tariffs import catalogue

    return Fraction(catalogue.get(tariff).fee.price or 0)


def _series(
    series: Mapping[str, Sequence[Mapping[str, Any]]],
    choose: Any,
    title: str,
    field: str | None,
    *,
    log: bool = True,
) -> vega.Spec:
    """Draw named curves over memory, the last one dashed in grey."""
    order = list(series)
    colour = vega.colours(
        "name", order, [*theme.colours(len(order) - 1), theme.REFERENCE], long=True
    )
    x = vega.quantity(
        "size",
        "memory, MB",
        scale={"domain": [LAMBDA.min_size, LAMBDA_MB], "nice": False},
        axis={"tickCount": 8},
    )
    y = vega.quantity(
        "value", title, scale={"zero": False}, axis={"format": vega.PLAIN, "tickCount": 5}
    )
    if log:
        y |= vega.logarithmic((row["value"] for rows in series.values() for row in rows), padding=8)
    plain: dict[str, Any] = {"strokeWidth": 2}
    layers = [
        vega.layer(
            "line",
            [{**row, "name": name} for row in rows],
            {"strokeDash": vega.DASHED, "strokeWidth": 1.6} if name == order[-1] else plain,
            where="" if field is None else f"datum.{field} == {field}",
            x=x,
            y=y,
            color=colour,
            tooltip=vega.tips(("name", " "), ("size", "MB", ",.0f"), ("value", title, ",.4~r")),
        )
        for name, rows in series.items()
    ]
    return vega.chart(*layers, height=320, params=[] if choose is None else [choose])


def _point(row: closed_form.Expected, label: str) -> dict[str, Any]:
    return {
        "need": label,
        "size": round(float(row.control.share * LAMBDA_MB), 4),
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
