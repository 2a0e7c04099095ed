"""``uncia cpu profile``: measures throttles on this machine from inside a process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from uncia import terminal
from uncia.cli.options import AsJson, Overwrite, Quiet
from uncia.cli.quantities import quantity
from uncia.errors import UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from uncia import engine


def register(app: typer.Typer) -> None:
    """Add the command ``profile`` to ``app``."""

    @app.command()
    def profile(
        period: str = typer.Option(
            "20ms", metavar="TIME", help="Period of the quota, from 1ms to 1s."
        ),
        quota: str = typer.Option(
            None, metavar="TIME", help="CPU time in each period, such as 1.45ms."
        ),
        vcpu: str = typer.Option(
            None, metavar="SHARE", help="Share of a CPU, such as 0.0725, instead of a quota."
        ),
        burst: str = typer.Option(
            "0ms", metavar="TIME", help="Unused quota that later periods may use."
        ),
        duration: str = typer.Option(
            None, metavar="TIME", help="Length of each run. Default: 10s."
        ),
        cpu_time: str = typer.Option(
            None,
            "--cpu-time",
            metavar="LIST",
            help="Run tasks of these CPU times instead: 5ms,10ms or 5ms..50ms/5ms.",
        ),
        repeat: int = typer.Option(
            1, min=1, help="Number of runs; with --cpu-time, for each CPU time."
        ),
        groups: int = typer.Option(
            1, min=1, help="Spread the runs over so many control groups, one after the other."
        ),
        threshold: str = typer.Option(
            "500us", metavar="TIME", help="Jumps of the clock below this are not throttles."
        ),
        cpu: int = typer.Option(None, min=0, help="CPU to run on. Default: any."),
        seed: int = typer.Option(0, min=0, help="Seed of the random phases at which runs begin."),
        baseline: str = typer.Option(
            "1s",
            metavar="TIME",
            help="First watch without a quota for this long; 0ms: do not.",
        ),
        out: Path = typer.Option(
            None,
            metavar="FOLDER",
            help="The run's folder. Default: results/cpu-profile-TIME.",
            show_default=False,
        ),
        overwrite: Overwrite = False,
        cgroup2: bool = typer.Option(
            False, "--cgroup2", help="Use control groups version 2, even where version 1 exists."
        ),
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        """Measure throttles from inside: run a busy loop in a control group with a quota.

        Each run begins at a random phase of the period. The run's folder gets throttles, CPU times
        and the kernel's counters, with a report; Ctrl-C keeps the runs made so far.
        """
        from uncia.bandwidth.profiles.measure import Settings, measure
        from uncia.interrupt import Interruption
        from uncia.report.cpu import profile as report

        period_ns = _time(period, "--period")
        settings = Settings(
            period_ns=period_ns,
            quota_ns=_quota(period_ns, quota, vcpu),
            burst_ns=_time(burst, "--burst"),
            duration_ns=_duration(duration, cpu_time),
            task_cpu_ns=_cpu_times(cpu_time),
            repeat=repeat,
            groups=groups,
            threshold_ns=_time(threshold, "--threshold"),
            cpu=cpu,
            seed=seed,
            baseline_ns=_time(baseline, "--baseline"),
            unified=cgroup2,
        )
        if out is None:
            out = Path("results") / time.strftime("cpu-profile-%Y%m%d-%H%M%S", time.gmtime())
        interruption = Interruption()
        with interruption.listening():
            try:
                with _progress(quiet=quiet or as_json) as on_event:
                    measured = measure(settings, out, overwrite=overwrite, on_event=on_event)
                report.write(measured.folder, measured.summary, measured.description)
            except KeyboardInterrupt:
                raise typer.Exit(interruption.exit_code) from None
        if as_json:
            typer.echo(json.dumps(measured.summary, indent=2))
        else:
            _print(measured.summary)
            typer.echo(f"{measured.folder / 'report.html'}")
        if measured.interrupted:
            raise typer.Exit(interruption.exit_code)


def _time(text: str, option: str) -> int:
    from uncia.units import parse_duration

    return quantity(option, text, parse_duration)


def _quota(period_ns: int, quota: str | None, vcpu: str | None) -> int:
    """The quota in ns; of a share, rounded down to the kernel's microseconds."""
    from uncia.units import MICRO_PER_VCPU, parse_cpu

    if quota is not None and vcpu is None:
        return _time(quota, "--quota")
    if quota is not None or vcpu is None:
        raise UnciaError("give either --quota or --vcpu", hint="For example --quota 1.45ms.")
    text = f"{vcpu}vCPU" if vcpu[-1:].isdigit() else vcpu
    share = quantity("--vcpu", text, parse_cpu)
    return period_ns * share // MICRO_PER_VCPU // 1_000 * 1_000


def _duration(duration: str | None, cpu_time: str | None) -> int | None:
    if cpu_time is None:
        watched = _time(duration or "10s", "--duration")
        if watched == 0:
            raise UnciaError(f"--duration: {duration} is too short", hint="Give 10s or so.")
        return watched
    if duration is not None:
        raise UnciaError("--duration and --cpu-time exclude each other")
    return None


def _cpu_times(text: str | None) -> list[int] | None:
    from uncia.bandwidth import sizes

    return None if text is None else sizes.durations(text, "--cpu-time")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[engine.Event], None] | None]:
    """Show a bar on standard error, if that is a terminal."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("without a quota", total=None)

        def show(event: engine.Event) -> None:
            if event.get("event") == "baseline":
                bar.update(task, description="watching")
            elif event.get("event") in ("progress", "done"):
                bar.update(
                    task,
                    total=event["runs"],
                    completed=event["completed"],
                    description=plural(event["throttles"], "throttle"),
                )

        yield show


def _print(summary: dict[str, Any]) -> None:
    """Print a profile in a few lines."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    share, allowed = summary["used_share"], summary["quota_share"]
    console.print(
        f"{plural(summary['runs'], 'run')}, {plural(summary['events'], 'throttle')}", end=""
    )
    if share is not None and allowed is not None:
        console.print(f"; {share:.2%} of a vCPU obtained, {allowed:.2%} allowed", end="")
    console.print()
    table = Table(box=None, pad_edge=False)
    for heading in ("ms", "mean", "5 %", "50 %", "95 %", "most"):
        table.add_column(heading, justify="left" if heading == "ms" else "right")
    for name in ("interval", "throttle", "cpu"):
        if times := summary[f"{name}_ns"]:
            cells = (f"{times[key] / 1e6:,.3f}" for key in ("mean", "p5", "p50", "p95", "max"))
            table.add_row(name, *cells)
    if table.row_count:
        terminal.show(console, table)
    for task in summary.get("tasks", ()):
        console.print(
            f"task of {task['cpu_ns'] / 1e6:g} ms: mean {task['mean_ns'] / 1e6:.3f} ms, "
            f"95 % {task['p95_ns'] / 1e6:.3f} ms ({task['runs']} times)"
        )
    kernel, noise = summary["kernel"], summary["noise"]
    if kernel["nr_throttled"] is not None:
        console.print(
            f"the kernel counted nr_throttled {kernel['nr_throttled']:,} "
            f"({_number(noise['refills'])} refills lie in the gaps) and "
            f"{kernel['throttled_ns'] / 1e6:,.1f} ms throttled "
            f"({summary['gap_ns'] / 1e6:,.1f} ms in gaps)"
        )
    console.print(
        f"probably no throttles: {_number(noise['without_refill'])} gaps without a refill; "
        f"{_number(noise['expected_false'])} expected by the baseline"
    )
    for note in summary["notes"]:
        console.print(f"note: {note}", markup=False)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
