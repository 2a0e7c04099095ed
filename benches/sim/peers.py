"""Uncia's simulator against SimPy and SimFaaS, on a queue with eight servers.

    uv pip install --target FOLDER simpy==4.1.2 simfaas==0.2.2
    PYTHONPATH=FOLDER python benches/sim/peers.py [--jobs 200000] [--load 0.8] [--runs 3]

Poisson arrivals, exponential times of service of 1 ms on average, eight servers. Each side runs in
a process of its own, and all sides in each run, one after the other. Time is CPU time of the
process and its children, so that other work on the machine counts little, after a first thousand
jobs that import what the side needs. The medians of the runs are compared.

SimPy gets the smallest model of this queue: a resource of eight, and a process for each job.
SimFaaS has no queue: it turns away what finds eight instances busy, which is less work than letting
it wait. Uncia draws the jobs, simulates them, and writes a row for each (``uncia-engine sim``, with
its start); the whole of ``uncia simulate``, which also bills them and writes a run folder, is
another side.

Exit code 1 if the engine is not ten times as fast as each of the others a job.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SERVERS = 8
SERVICE_S = 0.001
WARM = 1000
"""Jobs before those that are measured."""

LEAST = 10
"""Times as fast as others, a job."""


def simpy_side(jobs: int, load: float) -> dict[str, float]:
    """M/M/8 in SimPy."""
    import simpy

    draws = random.Random(1)
    environment = simpy.Environment()
    servers = simpy.Resource(environment, SERVERS)
    times = []

    def job():
        arrived = environment.now
        with servers.request() as request:
            yield request
            yield environment.timeout(draws.expovariate(1 / SERVICE_S))
        times.append(environment.now - arrived)

    def source():
        for _ in range(jobs):
            yield environment.timeout(draws.expovariate(load * SERVERS / SERVICE_S))
            environment.process(job())

    environment.process(source())
    environment.run()
    return {"jobs": len(times), "mean_ms": statistics.fmean(times) * 1000}


def simfaas_side(jobs: int, load: float) -> dict[str, float]:
    """Eight instances in SimFaaS, which loses what finds them busy."""
    from simfaas.ServerlessSimulator import ServerlessSimulator

    rate = load * SERVERS / SERVICE_S
    simulator = ServerlessSimulator(
        arrival_rate=rate,
        warm_service_rate=1 / SERVICE_S,
        cold_service_rate=1 / SERVICE_S,
        expiration_threshold=600,
        max_time=jobs / rate,
        maximum_concurrency=SERVERS,
    )
    simulator.generate_trace(progress=False)
    return {"jobs": simulator.total_req_count, "lost": simulator.total_reject_count}


def file(jobs: int, load: float) -> dict[str, object]:
    """The simulation file of this queue."""
    rate = load * SERVERS / SERVICE_S
    phase = {"drawn": {"distribution": "exponential", "mean": f"{SERVICE_S * 1000:g}ms"}}
    arrivals = {"kind": "poisson", "rate": f"{rate:g}/s", "duration": f"{jobs / rate:.3f}s"}
    function = {
        "vcpu": 1,
        "memory": "128MB",
        "arrivals": arrivals,
        "phases": [phase | {"memory": "64MB"}],
    }
    return {
        "name": "peers",
        "cluster": {"workers": 1, "vcpu": SERVERS, "memory": "8GB"},
        "models": ["sim"],
        "interval": "10s",
        "functions": {"job": function},
    }


def engine_side(jobs: int, load: float) -> dict[str, float]:
    """The engine by itself: draws, simulates, writes rows."""
    from uncia import engine, yamlio
    from uncia.experiment import simulation

    document = yamlio.load(yamlio.dump(file(jobs, load)), "<peers>")
    checked = yamlio.validate(simulation.SimulationFile, document)
    with tempfile.TemporaryDirectory() as folder:
        config = simulation.config(
            checked, "sim", "peers", Path(folder), seed=1, starts=None, requests=None
        )
        done = engine.run(["sim", "--config", "-"], config=config)
    return {"jobs": done["served"], "mean_ms": int(done["in_system"]) / done["served"] / 1e6}


def uncia_side(jobs: int, load: float) -> dict[str, float]:
    """The whole of ``uncia simulate``, with bills and a run folder."""
    import uncia

    with tempfile.TemporaryDirectory() as folder:
        (values,) = uncia.simulate(file(jobs, load), out=Path(folder) / "run").values()
    mean = values["requests_in_system"] * values["end_s"] / values["served"]
    return {"jobs": values["served"], "mean_ms": mean * 1000}


SIDES: dict[str, Callable[[int, float], dict[str, float]]] = {
    "simpy": simpy_side,
    "simfaas": simfaas_side,
    "engine": engine_side,
    "uncia simulate": uncia_side,
}


def theory_ms(load: float) -> float:
    """The mean time in M/M/8, by Erlang's C formula."""
    offered, blocked = load * SERVERS, 1.0
    for servers in range(1, SERVERS + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    waits = blocked / (1 - load * (1 - blocked))
    return SERVICE_S * 1000 * (1 + waits / (SERVERS * (1 - load)))


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended, in seconds."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(side: str, jobs: int, load: float) -> dict[str, float]:
    """Run a side in this process: what it says, and its CPU time a job."""
    SIDES[side](WARM, load)
    before = cpu_s()
    values = SIDES[side](jobs, load)
    return values | {"us_per_job": (cpu_s() - before) / values["jobs"] * 1e6}


def measured(side: str, jobs: int, load: float) -> dict[str, float]:
    """Run a side in a process."""
    command = [sys.executable, __file__, "--side", side]
    command += ["--jobs", str(jobs), "--load", str(load)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    values: dict[str, float] = json.loads(done.stdout)
    return values


def main() -> int:
    """Measure all sides and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--without", nargs="*", choices=SIDES, default=[], help="sides to leave out"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options.jobs, options.load)))
        return 0
    print(f"load of the machine: {os.getloadavg()[0]:.0f}")
    sides = [side for side in SIDES if side == "engine" or side not in options.without]
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(options.runs):
        for side in sides:
            runs[side].append(measured(side, options.jobs, options.load))
    each = {side: statistics.median(run["us_per_job"] for run in runs[side]) for side in sides}
    print(f"mean time in theory: {theory_ms(options.load):.4f} ms")
    for side, us in each.items():
        mean = runs[side][0].get("mean_ms")
        words = "" if mean is None else f", mean time {mean:.4f} ms"
        print(f"{side}: {us:.2f} us a job, {us / each['engine']:.1f} times the engine's{words}")
    print(f"load of the machine: {os.getloadavg()[0]:.0f}")
    peers = [side for side in ("simpy", "simfaas") if side in sides]
    slow = [side for side in peers if each[side] < LEAST * each["engine"]]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
