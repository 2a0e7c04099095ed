"""``uncia cpu duration``: the closed form over quotas, periods and CPU times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.options import AsJson, Html
from uncia.cli.quantities import quantity
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.bandwidth.closed_form import Control, Expected, Jump, Phase
    from uncia.bandwidth.cpu_time import CpuTime
    from uncia.providers import Platform

_SHOWN_JUMPS: Final = 12
_DEFAULT_SHARES: Final = "0.05..1/0.05"


def register(app: typer.Typer) -> None:
    """Add the command ``duration`` to ``app``."""

    @app.command()
    @pages.with_figures
    def duration(
        cpu_time: str = typer.Option(
            "51.8ms",
            "--cpu-time",
            metavar="TIME|LIST|FILE",
            help="CPU time: 51.8ms; 10ms,20ms*3 (values, weights); p5=14.9ms,p50=17.3ms,p95=18.1ms;"
            " or a file with a value, or a value, a comma and a weight, on each line.",
        ),
        period: str = typer.Option(
            None,
            metavar="LIST",
            help="Periods: 20ms,100ms or 5ms..20ms/5ms. Default: the platform's, else those of the"
            " cost paper's Figure 11.",
        ),
        vcpu: str = typer.Option(
            None,
            metavar="RANGE",
            help="Shares of a CPU: 0.05..1/0.01 or 0.25,0.5. Default: the platform's sizes, else"
            f" {_DEFAULT_SHARES}.",
        ),
        quota: str = typer.Option(None, metavar="LIST", help="Quotas: 1.45ms,5ms or a range."),
        memory: str = typer.Option(
            None, metavar="RANGE", help="Memory sizes in MB: 128..1769/64; needs --like."
        ),
        like: str = typer.Option(
            None,
            metavar="PROFILE",
            help="Platform whose period and sizes to use: aws, gcp, ibm, or a profile's file.",
        ),
        phase: str = typer.Option(
            "start",
            metavar="start|random|TIME",
            help="When the task begins: at the start of a period, at a random time in it, or so"
            " long after its start.",
        ),
        as_json: AsJson = False,
        html: Html = None,
    ) -> None:
        """Compute how long a task takes under a quota that is enforced to the nanosecond.

        This is Equation (2) of the cost paper, exactly. For a distribution of CPU times, or a
        random phase, it gives the mean and quantiles of the duration. It also lists the sizes at
        which the duration jumps.
        """
        from fractions import Fraction

        from uncia.bandwidth import closed_form
        from uncia.bandwidth.cpu_time import parse

        cpu = parse(cpu_time)
        platform = _platform(like)
        if platform is not None and vcpu is None and quota is None and memory is None:
            vcpu, memory = _sold(platform)
        begin = _phase(phase)
        periods = _periods(period, platform)
        controls = _controls(periods, platform, vcpu=vcpu, quota=quota, memory=memory)
        varies = begin == "random" or len(cpu.points) > 1
        shares = [Fraction(1, 2), Fraction(95, 100)] if varies else []
        rows = closed_form.sweep(controls, cpu, begin, shares)
        jumps = _jumps(controls, cpu)
        mb_per_vcpu = platform.mb_per_vcpu if platform and memory else None
        if html is not None:
            _write(html, rows, jumps, cpu, begin, mb_per_vcpu)
        notes = _notes(controls, cpu)
        if as_json:
            typer.echo(json.dumps(_json(rows, jumps, cpu, begin, mb_per_vcpu), indent=2))
            for note in notes:
                typer.echo(f"note: {note}", err=True)
        else:
            _print(rows, jumps, mb_per_vcpu, notes)


def _platform(like: str | None) -> Platform | None:
    from uncia import profiles
    from uncia.profiles.cpu import sold

    return None if like is None else sold(profiles.find(like))


def _sold(platform: Platform) -> tuple[str | None, str | None]:
    """The sizes that a platform sells, as text: shares, or memory up to a whole vCPU."""
    from uncia.bandwidth.sizes import vcpu_text

    if platform.mb_per_vcpu is None:
        return f"{vcpu_text(platform.min_size)}..1/{vcpu_text(platform.step)}", None
    return None, f"{platform.min_size}..{platform.mb_per_vcpu}/64,{platform.mb_per_vcpu}"


def _phase(text: str) -> Phase:
    from uncia.units import parse_duration

    if text == "random":
        return "random"
    if text in ("start", "0"):
        return 0
    return quantity("--phase", text, parse_duration, "Write start, random, or a time such as 2ms.")


def _periods(text: str | None, platform: Platform | None) -> Sequence[int]:
    from uncia.bandwidth import closed_form, sizes

    if text is not None:
        return sizes.durations(text, "--period")
    return closed_form.FIGURE_11_PERIODS if platform is None else [platform.period_ns]


def _controls(
    periods: Sequence[int],
    platform: Platform | None,
    *,
    vcpu: str | None,
    quota: str | None,
    memory: str | None,
) -> list[Control]:
    """Every size in every period, ordered by period."""
    from uncia.bandwidth import closed_form, sizes

    options = [
        name
        for name, text in (("--vcpu", vcpu), ("--quota", quota), ("--memory", memory))
        if text is not None
    ]
    if len(options) > 1:
        raise UnciaError(f"{' and '.join(options)} both set the size", "Give one of them.")
    if quota is not None:
        quotas = sizes.durations(quota, "--quota")
        return [closed_form.control_of_quota(period, ns) for period in periods for ns in quotas]
    if memory is not None:
        if platform is None or platform.mb_per_vcpu is None:
            raise UnciaError(
                "--memory: how much CPU comes with memory depends on the platform"
                if platform is None
                else "--memory: CPU does not scale with memory on this platform",
                "Name a platform where it does (--like aws), or give --vcpu.",
            )
        memory_mb = sizes.memory(memory)
        return [
            closed_form.control_of_memory(period, mb, platform.mb_per_vcpu)
            for period in periods
            for mb in memory_mb
        ]
    shares = sizes.vcpu(vcpu or _DEFAULT_SHARES)
    return [closed_form.control_of_share(period, share) for period in periods for share in shares]


def _jumps(controls: Sequence[Control], cpu: CpuTime) -> list[Jump]:
    """The jumps of the median CPU time, within the quotas of each period."""
    from fractions import Fraction

    from uncia.bandwidth.closed_form import jumps

    result = []
    median = cpu.quantile(Fraction(1, 2))
    for period in dict.fromkeys(control.period_ns for control in controls):
        quotas = [control.quota_ns for control in controls if control.period_ns == period]
        result += jumps(period, [median], min(quotas), max(quotas))[0]
    return result


def _notes(controls: Sequence[Control], cpu: CpuTime) -> list[str]:
    from uncia.bandwidth.closed_form import MIN_QUOTA

    notes = [
        "Quotas are taken as enforced to the nanosecond. Kernels account at ticks, and let a task"
        " run past its quota."
    ]
    refused = sum(control.quota_ns < MIN_QUOTA for control in controls)
    if refused:
        notes.append(
            f"{refused} of {len(controls)} quotas are below 1 ms, which a kernel refuses (EINVAL)."
        )
    if len(cpu.points) > 1:
        notes.append("The jumps are those of the median CPU time; each other value has its own.")
    return notes


def _json(
    rows: Sequence[Expected],
    jumps: Sequence[Jump],
    cpu: CpuTime,
    phase: Phase,
    mb_per_vcpu: int | None,
) -> dict[str, Any]:
    from uncia.bandwidth.sizes import vcpu_text
    from uncia.units import NS_PER_MS

    def size(row: Expected) -> dict[str, Any]:
        control = row.control
        return {
            "period_ns": str(control.period_ns),
            "quota_ns": str(control.quota_ns),
            "vcpu": None if control.micro_vcpu is None else vcpu_text(control.micro_vcpu),
            "memory_mb": control.memory_mb,
            "share": float(control.share),
        }

    return {
        "cpu_time": {
            "sum_ns": str(cpu.mean.numerator * (cpu.weight // cpu.mean.denominator)),
            "weight": str(cpu.weight),
            "mean_ms": float(cpu.mean / NS_PER_MS),
        },
        "phase": "random" if phase == "random" else "start" if phase == 0 else f"{phase}ns",
        "durations": [
            {
                **size(row),
                "sum_ns": str(row.sum_ns),
                "cases": str(row.cases),
                "mean_ms": float(row.mean_ns / NS_PER_MS),
                **{
                    f"p{float(share * 100):g}_ns": str(value)
                    for share, value in row.quantiles_ns.items()
                },
                "reciprocal_ms": float(row.reciprocal_ns / NS_PER_MS),
                "over_allocation": None if row.factor is None else float(row.factor),
            }
            for row in rows
        ],
        "jumps": [
            {
                "period_ns": str(jump.period_ns),
                "periods": jump.periods,
                "quota_ns": str(jump.quota_ns),
                "vcpu": vcpu_text(jump.micro_vcpu),
                "memory_mb": None if mb_per_vcpu is None else jump.memory_mb(mb_per_vcpu),
                "below_ns": str(jump.below_ns),
                "at_ns": str(jump.at_ns),
                "mean_below_ms": float(jump.mean_below_ns / NS_PER_MS),
                "mean_at_ms": float(jump.mean_at_ns / NS_PER_MS),
            }
            for jump in jumps
        ],
    }


def _print(
    rows: Sequence[Expected], jumps: Sequence[Jump], mb_per_vcpu: int | None, notes: Sequence[str]
) -> None:
    import pandas as pd

    from uncia.bandwidth.sizes import vcpu_text
    from uncia.cli.cost.options import emit
    from uncia.report.cpu.duration import size_words
    from uncia.units import NS_PER_MS, format_duration

    def ms(value: Any) -> float:
        return float(value / NS_PER_MS)

    emit(
        pd.DataFrame(
            [
                {
                    "period": format_duration(row.control.period_ns),
                    "size": size_words(row.control),
                    "quota, ms": ms(row.control.quota_ns),
                    "duration, ms": ms(row.mean_ns),
                    **{
                        f"p{float(share * 100):g}, ms": ms(value)
                        for share, value in row.quantiles_ns.items()
                    },
                    "reciprocal, ms": ms(row.reciprocal_ns),
                    "over-allocation": None if row.factor is None else float(row.factor),
                }
                for row in rows
            ],
            dtype=object,
        ),
        as_json=False,
    )
    if not jumps:
        typer.echo("No jump lies between these quotas.")
    else:
        typer.echo("Jumps: the smallest quota with which a task ends within so many periods")
        shown = [
            jump
            for period in dict.fromkeys(jump.period_ns for jump in jumps)
            for jump in [item for item in jumps if item.period_ns == period][:_SHOWN_JUMPS]
        ]
        size = "MB" if mb_per_vcpu else "vCPU"
        emit(
            pd.DataFrame(
                [
                    {
                        "period": format_duration(jump.period_ns),
                        "periods": jump.periods,
                        "quota, ms": ms(jump.quota_ns),
                        size: jump.memory_mb(mb_per_vcpu)
                        if mb_per_vcpu
                        else vcpu_text(jump.micro_vcpu),
                        "just below, ms": ms(jump.below_ns),
                        "at it, ms": ms(jump.at_ns),
                        "mean fall at any phase, ms": ms(jump.mean_below_ns - jump.mean_at_ns),
                    }
                    for jump in shown
                ],
                dtype=object,
            ),
            as_json=False,
        )
        if len(shown) < len(jumps):
            typer.echo(f"{len(jumps) - len(shown)} more jumps at smaller quotas: see --json.")
    for note in notes:
        typer.echo(note)


def _write(
    path: Path,
    rows: Sequence[Expected],
    jumps: Sequence[Jump],
    cpu: CpuTime,
    phase: Phase,
    mb_per_vcpu: int | None,
) -> None:
    from uncia.cli import pages
    from uncia.report.cpu.duration import section

    pages.write(
        path,
        kicker="Uncia CPU bandwidth control",
        title="Duration under a quota",
        summary="How long a task takes at each size by the closed form (Equation 2), and where"
        " it becomes faster at once.",
        sections=[section(rows, jumps, cpu, phase, mb_per_vcpu)],
        facts=[("CPU time", cpu.words), ("Sizes", f"{len(rows):,}")],
    )
