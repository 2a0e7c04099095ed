"""``uncia monitor``: watches the machine and its control groups beside anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia import terminal
from uncia.cli.options import AsJson
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.doctor.everywhere import Everywhere
    from uncia.doctor.monitors import Asked, Host

_STREAM: Final = "machine.arrows"
_TABLE: Final = "machine.parquet"
_POLL_S: Final = 0.05
_GROUPS: Final = ("/*",)
_INTERVAL: Final = "100ms"
_REPEATS: Final = 4
"""Fewer runs do not say how runs differ."""


def register(app: typer.Typer) -> None:
    """Add the command ``monitor`` to ``app``."""

    @app.command()
    def monitor(
        command: list[str] | None = typer.Argument(
            None,
            metavar="[-- COMMAND...]",
            help="Run this command, watch until it ends, and exit with its exit code.",
            show_default=False,
        ),
        seconds: str | None = typer.Option(
            None,
            "--for",
            metavar="TIME",
            help="How long, such as 10s, where there is no command. Default: until Ctrl-C.",
            show_default=False,
        ),
        names: list[str] = typer.Option(
            [],
            "--monitor",
            "-m",
            metavar="NAME",
            help="machine, cgroup, pressure, perf, block, schedule or resctrl; may be repeated."
            " Default: all that work here but resctrl, which moves threads into groups of its own.",
            show_default=False,
        ),
        groups: list[str] = typer.Option(
            list(_GROUPS),
            "--group",
            "-g",
            metavar="PATTERN",
            help="Watch these control groups: paths in their trees, with * and ** as in"
            " '/docker/*'; may be repeated.",
        ),
        interval: str = typer.Option(
            _INTERVAL,
            "--interval",
            metavar="TIME",
            help="Between two samples; at least 1ms, of machine 200ms.",
        ),
        out: Path = typer.Option(
            Path("monitored"), "--out", metavar="DIR", help="The folder for machine.parquet."
        ),
        budget: str | None = typer.Option(
            None,
            "--budget",
            metavar="SHARE",
            help="The share of a CPU that each monitor may use, such as 2%; beyond, its interval"
            " becomes longer.",
            show_default=False,
        ),
        hosts: list[str] = typer.Option(
            [],
            "--host",
            metavar="URL",
            help="Watch this machine by ssh, ssh://user@host:port, instead of the one here, which"
            " is local; may be repeated.",
            show_default=False,
        ),
        host_engine: str | None = typer.Option(
            None,
            "--host-engine",
            metavar="PATH",
            help="With --host: the engine that is there. Default: a copy of the one here.",
            show_default=False,
        ),
        cost: str | None = typer.Option(
            None,
            "--cost",
            metavar="FILE",
            help="Run this experiment file with its monitors and without them, in turn, and show"
            " what they cost.",
            show_default=False,
        ),
        repeat: int | None = typer.Option(
            None,
            "--repeat",
            "-n",
            metavar="N",
            help=f"With --cost: runs of each side, at least {_REPEATS}, which is the default.",
            show_default=False,
        ),
        as_json: AsJson = False,
    ) -> None:
        """Watch the machine and its control groups for a time, or while a command runs."""
        from uncia import record
        from uncia.cli.quantities import quantity
        from uncia.doctor.monitors import KINDS, QUIET_KINDS, SHORTEST_INTERVAL_NS, Asked
        from uncia.units import parse_duration

        # What the file says is not said here, and the other way round.
        of_time = {
            "a command": command,
            "--for": seconds,
            "--monitor": names,
            "--group": groups != list(_GROUPS),
            "--interval": interval != _INTERVAL,
            "--budget": budget,
            "--host": hosts,
            "--host-engine": host_engine,
        }
        _check_cost(cost, repeat, [name for name, given in of_time.items() if given])
        if cost is not None:
            raise typer.Exit(
                _cost(cost, _REPEATS if repeat is None else repeat, out, as_json=as_json)
            )
        if unknown := [name for name in names if name not in KINDS]:
            raise UnciaError(
                f"there is no monitor {unknown[0]!r}", hint=f"There are {', '.join(KINDS)}."
            )
        if command and shutil.which(command[0]) is None:
            raise UnciaError(
                f"cannot run {command[0]}: there is no such program",
                hint="Name one that is on PATH, or by its path.",
            )
        if command and seconds is not None:
            raise UnciaError(
                "a command is watched until it ends, and --for says something else",
                hint="Leave out --for, or limit the command: timeout 10s COMMAND.",
            )
        duration_ns = None if seconds is None else quantity("--for", seconds, parse_duration)
        if duration_ns == 0:
            raise UnciaError("--for is 0, and nothing is read in no time", hint="Say --for 10s.")
        interval_ns = quantity("--interval", interval, parse_duration)
        if interval_ns < SHORTEST_INTERVAL_NS:
            raise UnciaError(f"--interval: {interval} is too short: it is at least 1 ms")
        _check_groups(groups)
        share = None if budget is None else _share(budget)
        asked = [
            Asked(name, interval_ns, groups, budget=share, hosts=_hosts(hosts, host_engine))
            for name in dict.fromkeys(names or QUIET_KINDS)
        ]
        monitors = _begin(asked, out)
        try:
            code = _wait(monitors, command or [], duration_ns)
        finally:
            for sentence in monitors.stop():
                typer.echo(sentence, err=True)
            record.recover_folder(out)
        rows = record.read(out / _TABLE, "machine")
        for sentence in monitors.unseen(rows):
            typer.echo(sentence, err=True)
        _show(rows, out / _TABLE, monitors.facts, as_json=as_json)
        if code:
            raise typer.Exit(code)


def _check_cost(cost: str | None, repeat: int | None, given: list[str]) -> None:
    """Check that nothing is said which would not count.

    :raises UnciaError: an option is of --cost, or is not.
    """
    if cost is None and repeat is not None:
        raise UnciaError("--repeat is of --cost", hint="Name an experiment file: --cost FILE.")
    if cost is not None and given:
        raise UnciaError(
            f"with --cost, the file says what is watched and for how long, not {given[0]}",
            hint=f"Leave it out, or change {cost}.",
        )


def _check_groups(patterns: list[str]) -> None:
    """Check that patterns are of control groups.

    :raises UnciaError: one is not.
    """
    from uncia.workload.monitoring import check_group

    for pattern in patterns:
        try:
            check_group(pattern)
        except ValueError as error:
            raise UnciaError(f"--group: {error}") from error


def _begin(asked: list[Asked], out: Path) -> Everywhere:
    """Start the monitors; where nothing is watched, nothing is left in the folder.

    :raises UnciaError: none works, or the folder is not free.
    """
    from uncia.doctor.everywhere import Everywhere

    is_new = not out.exists()
    stream = _stream(out)

    def part(host: int) -> Path:
        return out / f"machine.{host}.arrows" if host else stream

    try:
        monitors = Everywhere.start(asked, part, time.time_ns())
        if not monitors.any_watching():
            raise UnciaError("nothing is watched: " + "; ".join(monitors.stop()), exit_code=1)
    except BaseException:
        # There was no stream before.
        for path in out.glob("*.arrows"):
            path.unlink()
        if is_new:
            with suppress(OSError):
                out.rmdir()
        raise
    return monitors


def _hosts(urls: list[str], engine: str | None) -> tuple[Host, ...]:
    """The hosts that are named.

    :raises UnciaError: one is none, or there twice.
    """
    from uncia.doctor.monitors import Host
    from uncia.doctor.ssh import Address

    if engine is not None and not urls:
        raise UnciaError("--host-engine is for other machines", hint="Name them with --host.")
    names = []
    for url in urls:
        try:
            names.append("local" if url == "local" else Address.parse(url).name)
        except ValueError as error:
            raise UnciaError(f"--host: {error}") from error
    if twice := [name for name in names if names.count(name) > 1]:
        raise UnciaError(f"--host names {twice[0]} twice")
    return tuple(Host() if url == "local" else Host(url, engine) for url in urls)


def _share(text: str) -> float:
    """A share of a CPU, in per cent.

    :raises UnciaError: it is none, or nothing.
    """
    from uncia.workload.shares import percent

    try:
        share = percent(text)
    except ValueError as error:
        raise UnciaError(f"--budget: {error}") from error
    if not share:
        raise UnciaError("--budget 0% lets a monitor do nothing", hint="Name fewer monitors.")
    return float(share)


def _cost(text: str, repeats: int, out: Path, *, as_json: bool) -> int:
    """Run an experiment file without and with its monitors, and show what differs.

    :raises UnciaError: the file names no monitors, or a run failed.
    """
    from dataclasses import replace

    from uncia.cli import judging
    from uncia.experiment import files, progress
    from uncia.experiment import repeat as repeating
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources
    from uncia.report import compare as comparing
    from uncia.report.run_sets import RunSet
    from uncia.stats.verdicts import MIN_REPEATS

    path = files.find(text)
    file, document = files.load(path)
    if not file.monitors and not any(it.monitors for it in file.experiments.values()):
        raise UnciaError(
            f"{text} names no monitors, so they cost nothing", hint="Name some under monitors:."
        )
    if repeats < MIN_REPEATS:
        raise UnciaError(
            f"--repeat {repeats}: too few runs to know how runs differ;"
            f" it takes {MIN_REPEATS} of each side"
        )
    sources = Sources(document, path.resolve().parent)
    watched = plan(file, sources)
    alone = replace(
        watched,
        file=file.model_copy(update={"monitors": []}),
        experiments=[replace(it, monitors=()) for it in watched.experiments],
    )
    sides: dict[repeating.Name, repeating.Side] = {
        "base": repeating.Side(alone, sources),
        "change": repeating.Side(watched, sources),
    }
    reporter = progress.reporter(quiet=False, repeats=True)
    try:
        runs = repeating.interleave(
            sides, repeats=repeats, seed=file.seed, out=out, reporter=reporter
        )
    finally:
        reporter.close()
    if runs.error is not None:
        raise runs.error
    if runs.interrupted is not None:
        return runs.interrupted
    labels = {"base": "without monitors", "change": "with monitors"}
    comparison = comparing.build(
        [
            RunSet([outcome.folder for outcome in runs.outcomes[name]], labels[name])
            for name in repeating.SIDES
        ],
        [],
    )
    output = judging.Output(as_json, None, None, None, allow_not_judged=True)
    code = output.emit(comparison, [])
    return 1 if runs.failures else code


def _stream(out: Path) -> Path:
    """The stream to write; the folder is made.

    :raises UnciaError: an earlier one is there, or the folder cannot be made.
    """
    # All streams of the folder become tables at the end, and are removed.
    streams = sorted(path.name for path in out.glob("*.arrows"))
    for name in (_STREAM, _TABLE, *streams):
        if (out / name).exists():
            raise UnciaError(
                f"{out / name} exists already",
                hint="Choose another folder with --out; nothing was deleted."
                " `uncia recover` finishes an *.arrows file that a crash left.",
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot make {out}: {error.strerror or error}") from error
    return out / _STREAM


def _wait(monitors: Everywhere, command: list[str], duration_ns: int | None) -> int:
    """Wait for the command or the time, whichever is first; returns the exit code.

    :raises UnciaError: the command cannot be run.
    """
    end = None if duration_ns is None else time.monotonic() + duration_ns / 1e9
    process = None
    if command:
        try:
            process = subprocess.Popen(command)
        except OSError as error:
            raise UnciaError(f"cannot run {command[0]}: {error.strerror or error}") from error
    try:
        while end is None or time.monotonic() < end:
            if process is not None and process.poll() is not None:
                return _exit_code(process.returncode) or int(not monitors.all_alive())
            # A command goes on though nobody watches it any more.
            if process is None and not monitors.any_alive():
                break
            rest = _POLL_S if end is None else min(_POLL_S, max(0.0, end - time.monotonic()))
            time.sleep(rest)
    except KeyboardInterrupt:
        if process is None:
            # How one that was given no time is ended.
            return 0 if end is None else 130
        return _exit_code(process.wait())
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return 0 if monitors.all_alive() else 1


def _exit_code(code: int) -> int:
    """The exit code of a command; one that a signal ended has 128 and its number, as in shells."""
    return 128 - code if code < 0 else code


def _show(rows: pa.Table, path: Path, hosts: dict[str, Any], *, as_json: bool) -> None:
    """Print what each monitor read, in the mean."""
    import json

    from rich.console import Console
    from rich.table import Table

    from uncia.report.monitored import clock_sentence, format_value, is_bin, summarise

    summary = summarise(rows)
    if as_json:
        result = {"table": os.fspath(path), "counters": summary, "hosts": hosts}
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console(highlight=False, emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("monitor", "counter"):
        table.add_column(name, no_wrap=True)
    # Most monitors watch the machine alone, and the terminal may be narrow.
    has_groups = any(row["cgroup"] for row in summary)
    if hosts:
        table.add_column("host", overflow="fold")
    if has_groups:
        table.add_column("of", overflow="fold")
    for name in ("samples", "mean", "per s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in summary:
        if is_bin(row["counter"]):
            continue
        counter, per_second = row["counter"], row["per_s"]
        table.add_row(
            row["monitor"],
            counter,
            *([row["host"] or "local"] if hosts else []),
            *([row["cgroup"] or "machine"] if has_groups else []),
            f"{row['samples']:,}",
            format_value(counter, row["mean"]),
            "" if per_second is None else format_value(counter, per_second),
        )
    terminal.show(console, table, keys=2 + bool(hosts) + has_groups)
    for name, facts in hosts.items():
        console.print(f"\n{clock_sentence(name, facts['clock'])}", soft_wrap=True)
    console.print(f"\n{rows.num_rows:,} rows in {path}", soft_wrap=True)
