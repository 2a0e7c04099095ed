"""Carries a suite out for a history: once, or at intervals until a signal comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import cleanup
from uncia.experiment.progress import Reporter
from uncia.stats.verdicts import Finding
from uncia.suites import left_out, page, perform, results, simulated
from uncia.suites.catalogue import Suite, SuiteEntry, experiment_file
from uncia.suites.history import conditions, folders, index, judging
from uncia.suites.history.folders import ForeignError, Repeat
from uncia.suites.history.judging import Judged
from uncia.suites.perform import State

TARIFF: Final = "aws-lambda-x86"
"""The tariff of costs, unless others are given."""

COMMAND_LIMIT_S: Final = 600.0
"""The command of a regression is ended after so long: the next time would wait for it."""

_LONGEST_SLEEP_S: Final = 60.0


@dataclass(frozen=True)
class Plan:
    """What is carried out each time.

    Attributes:
        history: its folder.
        suite: the suite.
        entries: those of it that were chosen.
        quick: whether experiments are shortened.
        conditions: the gates that each time is judged by.
        tariffs: ids, of costs.
        command: for a shell, run after a time that violates a condition; None for none.
    """

    history: Path
    suite: Suite
    entries: Sequence[SuiteEntry]
    quick: bool
    conditions: Sequence[str]
    tariffs: Sequence[str]
    command: str | None


def check(plan: Plan) -> None:
    """Check that times of a plan can be read by a history, and judged by its conditions.

    A time is read run by run, and a sweep is many: it could never be whole.

    Raises:
        UnciaError: an entry is a simulation with a sweep or has runs without requests, or a
            condition names what no time has.
    """
    entries = plan.entries
    swept = [
        entry.name
        for entry in entries
        if any(
            simulated.has_sweep(yamlio.load(experiment_file(run.file, entry.document)))
            for name, run in entry.form.runs.items()
            if name in entry.simulated
        )
    ]
    if swept:
        raise UnciaError(
            f"a history cannot compare simulations with a sweep: {', '.join(swept)}",
            hint="Choose other entries with --only, or carry these out with: uncia suite run",
        )
    without_requests = [
        entry.name
        for entry in entries
        if any(not left_out.lacks(entry, name) for name in sorted(entry.traced | entry.locality))
    ]
    if without_requests:
        raise UnciaError(
            f"a history cannot compare runs without requests: {', '.join(without_requests)}",
            hint="Choose other entries with --only, or carry these out with: uncia suite run",
        )
    conditions.check(plan.suite, entries, plan.conditions, plan.tariffs, quick=plan.quick)


def once(plan: Plan, reporter: Reporter) -> tuple[Judged, int | None]:
    """Carry the suite out once more, and compare it with the times before.

    The caller has locked the history.

    Args:
        plan: what to do.
        reporter: receives progress updates.

    Returns:
        The time with its verdicts, and the exit code of a signal that came; None if none did.

    Raises:
        UnciaError: the history cannot be written, or holds what cannot be read.
    """
    _settle(plan.history, reporter.note)
    now = folders.utc_now()
    repeat = Repeat(
        plan.suite.source,
        folders.written(now),
        plan.quick,
        [
            f"{entry.name}/{run}"
            for entry in plan.entries
            for run in entry.form.runs
            if not left_out.lacks(entry, run)
        ],
        list(plan.conditions),
    )
    folder = folders.begin(plan.history, repeat, now)
    reporter.note(f"Into {folder}.")
    state = State(folder, plan.suite.source, quick=plan.quick)
    state.write()
    interrupted = perform.carry_out(state, plan.entries, reporter)
    read = results.read(state, plan.suite)
    read.write_claims()
    page.write(read)
    replace(repeat, ended=folders.written(folders.utc_now())).write(folder)
    judged = update(plan.history, plan.tariffs)
    newest = next(item for item in judged if item.time.name == folder.name)
    if newest.violated and plan.command is not None and interrupted is None:
        _run_command(plan.command, plan.history, newest, reporter.note)
    return newest, interrupted


def forever(plan: Plan, every_ns: int, reporter: Reporter, done: Callable[[Judged], None]) -> int:
    """Carry the suite out at intervals, until a signal comes.

    An interval is counted from start to start, by a clock that nobody sets. Only what is left of
    it when this begins is taken from the dates of the history, and is never more than one interval,
    whatever they say. A start that was missed is not made up for.

    Args:
        plan: what to do.
        every_ns: the interval, ns.
        reporter: receives progress updates.
        done: takes each time with its verdicts.

    Returns:
        The exit code of the signal that came during a run; a signal while it waits raises
        KeyboardInterrupt.

    Raises:
        UnciaError: the history cannot be written.
    """
    left = remaining_ns(_last_begun(plan.history), every_ns, datetime.now(UTC))
    due = time.monotonic_ns() + left
    while True:
        if (wait := due - time.monotonic_ns()) > 0:
            at = datetime.now(UTC) + timedelta(microseconds=wait // 1000)
            reporter.note(f"The next time is {at:%Y-%m-%d %H:%M} UTC.")
        while (wait := due - time.monotonic_ns()) > 0:
            time.sleep(min(wait / 1e9, _LONGEST_SLEEP_S))
        due = time.monotonic_ns() + every_ns
        judged, interrupted = once(plan, reporter)
        done(judged)
        if interrupted is not None:
            return interrupted


def remaining_ns(last: datetime | None, every_ns: int, now: datetime) -> int:
    """What is left of an interval that began at ``last``, ns: from 0 to the whole interval."""
    if last is None:
        return 0
    passed = (now - last) // timedelta(microseconds=1) * 1000
    return min(max(every_ns - passed, 0), every_ns)


def update(history: Path, tariffs: Sequence[str]) -> list[Judged]:
    """Derive the index of a history from its folders, write it, and judge every time.

    Args:
        history: its folder, which this process has locked.
        tariffs: ids, of costs.

    Raises:
        UnciaError: there is no history, or its index cannot be written.
    """
    with folders.indexing(history):
        judged = judging.judge_all(index.read(history, tariffs))
        index.write(history, [_plain(item) for item in judged])
    return judged


def look(history: Path, tariffs: Sequence[str]) -> list[Judged]:
    """As `update`, of a history that others may be adding to, or that can only be read."""
    with ExitStack() as stack:
        # A history that may only be read has no lock, and its index stays as it is.
        with suppress(UnciaError):
            stack.enter_context(folders.indexing(history))
        judged = judging.judge_all(index.read(history, tariffs, is_locked=False))
        # While a time goes on, its process writes the index when it ends.
        if not any(item.time.status == "running" for item in judged):
            with suppress(UnciaError):
                index.write(history, [_plain(item) for item in judged])
    return judged


def _settle(history: Path, log: Callable[[str], None]) -> None:
    """Remove what runs of times left that were killed."""
    for path in folders.numbered(history):
        with suppress(ForeignError):
            if Repeat.read(path).ended is None:
                for run in sorted(path.glob("*/*/run.yaml")):
                    cleanup.settle(run.parent, log)


def _last_begun(history: Path) -> datetime | None:
    """When the last time began, by its own word; None if none says so."""
    for path in reversed(folders.numbered(history)):
        try:
            return datetime.fromisoformat(Repeat.read(path).begun)
        except (ForeignError, ValueError):
            continue
    return None


def _plain(item: Judged) -> dict[str, Any]:
    return {
        "name": item.time.name,
        "begun": item.time.begun or None,
        "status": item.time.status,
        "reason": item.time.reason or None,
        "compared": item.compared,
        "verdicts": [_verdict(finding) for finding in item.findings],
    }


def _verdict(finding: Finding) -> dict[str, Any]:
    return {
        "gate": finding.gate.text,
        "subject": finding.subject,
        "verdict": finding.verdict,
        "reason": finding.reason,
    }


def _run_command(command: str, history: Path, judged: Judged, log: Callable[[str], None]) -> None:
    """Run a command in a shell, with the verdicts on its input; that it fails is only said."""
    content = _plain(judged)
    content["verdicts"] = [_verdict(finding) for finding in judged.violated]
    environment = {
        **os.environ,
        "UNCIA_HISTORY": str(history.resolve()),
        "UNCIA_RUN": str((history / judged.time.name).resolve()),
        "UNCIA_REGRESSIONS": str(len(judged.violated)),
    }
    try:
        # A session of its own: what the shell started can be ended with it.
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        log(f"--on-regression: the command did not start: {error.strerror or error}.")
        return
    with process:
        try:
            process.communicate(json.dumps(content, indent=2) + "\n", COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            log(f"--on-regression: the command was ended after {COMMAND_LIMIT_S:.0f} s.")
        except BaseException:
            _kill_group(process)
            raise
        else:
            if process.returncode != 0:
                log(f"--on-regression: the command ended with status {process.returncode}.")


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that leads a group, and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def describe(judged: Judged) -> list[str]:
    """What came of a time, in sentences."""
    item = judged.time
    if item.status != "whole":
        return [f"{item.name} {item.status}: {item.reason}"]
    counts = {
        verdict: sum(finding.verdict == verdict for finding in judged.findings)
        for verdict in ("violated", "not judged", "holds")
    }
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    lines = [f"{item.name}: {summary or 'no conditions'}."]
    lines += [
        f"  {finding.gate.text}: {finding.subject}: {finding.reason}" for finding in judged.violated
    ]
    return lines
