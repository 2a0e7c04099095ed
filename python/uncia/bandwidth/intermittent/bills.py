"""A long task against the same task in bursts: what each is billed, and which fee makes them equal.

Section 4.3 of "Demystifying Serverless Costs on Public Platforms" (EuroSys'26): a burst of CPU time
within the quota runs at the full speed of a CPU, so a task in bursts has less wall-clock time that
is billed, and more invocations that cost a fee. All figures are of measured rows; amounts are exact
fractions until they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.labelled import charges
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

TASKS: Final = "tasks"
"""The experiment, and its chain: the whole task, and then its bursts."""

LONG: Final = "long"
"""The stage of a task as one request, and that way."""

BURSTS: Final = "bursts"
"""The other way."""

TARIFFS: Final = ("aws-lambda-x86", "sim", "slim", "spfu")
"""Lambda's, which the published experiment was billed by, and those of no platform."""


@dataclass(frozen=True)
class Task:
    """One task: once as a whole, or in bursts that go on from one another.

    Attributes:
        way: ``long`` or ``bursts``.
        number: from 0, within its way; tasks of one number were sent one after the other.
        rows: its rows of the invocation table, in order.
        problem: why it is not in the figures; None where it is.
    """

    way: str
    number: int
    rows: Sequence[Mapping[str, Any]]
    problem: str | None

    @property
    def name(self) -> str:
        """Names it among all tasks of the run."""
        return f"{self.way} {self.number}"


@dataclass(frozen=True)
class Cost:
    """What a tariff charges for a task, apart from the fees what its resources cost.

    Attributes:
        invocations: rows that are billed.
        resources_usd: the bill without invocation fees.
        fee_usd: the fee of one invocation.
        gb_s: billable memory; None where the tariff does not bill it.
        vcpu_s: billable CPU; likewise.
    """

    invocations: int
    resources_usd: Fraction
    fee_usd: Fraction
    gb_s: Fraction | None
    vcpu_s: Fraction | None

    @property
    def usd(self) -> Fraction:
        """The bill."""
        return self.resources_usd + self.invocations * self.fee_usd


def stage(number: int, of: int) -> str:
    """The stage of a burst in the invocation table: ``3-of-40``, from 1."""
    return f"{number + 1}-of-{of}"


def tasks(rows: pa.Table) -> list[Task]:
    """The tasks of a run, from its rows.

    A row of the stage ``long`` is a task, and begins the chain of the same task in bursts: each
    goes on from the row that it names as its parent. How many there should be is in ``stage``.

    Raises:
        UnciaError: the rows are not of this experiment.
    """
    from uncia.record.selection import of_experiments

    requests = of_experiments(rows, [TASKS]).to_pylist()
    heads = [row for row in requests if row["stage"] == LONG]
    if not heads:
        raise UnciaError(
            f"the run has no rows of the stage {LONG} of the experiment {TASKS}",
            hint="Such a run is made by: uncia cpu intermittent --out DIR",
        )
    next_of = {row["parent"]: row for row in requests if row["parent"] is not None}
    whole = [Task(LONG, number, [row], _problem([row], 1)) for number, row in enumerate(heads)]
    parts = []
    for number, head in enumerate(heads):
        chain = [head]
        while (following := next_of.get(chain[-1]["invocation"])) is not None:
            chain.append(following)
        if bursts := chain[1:]:
            of = int(str(bursts[0]["stage"]).rpartition("-")[2])
            parts.append(Task(BURSTS, number, bursts, _problem(bursts, of)))
    return whole + parts


def _problem(rows: Sequence[Mapping[str, Any]], of: int) -> str | None:
    for row in rows:
        if row["outcome"] != "ok":
            return f"{row['invocation']}: {row['outcome']} ({row['error']})"
        if row["execution"] is None or row["start"] not in ("warm", "thawed"):
            return f"{row['invocation']}: start {row['start'] or 'not known'}, not warm"
    if len(rows) != of:
        return f"{rows[-1]['invocation']}: the task ended after {len(rows)} of {of} bursts"
    return None


def pairs(tasks: Sequence[Task]) -> list[tuple[Task, Task]]:
    """The numbers of which both ways came to their end: (as a whole, in bursts)."""
    whole = {task.number: task for task in tasks if task.way == LONG and task.problem is None}
    return [
        (whole[task.number], task)
        for task in tasks
        if task.way == BURSTS and task.problem is None and task.number in whole
    ]


def costs(
    rows: pa.Table, tasks: Sequence[Task], tariffs: Sequence[str] | None = None
) -> dict[str, dict[str, Cost]]:
    """What each tariff charges for each task: tariff id -> task name -> cost.

    Args:
        rows: the run's invocation table.
        tasks: of it.
        tariffs: ids or files; by default `TARIFFS`.

    Raises:
        UnciaError: a tariff cannot be read, or cannot price all rows of a task.
    """
    from uncia.tariffs import catalogue

    chosen = catalogue.resolve(list(tariffs or TARIFFS))
    task_of = {row["invocation"]: task.name for task in tasks for row in task.rows}
    charged: dict[str, dict[str, Cost]] = {tariff.id: {} for tariff in chosen}
    for charge in charges(rows, task_of, chosen):
        line = charge.line
        charged[line.tariff][charge.label] = Cost(
            line.rows,
            charge.resources_usd,
            charge.fee_usd,
            line.billable_gb_s or None,
            line.billable_vcpu_s or None,
        )
    return charged


