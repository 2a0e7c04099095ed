"""What thawing adds to a request: a frozen instance beside one that was left to run.

Two functions are called in turn after the same rest, so that the processors have slept as long for
both: one whose instance is frozen meanwhile, and one with ``keep_alive_cpu: run``. Printed are the
medians over the rounds of each one's p50 and p99, and of their difference, in microseconds.

    .venv/bin/python benches/platform/thawed.py [--rounds 5] [--requests 300] [--json FILE]

The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from ending import stop_on_sigterm
from greedy import CALM, FUNCTIONS, create

from uncia.platforms import boto
from uncia.platforms.server import Server

PAUSE_AFTER_MS = 5
REST_S = 0.03
BEHAVIOURS = {"live": "run", "thawed": "freeze"}
STARTS = {"live": "warm", "thawed": "thawed"}
PERCENTILES = (50, 99)


def one(connection: http.client.HTTPConnection, name: str) -> float | None:
    """A request's latency in us; None if it found its instance in another state than planned."""
    time.sleep(REST_S)
    began = time.perf_counter_ns()
    connection.request("POST", f"{FUNCTIONS}/{name}/invocations", b"{}")
    answer = connection.getresponse()
    answer.read()
    took = time.perf_counter_ns() - began
    return took / 1e3 if answer.headers["x-uncia-start"] == STARTS[name] else None


def measure(address: str, requests: int) -> dict[str, float]:
    result: dict[str, list[float]] = {name: [] for name in STARTS}
    connection = http.client.HTTPConnection(address)
    for _ in range(requests):
        for name in STARTS:
            latency = one(connection, name)
            if latency is not None:
                result[name].append(latency)
    connection.close()
    figures = {}
    for name, latencies in result.items():
        if len(latencies) < requests // 2:
            raise SystemExit(f"only {len(latencies)} of {requests} requests were {name}")
        for percentile in PERCENTILES:
            figures[f"{name} p{percentile}"] = float(np.percentile(latencies, percentile))
    for percentile in PERCENTILES:
        thawed, live = figures[f"thawed p{percentile}"], figures[f"live p{percentile}"]
        figures[f"difference p{percentile}"] = thawed - live
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="of each function, in a round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        server = Server(Path(work) / "state", {"pause_after_ms": PAUSE_AFTER_MS})
        try:
            client = boto.client(server.address)
            for name, behaviour in BEHAVIOURS.items():
                create(client, name, CALM, 1769, keep_alive_cpu=behaviour)
            measure(server.address, 20)
            rounds = [measure(server.address, options.requests) for _ in range(options.rounds)]
        finally:
            server.stop()
    print("| `hello` after a rest, us |" + "".join(f" p{it} |" for it in PERCENTILES))
    print("|---|" + "---|" * len(PERCENTILES))
    for name in (*STARTS, "difference"):
        keys = (f"{name} p{percentile}" for percentile in PERCENTILES)
        cells = (f" {statistics.median(it[key] for it in rounds):.0f} |" for key in keys)
        print(f"| {name} |" + "".join(cells))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(rounds, indent=2) + "\n")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
