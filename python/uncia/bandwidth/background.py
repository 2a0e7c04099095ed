"""Work in the background of an instance that idles: how much CPU time, and what it would have cost.

Section 3.3 of "Demystifying Serverless Costs on Public Platforms" (EuroSys'26): a brief request
starts work in another thread, another collects it, and what lies between is billed by nobody. How
much that is depends on what the platform does with an instance in its keep-alive.
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
        start: the row of the first.
        collect: the row of the second; None where the first one failed.
        unbilled_ns: CPU time of the work between the end of the first and the beginning of the
            second, by the clock of the thread that did it; None where it is not known.
        idle_ns: how long that was.
        problem: why the round is not in the figures; None where it is.
    """

    start: Mapping[str, Any]
    collect: Mapping[str, Any] | None
    unbilled_ns: int | None
    idle_ns: int | None
    problem: str | None


@dataclass(frozen=True)
class Price:
    """What a tariff makes of a behaviour; averages over rounds, US dollars.

    Attributes:
        tariff: its id.
        requests_usd: the bill of the two requests.
        work_usd: what the work would have been billed within a request, its fee included: the
            CPU time that was unbilled, at what CPU time costs in the requests of ``billed``.
    """

    tariff: str
    requests_usd: Fraction
    work_usd: Fraction

    @property
    def saved(self) -> Fraction | None:
        """Share of the bill that background work does without; below zero: it costs more."""
        return None if self.work_usd <= 0 else 1 - self.requests_usd / self.work_usd


