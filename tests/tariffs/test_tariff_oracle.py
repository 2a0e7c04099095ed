"""Every request-billed tariff against the hand-written rules of `tariff_oracle`, row by row."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from tariff_oracle import PLATFORMS, price
from tariff_rows import GB, MB, MS, S, row, table

from uncia.tariffs import bill, billable


def some_row(chance: random.Random, number: int) -> dict[str, Any]:
    """A row with sizes at and around every bound, and now and then a gap or a nonsense."""
    cpus = [0, 1, 72_357, 72_358, 80_000, 250_000, 250_001, 300_000, 500_000, 999_999, 1_000_000]
    cpus += [1_000_001, 2_000_000, 5_788_581, 8_000_000, 16_000_001, chance.randrange(20_000_000)]
    memories = [0, 1, 128 * MB, 128 * MB + 1, 512 * MB, 512 * MB + 1, GB, 1769 * MB, 4 * GB]
    memories += [4 * GB + 1, 3009 * MB, 3072 * MB, 10240 * MB, 10240 * MB + 1, 32 * GB, 33 * GB]
    memories += [chance.randrange(40 * GB), chance.randrange(1, 80) * 128 * MB]
    cpu, memory = chance.choice(cpus), chance.choice(memories)
    execution = chance.choice([0, 1, 999_999, MS, MS + 1, 100 * MS, 100 * MS + 1, S, 2007 * MS])
    execution = chance.choice([execution, chance.randrange(10 * S)])
    start = chance.choice(["warm", "warm", "thawed", "cold", "restored", None])
    cold = start in ("cold", "restored")
    values: dict[str, Any] = {
        "invocation": f"i{number}",
        "outcome": chance.choice(["ok"] * 6 + ["function_error", "timeout", "throttled"]),
        "start": start,
        "execution": execution,
        "initialization": chance.randrange(2 * S) if cold else None,
        "allocated_cpu": cpu,
        "allocated_memory": memory,
        "cpu_user": chance.randrange(1 + 2 * execution),
        "cpu_system": chance.randrange(1 + execution),
        "memory_avg": chance.choice([0, 128 * MB, chance.randrange(3 * GB)]),
        "memory_peak": None,
    }
    if chance.random() < 0.2:
        values[
            chance.choice([name for name in values if name not in ("invocation", "outcome")])
        ] = None
    if chance.random() < 0.02:
        values["memory_avg"] = -1
    return row(**values)


def test_every_tariff_agrees_with_the_rules_written_out_by_hand() -> None:
    chance = random.Random(1)
    rows = {f"i{number}": some_row(chance, number) for number in range(1500)}
    lines = bill(table(list(rows.values())), sorted(PLATFORMS), ["invocation"])
    assert len(lines) == len(rows) * len(PLATFORMS)
    priced = dict.fromkeys(PLATFORMS, 0)
    for line in lines:
        result = rows[str(line.group["invocation"])]
        expected = price(line.tariff, result)
        where = f"{line.tariff}: {result}"
        if expected is None:
            assert line.rows == 0, where
            assert line.cost_usd is None
            assert sum(line.unpriced.values()) + sum(line.not_billable.values()) == 1, where
            continue
        priced[line.tariff] += 1
        assert line.rows == 1, f"{where}: {line.unpriced}"
        assert line.billable_micro_vcpu_ns == expected.vcpu, where
        assert line.billable_byte_ns == expected.memory, where
        assert line.exact_cost == expected.cost, where
        assert line.cost_usd is not None
        assert abs(Fraction(line.cost_usd) - expected.cost) <= Fraction(1, 2 * 10**18)
    # Enough of each was priced, and enough refused, for the comparison to mean something.
    assert all(200 < count < 1450 for count in priced.values()), priced


def test_the_oracle_knows_every_tariff_that_bills_by_request() -> None:
    assert set(PLATFORMS) == set(billable())
