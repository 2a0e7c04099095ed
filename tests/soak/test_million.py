"""One instance that serves very many requests: the last cost what the first did."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from lambda_api.conftest import package

from uncia import record
from uncia.units import MIB
from uncia.workload.client import ClosedLoop, Load, Stream, drive

from .engine import Connection, Engine, creation

SOURCE = "def handler(event, context):\n    return {}\n"
# Until caches, pools and the interpreter are warm.
WARM_UP = 2_000
WINDOW = 10_000
# Against what else the machine does meanwhile; the figure to reach is 1.1.
MOST_GROWTH = 1.5
MOST_MEMORY = 20 * MIB


@pytest.mark.timeout(7200)
def test_the_last_request_costs_what_the_first_did(
    engine_binary: Path, state: Path, tmp_path: Path, long: bool
) -> None:
    requests, window = (1_000_000, WINDOW) if long else (20_000, WINDOW // 2)
    engine = Engine(engine_binary, state, {"keep_alive_ms": 3_600_000})
    try:
        engine.wait_ready()
        with closing(Connection()) as connection:
            body = creation("f", package(SOURCE), MemorySize=1769)
            path = "/2015-03-31/functions"
            assert connection.request(engine.address, "POST", path, body).status == 201

        def measure(label: str, count: int) -> tuple[float, float]:
            """Median latency and the worker's CPU time for each of so many requests, in us."""
            before = engine.cpu_s()
            folder = tmp_path / label
            folder.mkdir()
            drive(
                Load(
                    run=label,
                    experiment=None,
                    platform="embedded",
                    streams=[
                        Stream(
                            "f",
                            [("f", f"http://{engine.address}{path}/f/invocations")],
                            closed=ClosedLoop(1, requests=count),
                            body=b"{}",
                        )
                    ],
                    seed=1,
                    out=folder / "invocations.arrows",
                    realtime=False,
                )
            )
            cpu_us = (engine.cpu_s() - before) / count * 1e6
            rows = record.read(folder, "invocations")
            assert rows.num_rows == count
            assert pc.unique(rows["outcome"].cast("string")).to_pylist() == ["ok"]
            latency = pc.subtract(rows["received"], rows["sent"]).to_numpy()
            return float(np.median(latency)) / 1e3, cpu_us

        measure("warm-up", WARM_UP)
        resident = engine.resident_bytes()
        first = measure("first", window)
        measure("middle", requests - WARM_UP - 2 * window)
        last = measure("last", window)
        growth = engine.resident_bytes() - resident
        print(
            f"{requests} requests: latency p50 {first[0]:.0f} -> {last[0]:.0f} us, worker's CPU "
            f"{first[1]:.0f} -> {last[1]:.0f} us a request, memory {growth / MIB:+.1f} MiB"
        )
        assert growth < MOST_MEMORY
        if long:
            assert last[0] < first[0] * MOST_GROWTH
            assert last[1] < first[1] * MOST_GROWTH
        assert engine.stop() == 0
        with closing(sqlite3.connect(state / "meter.sqlite")) as log:
            served = log.execute("SELECT invocations FROM instances").fetchall()
        assert served == [(requests,)], "one instance served them all"
    finally:
        engine.kill()
