"""What the monitor ``schedule`` takes of what it watches.

    python benches/monitors/schedule.py [--rounds 10] [--warm] [--json]

Two processes on one CPU pass a byte to and fro through pipes: each round trip is two wake-ups and
two switches. That is timed with the monitor and without it in turn, and the difference of the
medians is divided by the events. With --warm, ``uncia monitor --cost benches/monitors/warm.yaml``
then runs an experiment at 1,000/s four times with the monitor and four times without. Run it as
root, after ``make bpf``, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from uncia.doctor.monitors import Asked, Monitors

ROUND_TRIPS = 100_000
EVENTS_A_TRIP = 4
LIMIT_US = 0.6


def ping_pong(trips: int) -> float:
    """Return the seconds that round trips between two processes on a CPU take."""
    cpu = max(os.sched_getaffinity(0))
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {cpu})
        for _ in range(trips):
            os.write(back[1], os.read(there[0], 1))
        os._exit(0)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        begin = time.perf_counter()
        for _ in range(trips):
            os.write(there[1], b"x")
            os.read(back[0], 1)
        return time.perf_counter() - begin
    finally:
        os.sched_setaffinity(0, allowed)
        os.waitpid(child, 0)
        for end in (*there, *back):
            os.close(end)


def watched(folder: Path) -> float:
    """Return the seconds of the round trips beside the monitor."""
    monitors = Monitors.start([Asked("schedule")], folder / "machine.arrows", time.time_ns())
    if not monitors.watching:
        raise SystemExit("; ".join(monitors.stop()))
    try:
        return ping_pong(ROUND_TRIPS)
    finally:
        monitors.stop()


def measure(rounds: int) -> dict[str, Any]:
    """Time both in turn; returns the figures."""
    alone, beside = [], []
    ping_pong(ROUND_TRIPS // 10)
    for turn in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            # Neither is always the first.
            if turn % 2:
                beside.append(watched(Path(folder)))
                alone.append(ping_pong(ROUND_TRIPS))
            else:
                alone.append(ping_pong(ROUND_TRIPS))
                beside.append(watched(Path(folder)))
    per_trip = [1e6 * statistics.median(times) / ROUND_TRIPS for times in (alone, beside)]
    each = [
        1e6 * (with_ - without) / ROUND_TRIPS / EVENTS_A_TRIP
        for without, with_ in zip(alone, beside, strict=True)
    ]
    return {
        "trip_us": per_trip[0],
        "watched_trip_us": per_trip[1],
        "event_us": (per_trip[1] - per_trip[0]) / EVENTS_A_TRIP,
        "event_us_lowest": min(each),
        "event_us_highest": max(each),
        "rounds": rounds,
        "load_1m": os.getloadavg()[0],
    }


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print(
            f"a round trip takes {figures['trip_us']:.2f} us, watched"
            f" {figures['watched_trip_us']:.2f} us: {figures['event_us']:.2f} us an event"
            f" ({figures['event_us_lowest']:.2f} to {figures['event_us_highest']:.2f} in"
            f" {figures['rounds']} rounds), of {LIMIT_US} us at most; load"
            f" {figures['load_1m']:.1f}"
        )
    if arguments.warm:
        file = Path(__file__).with_name("warm.yaml")
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "uncia", "monitor", "--cost", str(file)]
            code = subprocess.run([*command, "--out", str(Path(folder) / "cost")]).returncode
        if code:
            return code
    return int(figures["event_us"] > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
