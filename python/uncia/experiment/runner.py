"""Carries a plan out: deploy, drive, join, and remove again whatever happens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import engine, record, services
from uncia.doctor.monitors import Asked
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment import locked, noise, run_tables, streams, verdict
from uncia.experiment.conclude import conclude
from uncia.experiment.deployed import Deployed, prefix_of
from uncia.experiment.describe import Description, content
from uncia.experiment.neighbours import Neighbours
from uncia.experiment.noise import MachineWatch
from uncia.experiment.plan import ExperimentPlan, Plan
from uncia.experiment.platform_log import PlatformLog
from uncia.experiment.progress import Reporter, sends
from uncia.experiment.sources import Sources
from uncia.interrupt import Interruption
from uncia.platforms import Context, Platform, adapter, processes
from uncia.platforms.journal import Journal, Resource
from uncia.runs.folder import RunFolder
from uncia.runs.versions import versions
from uncia.text import plural
from uncia.workload import sizes
from uncia.workload.client import Load, drive
from uncia.workload.monitoring import MonitorForm

RESULTS: Final = Path("results")
"""Where runs are kept that name no folder, each in one named by its id."""

Extend = Callable[[pa.Table], Plan | None]
"""Makes, of the rows so far, a longer plan that begins with what was carried out; or None."""

Watch = Callable[[ExperimentPlan, Path, Mapping[str, Any]], bool]
"""Whether an experiment has sent enough, by its rows so far and an event of the load generator."""

_NOT_REMOVED: Final = "not removed:"
_RTT_PROBES: Final = 5
"""TCP connects to each endpoint before and after every experiment."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: its id.
        folder: where its results are.
        summary: the content of ``summary.json``; empty when nothing could be summarised.
        failures: what makes it a failed run, a sentence each.
        interrupted: the exit code, when a signal ended the run early.
        error: what stopped it, if something did.
    """

    run: str
    folder: Path
    summary: Mapping[str, Any]
    failures: list[str]
    interrupted: int | None = None
    error: UnciaError | None = None


def new_run_id(name: str) -> str:
    """An id that sorts by time and cannot meet another: ``demo-20250515T101112Z-3fa9c1``."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{name}-{now}-{secrets.token_hex(3)}"


def execute(
    plan: Plan,
    sources: Sources,
    *,
    out: Path | None,
    reporter: Reporter,
    seed: int | None = None,
    overwrite: bool = False,
    extend: Extend | None = None,
    watch: Watch | None = None,
    with_report: bool = True,
) -> Outcome:
    """Carry out a plan and write the folder of the run.

    Args:
        plan: what to do.
        sources: finds the functions to package.
        out: the folder of the run; by default `RESULTS` / its id.
        reporter: receives progress updates.
        seed: instead of the file's.
        overwrite: an earlier run in ``out`` may be replaced.
        extend: gives more of the run whenever all experiments of the plan are carried out.
        watch: may end experiments before their last request; what is in flight is waited for.
        with_report: write ``report.html``.

    Returns:
        How it ended. Everything created is removed by then, or is in the journal.

    Raises:
        UnciaError: the folder or the journal cannot be written.
    """
    run = new_run_id(plan.file.name)
    if out is None:
        out = RESULTS / run
    interruption = Interruption()
    with interruption.listening():
        folder = RunFolder.create(out, overwrite=overwrite)
        journal = Journal(run, out)
        try:
            description = Description(
                run=run,
                content=content(plan),
                seed=plan.file.seed if seed is None else seed,
                epoch_unix_ns=time.time_ns(),
                versions=versions(),
            )
            execution = Execution(
                plan,
                sources,
                folder,
                journal,
                description,
                reporter,
                interruption,
                extend=extend,
                watch=watch,
                with_report=with_report,
            )
            return execution.carry_out()
        except BaseException:
            # Not even a mistake in this program leaves a folder that says its run goes on.
            folder.mark_failed()
            raise
        finally:
            with interruption.held():
                journal.close()


