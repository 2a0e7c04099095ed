"""``uncia cpu limits``: what a container's CPU limit does to its requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.quantities import quantity
from uncia.errors import UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.bandwidth.cpu_time import CpuTime
    from uncia.bandwidth.limits import Effect, Limit
    from uncia.bandwidth.throttling import Episode, Group, Reading, Span

_BUSY: Final = 0.7


def register(app: typer.Typer) -> None:
    """Add the command ``limits`` to ``app``."""

    @app.command()
    def limits(
        cpu: str = typer.Option(
            None, metavar="CPUS", help="resources.limits.cpu: 250m, 0.25 or 2.", show_default=False
        ),
        cpu_time: str = typer.Option(
            None,
            "--cpu-time",
            metavar="TIME|LIST|FILE",
            help="CPU time of a request, of all its threads together: 40ms; 10ms,20ms*3 (values,"
            " weights); p50=17ms,p95=40ms; or a file of values.",
            show_default=False,
        ),
        threads: int = typer.Option(
            1, min=1, max=1024, help="Threads of a request that compute at the same time."
        ),
        request: str = typer.Option(
            None,
            "--request",
            metavar="CPUS",
            help="resources.requests.cpu, to print its weight.",
            show_default=False,
        ),
        rate: str = typer.Option(
            None,
            metavar="RATE",
            help="Requests to the container, such as 5/s, to print how much of the limit they use.",
            show_default=False,
        ),
        period: str = typer.Option(
            "100ms", help="Period of the quota (kubelet: cpuCFSQuotaPeriod)."
        ),
        burst: str = typer.Option("0s", help="Unused quota that may be saved (cpu.max.burst)."),
        watch: str = typer.Option(
            None,
            metavar="GROUP|PID",
            help="Watch a running container instead: its control group, or a process in it.",
            show_default=False,
        ),
        every: str = typer.Option("1s", help="With --watch, print a line each so often."),
        duration: str = typer.Option(
            None,
            metavar="TIME",
            help="With --watch, stop after this time. Default: at Ctrl-C.",
            show_default=False,
        ),
        as_json: bool = typer.Option(
            False, "--json", help="Print JSON; with --watch, an object a line."
        ),
    ) -> None:
        """Tell what a container's CPU limit does to its requests, and which limit would not.

        Computed from the limit and the CPU time of a request; or, with --watch, read from a running
        container. The words are those of Kubernetes.
        """
        if watch is not None:
            if cpu is not None or cpu_time is not None:
                raise UnciaError("--watch reads limit and CPU time; leave out --cpu and --cpu-time")
            _watch(watch, every=every, duration=duration, as_json=as_json)
            return
        missing = [
            name for name, text in (("--cpu", cpu), ("--cpu-time", cpu_time)) if text is None
        ]
        if missing:
            raise UnciaError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                "Give the limit and the CPU time of a request, such as --cpu 250m --cpu-time 40ms,"
                " or a container to read them from (--watch).",
            )
        _compute(
            cpu, cpu_time, threads, request=request, rate=rate, period=period, burst=burst,
            as_json=as_json,
        )  # fmt: skip


def _compute(
    cpu: str,
    cpu_time: str,
    threads: int,
    *,
    request: str | None,
    rate: str | None,
    period: str,
    burst: str,
    as_json: bool,
) -> None:
    """Print what a limit does, and limits to compare it with."""
    from uncia.bandwidth import limits
    from uncia.bandwidth.cpu_time import parse
    from uncia.units import parse_duration, parse_rate

    times = parse(cpu_time)
    limit = limits.limit_of(
        limits.parse_cpu(cpu),
        quantity("--period", period, parse_duration),
        quantity("--burst", burst, parse_duration),
    )
    requested = None if request is None else limits.parse_cpu(request, "--request")
    if requested is not None and requested > limit.milli_cpu:
        raise UnciaError("--request is above the limit (--cpu), which Kubernetes refuses")
    per_second = None if rate is None else quantity("--rate", rate, parse_rate)
    rows = [
        limits.effect(candidate, times, threads)
        for candidate in limits.candidates(limit, times, threads)
    ]
    least = limits.least_limit(times, threads, limit.period_ns)
    used = None if per_second is None else limits.utilization(limit, times, per_second)
    if as_json:
        document: dict[str, Any] = {
            "limits": [_json(row, limit) for row in rows],
            "least_unthrottled_milli_cpu": least,
        }
        if requested is not None:
            document["request"] = {
                "milli_cpu": requested,
                "cpu_shares": limits.shares(requested),
                "cpu_weight": limits.weight(requested),
            }
        if used is not None:
            document["utilization"] = float(used)
        typer.echo(json.dumps(document, indent=2))
        return
    _print(rows, limit, times, threads)
    typer.echo(f"From {limits.cpu_text(least)} on, a request that comes alone is never throttled.")
    if requested is not None:
        typer.echo(
            f"resources.requests.cpu: {limits.cpu_text(requested)} is a weight of"
            f" {limits.weight(requested)} of 10,000 (cpu.weight; cpu.shares"
            f" {limits.shares(requested)}), which counts when the node's CPUs are all busy."
        )
    if used is not None:
        typer.echo(f"{rate} need {float(used):.0%} of the limit." + _overload(float(used)))


def _overload(used: float) -> str:
    """What follows from a utilization."""
    if used >= 1:
        return " The container cannot keep up: requests wait ever longer."
    if used > _BUSY:
        return " Requests will often overlap and share the quota: expect longer durations."
    return ""


def _json(row: Effect, given: Limit) -> dict[str, Any]:
    return {
        "milli_cpu": row.limit.milli_cpu,
        "given": row.limit == given,
        "quota_ns": row.limit.quota_ns,
        "period_ns": row.limit.period_ns,
        "burst_ns": row.limit.burst_ns,
        "unlimited_mean_ns": float(row.free_ns),
        "mean_ns": float(row.mean_ns),
        **{f"p{float(share * 100):g}_ns": value for share, value in row.quantiles_ns.items()},
        "throttled": float(row.throttled),
    }


def _print(rows: list[Effect], given: Limit, times: CpuTime, threads: int) -> None:
    import pandas as pd

    from uncia.bandwidth.limits import cpu_text
    from uncia.cli.cost.options import emit
    from uncia.units import NS_PER_MS, format_duration

    burst = f", burst {format_duration(given.burst_ns)}" if given.burst_ns else ""
    typer.echo(
        f"resources.limits.cpu: {cpu_text(given.milli_cpu)} is {format_duration(given.quota_ns)} of"
        f" CPU time in each {format_duration(given.period_ns)}"
        f' (cpu.max "{given.cpu_max}"{burst}).'
    )
    of = "" if threads == 1 else f" in {threads} threads"
    typer.echo(f"A request of {times.words} CPU time{of}, alone, at any time:")
    emit(
        pd.DataFrame(
            [
                {
                    "limit": cpu_text(row.limit.milli_cpu) + (" *" if row.limit == given else ""),
                    "quota, ms": float(row.limit.quota_ns / NS_PER_MS),
                    "mean, ms": float(row.mean_ns / NS_PER_MS),
                    **{
                        f"p{float(share * 100):g}, ms": float(value / NS_PER_MS)
                        for share, value in row.quantiles_ns.items()
                    },
                    "without limit, ms": float(row.free_ns / NS_PER_MS),
                    "throttled": f"{float(row.throttled):.0%}",
                }
                for row in rows
            ],
            dtype=object,
        ),
        as_json=False,
    )
    typer.echo("* The given limit. Kernels account at ticks and let a task run past its quota.")


def _watch(text: str, *, every: str, duration: str | None, as_json: bool) -> None:
    """Print how much of a group's time is throttling until it is interrupted.

    Raises:
        EndedError: the group ended; what was seen until then has been printed.
        UnciaError: there is no such group, or nothing limits it.
    """
    from uncia.bandwidth import throttling
    from uncia.interrupt import Interruption
    from uncia.units import format_duration, parse_duration

    step = quantity("--every", every, parse_duration)
    most = None if duration is None else quantity("--duration", duration, parse_duration)
    if most == 0:
        raise UnciaError(
            "--duration: 0s leaves no time to watch", "Leave it out to watch until Ctrl-C."
        )
    group = throttling.find(text)
    if step < group.limit.period_ns:
        raise UnciaError(
            f"--every: the quota's period is {format_duration(group.limit.period_ns)}",
            "Give at least that.",
        )
    if not as_json:
        from uncia.bandwidth.limits import cpu_text

        typer.echo(
            f"{group.name}: limit {cpu_text(group.limit.milli_cpu)}"
            f' (cpu.max "{group.limit.cpu_max}"). Ctrl-C ends.'
        )
    readings: list[Reading] = []
    printed: Reading | None = None
    interruption = Interruption()
    ended: throttling.EndedError | None = None
    try:
        with interruption.listening():
            for reading in throttling.watch(group, group.limit.period_ns):
                readings.append(reading)
                printed = printed or reading
                if reading.time_ns - printed.time_ns >= step:
                    _line(throttling.between(printed, reading), as_json=as_json)
                    printed = reading
                throttling.thin(readings)
                if most is not None and reading.time_ns - readings[0].time_ns >= most:
                    break
    except KeyboardInterrupt:
        pass
    except throttling.EndedError as error:
        ended = error
    if len(readings) > 1:
        _conclude(group, readings, as_json=as_json)
    if ended is not None:
        raise ended


def _facts(span: Span) -> dict[str, Any]:
    return {
        "elapsed_ns": span.elapsed_ns,
        "usage_ns": span.usage_ns,
        "cpu": span.usage_ns / span.elapsed_ns,
        "periods": span.periods,
        "throttled_periods": span.throttled,
        "throttled_ns": span.throttled_ns,
        "throttled": float(span.lost),
    }


def _line(span: Span, *, as_json: bool) -> None:
    """Print what happened in the last interval."""
    if as_json:
        typer.echo(json.dumps(_facts(span)))
        return
    typer.echo(
        f"{span.usage_ns / span.elapsed_ns:.3f} CPUs used; throttled in {span.throttled} of"
        f" {plural(span.periods, 'period')}, {float(span.lost):.0%} of its running time"
    )


def _conclude(group: Group, readings: list[Reading], *, as_json: bool) -> None:
    """Print the sum, and which limit would have ended the throttling."""
    from uncia.bandwidth import throttling
    from uncia.bandwidth.limits import cpu_text

    span = throttling.between(readings[0], readings[-1])
    episodes: list[Episode] = throttling.episodes(readings)
    counted = throttling.judged(episodes)
    needed = sorted(throttling.needed(episode, group.limit.period_ns) for episode in counted)
    half = needed[(len(needed) - 1) // 2] if needed else None
    most = needed[-1] if needed else None
    if as_json:
        summary = {
            "group": group.name,
            "limit_milli_cpu": group.limit.milli_cpu,
            "quota_ns": group.limit.quota_ns,
            "period_ns": group.limit.period_ns,
            "burst_ns": group.limit.burst_ns,
            **_facts(span),
            "episodes": len(episodes),
            "half_unthrottled_milli_cpu": half,
            "all_unthrottled_milli_cpu": most,
        }
        typer.echo(json.dumps({"summary": summary}))
        return
    typer.echo(
        f"In {span.elapsed_ns / 1e9:.1f} s: {span.usage_ns / span.elapsed_ns:.3f} CPUs used;"
        f" throttled in {span.throttled} of {plural(span.periods, 'period')},"
        f" {span.throttled_ns / 1e6:,.0f} ms or {float(span.lost):.0%} of its running time."
    )
    if half is None or most is None:
        typer.echo("It was not throttled.")
        return
    typer.echo(
        f"It was throttled {plural(len(episodes), 'time')}. About {cpu_text(half)} would have ended"
        f" half of these, {cpu_text(most)} all of them."
    )
    if not all(episode.ended for episode in counted):
        typer.echo(
            "It was throttled to the end: how much more it needed is not known, so that the limit"
            " is what its threads can use."
        )
