"""The section on the closed form: durations, the reciprocal, and the jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

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
from uncia.report import theme, vega
from uncia.report.numbers import count, figure4
from uncia.report.page import Block, Chart, Section
from uncia.report.table import Column, Table
from uncia.units import NS_PER_MS, format_duration

RECIPROCAL: Final = "reciprocal"
"""Name of the curve of durations in inverse proportion to the share."""

_LINEAR_POINTS: Final = 40
"""Points where the curve is linear between jumps, for tooltips and the logarithmic axis."""


def section(
    rows: Sequence[Expected],
    steps: Sequence[Jump],
    cpu: CpuTime,
    phase: Phase,
    mb_per_vcpu: int | None,
) -> Section:
    """Make the section of a sweep.

    Args:
        rows: what `uncia.bandwidth.closed_form.sweep` returns.
        steps: the jumps of the median CPU time, of all periods.
        cpu: the CPU time.
        phase: when in a period the task begins.
        mb_per_vcpu: the memory that comes with a whole vCPU, if sizes are of memory.
    """
    blocks: list[Block] = [
        Chart(
            "durations",
            durations(cpu, phase, _ranges(rows), mb_per_vcpu),
            "Expected duration by size, one curve a period, and the reciprocal",
            f"Duration of a task that needs {cpu.words} of CPU time",
        ),
        _durations(rows),
        _jumps(steps, mb_per_vcpu),
    ]
    return Section(
        "duration",
        "Duration under a quota",
        blocks,
        f"The task begins {phase_words(phase)}. A quota that is enforced to the nanosecond; kernels"
        " account at ticks, and let a task run on past its quota.",
    )


def phase_words(phase: Phase) -> str:
    """Write when a task begins."""
    if phase == "random":
        return "anywhere in a period"
    return "with a period" if phase == 0 else f"{format_duration(phase)} after a period began"


def durations(
    cpu: CpuTime,
    phase: Phase,
    ranges: Mapping[int, tuple[int, int]],
    mb_per_vcpu: int | None = None,
) -> vega.Spec:
    """Draw expected durations over sizes, with a curve for each period and the dashed reciprocal.

    For a constant CPU time that begins with a period, this is Figure 11 of the cost paper. Such a
    curve is exact, because the duration is linear in the quota between two jumps. Other curves have
    a point on either side of each jump of the median CPU time, and evenly spaced points between.

    Args:
        cpu: the CPU time.
        phase: when in a period the task begins.
        ranges: period -> smallest and largest quota, all in ns.
        mb_per_vcpu: the memory that comes with a whole vCPU, to draw over memory; None: over vCPU.
    """
    median = cpu.quantile(Fraction(1, 2))
    unit = mb_per_vcpu or 1
    points = []
    for period, (smallest, largest) in ranges.items():
        steps = jumps(period, [median], smallest, largest)[0]
        even = vega.MAX_POINTS // len(ranges) - 2 * len(steps) - 2
        if phase == 0 and len(cpu.points) == 1:
            even = min(even, _LINEAR_POINTS)
        quotas = {smallest, largest}
        quotas |= {quota for step in steps for quota in (step.quota_ns - 1, step.quota_ns)}
        quotas |= {smallest + (largest - smallest) * step // max(even, 1) for step in range(even)}
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
    return curves(points, ideal, "memory, MB" if mb_per_vcpu else "vCPU (quota / period)")


def curves(points: vega.Rows, ideal: vega.Rows, axis: str) -> vega.Spec:
    """Draw points with ``period``, ``size``, ``value`` (ms) and ``factor``; ``ideal`` in grey."""
    periods = list(dict.fromkeys(point["period"] for point in points))
    order = [*periods, RECIPROCAL]
    shades = [*theme.colours(len(periods), in_order=True), theme.REFERENCE]
    sizes = [point["size"] for point in (*points, *ideal)]
    values = [point["value"] for point in (*points, *ideal)]
    x = vega.quantity(
        "size",
        axis,
        scale={"domain": [min(sizes), max(sizes)], "nice": False},
        axis={"tickCount": 8, "format": ",~f"},
    )
    y = vega.quantity("value", "duration, ms", scale={"zero": False}, axis={"format": vega.PLAIN})
    if max(values, default=1) > 3 * min(values, default=1) > 0:
        y |= vega.logarithmic(values, padding=8)
    colour = vega.colours("period", order, shades)
    pick = {**vega.PICK, "select": {"type": "point", "fields": ["period"]}}
    return vega.chart(
        vega.layer(
            "line",
            [{**point, "period": RECIPROCAL} for point in ideal],
            {"strokeDash": vega.DASHED, "strokeWidth": 1.6},
            x=x,
            y=y,
            color=colour,
        ),
        vega.layer(
            "line",
            points,
            {"strokeWidth": 1.8},
            params=[pick],
            x=x,
            y=y,
            color=colour,
            opacity={**vega.PICKED, "value": 0.12},
            tooltip=vega.tips(
                ("period", "period"),
                ("size", axis, ",.4~r"),
                ("value", "duration, ms", ",.4~r"),
                ("factor", "CPU obtained over CPU paid for", ".3f"),
            ),
        ),
        height=320,
    )


def size_words(control: Control) -> str:
    """Write the size that a control comes from: ``512 MB``, ``0.25 vCPU``, or the quota."""
    if control.memory_mb is not None:
        return f"{control.memory_mb:,} MB"
    if control.micro_vcpu is not None:
        return f"{vcpu_text(control.micro_vcpu)} vCPU"
    return format_duration(control.quota_ns)


def _ranges(rows: Sequence[Expected]) -> dict[int, tuple[int, int]]:
    ranges: dict[int, tuple[int, int]] = {}
    for row in rows:
        quota = row.control.quota_ns
        smallest, largest = ranges.get(row.control.period_ns, (quota, quota))
        ranges[row.control.period_ns] = (min(smallest, quota), max(largest, quota))
    return ranges


def _durations(rows: Sequence[Expected]) -> Table:
    shares = list(rows[0].quantiles_ns) if rows else []

    def quantile(share: Fraction) -> Column:
        return _ms(f"p{float(share * 100):g}", lambda row: row.quantiles_ns[share])

    return Table(
        [
            Column("size", lambda row: size_words(row.control)),
            Column("period", lambda row: format_duration(row.control.period_ns)),
            _ms("quota", lambda row: row.control.quota_ns, "CPU time in each period."),
            _ms("mean", lambda row: row.mean_ns, "Mean duration."),
            *(quantile(share) for share in shares),
            _ms("reciprocal", lambda row: row.reciprocal_ns, "Mean CPU time over the share."),
            Column(
                "over-allocation",
                "factor",
                figure4,
                explanation="CPU time obtained over CPU time paid for.",
            ),
        ],
        rows,
        "Equation (2) over all CPU times and phases, exact in ns, shown rounded. Reciprocal: mean"
        " CPU time over the share. Over-allocation: reciprocal over mean, the CPU obtained over the"
        " CPU paid for.",
        "Durations",
    )


def _jumps(steps: Sequence[Jump], mb_per_vcpu: int | None) -> Table:
    size = Column("vCPU", lambda jump: vcpu_text(jump.micro_vcpu), str)
    if mb_per_vcpu is not None:
        size = Column("MB", lambda jump: jump.memory_mb(mb_per_vcpu), count)
    return Table(
        [
            Column("period", lambda jump: format_duration(jump.period_ns)),
            Column("periods", "periods", count, explanation="Periods that suffice at this quota."),
            _ms("quota", lambda jump: jump.quota_ns),
            size,
            _ms("just below", lambda jump: jump.below_ns, "Duration just below this quota."),
            _ms("at it", lambda jump: jump.at_ns, "Duration at this quota."),
            _ms("fall", lambda jump: jump.below_ns - jump.at_ns, "The difference."),
            _ms(
                "mean fall",
                lambda jump: jump.mean_below_ns - jump.mean_at_ns,
                "The difference for a task that begins at any time.",
            ),
        ],
        steps,
        "Of the median CPU time: the smallest quota with which this number of periods suffices."
        " Fall: begun with a period. Mean fall: begun anywhere; the rest of the fall is a slope.",
        "Jumps",
    )


def _ms(name: str, ns: Callable[[Any], int | Fraction], explanation: str = "") -> Column:
    """Make the column of a time that is given in ns."""
    return Column(name, lambda row: Fraction(ns(row)) / NS_PER_MS, figure4, "ms", explanation)