@dataclass(frozen=True)
class Behaviour:
    """What one keep-alive behaviour lets a function do.

    Attributes:
        name: ``freeze``, ``scale-down`` or ``run``.
        rounds: all of them.
        prices: by tariff.
        instance_idle_ns: CPU time of the instances of this experiment while they served nothing, as
            the platform counted it, over their whole lives; None where not measured.
    """

    name: str
    rounds: Sequence[Round]
    prices: Sequence[Price]
    instance_idle_ns: int | None

    @property
    def good(self) -> list[Round]:
        """The rounds that count."""
        return [one for one in self.rounds if one.problem is None]

    @property
    def unbilled_ns(self) -> Fraction:
        """CPU time that was unbilled, a round."""
        return Fraction(sum(one.unbilled_ns or 0 for one in self.good), len(self.good))

    @property
    def idle_ns(self) -> Fraction:
        """How long an instance idled, a round."""
        return Fraction(sum(one.idle_ns or 0 for one in self.good), len(self.good))

    @property
    def vcpu(self) -> Fraction:
        """The share of a vCPU that was had for nothing."""
        return vcpu_share(self.good)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of a bootstrap over rounds of `vcpu`; None for a single round."""
        import numpy as np

        from uncia.stats import bootstrap

        good = self.good
        if len(good) < 2:
            return None
        rng = bootstrap.generator(bootstrap.SEED, "background", self.name)
        draws = rng.integers(0, len(good), (bootstrap.RESAMPLES, len(good)))
        used = np.array([float(one.unbilled_ns or 0) for one in good])[draws].sum(axis=1)
        idle = np.array([float(one.idle_ns or 0) for one in good])[draws].sum(axis=1)
        return bootstrap.interval(used / idle)


@dataclass(frozen=True)
class Result:
    """A run of the experiment.

    Attributes:
        folder: the run.
        memory: of the function, bytes.
        vcpu: its share of a vCPU.
        behaviours: in order.
        billed_cpu_ns: CPU time of the requests that did the work within themselves.
        problems: what is not in the figures, a sentence each.
    """

    folder: Path
    memory: int
    vcpu: float
    behaviours: Sequence[Behaviour]
    billed_cpu_ns: int
    problems: Sequence[str]


def vcpu_share(rounds: Sequence[Round]) -> Fraction:
    """Unbilled CPU time over the time it was had in, all rounds together.

    Raises:
        ValueError: the rounds took no time.
    """
    idle = sum(one.idle_ns or 0 for one in rounds)
    if idle <= 0:
        raise ValueError("the rounds took no time")
    return Fraction(sum(one.unbilled_ns or 0 for one in rounds), idle)


def work_cost(
    resources_usd: Fraction, billed_cpu_ns: int, unbilled_ns: Fraction, fee_usd: Fraction
) -> Fraction:
    """What work would be billed within one request.

    Args:
        resources_usd: the bill without fees of requests that do such work.
        billed_cpu_ns: their CPU time.
        unbilled_ns: CPU time of the work in question.
        fee_usd: the fee of the request.

    Raises:
        ValueError: the requests used no CPU time.
    """
    if billed_cpu_ns <= 0:
        raise ValueError("requests that do work use CPU time")
    return resources_usd / billed_cpu_ns * unbilled_ns + fee_usd


def rounds(rows: pa.Table, spans: pa.Table, name: str) -> list[Round]:
    """The rounds of one behaviour, from the tables of a run."""
    from uncia.record.selection import of_experiments

    own = of_experiments(rows, [name]).to_pylist()
    collects = {row["parent"]: row for row in own if row["stage"] == COLLECT}
    lengths = {
        (span["invocation"], span["name"]): span["end"] - span["start"]
        for span in spans.to_pylist()
    }
    found = []
    for start in (row for row in own if row["stage"] == START):
        collect = collects.get(start["invocation"])
        collected = None if collect is None else collect["invocation"]
        used, idle = lengths.get((collected, CPU_SPAN)), lengths.get((collected, SPAN))
        problem = _problem(start, collect)
        if problem is None and (used is None or idle is None):
            problem = f"{start['invocation']}: the work it began was gone when it was collected"
        found.append(Round(start, collect, used, idle, problem))
    return found


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
    """What a run says.

    Args:
        folder: the run.
        tariffs: ids or files; by default Lambda's and those of no platform.

    Raises:
        UnciaError: it is no such run, no round can be used, or a tariff cannot price it.
    """
    from uncia import record
    from uncia.record.selection import of_experiments
    from uncia.tariffs import catalogue

    rows, spans, instances = (
        record.read(folder, name) for name in ("invocations", "spans", "instances")
    )
    found = {name: rounds(rows, spans, name) for name in BEHAVIOURS}
    found = {name: own for name, own in found.items() if own}
    billed = [row for row in of_experiments(rows, [BILLED]).to_pylist() if row["outcome"] == "ok"]
    if not found or not billed:
        raise UnciaError(
            f"{folder} has no rows of background work",
            hint="Such a run is made by: uncia cpu background --out DIR",
        )
    for name, own in found.items():
        if all(one.problem is not None for one in own):
            raise UnciaError(f"{folder}: no round of {name}: {own[0].problem}", exit_code=1)
    used = [(row["cpu_user"], row["cpu_system"]) for row in billed]
    if any(None in one for one in used):
        raise UnciaError(f"{folder}: the CPU time of requests was not measured")
    cpu_ns = sum(user + system for user, system in used)
    chosen = catalogue.resolve(list(tariffs or TARIFFS))
    priced = _priced(rows, found, billed, chosen)
    behaviours = []
    for name, own in found.items():
        good = [one for one in own if one.problem is None]
        unbilled = Fraction(sum(one.unbilled_ns or 0 for one in good), len(good))
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
            for tariff in chosen
        ]
        behaviours.append(Behaviour(name, own, prices, _idle_cpu(instances, own)))
    problems = [one.problem for own in found.values() for one in own if one.problem is not None]
    return Result(
        folder,
        billed[0]["allocated_memory"],
        billed[0]["allocated_cpu"] / 1e6,
        behaviours,
        cpu_ns,
        problems,
    )


def _priced(
    rows: pa.Table,
    found: Mapping[str, Sequence[Round]],
    billed: Sequence[Mapping[str, Any]],
    chosen: Sequence[Any],
) -> dict[tuple[str, str], tuple[Fraction, Fraction]]:
    """By tariff and experiment: the bill without fees, and the fees, of the rows that count."""
    label_of = {row["invocation"]: BILLED for row in billed}
    for name, own in found.items():
        for one in own:
            if one.problem is None and one.collect is not None:
                label_of[one.start["invocation"]] = label_of[one.collect["invocation"]] = name
    return {
        (charge.line.tariff, charge.label): (charge.resources_usd, charge.fees_usd)
        for charge in charges(rows, label_of, chosen)
    }


def _idle_cpu(instances: pa.Table, own: Sequence[Round]) -> int | None:
    """What the platform counted of the instances of these rounds while they served nothing."""
    names = {row["instance"] for one in own for row in (one.start, one.collect) if row is not None}
    if "idle_cpu" not in instances.column_names:
        return None
    counted = [row["idle_cpu"] for row in instances.to_pylist() if row["instance"] in names]
    return None if not counted or None in counted else sum(counted)


def as_data(result: Result) -> dict[str, Any]:
    """The result for JSON; dollars a round."""
    return {
        "run": str(result.folder),
        "memory_mb": result.memory / MIB,
        "vcpu": result.vcpu,
        "problems": list(result.problems),
        "behaviours": [
            {
                "keep_alive_cpu": one.name,
                "rounds": len(one.good),
                "idle_s": float(one.idle_ns / NS_PER_S),
                "unbilled_cpu_s": float(one.unbilled_ns / NS_PER_S),
                "unbilled_vcpu": float(one.vcpu),
                "unbilled_vcpu_interval": one.interval,
                "share_of_allocation": float(one.vcpu) / result.vcpu,
                "instance_idle_cpu_s": None
                if one.instance_idle_ns is None
                else one.instance_idle_ns / NS_PER_S,
                "tariffs": [
                    {
                        "tariff": price.tariff,
                        "requests_usd": float(price.requests_usd),
                        "work_billed_usd": float(price.work_usd),
                        "saved": None if price.saved is None else float(price.saved),
                    }
                    for price in one.prices
                ],
            }
            for one in result.behaviours
        ],
    }
