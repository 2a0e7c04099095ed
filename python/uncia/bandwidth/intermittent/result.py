"""What the experiment on intermittent execution found, from a run folder, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from uncia.bandwidth.intermittent.bills import (
    BURSTS,
    LONG,
    Comparison,
    Task,
    Way,
    compare,
    costs,
    pairs,
    tasks,
)
from uncia.errors import UnciaError


@dataclass(frozen=True)
class Result:
    """A run of the experiment.

    Attributes:
        folder: the run.
        tasks: all of them.
        pairs: those that came to their end in both ways.
        comparisons: one for each tariff.
        failed: requests of the run that did not end ok, one sentence each.
    """

    folder: Path
    tasks: Sequence[Task]
    pairs: Sequence[tuple[Task, Task]]
    comparisons: Sequence[Comparison]
    failed: Sequence[str]

    def problems(self) -> list[str]:
        """Why tasks are not in the figures, and requests that failed."""
        billed = {str(row["invocation"]) for task in self.tasks for row in task.rows}
        left_out = [
            f"{task.name}: {task.problem}" for task in self.tasks if task.problem is not None
        ]
        return left_out + [line for line in self.failed if line.partition(": ")[0] not in billed]

    def measured(self) -> dict[str, dict[str, float | None]]:
        """What the kernel and the clocks say of both ways: means over the tasks of the pairs.

        ``execution_s``, ``cpu_s``, ``throttled_s`` (None where not measured), ``elapsed_s`` from
        the first request to the last answer, ``throttled_share``: requests that were held back.
        """
        ways = {LONG: [task for task, _ in self.pairs], BURSTS: [task for _, task in self.pairs]}
        return {way: _measured(tasks) for way, tasks in ways.items()}


def read(folder: Path, tariffs: Sequence[str] | None = None) -> Result:
    """What a run folder says.

    Args:
        folder: the run.
        tariffs: ids or files; by default Lambda's and those of no platform.

    Raises:
        UnciaError: it is no such run, no task came to its end both ways, or a tariff cannot
            price it.
    """
    from uncia import record

    rows = record.read(folder)
    all_tasks = tasks(rows)
    both = pairs(all_tasks)
    if not both:
        reasons = [task.problem for task in all_tasks if task.problem is not None]
        raise UnciaError(
            f"{folder}: no task came to its end both as a whole and in bursts"
            + (f": {reasons[0]}" if reasons else ""),
            exit_code=1,
        )
    charged = costs(rows, [task for pair in both for task in pair], tariffs)
    comparisons = [compare(amounts, both, tariff) for tariff, amounts in charged.items()]
    failed = [
        f"{row['invocation']}: {row['outcome']} ({row['error']})"
        for row in rows.select(["invocation", "outcome", "error"]).to_pylist()
        if row["outcome"] != "ok"
    ]
    return Result(folder, all_tasks, both, comparisons, failed)


def as_data(result: Result) -> dict[str, Any]:
    """The result for JSON: exact amounts as fractions in text, beside them plain numbers."""
    bursts = sorted({len(parts.rows) for _, parts in result.pairs})
    return {
        "run": str(result.folder),
        "tasks": len(result.pairs),
        "bursts": bursts[0] if len(bursts) == 1 else bursts,
        "memory_mb": _memory(result),
        "measured": result.measured(),
        "problems": result.problems(),
        "tariffs": [_entry(comparison) for comparison in result.comparisons],
    }


def _entry(comparison: Comparison) -> dict[str, Any]:
    return {
        "tariff": comparison.tariff,
        "tasks": comparison.tasks,
        "fee_usd": float(comparison.fee_usd),
        "long": _way(comparison.long),
        "bursts": _way(comparison.bursts),
        "gb_s_saved": _number(comparison.gb_s_saved),
        "vcpu_s_saved": _number(comparison.vcpu_s_saved),
        "resources_saved": _number(comparison.resources_saved),
        "bill_added": _number(comparison.bill_added),
        "bill_added_interval": comparison.bill_interval,
        "pays_below_fee_usd": float(comparison.pays_below_usd),
        "pays_below_fee_exact": str(comparison.pays_below_usd),
        "pays_below_fee_interval_usd": comparison.pays_below_interval,
        "pays": comparison.fee_usd < comparison.pays_below_usd,
    }


def _way(way: Way) -> dict[str, Any]:
    return {
        "invocations": float(way.invocations),
        "gb_s": _number(way.gb_s),
        "vcpu_s": _number(way.vcpu_s),
        "resources_usd": float(way.resources_usd),
        "fees_usd": float(way.fees_usd),
        "bill_usd": float(way.usd),
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _memory(result: Result) -> float | None:
    size = result.pairs[0][0].rows[0]["allocated_memory"]
    return None if size is None else size / 2**20


def _measured(tasks: Sequence[Task]) -> dict[str, float | None]:
    rows = [row for task in tasks for row in task.rows]
    held = [row["throttled_count"] for row in rows]
    elapsed = [(task.rows[-1]["received"] - task.rows[0]["sent"]) / 1e9 for task in tasks]
    return {
        "execution_s": _mean(tasks, ("execution",)),
        "cpu_s": _mean(tasks, ("cpu_user", "cpu_system")),
        "throttled_s": _mean(tasks, ("throttled_time",)),
        "elapsed_s": sum(elapsed) / len(elapsed),
        "throttled_share": None if None in held else sum(count > 0 for count in held) / len(held),
    }


def _mean(tasks: Sequence[Task], columns: Sequence[str]) -> float | None:
    """Seconds a task, summed over its requests and the columns; None where one was not measured."""
    values: list[Any] = [row[column] for task in tasks for row in task.rows for column in columns]
    return None if None in values else sum(values) / len(tasks) / 1e9


def timeline(task: Task) -> list[Mapping[str, float]]:
    """The billed stretches of a task: start and end in seconds after its first one began."""
    if any(row["started"] is None or row["ended"] is None for row in task.rows):
        return []
    begin = task.rows[0]["started"]
    return [
        {"start": (row["started"] - begin) / 1e9, "end": (row["ended"] - begin) / 1e9}
        for row in task.rows
    ]
