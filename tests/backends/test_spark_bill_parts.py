"""Parts of bills, cold starts and instances: the same numbers from Spark as from DuckDB."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.append(str(Path(__file__).parents[1] / "costs"))

from cost_rows import GB, MB, S, instance, instances, row, table

from uncia.costs.coldstarts import analysed
from uncia.costs.decompose import decompose
from uncia.costs.instances import instances as price


def rows() -> tuple[Any, Any]:
    """Requests and instances with values missing, several starts of an instance, two regions."""
    chance = random.Random(11)

    def perhaps(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    asked = [
        row(
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
        instance(
            platform=perhaps(chance.choice(["R1", "R2"])),
            instance=chance.choice("abcdefghij"),
            started=(start := chance.randrange(100 * S)),
            initialized=perhaps(start + chance.randrange(S)),
            ended=perhaps(start + chance.randrange(90 * S)),
            allocated_cpu=perhaps(300_000),
        )
        for _ in range(40)
    ]
    return table(asked), instances(lives)


def test_bill_parts_cold_starts_and_instances_are_alike(spark: Any, duckdb: Any) -> None:
    asked, lives = rows()
    found: dict[str, list[pd.DataFrame]] = {}
    for backend in (duckdb, spark):
        data, started = backend.table(asked), backend.table(lives, "instances")
        starts = analysed(data, [], instances=started, points=21, backend=backend)
        found[backend.name] = [
            decompose(data, ["gcp-run-request"], group_by=["platform"], backend=backend),
            starts.cdf,
            price(started, ["gcp-run-instance"], invocations=data, backend=backend),
        ]
    assert len(set(found["duckdb"][1]["exact"])) > 5
    for first, second in zip(found["duckdb"], found["spark"], strict=True):
        pd.testing.assert_frame_equal(first, second, check_exact=True)
