"""Carries a plan out: deploy, drive, join, and remove again whatever happens."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import record, services
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment import hops as hop_rows
from uncia.experiment import locked, verdict
from uncia.experiment.conclude import conclude
from uncia.experiment.describe import Description, content
from uncia.experiment.join import rename, shift, unmatched
from uncia.experiment.noise import NoiseWatch
from uncia.experiment.plan import ExperimentPlan, Plan, StreamPlan
from uncia.experiment.progress import Reporter, sends
from uncia.experiment.sources import Sources
from uncia.experiment.specs import Specs
from uncia.experiment.stages import ChainPlan
from uncia.interrupt import Interruption
from uncia.platforms import (
    Context,
    Deployment,
    Platform,
    SequenceSpec,
    Target,
    adapter,
    processes,
)
from uncia.platforms.journal import Journal, Resource
from uncia.runs.folder import RunFolder
from uncia.runs.versions import versions
from uncia.text import plural
from uncia.units import NS_PER_S, format_duration
from uncia.workload import sizes
from uncia.workload.client import ClosedLoop, Load, Stream, drive
from uncia.workload.loops import Closed

RESULTS: Final = Path("results")
"""Where runs are kept that name no folder, each in one named by its id."""

Extend = Callable[[pa.Table], Plan | None]
"""Makes, of the rows so far, a longer plan that begins with what was carried out; or None."""

_NOT_REMOVED: Final = "not removed:"

# A platform's log may lag behind its answers for a moment; after this it is missing, not late.
_COLLECT_PATIENCE_S: Final = 5.0
_COLLECT_POLL_S: Final = 0.05


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
        extend: gives the rest of the run, once all experiments of the plan are carried out.
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
    deployed: dict[str, list[tuple[Deployment, Target]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    sequences: dict[str, tuple[Deployment, Target]] = field(default_factory=dict)
    collected: list[pa.Table] = field(default_factory=list)
    spans: list[pa.Table] = field(default_factory=list)
    instances: pa.Table | None = None
    noise: NoiseWatch = field(default_factory=NoiseWatch)
    extend: Extend | None = None
    with_report: bool = True
    services: ExitStack = field(default_factory=ExitStack)

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
                    self._remove()
                self._note_what_is_left()
            # A signal that came while things were removed counts from now on.
            interrupted = interrupted or self.interruption.signal is not None
        summary: Mapping[str, Any] = {}
        if not self.folder.parts("invocations"):
            return self._leave_nothing(error, interrupted)
        try:
            with self.interruption.held():
                tables = self._tables()
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
        return Outcome(
            run=self.description.run,
            folder=self.folder.path,
            summary=summary,
            failures=self.description.failures,
            interrupted=self.interruption.exit_code if interrupted else None,
            error=error,
        )

    def _leave_nothing(self, error: UnciaError | None, interrupted: bool) -> Outcome:
        """End a run that sent nothing: no report without rows, and no folder in the next one's way.

        What could not be removed is in the journal.
        """
        for warning in self.description.warnings:
            if warning.startswith(_NOT_REMOVED):
                self.reporter.note(warning)
        self.folder.remove()
        return Outcome(
            run=self.description.run,
            folder=self.folder.path,
            summary={},
            failures=[] if error is None else [error.message],
            interrupted=self.interruption.exit_code if interrupted else None,
            error=error,
        )

    def _measure(self) -> None:
        """Everything between the first and the last request."""
        self.noise.start(self.description)
        self.description.warnings.extend(self.plan.warnings)
        kind = self.plan.platform
        context = Context(self.description.run, self.journal, self.reporter.note)
        of_file = self.plan.file.services
        if of_file is not None:
            running = services.running(services.named(of_file), context)
            context = replace(context, services=self.services.enter_context(running))
        self.reporter.note(f"Starting the platform ({kind}).")
        self.platform = adapter(kind).connect(self.plan.file.platform, context)
        self.description.warnings.extend(self.platform.start())
        self._deploy(self.platform)
        self.folder.write_run(self.description.data())
        position = 0
        while position < len(self.plan.experiments):
            experiment = self.plan.experiments[position]
            self._drive(position, experiment)
            self._collect(position, experiment)
            if position + 1 == len(self.plan.experiments):
                self._extend_plan(self.platform)
            for key, last in self.plan.last_use().items():
                if last == position:
                    self._remove_deployment(self.platform, key)
            position += 1

    def _extend_plan(self, platform: Platform) -> None:
        """Let the plan go on with what is made of the rows so far, if anything is."""
        extend, self.extend = self.extend, None
        longer = None if extend is None else extend(self._rows_so_far())
        if longer is None:
            return
        done = len(self.plan.experiments)
        assert longer.experiments[:done] == self.plan.experiments, "they are carried out already"
        self.plan = longer
        self.description.content = content(longer)
        self._deploy(platform, since=done)
        self.folder.write_run(self.description.data())

    def _rows_so_far(self) -> pa.Table:
        """The client's rows, joined with the platform's log as far as it was fetched."""
        client = record.merge(
            [record.read(part, "invocations") for part in self.folder.parts("invocations")]
        )
        if not self.collected:
            return rename(client, self.names)
        rows = hop_rows.assemble(client, record.merge(self.collected)).rows
        return rename(rows, self.names)

    def _deploying(self, keys: Collection[str]) -> str:
        """Say what is deployed: functions of the file, which sizes and replicas make more of."""
        plans = [self.plan.deployments[key] for key in keys]
        functions = len({plan.alias for plan in plans})
        deployments = sum(plan.function.replicas for plan in plans)
        count = f" ({deployments} deployments)" if deployments > functions else ""
        return f"Deploying {plural(functions, 'function')}{count}."

    def _deploy(self, platform: Platform, since: int = 0) -> None:
        """Deploy everything before the first request, so that a broken function costs no time.

        Args:
            platform: where to.
            since: position of the first experiment to come; what only earlier ones needed is gone.
        """
        missing = {
            key
            for key, last in self.plan.last_use().items()
            if last >= since and key not in self.deployed
        }
        if not missing:
            return
        self.reporter.note(self._deploying(missing))
        specs = Specs(self.sources, self.description.packages)
        prefix = "u" + self.description.run[-6:]
        warned: dict[str, list[str]] = {}
        for number, (key, plan) in enumerate(self.plan.deployments.items()):
            if key not in missing:
                continue
            self.deployed[key] = []
            for spec in specs.make(f"{prefix}-{number}-{key[:32]}", plan):
                self.names[spec.name] = plan.alias
                deployment = platform.deploy(spec)
                # Noted before the endpoint is asked for, so that an interruption removes it too.
                placeholder = (deployment, Target(""))
                self.deployed[key].append(placeholder)
                for warning in deployment.warnings:
                    aliases = warned.setdefault(warning, [])
                    aliases += [plan.alias] if plan.alias not in aliases else []
                self.deployed[key][-1] = (deployment, platform.endpoint(deployment))
        for experiment in self.plan.experiments[since:]:
            for stream in experiment.streams:
                if stream.hops is not None and stream.hops.kind == "sequence":
                    self._deploy_sequence(platform, prefix, stream.hops)
        self._warn(f"{', '.join(aliases)}: {warning}" for warning, aliases in warned.items())
        events = adapter(self.plan.platform).CAPABILITIES.http_events
        # An HTTP server gets the request itself.
        made = [deployment for key in missing for deployment, _ in self.deployed[key]]
        polling = any(it.detail.get("architecture") != "http" for it in made)
        if events and polling and not since:
            self.reporter.note(
                "Their URLs deliver HTTP events: handlers get the parameters as JSON in"
                ' event["body"].'
            )

    def _warn(self, warnings: Iterable[str]) -> None:
        """Say what has not been said before, now and in the report."""
        for warning in warnings:
            if warning not in self.description.warnings:
                self.description.warnings.append(warning)
                self.reporter.note(f"Warning: {warning}")

    def _deploy_sequence(self, platform: Platform, prefix: str, chain: ChainPlan) -> None:
        """Create the state machine of a chain, whose functions are there, unless it is there."""
        if chain.name in self.sequences:
            return
        resources = {
            key: deployed[0][0].detail.get("arn", deployed[0][0].name)
            for key, deployed in self.deployed.items()
        }
        definition = chain.definition(resources.__getitem__)
        deployment = platform.deploy(
            SequenceSpec(f"{prefix}-{len(self.sequences)}-{chain.name[:32]}", definition)
        )
        self.sequences[chain.name] = (deployment, Target(""))
        self.sequences[chain.name] = (deployment, platform.endpoint(deployment))

    def _drive(self, position: int, experiment: ExperimentPlan) -> None:
        """Send one experiment's requests; its rows go into a part of their own."""
        if experiment.pause_ns:
            time.sleep(experiment.pause_ns / 1e9)
        load = Load(
            run=self.description.run,
            experiment=experiment.name,
            platform=self.plan.platform,
            streams=[self._stream(experiment, index) for index in range(len(experiment.streams))],
            seed=self.description.seed,
            out=self.folder.part("invocations", position, experiment.name),
            spans_out=self.folder.part("spans", position, experiment.name),
            epoch_unix_ns=self.description.epoch_unix_ns,
            connect_timeout_ns=experiment.connect_timeout_ns,
            total_timeout_ns=experiment.timeout_ns,
            max_connections=experiment.max_connections,
        )
        process: list[Resource] = []

        def started(pid: int) -> None:
            identity = processes.identify(pid)
            if identity is not None:
                process.append(Resource("local", "process", str(pid), identity.detail()))
                self.journal.created(process[0])

        name = f"[{position + 1}/{len(self.plan.experiments)}] {experiment.name}"
        self.reporter.begin(name, sends(experiment), experiment.expected_requests())
        try:
            done = drive(load, self._event, started)
        finally:
            for resource in process:
                self.journal.removed(resource)
        self.reporter.end(name, done)

    def _event(self, event: dict[str, Any]) -> None:
        """An event of the load generator: shown to the person; warnings go to the report."""
        if event.get("event") == "warning":
            self.description.warnings.append(str(event["message"]))
        elif event.get("event") == "failure":
            self.description.explained = [*self.description.explained, event]
        self.reporter.event(event)

    def _stream(self, experiment: ExperimentPlan, index: int) -> Stream:
        stream = experiment.streams[index]
        function = self.plan.deployments[stream.deployment].function
        method: str = function.method or "POST"
        deployed = self.deployed[stream.deployment]
        if stream.hops is not None and stream.hops.kind == "sequence":
            deployed = [self.sequences[stream.hops.name]]
            method = deployed[0][1].method
        headers = {"content-type": "application/json", **deployed[0][1].headers, **function.headers}
        body: bytes | dict[str, str] | None = None
        if method not in ("GET", "HEAD"):
            body = json.dumps(self._first_event(stream, deployed[0][1])).encode()
            if stream.template is not None:
                body = {"template": stream.template}
        loop = stream.arrivals
        return Stream(
            function=stream.alias,
            targets=[(deployment.name, target.url) for deployment, target in deployed],
            arrivals=None if isinstance(loop, Closed) else loop,
            closed=ClosedLoop.of(loop) if isinstance(loop, Closed) else None,
            stage=stream.stage,
            after=stream.after,
            after_failures=stream.after_failures,
            think_ns=stream.think.min,
            think_max_ns=stream.think.most_ns,
            method=method,
            headers=headers,
            body=body,
            fields=stream.fields,
            label=stream.label,
            start_ns=stream.start_ns,
            # A platform that deploys says itself what it allocated.
            allocated_memory=None if function.source else function.memory,
            allocated_cpu=None if function.source else function.vcpu,
            execution=function.execution,
        )

    def _first_event(self, stream: StreamPlan, target: Target) -> Mapping[str, Any]:
        """What a request carries; one that begins a chain has the whole of it."""
        chain = stream.hops
        if chain is None:
            return stream.event
        if target.machine is not None:
            return {"stateMachineArn": target.machine, "input": json.dumps(dict(stream.event))}
        functions = {}
        for key in stream.deployments():
            deployment, endpoint = self.deployed[key][0]
            functions[key] = {"function": deployment.name}
            if self.plan.deployments[key].function.source is None:
                functions[key]["url"] = endpoint.url
        return chain.event(functions)

    def _collect(self, position: int, experiment: ExperimentPlan) -> None:
        """Fetch the platform's log until it holds what the platform has answered."""
        if self.platform is None or not adapter(self.plan.platform).CAPABILITIES.collects:
            return
        rows = record.read(
            self.folder.part("invocations", position, experiment.name), "invocations"
        )
        deadline = time.monotonic() + _COLLECT_PATIENCE_S
        logged: list[pa.Table] = []
        while True:
            fetched = self._fetch()
            if fetched is not None:
                logged.append(fetched)
            missing = unmatched(rows, record.merge(logged)) if logged else rows.num_rows
            if missing == 0 or time.monotonic() > deadline:
                break
            time.sleep(_COLLECT_POLL_S)
        if missing:
            self.description.warnings.append(
                f"{experiment.name}: {missing} answered requests are not in the platform's log"
            )
        self._await_hops(experiment, rows, logged)

    def _await_hops(
        self, experiment: ExperimentPlan, rows: pa.Table, logged: list[pa.Table]
    ) -> None:
        """Wait until chains of events have ended, for as long as an answer would be waited for."""
        chains = [
            (number, stream.hops)
            for number, stream in enumerate(experiment.streams)
            if stream.hops is not None and stream.hops.kind == "asynchronous"
        ]
        if not chains:
            return
        deadline = time.monotonic() + experiment.timeout_ns / NS_PER_S
        while True:
            platform = record.merge(logged)
            left = sum(
                hop_rows.outstanding(rows, platform, chain, stream) for stream, chain in chains
            )
            if left == 0:
                return
            if time.monotonic() > deadline:
                self.description.warnings.append(
                    f"{experiment.name}: {left} invocations of its chains had not ended"
                    f" {format_duration(experiment.timeout_ns)} after the last answer"
                )
                return
            time.sleep(_COLLECT_POLL_S)
            if (fetched := self._fetch()) is not None:
                logged.append(fetched)

    def _fetch(self) -> pa.Table | None:
        """What the platform logged since the last time; kept, and its invocations returned."""
        if self.platform is None:
            return None
        collected = self.platform.collect()
        self.description.warnings.extend(collected.warnings)
        epoch, run = self.description.epoch_unix_ns, self.description.run
        if collected.instances is not None:
            shifted = shift(collected.instances, "instances", epoch, run)
            self.instances = rename(shifted, self.names)
        if collected.spans is not None and collected.spans.num_rows:
            self.spans.append(shift(collected.spans, "spans", epoch, run))
        if collected.invocations is None or not collected.invocations.num_rows:
            return None
        self.collected.append(shift(collected.invocations, "invocations", epoch, run))
        return self.collected[-1]

    def _remove(self) -> None:
        """Remove all that is deployed and end the platform, whatever fails on the way."""
        self.description.warnings.extend(self.noise.stop())
        platform = self.platform
        if platform is None:
            return
        try:
            failed: list[str] = []
            for name, (deployment, _) in list(self.sequences.items()):
                try:
                    platform.remove(deployment)
                    del self.sequences[name]
                except UnciaError as error:
                    failed.append(error.message)
            for key in list(self.deployed):
                try:
                    self._remove_deployment(platform, key)
                except UnciaError as error:
                    failed.append(error.message)
            try:
                # After the functions are gone every instance has ended, and says why.
                self._fetch()
            except UnciaError as error:
                failed.append(error.message)
            # A platform that is gone refuses everything for the same reason: it is reported once.
            self.description.warnings.extend(dict.fromkeys(failed))
        finally:
            platform.close()

    def _note_what_is_left(self) -> None:
        """Warn of what could not be removed, once platform and services are ended."""
        if self.journal.outstanding:
            left = ", ".join(resource.sentence() for resource in self.journal.outstanding)
            self.description.warnings.append(f"{_NOT_REMOVED} {left}; `uncia clean` tries again")

    def _remove_deployment(self, platform: Platform, key: str) -> None:
        """Remove every replica of a deployment; those that cannot be removed stay listed.

        Raises:
            UnciaError: a replica could not be removed.
        """
        failed: list[UnciaError] = []
        for replica in list(self.deployed.get(key, [])):
            try:
                platform.remove(replica[0])
            except UnciaError as error:
                failed.append(error)
            else:
                self.deployed[key].remove(replica)
        if failed:
            messages = dict.fromkeys(error.message for error in failed)
            raise RunFailedError("; ".join(messages), failed[0].hint)
        self.deployed.pop(key, None)

    def _tables(self) -> dict[str, pa.Table]:
        """Write the run's tables from their parts; the parts are deleted once that is done."""
        epoch = self.description.epoch_unix_ns
        client = record.merge(
            [record.read(part, "invocations") for part in self.folder.parts("invocations")]
        )
        client = record.conform(client, "invocations", epoch)
        unknown: list[str] = []
        if self.collected:
            assembled = hop_rows.assemble(client, record.merge(self.collected))
            client, joined, unknown = assembled.rows, assembled.joined, assembled.unknown
            if unknown:
                self.description.warnings.append(
                    f"functions reported {plural(len(unknown), 'hop')} that the platform did not"
                    " log; they are not in the tables"
                )
            if joined.strangers:
                self.description.warnings.append(
                    f"the platform's log holds {joined.strangers} invocations that no client row"
                    " asked for; they are not in the tables"
                )
            if joined.repeated:
                self.description.warnings.append(
                    f"the platform's log holds {joined.repeated} rows of invocations it had already"
                )
        spans = record.merge(
            [
                *(record.read(part, "spans") for part in self.folder.parts("spans")),
                *self.spans,
            ],
            "spans",
        )
        tables = {
            "invocations": record.conform(rename(client, self.names), "invocations", epoch),
            "spans": hop_rows.without(record.conform(spans, "spans", epoch), unknown),
            "instances": self.instances or record.empty("instances", epoch),
            "machine": self.noise.table(epoch, self.description.run),
        }
        for name, rows in tables.items():
            record.write(rows, self.folder.path / f"{name}.parquet", name)
        self.folder.drop_parts()
        return tables

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
