"""One instance that serves very many requests: the last cost what the first did."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from lambda_api.conftest import instances, package

from uncia import record
from uncia.units import KIB, MIB
from uncia.workload.client import ClosedLoop, Load, Stream, drive

from .engine import Connection, Engine, creation

SOURCES = {
    "python3.11": {"handler.py": "def handler(event, context):\n    return {}\n"},
    "nodejs20.x": {"handler.js": "exports.handler = async () => ({});\n"},
}
# Until caches, pools and the interpreter are warm.
WARM_UP = 2_000
# The old instance and a new one are measured in turn, so often, so that both see the same machine.
ROUNDS = 10
# Against what else the machine does meanwhile; the figure to reach is 1.1.
MOST_GROWTH = 1.5
MOST_MEMORY = 20 * MIB
# Of the instance's own process for each request, on average: 180 bytes are a variable of the
# environment that is set anew, which Node.js cannot do without.
MOST_LEAK = {"python3.11": 40, "nodejs20.x": 250}
# An interpreter's heap does not stay where it is after a few thousand requests.
HEAP = {"python3.11": 512 * KIB, "nodejs20.x": 24 * MIB}


@dataclass
class Server:
    """A platform with one function, whose one instance serves all requests."""

    engine: Engine
    folder: Path
    sent: int = 0

    def deploy(self, runtime: str) -> None:
        self.engine.wait_ready()
        with closing(Connection()) as connection:
            body = creation("f", package(SOURCES[runtime]), MemorySize=1769, Runtime=runtime)
            path = "/2015-03-31/functions"
            assert connection.request(self.engine.address, "POST", path, body).status == 201

    def drive(self, count: int) -> tuple[float, float]:
        """Median latency and the worker's CPU time for each of so many requests, in us."""
        before = self.engine.cpu_s()
        out = self.folder / "run"
        out.mkdir(parents=True)
        url = f"http://{self.engine.address}/2015-03-31/functions/f/invocations"
        drive(
            Load(
                run="million",
                experiment=None,
                platform="embedded",
                streams=[
                    Stream("f", [("f", url)], closed=ClosedLoop(1, requests=count), body=b"{}")
                ],
                seed=1,
                out=out / "invocations.arrows",
                realtime=False,
            )
        )
        cpu_us = (self.engine.cpu_s() - before) / count * 1e6
        rows = record.read(out, "invocations")
        assert rows.num_rows == count
        assert pc.unique(rows["outcome"].cast("string")).to_pylist() == ["ok"]
        latency = pc.subtract(rows["received"], rows["sent"]).to_numpy()
        shutil.rmtree(out)
        self.sent += count
        return float(np.median(latency)) / 1e3, cpu_us

    def instance_bytes(self) -> int:
        """Memory of the instance that is not shared with files."""
        (first,) = instances(self.engine.state, made_ahead=False)
        processes = [first, *_descendants(first)]
        return max(_anonymous_bytes(process) for process in processes)


def _descendants(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [it for child in children for it in (int(child), *_descendants(int(child)))]


def _anonymous_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * KIB


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("runtime", list(SOURCES))
def test_the_last_request_costs_what_the_first_did(
    engine_binary: Path, state: Path, tmp_path: Path, long: bool, runtime: str
) -> None:
    if runtime.startswith("node") and shutil.which("node") is None:
        pytest.skip("needs Node.js")
    requests, window = (1_000_000, 10_000) if long else (12_000, 1_000)
    config = {"keep_alive_ms": 3_600_000}
    old = Server(Engine(engine_binary, state, config), tmp_path / "old")
    new = Server(Engine(engine_binary, tmp_path / "second", config), tmp_path / "new")
    try:
        old.deploy(runtime)
        old.drive(WARM_UP)
        resident, instance = old.engine.resident_bytes(), old.instance_bytes()
        old.drive(requests - WARM_UP - ROUNDS // 2 * window)
        new.deploy(runtime)
        new.drive(WARM_UP)
        measured = [[server.drive(window // 2) for server in (old, new)] for _ in range(ROUNDS)]
        (old_latency, old_cpu), (new_latency, new_cpu) = np.median(measured, axis=0)
        growth = old.engine.resident_bytes() - resident
        leak = old.instance_bytes() - instance
        print(
            f"{runtime}, {requests} requests, a new instance beside it: latency p50 "
            f"{old_latency:.0f} and {new_latency:.0f} us, worker's CPU {old_cpu:.0f} and "
            f"{new_cpu:.0f} us a request; memory of the worker {growth / MIB:+.1f} MiB, "
            f"of the instance {leak / MIB:+.1f} MiB"
        )
        assert growth < MOST_MEMORY
        assert leak < MOST_LEAK[runtime] * requests + HEAP[runtime]
        if long:
            assert old_latency < new_latency * MOST_GROWTH
            assert old_cpu < new_cpu * MOST_GROWTH
        assert old.engine.stop() == new.engine.stop() == 0
        with closing(sqlite3.connect(state / "meter.sqlite")) as log:
            served = log.execute("SELECT invocations FROM instances").fetchall()
        assert served == [(requests,)], "one instance served them all"
        assert old.sent == requests
    finally:
        old.engine.kill()
        new.engine.kill()
