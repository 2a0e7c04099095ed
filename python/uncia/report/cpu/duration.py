"""The section on the closed form: durations, the reciprocal beside them, and the jumps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import altair as alt

from uncia.bandwidth.closed_form import (
    Control,
    Expected,
    Jump,
    Phase,
    control_of_quota,
    jumps,
    sweep,
)
from uncia.bandwidth.cpu_time import CpuTime
from uncia.bandwidth.sizes import vcpu_text
from uncia.report import charts, numbers, theme
from uncia.report.charts import MAX_POINTS, Spec, inline
from uncia.report.cost.marks import finish
from uncia.report.page import Block, Chart, Section, Table
from uncia.units import NS_PER_MS, format_duration

RECIPROCAL: Final = "reciprocal"
"""Name of the curve that the share alone would give."""

_LINEAR: Final = 40
"""Points between jumps where the curve is linear: for the pointer and the logarithmic axis."""


def section(
    rows: Sequence[Expected],
    found: Sequence[Jump],
    cpu: CpuTime,
    phase: Phase,
    whole_mb: int | None,
) -> Section:
    """Chart and tables of a sweep.

    Args:
        rows: what `uncia.bandwidth.closed_form.sweep` returns.
        found: the jumps of the median CPU time, of all periods.
        cpu: the CPU time.
        phase: where the task begins.
        whole_mb: the memory that a whole vCPU comes with, if sizes are of memory.
    """
    blocks: list[Block] = [
        Chart(
            "durations",
            figure(cpu, phase, _ranges(rows), whole_mb),
            "Expected duration by size, one curve a period, and the reciprocal",
            f"Duration of a task that needs {cpu.words} of CPU time",
        ),
        _durations(rows),
        _jumps(found, whole_mb),
    ]
    return Section(
        "duration",
        "Duration under a quota",
        blocks,
        f"The task begins {phase_words(phase)}. A quota that is enforced to the nanosecond; kernels"
        " account at ticks, and let a task run on past its quota.",
    )


def phase_words(phase: Phase) -> str:
    """Where a task begins, in words."""
    if phase == "random":
        return "anywhere in a period"
    return "with a period" if phase == 0 else f"{format_duration(phase)} after a period began"


def figure(
    cpu: CpuTime,
    phase: Phase,
    ranges: Mapping[int, tuple[int, int]],
    whole_mb: int | None = None,
) -> Spec:
    """Expected durations over sizes, a curve a period; the reciprocal dashed beside them.

    Figure 11 of the cost paper, if a constant CPU time begins with a period. Such a curve is exact:
    between two jumps the duration is linear in the quota. Others have a point on either side of
    each jump of the median CPU time, and points between, evenly.

    Args:
        cpu: the CPU time.
        phase: where the task begins.
        ranges: period to the least and the largest quota, all in ns.
        whole_mb: draw over memory, a whole vCPU coming with so much.
    """
    median = cpu.quantile(Fraction(1, 2))
    unit = whole_mb or 1
    points = []
    for period, (least, largest) in ranges.items():
        steps = jumps(period, [median], least, largest)[0]
        even = MAX_POINTS // len(ranges) - 2 * len(steps) - 2
        if phase == 0 and len(cpu.points) == 1:
            even = min(even, _LINEAR)
        quotas = {least, largest}
        quotas |= {quota for step in steps for quota in (step.quota_ns - 1, step.quota_ns)}
        quotas |= {least + (largest - least) * place // max(even, 1) for place in range(even)}
        controls = [control_of_quota(period, quota) for quota in sorted(quotas)]
        points += [
            {
                "period": format_duration(period),
                "size": float(row.control.share * unit),
                "value": float(row.mean_ns / NS_PER_MS),
                "factor": None if row.factor is None else float(row.factor),
            }
            for row in sweep(controls, cpu, phase)
        ]
    low, high = (
        float(choose(Fraction(quota, period) for period, pair in ranges.items() for quota in pair))
        for choose in (min, max)
    )
    shares = [low * (high / low) ** (step / 100) for step in range(101)]
    mean = float(cpu.mean / NS_PER_MS)
    ideal = [{"size": share * unit, "value": mean / share} for share in shares]
    return curves(points, ideal, "memory, MB" if whole_mb else "vCPU (quota / period)")


def curves(
    points: Sequence[Mapping[str, Any]], ideal: Sequence[Mapping[str, Any]], axis: str
) -> Spec:
    """Durations by size: ``period``, ``size``, ``value`` (ms), ``factor``; ``ideal`` in grey."""
    periods = list(dict.fromkeys(point["period"] for point in points))
    names = [*periods, RECIPROCAL]
    colours = [*theme.colours(len(periods), in_order=True), theme.REFERENCE]
    sizes = [point["size"] for point in (*points, *ideal)]
    values = [point["value"] for point in (*points, *ideal)]
    x = alt.X(
        "size:Q",
        title=axis,
        scale=alt.Scale(domain=[min(sizes), max(sizes)], nice=False),
        axis=alt.Axis(tickCount=8, format=",~f"),
    )
    ticks: dict[str, Any] = {}
    scale = alt.Scale(zero=False)
    if max(values, default=1) > 3 * min(values, default=1) > 0:
        ticks = {"values": charts.log_ticks(min(values), max(values))}
        scale = alt.Scale(type="log", nice=False, padding=8)
    y = alt.Y("value:Q", title="duration, ms", scale=scale, axis=alt.Axis(format=",~g", **ticks))
    colour = alt.Color(
        "period:N", title=None, sort=names, scale=alt.Scale(domain=names, range=colours)
    )
    pick = alt.selection_point(fields=["period"], bind="legend")
    reference = (
        alt.Chart(inline([{**one, "period": RECIPROCAL} for one in ideal]))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.6)
        .encode(x=x, y=y, color=colour)
    )
    found = (
        alt.Chart(inline(points))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=x,
            y=y,
            color=colour,
            opacity=alt.condition(pick, alt.value(1), alt.value(0.12)),
            tooltip=[
                alt.Tooltip("period:N", title="period"),
                alt.Tooltip("size:Q", title=axis, format=",.4~g"),
                alt.Tooltip("value:Q", title="duration, ms", format=",.4~g"),
                alt.Tooltip("factor:Q", title="CPU obtained over CPU paid for", format=".3f"),
            ],
        )
        .add_params(pick)
    )
    return finish(alt.layer(reference, found), 320, legend=names)


def size_words(control: Control) -> str:
    """The size that a control comes from: ``512 MB``, ``0.25 vCPU``, or the quota."""
    if control.memory_mb is not None:
        return f"{control.memory_mb:,} MB"
    if control.micro_vcpu is not None:
        return f"{vcpu_text(control.micro_vcpu)} vCPU"
    return format_duration(control.quota_ns)


def _ranges(rows: Sequence[Expected]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        quota = row.control.quota_ns
        least, largest = found.get(row.control.period_ns, (quota, quota))
        found[row.control.period_ns] = (min(least, quota), max(largest, quota))
    return found


def _durations(rows: Sequence[Expected]) -> Table:
    shares = list(rows[0].quantiles_ns) if rows else []
    return Table(
        (
            "<size",
            "<period",
            "quota, ms",
            "mean, ms",
            *(f"p{float(share * 100):g}, ms" for share in shares),
            "reciprocal, ms",
            "over-allocation",
        ),
        [
            [
                size_words(row.control),
                format_duration(row.control.period_ns),
                ms(row.control.quota_ns),
                ms(row.mean_ns),
                *(ms(row.quantiles_ns[share]) for share in shares),
                ms(row.reciprocal_ns),
                numbers.figure(None if row.factor is None else float(row.factor), 4),
            ]
            for row in rows
        ],
        "Equation (2) over all CPU times and phases, exact in ns, shown rounded. Reciprocal: mean"
        " CPU time over the share. Over-allocation: reciprocal over mean, the CPU obtained over the"
        " CPU paid for.",
        "Durations",
    )


def _jumps(found: Sequence[Jump], whole_mb: int | None) -> Table:
    return Table(
        (
            "<period",
            "periods",
            "quota, ms",
            "MB" if whole_mb else "vCPU",
            "just below, ms",
            "at it, ms",
            "fall, ms",
            "mean fall, ms",
        ),
        [
            [
                format_duration(jump.period_ns),
                numbers.count(jump.periods),
                ms(jump.quota_ns),
                f"{jump.memory_mb(whole_mb):,}" if whole_mb else vcpu_text(jump.micro_vcpu),
                ms(jump.below_ns),
                ms(jump.at_ns),
                ms(jump.below_ns - jump.at_ns),
                ms(jump.mean_below_ns - jump.mean_at_ns),
            ]
            for jump in found
        ],
        "Of the median CPU time: the least quota with which it needs no more periods. Fall: begun"
        " with a period. Mean fall: begun anywhere, when the rest of the fall is a slope.",
        "Jumps",
    )


def ms(ns: int | Fraction) -> str:
    """ns as ms with four digits."""
    return numbers.figure(float(Fraction(ns) / NS_PER_MS), 4)