@dataclass(frozen=True)
class Way:
    """The average task of one way."""

    invocations: Fraction
    resources_usd: Fraction
    fees_usd: Fraction
    gb_s: Fraction | None
    vcpu_s: Fraction | None

    @property
    def usd(self) -> Fraction:
        """The bill."""
        return self.resources_usd + self.fees_usd


@dataclass(frozen=True)
class Comparison:
    """Both ways under one tariff, averages over the same tasks.

    Attributes:
        tariff: its id.
        tasks: how many pairs of tasks.
        fee_usd: the tariff's fee for an invocation.
        long: as one invocation.
        bursts: in bursts.
        pays_below_usd: the fee for an invocation below which bursts are cheaper; below zero:
            never.
        pays_below_interval: 95 % of a bootstrap over the pairs; None for a single pair.
        bill_interval: the same of `bill_added`; likewise, and where the bill is zero.
    """

    tariff: str
    tasks: int
    fee_usd: Fraction
    long: Way
    bursts: Way
    pays_below_usd: Fraction
    pays_below_interval: tuple[float, float] | None
    bill_interval: tuple[float, float] | None

    @property
    def gb_s_saved(self) -> Fraction | None:
        """Share of the billable GB-seconds that bursts do without."""
        return saved(self.long.gb_s, self.bursts.gb_s)

    @property
    def vcpu_s_saved(self) -> Fraction | None:
        """Share of the billable vCPU-seconds that bursts do without."""
        return saved(self.long.vcpu_s, self.bursts.vcpu_s)

    @property
    def resources_saved(self) -> Fraction | None:
        """Share of the bill without fees that bursts do without."""
        return saved(self.long.resources_usd, self.bursts.resources_usd)

    @property
    def bill_added(self) -> Fraction | None:
        """By which share the bill with fees is higher in bursts; below zero: lower."""
        share = saved(self.long.usd, self.bursts.usd)
        return None if share is None else -share


def saved(before: Fraction | None, after: Fraction | None) -> Fraction | None:
    """``1 - after / before``; None where either is not known or ``before`` is not above zero."""
    if before is None or after is None or before <= 0:
        return None
    return 1 - after / before


def break_even_fee(long: Fraction, bursts: Fraction, count: Fraction) -> Fraction:
    """The fee f for which ``long + f = bursts + count * f``.

    Args:
        long: the bill of the task as one invocation, without fee.
        bursts: the bill of the task in bursts, without fees.
        count: how many bursts that are.

    Raises:
        ValueError: a task in one burst has no such fee.
    """
    if count <= 1:
        raise ValueError("a task in bursts has more than one")
    return (long - bursts) / (count - 1)


def compare(
    charged: Mapping[str, Cost], of: Sequence[tuple[Task, Task]], tariff: str
) -> Comparison:
    """Both ways under a tariff.

    Args:
        charged: the tariff's costs by task name.
        of: the pairs to compare.
        tariff: its id.

    Raises:
        UnciaError: there is no pair, or a task is in one burst only.
    """
    if not of:
        raise UnciaError("no task came to its end both as a whole and in bursts")
    whole = [charged[long.name] for long, _ in of]
    parts = [charged[bursts.name] for _, bursts in of]
    long, bursts = _average(whole), _average(parts)
    if bursts.invocations <= 1:
        raise UnciaError(
            "the task fits into one burst, so there is nothing to cut",
            hint="Give it more --cpu-time, or more --bursts.",
        )
    fees, bills = _resampled(whole, parts, tariff)
    return Comparison(
        tariff,
        len(of),
        whole[0].fee_usd,
        long,
        bursts,
        break_even_fee(long.resources_usd, bursts.resources_usd, bursts.invocations),
        fees,
        bills,
    )


def _average(costs: Sequence[Cost]) -> Way:
    count = len(costs)

    def mean(values: Sequence[Fraction | None]) -> Fraction | None:
        known = [value for value in values if value is not None]
        return None if len(known) < count else sum(known, Fraction(0)) / count

    return Way(
        Fraction(sum(cost.invocations for cost in costs), count),
        sum((cost.resources_usd for cost in costs), Fraction(0)) / count,
        sum((cost.invocations * cost.fee_usd for cost in costs), Fraction(0)) / count,
        mean([cost.gb_s for cost in costs]),
        mean([cost.vcpu_s for cost in costs]),
    )


def _resampled(
    whole: Sequence[Cost], parts: Sequence[Cost], tariff: str
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Bootstrap intervals of the break-even fee and of the change of the bill, pairs drawn."""
    import numpy as np

    from uncia.stats import bootstrap

    count = len(whole)
    if count < 2:
        return None, None
    rng = bootstrap.generator(bootstrap.SEED, "intermittent", tariff)
    draws = rng.integers(0, count, (bootstrap.RESAMPLES, count))

    def means(values: Sequence[Fraction | int]) -> Any:
        return np.array([float(value) for value in values])[draws].mean(axis=1)

    before = means([cost.resources_usd for cost in whole])
    after = means([cost.resources_usd for cost in parts])
    invocations = means([cost.invocations for cost in parts])
    fees = bootstrap.interval((before - after) / (invocations - 1))
    if not all(cost.usd > 0 for cost in whole):
        return fees, None
    ratio = means([cost.usd for cost in parts]) / means([cost.usd for cost in whole])
    return fees, bootstrap.interval(ratio - 1)
