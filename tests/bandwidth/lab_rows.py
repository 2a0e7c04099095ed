"""Rows as the laboratory's runs have them, for tests of what is made of them."""

from collections.abc import Sequence
from typing import Any

from uncia.bandwidth.intermittent import LONG, TASKS, stage

MB = 1 << 20
MS = 1_000_000


def request(number: int, **more: Any) -> dict[str, Any]:
    """A warm request of 128 MB that ended ok."""
    return {
        "run": "r",
        "experiment": "e",
        "platform": "embedded",
        "function": "f",
        "invocation": f"i-{number}",
        "attempt": 1,
        "scheduled": number * 100 * MS,
        "sent": number * 100 * MS,
        "received": number * 100 * MS + 50 * MS,
        "outcome": "ok",
        "start": "warm",
        "instance": "i1",
        "execution": 10 * MS,
        "allocated_cpu": 72_357,
        "allocated_memory": 128 * MB,
        "cpu_user": 2 * MS,
        "cpu_system": 0,
        "memory_avg": 20 * MB,
        "throttled_count": 0,
        "throttled_time": 0,
    } | more


def tasks(executions: Sequence[tuple[int, Sequence[int]]]) -> list[dict[str, Any]]:
    """Tasks both ways: (execution as one invocation, executions of its bursts), in ns."""
    rows: list[dict[str, Any]] = []
    for long, bursts in executions:
        rows.append(request(len(rows), experiment=TASKS, execution=long, stage=LONG))
        for number, execution in enumerate(bursts):
            row = request(
                len(rows),
                experiment=TASKS,
                scheduled=None,
                execution=execution,
                parent=rows[-1]["invocation"],
                stage=stage(number, len(bursts)),
            )
            rows.append(row)
    return rows
