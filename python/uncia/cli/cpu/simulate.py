"""``uncia cpu simulate``: simulates the kernel's bandwidth control of a task or a probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.options import AsJson
from uncia.errors import UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.bandwidth.cpu_time import CpuTime
    from uncia.bandwidth.kernels import Kernel
    from uncia.bandwidth.simulate import Probe, Setting, Task

_GROUPS: Final = 40  # each with its own period timer
_QUANTILES: Final = 1_000  # that stand for a distribution of CPU times


def register(app: typer.Typer) -> None:
    """Add the command ``simulate`` to ``app``."""

    @app.command()
    def simulate(
        period: str = typer.Option("100ms", metavar="TIME", help="Period of the quota."),
        quota: str = typer.Option(None, metavar="TIME", help="CPU time in each period."),
        vcpu: str = typer.Option(
            None, metavar="SHARE", help="Share of a CPU, such as 0.25, instead of a quota."
        ),
        burst: str = typer.Option(
            "0ms", metavar="TIME", help="Unused quota that later periods may use."
        ),
        cpu_time: str = typer.Option(
            None,
            "--cpu-time",
            metavar="TIME|LIST|FILE",
            help="Simulate tasks of this CPU time: 17ms; 10ms,20ms*3 (values, weights); or a file.",
        ),
        duration: str = typer.Option(
            None, metavar="TIME", help="Simulate the probe of uncia cpu profile for this long."
        ),
        runs: int = typer.Option(
            None, min=1, help="Number of runs. Default: 4000 tasks, or 30 probes."
        ),
        idle: str = typer.Option(
            None, metavar="TIME..TIME", help="Sleep before each task. Default: 3 to 4 periods."
        ),
        kernel: str = typer.Option(
            "here", metavar="VERSION", help="Kernel version, such as 6.2; here: this machine's."
        ),
        hz: int = typer.Option(
            None,
            metavar="RATE",
            help="Tick rate in Hz. Default: this machine's if known, else 250.",
        ),
        cpus: int = typer.Option(1, min=1, help="CPUs that the group may use."),
        threads: int = typer.Option(1, min=1, help="Threads of the probe."),
        profile: Path = typer.Option(
            None,
            "--beside",
            metavar="PROFILE",
            help="A profile of one control group to compare with: simulates a probe with its ticks"
            " and refills, and measures the distance of the throttles (Wasserstein-1).",
        ),
        seed: int = typer.Option(0, min=0, help="Seed; the same seed gives the same result."),
        as_json: AsJson = False,
    ) -> None:
        """Simulate how the kernel's bandwidth control delays tasks or throttles a probe.

        Give --cpu-time to simulate tasks and see how long they take, or --duration to simulate a
        probe and see how it is throttled.
        """
        from uncia.bandwidth import kernels
        from uncia.bandwidth import simulate as model
        from uncia.bandwidth.closed_form import MIN_QUOTA
        from uncia.units import UnitError

        try:
            work = _work(cpu_time, duration, idle, threads)
            count = runs or (4000 if work.kind == "task" else 30)
            setting = _setting(
                work,
                kernels.here() if kernel == "here" else kernels.of_version(kernel),
                period=period,
                quota=quota,
                vcpu=vcpu,
                burst=burst,
                hz=hz or (kernels.tick_rate() if kernel == "here" else None) or 250,
                cpus=cpus,
            )
        except UnitError as error:
            raise UnciaError(str(error)) from error
        groups = min(count, _GROUPS)
        settings = [
            setting.model_copy(
                update={
                    "name": f"group {number}",
                    "runs": count // groups + (number < count % groups),
                }
            )
            for number in range(groups)
        ]
        summary = _summary(setting, model.simulate(settings, seed))
        if profile is not None:
            summary["beside"] = _distances(
                profile, setting.model_copy(update={"runs": count}), seed
            )
        typer.echo(json.dumps(summary, indent=2, allow_nan=False) if as_json else _text(summary))
        if setting.quota_ns is not None and setting.quota_ns < MIN_QUOTA:
            typer.echo("note: a kernel refuses a quota below 1 ms (EINVAL).", err=True)


def _work(
    cpu_time: str | None, duration: str | None, idle: str | None, threads: int
) -> Probe | Task:
    from uncia.bandwidth.cpu_time import parse
    from uncia.bandwidth.simulate import Probe, Task
    from uncia.units import parse_duration

    if (cpu_time is None) == (duration is None):
        raise UnciaError("give either tasks or a probe", hint="--cpu-time 17ms, or --duration 10s.")
    if duration is not None:
        if idle is not None:
            raise UnciaError("--idle is for tasks", hint="Leave it out, or give --cpu-time.")
        watched = parse_duration(duration)
        if watched == 0:
            raise UnciaError(f"--duration: {duration} is too short", hint="Give 10s or so.")
        return Probe(duration_ns=watched, threads=threads)
    if threads > 1:
        raise UnciaError("--threads is for the probe", hint="Leave it out, or give --duration.")
    tasks = _values(parse(cpu_time or ""))
    gap = None
    if idle is not None:
        first, dots, last = idle.partition("..")
        shortest = parse_duration(first)
        gap = (shortest, parse_duration(last) if dots else shortest)
    return Task(cpu_ns=tasks, gap_ns=gap)


def _values(cpu: CpuTime) -> list[int]:
    """A distribution as equally likely values, in random order."""
    import random
    from fractions import Fraction

    if len(cpu.points) == 1:
        return [cpu.points[0][0]]
    values = [cpu.quantile(Fraction(2 * index + 1, 2 * _QUANTILES)) for index in range(_QUANTILES)]
    random.Random(0).shuffle(values)  # the simulator takes them in turn
    return values


def _setting(
    work: Probe | Task,
    kernel: Kernel,
    *,
    period: str,
    quota: str | None,
    vcpu: str | None,
    burst: str,
    hz: int,
    cpus: int,
) -> Setting:
    from uncia.bandwidth.simulate import Setting
    from uncia.units import MICRO_PER_VCPU, parse_cpu, parse_duration

    if (quota is None) == (vcpu is None):
        raise UnciaError("give either a quota or a share", hint="--quota 5ms, or --vcpu 0.25.")
    period_ns = parse_duration(period)
    if quota is not None:
        quota_ns = parse_duration(quota)
    else:
        share = vcpu or ""
        micro = parse_cpu(share if share[-1:].isalpha() else f"{share}vCPU")
        quota_ns = period_ns * micro // MICRO_PER_VCPU
    return Setting(
        period_ns=period_ns,
        quota_ns=quota_ns,
        burst_ns=0 if burst == "0ms" else parse_duration(burst),
        hz=hz,
        scheduler=kernel.scheduler,
        throttling=kernel.throttling,
        timer=kernel.timer,
        cpus=cpus,
        work=work,
    )


def _summary(setting: Setting, simulated: Any) -> dict[str, Any]:
    import numpy as np

    from uncia.bandwidth import simulated_match

    rows = simulated.invocations
    execution = np.asarray(rows["execution"].to_numpy(), dtype=float) / 1e6
    cpu = np.asarray(rows["cpu_user"].to_numpy(), dtype=float) / 1e6
    groups = np.asarray(rows["function"].combine_chunks().indices.to_numpy())
    summary: dict[str, Any] = {
        "setting": setting.model_dump(exclude={"name", "runs", "neighbours"}),
        "runs": len(execution),
        "ticks": simulated.ticks,
        "share": float(cpu.sum() / execution.sum()) if execution.any() else None,
    }
    if setting.work.kind == "task":
        means = [execution[groups == group].mean() for group in np.unique(groups)]
        error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
        summary["duration"] = _spread(execution) | {"standard_error_ms": error}
        summary["cpu_time_mean_ms"] = float(cpu.mean())
        return summary
    throttles = simulated_match.throttles(simulated.spans)
    return summary | {kind: _spread(values / 1e6) for kind, values in throttles.items()}


def _distances(path: Path, setting: Setting, seed: int) -> dict[str, Any]:
    from uncia.bandwidth import profiles, simulated_match

    if setting.work.kind != "probe":
        raise UnciaError("--beside compares throttles of a probe", hint="Give --duration.")
    profile = profiles.read(path)
    distances = simulated_match.compare(profile, setting, seed)
    return {
        "profile": profile.source,
        "distance_ms": {kind: None if ns is None else ns / 1e6 for kind, ns in distances.items()},
        "distance_periods": {
            kind: None if ns is None else ns / setting.period_ns for kind, ns in distances.items()
        },
    }


def _spread(values: Any) -> dict[str, float | int | None]:
    import numpy as np

    from uncia.stats.quantiles import quantiles_of

    names = ("p5", "p25", "p50", "p75", "p95")
    spread: dict[str, float | int | None] = {"count": len(values), "mean_ms": None}
    if len(values) == 0:
        return spread | {f"{name}_ms": None for name in names}
    quantiles = quantiles_of(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    spread["mean_ms"] = float(np.mean(values))
    spread.update((f"{name}_ms", value) for name, value in zip(names, quantiles, strict=True))
    return spread


def _text(summary: dict[str, Any]) -> str:
    lines = [f"{plural(summary['runs'], 'run')}, {plural(summary['ticks'], 'tick')}"]
    if summary["share"] is not None:
        lines[0] += f"; obtained {summary['share']:.4f} vCPU over all of their wall-clock time"
    for kind, share in summary.get("beside", {}).get("distance_periods", {}).items():
        distance = "too few throttles" if share is None else f"{share:.2%} of the period"
        lines.append(f"{kind}: Wasserstein-1 to the profile {distance}")
    names = {
        "duration": "duration",
        "interval": "interval between throttles",
        "throttle": "throttle",
        "cpu": "CPU time between throttles",
    }
    for key, name in names.items():
        if key not in summary:
            continue
        spread = summary[key]
        if not spread["count"]:
            lines.append(f"{name}: none")
            continue
        error = spread.get("standard_error_ms")
        tolerance = "" if error is None else f" +- {error:.3f}"
        quantiles = ", ".join(
            f"{part} {spread[f'{part}_ms']:.3f}" for part in ("p5", "p25", "p50", "p75", "p95")
        )
        lines.append(f"{name}, ms: mean {spread['mean_ms']:.3f}{tolerance}; {quantiles}")
    return "\n".join(lines)