@dataclass
class Execution:
    """One run while it goes on."""

    plan: Plan
    sources: Sources
    folder: RunFolder
    journal: Journal
    description: Description
    reporter: Reporter
    interruption: Interruption
    platform: Platform | None = None
    machine: MachineWatch = field(default_factory=MachineWatch)
    extend: Extend | None = None
    watch: Watch | None = None
    with_report: bool = True
    services: ExitStack = field(default_factory=ExitStack)
    neighbours: Neighbours | None = None
    _of_neighbours: list[Resource] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deployed = Deployed(self.sources, self.description, self.reporter)
        can = adapter(self.plan.platform).CAPABILITIES
        self.log = PlatformLog(
            self.description,
            self.deployed.aliases,
            can.log_lag(self.plan.file.platform),
            can.names_invocations,
        )

    def carry_out(self) -> Outcome:
        """Measure, remove, conclude."""
        self.folder.write_run(self.description.data())
        error: UnciaError | None = None
        interrupted = False
        try:
            self._measure()
        except KeyboardInterrupt:
            interrupted = True
            self.reporter.note("Interrupted: keeping what was measured and removing what was made.")
        except UnciaError as stopped:
            error = stopped
        finally:
            with self.interruption.held():
                with self.services:
                    self._abandon_neighbours()
                    self._remove()
                self._note_what_is_left()
            # A signal that came while things were removed counts from now on.
            interrupted = interrupted or self.interruption.signal is not None
        summary: Mapping[str, Any] = {}
        if not self.folder.parts("invocations"):
            return self._leave_nothing(error, interrupted)
        try:
            with self.interruption.held():
                tables = run_tables.write(self.folder, self.log, self.description)
            self.description.warnings.extend(self.machine.unseen(tables["machine"]))
            for warning in locked.observed(self.plan, tables["invocations"]):
                self.description.warnings.append(warning)
                self.reporter.note(f"Warning: {warning}")
            self._judge(tables["invocations"], error, interrupted)
            summary = conclude(
                self.folder,
                self.description,
                tables,
                self.reporter,
                with_report=self.with_report,
            )
        except KeyboardInterrupt:
            interrupted = True
            self.description.status = "interrupted"
        except UnciaError as failed:
            error = error or failed
            self.description.status = "failed"
            self.description.failures.append(failed.message)
        try:
            with self.interruption.held():
                self.folder.write_run(self.description.data())
        except UnciaError as failed:
            error = error or failed
            self.folder.mark_failed()
        return self._outcome(summary, self.description.failures, error, interrupted)

    def _leave_nothing(self, error: UnciaError | None, interrupted: bool) -> Outcome:
        """End a run that sent nothing: no report without rows, and no folder in the next one's way.

        What could not be removed is in the journal.
        """
        for warning in self.description.warnings:
            if warning.startswith(_NOT_REMOVED):
                self.reporter.note(warning)
        self.folder.remove()
        failures = [] if error is None else [error.message]
        return self._outcome({}, failures, error, interrupted)

    def _outcome(
        self,
        summary: Mapping[str, Any],
        failures: list[str],
        error: UnciaError | None,
        interrupted: bool,
    ) -> Outcome:
        return Outcome(
            run=self.description.run,
            folder=self.folder.path,
            summary=summary,
            failures=failures,
            interrupted=self.interruption.exit_code if interrupted else None,
            error=error,
        )

    def _warn(self, sentence: str) -> None:
        """Take a warning of a part of the run into its description."""
        self.description.warnings.append(sentence)
        self.reporter.note(f"Warning: {sentence}")

    def _measure(self) -> None:
        """Everything between the first and the last request."""
        # What does not work here is said before the run, and is in its warnings, too.
        for sentence in self.machine.start(
            self.description, self.folder, self._asked(self.plan.file.monitors)
        ):
            self.reporter.note(f"Warning: {sentence}")
        self.description.warnings.extend(self.plan.warnings)
        kind = self.plan.platform
        context = Context(self.description.run, self.journal, self.reporter.note, warn=self._warn)
        of_file = self.plan.file.services
        if of_file is not None:
            running = services.running(services.named(of_file), context)
            context = replace(context, services=self.services.enter_context(running))
            self.deployed.services = context.services
        self.reporter.note(f"Starting the platform ({kind}).")
        platform = self.platform = adapter(kind).connect(self.plan.file.platform, context)
        self.description.warnings.extend(platform.start())
        self.deployed.deploy(platform, self.plan)
        self.folder.write_run(self.description.data())
        position = 0
        while position < len(self.plan.experiments):
            experiment = self.plan.experiments[position]
            if experiment.measured is not None:
                self._begin_neighbours(position, experiment)
                position += 1
                continue
            rows = self._drive(position, experiment)
            answered = [(experiment, rows)]
            if self.neighbours is not None:
                answered.append(self._end_neighbours(self.neighbours))
            if adapter(kind).CAPABILITIES.collects:
                parts = [(of, record.read(part, "invocations")) for of, part in answered]
                self.log.await_answers(platform, parts)
                if self.plan.triggers:
                    self.log.await_triggers(platform, experiment)
            if position + 1 == len(self.plan.experiments):
                self._extend_plan(platform)
            for key, last in self.plan.last_use().items():
                if last == position:
                    self.deployed.remove(platform, key)
            position += 1

    def _asked(self, forms: Sequence[MonitorForm]) -> list[Asked]:
        """The monitors that the file names, of this run's control groups unless it says whose."""
        run = self.description.run
        own = adapter(self.plan.platform).CAPABILITIES.groups(run, prefix_of(run))
        return noise.of_run(forms, own)

    def _extend_plan(self, platform: Platform) -> None:
        """Extend the plan by experiments that are made from the rows so far, if there are any."""
        if self.extend is None:
            return
        longer = self.extend(run_tables.rows_so_far(self.folder, self.log))
        if longer is None:
            return
        done = len(self.plan.experiments)
        assert longer.experiments[:done] == self.plan.experiments, "they are carried out already"
        self.plan = longer
        self.description.content = content(longer)
        self.deployed.deploy(platform, longer, since=done)
        self.folder.write_run(self.description.data())

    def _drive(self, position: int, experiment: ExperimentPlan) -> Path:
        """Send one experiment's requests; returns the part that its rows are in."""
        if experiment.pause_ns:
            time.sleep(experiment.pause_ns / 1e9)
        load = self._load(position, experiment)
        rows = load.out
        if self.watch is not None:
            load = replace(load, drain_timeout_ns=experiment.timeout_ns)
        process: list[Resource] = []

        def event(event: engine.Event) -> None:
            self._event(experiment.name, event)
            # Round trips are no requests, and there are no rows before the first one.
            is_sent = event.get("event") != "rtt"
            if self.watch is not None and is_sent and self.watch(experiment, rows, event):
                raise engine.Enough

        name = f"[{position + 1}/{len(self.plan.experiments)}] {experiment.name}"
        self.reporter.begin(name, sends(experiment), experiment.expected_requests())
        asked = self._asked(experiment.monitors)
        try:
            with self.machine.during(experiment.name, position, self.folder, asked) as sentences:
                for sentence in sentences:
                    self._warn(sentence)
                done = drive(load, event, lambda pid: self._started(pid, process))
        finally:
            for resource in process:
                self.journal.removed(resource)
        self.reporter.end(name, done)
        return rows

    def _started(self, pid: int, process: list[Resource]) -> None:
        """Journal a load generator."""
        identity = processes.identify(pid)
        if identity is not None:
            process.append(Resource("local", "process", str(pid), identity.detail()))
            self.journal.created(process[-1])

    def _begin_neighbours(self, position: int, experiment: ExperimentPlan) -> None:
        """Have an experiment's neighbours kept busy from now on."""
        load = replace(self._load(position, experiment), rtt_probes=0)
        self.neighbours = Neighbours(
            experiment, load, lambda pid: self._started(pid, self._of_neighbours)
        )
        self.reporter.note(
            f"[{position + 1}/{len(self.plan.experiments)}] {experiment.description}"
        )
        self.neighbours.start()

    def _end_neighbours(self, neighbours: Neighbours) -> tuple[ExperimentPlan, Path]:
        """End them; returns their plan and the part that their rows are in."""
        self.neighbours = None
        try:
            neighbours.stop()
        finally:
            for resource in self._of_neighbours:
                self.journal.removed(resource)
            self._of_neighbours.clear()
        for warning in neighbours.warnings:
            self._event(neighbours.experiment.name, warning)
        return neighbours.experiment, neighbours.load.out

    def _abandon_neighbours(self) -> None:
        """End those of an experiment that was not carried out to its end."""
        if self.neighbours is not None:
            try:
                self._end_neighbours(self.neighbours)
            except UnciaError as failed:
                self.description.warnings.append(failed.message)

    def _load(self, position: int, experiment: ExperimentPlan) -> Load:
        """What the load generator is to send for an experiment."""
        return Load(
            run=self.description.run,
            experiment=experiment.name,
            platform=self.plan.platform,
            streams=[
                streams.make(self.plan, stream, self.deployed) for stream in experiment.streams
            ],
            seed=self.description.seed if experiment.seed is None else experiment.seed,
            out=self.folder.part("invocations", position, experiment.name),
            spans_out=self.folder.part("spans", position, experiment.name),
            epoch_unix_ns=self.description.epoch_unix_ns,
            connect_timeout_ns=experiment.connect_timeout_ns,
            total_timeout_ns=experiment.timeout_ns,
            max_connections=experiment.max_connections,
            rtt_probes=_RTT_PROBES,
        )

    def _event(self, experiment: str, event: dict[str, Any]) -> None:
        """An event of the load generator: shown to the person; warnings go to the report."""
        if event.get("event") == "warning":
            self.description.warnings.append(str(event["message"]))
        elif event.get("event") == "failure":
            self.description.explained = [*self.description.explained, event]
        elif event.get("event") == "rtt":
            self.description.round_trips.setdefault(experiment, []).append(event)
        self.reporter.event(event)

    def _remove(self) -> None:
        """Remove all that is deployed and end the platform, whatever fails on the way."""
        platform = self.platform
        if platform is None:
            self.description.warnings.extend(self.machine.stop())
            return
        try:
            failed = [*self._note_events(platform), *self.deployed.remove_all(platform)]
            try:
                # After the functions are gone every instance has ended, and says why.
                self.log.fetch(platform)
            except UnciaError as error:
                failed.append(error.message)
            # A platform that is gone refuses everything for the same reason: it is reported once.
            self.description.warnings.extend(dict.fromkeys(failed))
        finally:
            self.description.warnings.extend(self.machine.stop())
            platform.close()

    def _note_events(self, platform: Platform) -> list[str]:
        """Warn of events that end with their functions, without rows for what was to follow.

        Returns what failed.
        """
        try:
            unserved = platform.unserved_events()
        except UnciaError as error:
            return [error.message]
        if unserved:
            warning = (
                f"{plural(unserved, 'event')} that functions left for each other had not ended when"
                " the functions were removed: what was still to run was dropped, without a row."
            )
            self.description.warnings.append(warning)
            self.reporter.note(f"Warning: {warning}")
        return []

    def _note_what_is_left(self) -> None:
        """Warn of what could not be removed, once platform and services are ended."""
        if self.journal.outstanding:
            left = ", ".join(resource.sentence() for resource in self.journal.outstanding)
            self.description.warnings.append(f"{_NOT_REMOVED} {left}; `uncia clean` tries again")

    def _judge(self, rows: pa.Table, error: UnciaError | None, interrupted: bool) -> None:
        """Whether the rows are as the experiments declare; fills in status and failures."""
        is_whole = error is None and not interrupted
        failures = verdict.failures(self.plan.experiments, rows, is_whole=is_whole)
        failures += sizes.contradictions(
            rows,
            [
                sizes.Declared(plan.alias, plan.function.memory, plan.function.vcpu)
                for plan in self.plan.deployments.values()
                if plan.function.source is None
            ],
        )
        self.description.failures = failures if error is None else [error.message, *failures]
        self.description.ended_unix_ns = time.time_ns()
        if interrupted:
            self.description.status = "interrupted"
        else:
            self.description.status = "failed" if self.description.failures else "complete"


def failure(outcome: Outcome) -> RunFailedError:
    """The error that a failed run ends a command with."""
    count = len(outcome.failures)
    lines = "\n".join(f"  {sentence}" for sentence in outcome.failures)
    return RunFailedError(
        f"the run failed ({plural(count, 'reason')}):\n{lines}",
        hint=f"Every row is kept in {outcome.folder}. What may happen is declared with `expect:`.",
    )
