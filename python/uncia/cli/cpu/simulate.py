"""``uncia cpu simulate``: what the kernel makes of a task, or a probe, under a quota."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.bandwidth.cpu_time import CpuTime
    from uncia.bandwidth.kernels import Kernel
    from uncia.bandwidth.simulate import Probe, Setting, Task

_GROUPS: Final = 40  # with a period timer of its own each
_PARTS: Final = 1_000


def register(app: typer.Typer) -> None:
    """Add the command ``simulate`` to ``app``."""

    @app.command()
    def simulate(
        period: str = typer.Option("100ms", metavar="TIME", help="The period."),
        quota: str = typer.Option(None, metavar="TIME", help="CPU time in each period."),
        vcpu: str = typer.Option(None, metavar="SHARE", help="Instead of a quota, a share: 0.25."),
        burst: str = typer.Option("0ms", metavar="TIME", help="Unused quota that may be kept."),
        cpu_time: str = typer.Option(
            None,
            "--cpu-time",
            metavar="TIME|LIST|FILE",
            help="Simulate tasks of this CPU time: 17ms; 10ms,20ms*3 (values, weights); or a file.",
        ),
        duration: str = typer.Option(
            None, metavar="TIME", help="Simulate the probe of uncia cpu profile for so long."
        ),
        runs: int = typer.Option(None, min=1, help="Tasks, or probes. Default: 4000, or 30."),
        idle: str = typer.Option(
            None, metavar="TIME..TIME", help="Sleep before each task. Default: 3 to 4 periods."
        ),
        kernel: str = typer.Option(
            "here", metavar="VERSION", help="Which kernel: 6.2, 6.8, ...; here: this machine's."
        ),
        hz: int = typer.Option(
            None, metavar="RATE", help="Ticks a second. Default: this machine's if known, else 250."
        ),
        cpus: int = typer.Option(1, min=1, help="CPUs that the group may use."),
        threads: int = typer.Option(1, min=1, help="Threads of the probe."),
        profile: Path = typer.Option(
            None,
            "--beside",
            metavar="PROFILE",
            help="A profile of one group under this control: how far the simulated throttles are"
            " from its own (Wasserstein-1), with its places of ticks and refills.",
        ),
        seed: int = typer.Option(0, min=0, help="Same seed, same result."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """What the kernel's bandwidth control makes of tasks, or of a probe, by simulation.

        Tasks: how long they take. A probe: how it is throttled. Give --cpu-time or --duration.
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
        found = _summary(setting, model.simulate(settings, seed))
        if profile is not None:
            found["beside"] = _beside(profile, setting.model_copy(update={"runs": count}), seed)
        typer.echo(json.dumps(found, indent=2, allow_nan=False) if as_json else _text(found))
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
            raise UnciaError(f"--duration: in {duration} nothing is seen", hint="Give 10s or so.")
        return Probe(duration_ns=watched, threads=threads)
    if threads > 1:
        raise UnciaError("--threads is for the probe", hint="Leave it out, or give --duration.")
    tasks = _values(parse(cpu_time or ""))
    gap = None
    if idle is not None:
        first, dots, last = idle.partition("..")
        least = parse_duration(first)
        gap = (least, parse_duration(last) if dots else least)
    return Task(cpu_ns=tasks, gap_ns=gap)


def _values(cpu: CpuTime) -> list[int]:
    """A distribution as equally likely values, in an order that means nothing."""
    import random
    from fractions import Fraction

    if len(cpu.points) == 1:
        return [cpu.points[0][0]]
    values = [cpu.quantile(Fraction(2 * part + 1, 2 * _PARTS)) for part in range(_PARTS)]
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

    from uncia.bandwidth import beside

    rows = simulated.invocations
    execution = np.asarray(rows["execution"].to_numpy(), dtype=float) / 1e6
    cpu = np.asarray(rows["cpu_user"].to_numpy(), dtype=float) / 1e6
    groups = np.asarray(rows["function"].combine_chunks().indices.to_numpy())
    found: dict[str, Any] = {
        "setting": setting.model_dump(exclude={"name", "runs", "neighbours"}),
        "runs": len(execution),
        "ticks": simulated.ticks,
        "share": float(cpu.sum() / execution.sum()) if execution.any() else None,
    }
    if setting.work.kind == "task":
        means = [execution[groups == group].mean() for group in np.unique(groups)]
        error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
        found["duration"] = _spread(execution) | {"standard_error_ms": error}
        found["cpu_time_mean_ms"] = float(cpu.mean())
        return found
    throttles = beside.throttles(simulated.spans)
    return found | {kind: _spread(values / 1e6) for kind, values in throttles.items()}


def _beside(path: Path, setting: Setting, seed: int) -> dict[str, Any]:
    from uncia.bandwidth import beside, profiles

    if setting.work.kind != "probe":
        raise UnciaError("--beside compares throttles of a probe", hint="Give --duration.")
    read = profiles.read(path)
    apart = beside.compare(read, setting, seed)
    return {
        "profile": read.source,
        "distance_ms": {kind: None if ns is None else ns / 1e6 for kind, ns in apart.items()},
        "distance_periods": {
            kind: None if ns is None else ns / setting.period_ns for kind, ns in apart.items()
        },
    }


def _spread(values: Any) -> dict[str, float | int | None]:
    import numpy as np

    from uncia.stats.quantiles import quantiles_of

    names = ("p5", "p25", "p50", "p75", "p95")
    found: dict[str, float | int | None] = {"count": len(values), "mean_ms": None}
    if len(values) == 0:
        return found | {f"{name}_ms": None for name in names}
    found["mean_ms"] = float(np.mean(values))
    quantiles = quantiles_of(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    for name, value in zip(names, quantiles, strict=True):
        found[f"{name}_ms"] = value
    return found


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['runs']} runs, {found['ticks']} ticks"]
    if found["share"] is not None:
        lines[0] += f"; obtained {found['share']:.4f} vCPU over all of their wall-clock time"
    for kind, part in found.get("beside", {}).get("distance_periods", {}).items():
        far = "too few throttles" if part is None else f"{part:.2%} of the period"
        lines.append(f"{kind}: Wasserstein-1 to the profile {far}")
    names = {
        "duration": "duration",
        "interval": "interval between throttles",
        "throttle": "throttle",
        "cpu": "CPU time between throttles",
    }
    for key, name in names.items():
        if key not in found:
            continue
        spread = found[key]
        if not spread["count"]:
            lines.append(f"{name}: none")
            continue
        error = spread.get("standard_error_ms")
        sure = "" if error is None else f" +- {error:.3f}"
        quantiles = ", ".join(
            f"{part} {spread[f'{part}_ms']:.3f}" for part in ("p5", "p25", "p50", "p75", "p95")
        )
        lines.append(f"{name}, ms: mean {spread['mean_ms']:.3f}{sure}; {quantiles}")
    return "\n".join(lines)
