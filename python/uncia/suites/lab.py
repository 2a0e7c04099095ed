"""Runs in which some experiments are sent by a client that reads answers.

The platform, the run's folder, joining, billing, reporting and removal are those of every run
(:mod:`uncia.experiment.runner`); only the requests of the named experiments come from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import model, runner
from uncia.experiment.expect import Expect
from uncia.experiment.join import join
from uncia.experiment.noise import NoiseWatch
from uncia.experiment.plan import WARMUP_SUFFIX, ExperimentPlan, Plan, StreamPlan, plan
from uncia.experiment.progress import Reporter, sends
from uncia.experiment.runner import Execution, Outcome
from uncia.experiment.sources import Sources
from uncia.suites.send import Clock, Rows, Sender
from uncia.workload.arrivals.base import ArrivalProcess

TIMEOUT_NS: Final = 900 * 10**9
"""The client's patience with one request: Lambda's longest, 15 minutes."""


class Chain(ArrivalProcess):
    """Requests one after another, each sent a while after the answer before: a closed loop."""

    kind: Literal["chain"] = "chain"
    requests: int
    gap_ns: int
    longest_gap_ns: int

    def engine(self) -> dict[str, Any]:
        """The load generator does not send these.

        Raises:
            UnciaError: always; a :class:`Lab` sends them.
        """
        raise UnciaError(
            "requests that go on from answers cannot be given to the load generator",
            hint="Run them by uncia cpu intermittent, background or overallocation.",
        )

    def span_ns(self) -> int:
        return (self.requests - 1) * self.gap_ns

    def expected_before(self, ns: int) -> Fraction | float:
        return self.requests if ns > 0 else 0

    def sentence(self) -> str:
        low, high = self.gap_ns / 1e6, self.longest_gap_ns / 1e6
        gap = f"{low:g} ms" if low == high else f"{low:g} to {high:g} ms"
        return f"{self.requests:,} requests, each {gap} after the answer before"


@dataclass
class Bench:
    """What a driver of requests works with.

    Attributes:
        rows: where the rows go.
        clock: the run's.
        seed: the run's.
        sender: makes a sender for an experiment of the plan; its rows carry that name.
        measured: the rows of the run so far, with the platform's columns.
        counters: rows for the machine table: time, counter, cgroup, value.
        note: tells a person.
    """

    rows: Rows
    clock: Clock
    seed: int
    sender: Callable[[str], Sender]
    measured: Callable[[], pa.Table]
    counters: list[tuple[int, str, str | None, float]]
    note: Callable[[str], None]


Driver = Callable[[Bench, ExperimentPlan], None]
Prepare = Callable[["Lab"], None]


class _Watch(NoiseWatch):
    """The machine's samples, and counters that experiments add."""

    def __init__(self) -> None:
        super().__init__()
        self.counters: Final[list[tuple[int, str, str | None, float]]] = []

    def table(self, epoch_unix_ns: int, run: str) -> pa.Table:
        own = super().table(epoch_unix_ns, run)
        if not self.counters:
            return own
        times, names, groups, values = zip(*self.counters, strict=True)
        added = pa.table(
            {
                "run": pa.array([run] * len(times), pa.utf8()),
                "time": pa.array(times, pa.int64()),
                "counter": pa.array(names, pa.utf8()),
                "cgroup": pa.array(groups, pa.utf8()),
                "value": pa.array(values, pa.float64()),
            }
        )
        return record.merge([own, record.conform(added, "machine", epoch_unix_ns)], "machine")


