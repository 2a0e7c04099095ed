"""Background work during keep-alive: its CPU time, and what it would have cost in a request.

Section 3.3 of "Demystifying Serverless Costs on Public Platforms" (EuroSys'26): a short request
starts work in another thread, a second request collects it, and the CPU time in between is not
billed. How much that is depends on what the platform does with idle instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.intermittent import TARIFFS
from uncia.bandwidth.labelled import charges
from uncia.errors import UnciaError
from uncia.record import INSTANCE_STARTS
from uncia.units import MIB, NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.stats.quantiles import Floats

BEHAVIOURS: Final = ("freeze", "scale-down", "run")
BILLED: Final = "billed"
START: Final = "start"
COLLECT: Final = "collect"

SPAN: Final = "background"
"""From the end of the request that began work to the beginning of the one that collected it."""

CPU_SPAN: Final = "background_cpu"
"""As long as the CPU time that the work took meanwhile."""


@dataclass(frozen=True)
class Round:
    """One request that began work, and the one that collected it.

    Attributes:
        start: the row of the first request.
        collect: the row of the second; None if the first one failed.
        unbilled_ns: CPU time of the work between the end of the first and the beginning of the
            second request, by the clock of the working thread; None if unknown.
        idle_ns: the time between the two.
        problem: why the round does not count; None if it does.
    """

    start: Mapping[str, Any]
    collect: Mapping[str, Any] | None
    unbilled_ns: int | None
    idle_ns: int | None
    problem: str | None


@dataclass(frozen=True)
class Price:
    """The price of a behaviour under a tariff; averages over rounds, in US dollars.

    Attributes:
        tariff: its id.
        requests_usd: the bill of the two requests.
        work_usd: what the work would have cost within a request, including the fee: the unbilled
            CPU time at the price of CPU time in the requests of ``billed``.
    """

    tariff: str
    requests_usd: Fraction
    work_usd: Fraction

    @property
    def saved(self) -> Fraction | None:
        """Share of the bill that background work saves; below zero, it costs more."""
        return None if self.work_usd <= 0 else 1 - self.requests_usd / self.work_usd


@dataclass(frozen=True)
class Behaviour:
    """The results of one keep-alive behaviour.

    Attributes:
        name: ``freeze``, ``scale-down`` or ``run``.
        rounds: all rounds.
        prices: by tariff.
        instance_idle_ns: CPU time of the instances of this experiment while they served nothing, as
            the platform counted it, over their whole lifetime; None if not measured.
    """

    name: str
    rounds: Sequence[Round]
    prices: Sequence[Price]
    instance_idle_ns: int | None

    @property
    def good(self) -> list[Round]:
        """The rounds that count."""
        return [item for item in self.rounds if item.problem is None]

    @property
    def unbilled_ns(self) -> Fraction:
        """Mean unbilled CPU time of a round."""
        return Fraction(sum(item.unbilled_ns or 0 for item in self.good), len(self.good))

    @property
    def idle_ns(self) -> Fraction:
        """Mean idle time of a round."""
        return Fraction(sum(item.idle_ns or 0 for item in self.good), len(self.good))

    @property
    def vcpu(self) -> Fraction:
        """Unbilled CPU time over idle time."""
        return vcpu_share(self.good)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of `vcpu`, by a bootstrap over rounds; None for a single round."""
        from uncia.stats import bootstrap

        good = self.good
        if len(good) < 2:
            return None
        return bootstrap.interval(vcpu_draws(good, self.name))


@dataclass(frozen=True)
class Result:
    """A run of the experiment.

    Attributes:
        folder: the run.
        memory: of the function, bytes.
        vcpu: its share of a vCPU.
        behaviours: in order.
        billed_cpu_ns: CPU time of the requests that did the work before they answered.
        problems: sentences on rounds that do not count, and on behaviours without any that does.
    """

    folder: Path
    memory: int
    vcpu: float
    behaviours: Sequence[Behaviour]
    billed_cpu_ns: int
    problems: Sequence[str]


def vcpu_share(rounds: Sequence[Round]) -> Fraction:
    """Compute unbilled CPU time over idle time, summed over all rounds.

    Raises:
        ValueError: the rounds took no time.
    """
    idle = sum(item.idle_ns or 0 for item in rounds)
    if idle <= 0:
        raise ValueError("the rounds took no time")
    return Fraction(sum(item.unbilled_ns or 0 for item in rounds), idle)


