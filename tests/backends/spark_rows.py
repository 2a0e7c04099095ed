"""Rows for two engines: sizes around every bound, gaps, cold starts, chains and nonsense."""

from __future__ import annotations

import random
from typing import Any

import advice_rows
import cost_rows
import pyarrow as pa
from tariff_rows import GB, INTEGERS, MB, MS, S, row

CPUS = (0, 1, 72_357, 72_358, 80_000, 250_001, 300_000, 999_999, 1_000_000, 5_788_581, 16_000_001)
MEMORIES = (0, 1, 128 * MB, 128 * MB + 1, 1769 * MB, 4 * GB + 1, 3009 * MB, 10240 * MB, 33 * GB)
TIMES = (0, 1, 999_999, MS, MS + 1, 100 * MS + 1, S, 2007 * MS, 366 * 24 * 3600 * S)
ABSURD = (-1, -(2**63), 2**63 - 1, 366 * 24 * 3600 * S + 1, 2**42 + 1)


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows made by chance, about a third of which some tariff cannot price."""
    chance = random.Random(seed)
    return [_row(chance, number) for number in range(count)]


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    execution = chance.choice([chance.choice(TIMES), chance.randrange(10 * S)])
    start = chance.choice(["warm", "warm", "thawed", "cold", "restored", None])
    values: dict[str, Any] = {
        "function": chance.choice(["f", "g/1", "ä b", "007"]),
        "invocation": f"i{number}",
        "outcome": chance.choice(
            ["ok"] * 8 + ["function_error", "timeout", "throttled", "preempted", "transport_error"]
        ),
        "start": start,
        "execution": execution,
        "initialization": chance.randrange(2 * S) if start in ("cold", "restored") else None,
        "allocated_cpu": chance.choice([chance.choice(CPUS), chance.randrange(20_000_000)]),
        "allocated_memory": chance.choice([chance.choice(MEMORIES), chance.randrange(40 * GB)]),
        "cpu_user": chance.randrange(1 + 2 * execution),
        "cpu_system": chance.randrange(1 + execution),
        "memory_avg": chance.choice([0, 128 * MB, chance.randrange(3 * GB)]),
        "memory_peak": chance.choice([None, chance.randrange(12 * GB)]),
        "reserved_cpu": chance.choice([None, chance.randrange(2_000_000)]),
        "borrowed_cpu_time": chance.choice([None, chance.randrange(S)]),
        "lent_cpu_time": chance.choice([None, chance.randrange(S)]),
        "lent_memory_avg": chance.choice([None, chance.randrange(GB)]),
        "preemptible": chance.choice([None, True, False]),
    }
    if chance.random() < 0.25:
        values[chance.choice(INTEGERS)] = None
    if chance.random() < 0.05:
        values[chance.choice(INTEGERS)] = chance.choice(ABSURD)
    return row(**values)


def requests_and_instances() -> tuple[pa.Table, pa.Table]:
    """Requests and instances with values missing, several starts of an instance, two regions."""
    chance = random.Random(11)

    def perhaps(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    asked = [
        cost_rows.row(
            platform=perhaps(chance.choice(["R1", "R2"])),
            instance=perhaps(chance.choice("abcdefgh")),
            started=perhaps(chance.randrange(100 * S)),
            execution=perhaps(chance.randrange(5 * S)),
            allocated_cpu=perhaps(chance.choice([300_000, 10**6, 1_800_000])),
            allocated_memory=perhaps(chance.choice([128 * MB, GB])),
            cpu_user=perhaps(chance.randrange(3 * S)),
            memory_avg=perhaps(chance.randrange(GB)),
        )
        for _ in range(300)
    ]
    lives = [
        cost_rows.instance(
            platform=perhaps(chance.choice(["R1", "R2"])),
            instance=chance.choice("abcdefghij"),
            started=(start := chance.randrange(100 * S)),
            initialized=perhaps(start + chance.randrange(S)),
            ended=perhaps(start + chance.randrange(90 * S)),
            allocated_cpu=perhaps(300_000),
        )
        for _ in range(40)
    ]
    return cost_rows.table(asked), cost_rows.instances(lives)


def chained_requests() -> pa.Table:
    """Requests of a function in two sizes, and of one that it calls."""
    usual: dict[str, Any] = {"cpu_user": 20 * MS, "memory_avg": 50 * MB, "memory_peak": 90 * MB}
    begin = [number * S // 3 for number in range(80)]
    when = {"started": begin, "ended": [time + S for time in begin]}
    callers = [f"aws-{number}" for number in range(80)]
    some = [500 * MS + 1001 * number for number in range(80)]
    gcp = {"platform": "gcp", **usual}
    return advice_rows.table(
        advice_rows.rows("a", some, memory=1769, cpu=10**6, invocation=callers, **gcp, **when),
        advice_rows.rows("a", some[:70], memory=512, cpu=500_000, **gcp),
        advice_rows.rows("b", some, memory=1024, cpu=10**6, parent=callers, **gcp, **when),
    )