@dataclass
class Lab(Execution):
    """A run some of whose experiments are sent by drivers.

    Attributes:
        drivers: by experiment.
        prepare: by experiment; called before it is driven, may change what the plan says of it.
    """

    drivers: Mapping[str, Driver] = field(default_factory=dict)
    prepare: Mapping[str, Prepare] = field(default_factory=dict)

    def measured(self) -> pa.Table:
        """The rows so far, joined with the platform's log where it was fetched."""
        client = record.merge(
            [record.read(part, "invocations") for part in self.folder.parts("invocations")]
        )
        return join(client, record.merge(self.collected)).rows if self.collected else client

    def redefine(self, changed: Mapping[str, ExperimentPlan]) -> None:
        """Let the plan, and what ``run.yaml`` says of it, have these experiments instead."""
        experiments = [changed.get(one.name, one) for one in self.plan.experiments]
        self.plan = replace(self.plan, experiments=experiments)
        self.description.plan = self.plan
        self.folder.write_run(self.description.data())

    def _drive(self, position: int, experiment: ExperimentPlan) -> None:
        if experiment.name in self.prepare:
            self.prepare[experiment.name](self)
        experiment = self.plan.experiments[position]  # which may have been redefined
        if experiment.name not in self.drivers:
            super()._drive(position, experiment)
            return
        if experiment.pause_ns:
            time.sleep(experiment.pause_ns / 1e9)
        rows = Rows(
            self.description.run,
            self.plan.platform,
            self.folder.part("invocations", position, experiment.name),
            self.folder.part("spans", position, experiment.name),
            self.description.epoch_unix_ns,
        )
        clock = Clock(self.description.epoch_unix_ns)
        senders: list[Sender] = []

        def sender(name: str) -> Sender:
            plans = {one.name: one for one in self.plan.experiments}
            stream = plans[name].streams[0]
            made = Sender(
                self.deployed[stream.deployment][0][1],
                experiment=name,
                function=stream.alias,
                rows=rows,
                clock=clock,
                timeout_ns=plans[name].timeout_ns,
            )
            senders.append(made)
            return made

        watch = self.noise
        assert isinstance(watch, _Watch), "it was made so"
        bench = Bench(
            rows,
            clock,
            self.description.seed,
            sender,
            self.measured,
            watch.counters,
            self.reporter.note,
        )
        name = f"[{position + 1}/{len(self.plan.experiments)}] {experiment.name}"
        self.reporter.begin(name, sends(experiment), experiment.expected_requests())
        try:
            self.drivers[experiment.name](bench, experiment)
        finally:
            with self.interruption.held():
                for made in senders:
                    made.close()
                rows.close()
            self.reporter.end(name, rows.done())


def planned(document: Mapping[str, Any], name: str) -> tuple[Plan, Sources]:
    """The plan of an experiment file that is made, not read.

    Args:
        document: what the file would say.
        name: its name in messages.

    Raises:
        UnciaError: it is not right.
    """
    read = yamlio.load(yamlio.dump(document), name)
    sources = Sources(read, Path.cwd())
    return plan(model.check(read), sources), sources


def warmups(made: Plan) -> list[ExperimentPlan]:
    """The experiments of a plan as warm-ups of those of their names that drivers send."""
    return [
        replace(one, name=one.name + WARMUP_SUFFIX, warmup_of=one.name) for one in made.experiments
    ]


def chain_plan(
    name: str,
    like: StreamPlan,
    arrivals: ArrivalProcess,
    event: Mapping[str, Any],
    description: str,
) -> ExperimentPlan:
    """An experiment that a driver sends, to the deployment of ``like``."""
    stream = replace(like, arrivals=arrivals, event=event, start_ns=0)
    return ExperimentPlan(
        name=name,
        streams=[stream],
        expect=Expect(),
        description=description,
        timeout_ns=TIMEOUT_NS,
        connect_timeout_ns=model.DEFAULT_CONNECT_TIMEOUT_NS,
    )


def execute(
    made: Plan,
    sources: Sources,
    *,
    out: Path | None,
    overwrite: bool,
    reporter: Reporter,
    drivers: Mapping[str, Driver],
    prepare: Mapping[str, Prepare] | None = None,
) -> Outcome:
    """Carry out a plan whose named experiments are sent by drivers.

    Args:
        made: what to do.
        sources: finds the functions to package.
        out: the folder of the run; by default `uncia.experiment.runner.RESULTS` / its id.
        overwrite: an earlier run there may be replaced.
        reporter: is told how it goes.
        drivers: by experiment.
        prepare: by experiment, called before it.

    Returns:
        How it ended; see :func:`uncia.experiment.runner.execute`.

    Raises:
        UnciaError: the folder or the journal cannot be written.
    """
    return runner.execute(
        made,
        sources,
        out=out,
        reporter=reporter,
        overwrite=overwrite,
        make=partial(Lab, noise=_Watch(), drivers=drivers, prepare=prepare or {}),
    )