def vcpu_draws(rounds: Sequence[Round], label: str) -> Floats:
    """The bootstrap distribution of `vcpu_share` over rounds.

    Args:
        rounds: at least one.
        label: distinguishes its random numbers from those of other rounds.

    Returns:
        Shape (resamples,), in vCPU.
    """
    import numpy as np

    from uncia.stats import bootstrap

    rng = bootstrap.generator(bootstrap.SEED, "background", label)
    draws = rng.integers(0, len(rounds), (bootstrap.RESAMPLES, len(rounds)))
    used = np.array([float(item.unbilled_ns or 0) for item in rounds])[draws].sum(axis=1)
    idle = np.array([float(item.idle_ns or 0) for item in rounds])[draws].sum(axis=1)
    return np.asarray(used / idle, np.float64)


def work_cost(
    resources_usd: Fraction, billed_cpu_ns: int, unbilled_ns: Fraction, fee_usd: Fraction
) -> Fraction:
    """Compute what work would cost within one request.

    Args:
        resources_usd: the bill without fees of requests that do such work.
        billed_cpu_ns: their CPU time.
        unbilled_ns: CPU time of the work.
        fee_usd: the fee of the request.

    Raises:
        ValueError: the requests used no CPU time.
    """
    if billed_cpu_ns <= 0:
        raise ValueError("requests that do work use CPU time")
    return resources_usd / billed_cpu_ns * unbilled_ns + fee_usd


def rounds(rows: pa.Table, spans: pa.Table, name: str) -> list[Round]:
    """Read the rounds of one behaviour from the tables of a run."""
    from uncia.record.selection import of_experiments

    experiment_rows = of_experiments(rows, [name]).to_pylist()
    collects = {row["parent"]: row for row in experiment_rows if row["stage"] == COLLECT}
    lengths = {
        (span["invocation"], span["name"]): span["end"] - span["start"]
        for span in spans.to_pylist()
    }
    result = []
    for start in (row for row in experiment_rows if row["stage"] == START):
        collect = collects.get(start["invocation"])
        collected = None if collect is None else collect["invocation"]
        used, idle = lengths.get((collected, CPU_SPAN)), lengths.get((collected, SPAN))
        problem = _problem(start, collect)
        if problem is None and (used is None or idle is None):
            problem = f"{start['invocation']}: the work it began was lost before it was collected"
        result.append(Round(start, collect, used, idle, problem))
    return result


def _problem(start: Mapping[str, Any], collect: Mapping[str, Any] | None) -> str | None:
    for row in (start, collect):
        if row is None:
            return f"{start['invocation']}: nothing collected what it began"
        if row["outcome"] != "ok":
            return f"{row['invocation']}: {row['outcome']} ({row['error']})"
        if row["start"] in INSTANCE_STARTS:
            return f"{row['invocation']}: a {row['start']} start"
    return None


def read(folder: Path, tariffs: Sequence[str] | None = None) -> Result:
    """Read the result of a run, as far as it went.

    A behaviour without a whole round, as an interrupted run may have, is left out and is one of the
    result's problems.

    Args:
        folder: the run.
        tariffs: ids or files; by default Lambda's and those that belong to no platform.

    Raises:
        UnciaError: it is no such run, no round of any behaviour can be used, or a tariff cannot
            price it.
    """
    from uncia import record
    from uncia.record.selection import of_experiments
    from uncia.tariffs import catalogue

    rows, spans, instances = (
        record.read(folder, name) for name in ("invocations", "spans", "instances")
    )
    begun = {name: rounds(rows, spans, name) for name in BEHAVIOURS}
    billed = [row for row in of_experiments(rows, [BILLED]).to_pylist() if row["outcome"] == "ok"]
    if not any(begun.values()) or not billed:
        raise UnciaError(
            f"{folder} has no rows of background work",
            hint="Such a run is made by: uncia cpu background --out DIR",
        )
    by_behaviour = {
        name: group for name, group in begun.items() if any(item.problem is None for item in group)
    }
    problems = [item.problem for group in begun.values() for item in group if item.problem]
    if not by_behaviour:
        raise UnciaError(
            f"{folder}: no round is whole: {problems[0]}",
            hint="Measure again: uncia cpu background --out DIR",
            exit_code=1,
        )
    problems += [
        f"{name} is missing: the run has no whole round of it"
        for name in _behaviours(folder, begun)
        if name not in by_behaviour
    ]
    used = [(row["cpu_user"], row["cpu_system"]) for row in billed]
    if any(None in item for item in used):
        raise UnciaError(f"{folder}: the CPU time of requests was not measured")
    cpu_ns = sum(user + system for user, system in used)
    resolved = catalogue.resolve(list(tariffs or TARIFFS))
    priced = _priced(rows, by_behaviour, billed, resolved)
    behaviours = []
    for name, group in by_behaviour.items():
        good = [item for item in group if item.problem is None]
        unbilled = Fraction(sum(item.unbilled_ns or 0 for item in good), len(good))
        prices = [
            Price(
                tariff.id,
                sum(priced[tariff.id, name], Fraction(0)) / len(good),
                work_cost(
                    priced[tariff.id, BILLED][0],
                    cpu_ns,
                    unbilled,
                    priced[tariff.id, BILLED][1] / len(billed),
                ),
            )
            for tariff in resolved
        ]
        behaviours.append(Behaviour(name, group, prices, _idle_cpu(instances, group)))
    return Result(
        folder,
        billed[0]["allocated_memory"],
        billed[0]["allocated_cpu"] / 1e6,
        behaviours,
        cpu_ns,
        problems,
    )


def _behaviours(folder: Path, begun: Mapping[str, Sequence[Round]]) -> list[str]:
    """List the behaviours that the run was to measure, by its file or its rows."""
    from uncia.runs.folder import read_run

    experiments = (read_run(folder).get("file") or {}).get("experiments") or {}
    return [name for name in BEHAVIOURS if name in experiments or begun[name]]


def _priced(
    rows: pa.Table,
    by_behaviour: Mapping[str, Sequence[Round]],
    billed: Sequence[Mapping[str, Any]],
    resolved: Sequence[Any],
) -> dict[tuple[str, str], tuple[Fraction, Fraction]]:
    """Bill the rows that count: (tariff, experiment) -> the bill without fees, and the fees."""
    label_of = {row["invocation"]: BILLED for row in billed}
    for name, group in by_behaviour.items():
        for item in group:
            if item.problem is None and item.collect is not None:
                label_of[item.start["invocation"]] = label_of[item.collect["invocation"]] = name
    return {
        (charge.line.tariff, charge.label): (charge.resources_usd, charge.fees_usd)
        for charge in charges(rows, label_of, resolved)
    }


def _idle_cpu(instances: pa.Table, group: Sequence[Round]) -> int | None:
    """Sum the platform's count of CPU time of these rounds' instances while they served nothing."""
    names = {
        row["instance"] for item in group for row in (item.start, item.collect) if row is not None
    }
    if "idle_cpu" not in instances.column_names:
        return None
    counted = [row["idle_cpu"] for row in instances.to_pylist() if row["instance"] in names]
    return None if not counted or None in counted else sum(counted)


def as_data(result: Result) -> dict[str, Any]:
    """Convert the result for JSON; dollars are per round."""
    return {
        "run": str(result.folder),
        "memory_mb": result.memory / MIB,
        "vcpu": result.vcpu,
        "problems": list(result.problems),
        "behaviours": [
            {
                "keep_alive_cpu": item.name,
                "rounds": len(item.good),
                "idle_s": float(item.idle_ns / NS_PER_S),
                "unbilled_cpu_s": float(item.unbilled_ns / NS_PER_S),
                "unbilled_vcpu": float(item.vcpu),
                "unbilled_vcpu_interval": item.interval,
                "share_of_allocation": float(item.vcpu) / result.vcpu,
                "instance_idle_cpu_s": None
                if item.instance_idle_ns is None
                else item.instance_idle_ns / NS_PER_S,
                "tariffs": [
                    {
                        "tariff": price.tariff,
                        "requests_usd": float(price.requests_usd),
                        "work_billed_usd": float(price.work_usd),
                        "saved": None if price.saved is None else float(price.saved),
                    }
                    for price in item.prices
                ],
            }
            for item in result.behaviours
        ],
    }
