"""What a request takes on an instance that has served many: the same as after the first 100?

An instance that has served so many requests (100, 1,000, 10,000, 100,000), one at a time, is
measured in rounds: a block of requests to it, one to a fresh instance of another function on the
same platform, and one to a fresh instance of a platform that has just been started, in an order
that rotates. Fresh instances are new in every round, and have served 100 requests before their
block. So is the aged one as long as its blocks would age it by more than a fifth.

Printed are the medians over the rounds of each one's p50 and p99, in microseconds, and the ratios
of the aged one to the others, with an interval (`in_turn`). After 100 requests all three are
equals, so that row shows what the measurement makes of equals.

    .venv/bin/python benches/platform/aged.py [--rounds 20] [--block 500] [--after N ...] [--node]
        [--json FILE]

The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import socket
import statistics
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from ending import stop_on_sigterm
from greedy import CALM, FUNCTIONS
from in_turn import ratio

from uncia.platforms import boto
from uncia.platforms.server import Server

AFTER: Final = (100, 1_000, 10_000, 100_000)
WARM_UP: Final = 100
# The first of a block are not measured: whoever has waited for its turn has cold caches.
LEAD: Final = 20
PERCENTILES: Final = (50, 99)
AGED: Final = "aged"
SAME_PLATFORM: Final = "fresh instance"
NEW_PLATFORM: Final = "fresh platform"
# Nothing is paused or ended between two blocks.
CONFIG: Final = {"keep_alive_ms": 3_600_000, "keep_alive_cpu": "run", "shutdown_grace_ms": 100}
SOURCES: Final = {
    "python3.11": ("handler.py", CALM),
    "nodejs20.x": ("handler.js", "exports.handler = async () => ({});\n"),
}

Quantiles = tuple[float, ...]


class Platform(Server):
    """An embedded platform, and one connection to it."""

    def __init__(self, work: Path, runtime: str) -> None:
        super().__init__(work / "state", CONFIG)
        self.runtime = runtime
        self.client = boto.client(self.address)
        host, _, port = self.address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self, name: str) -> None:
        """Creates a function, whose instance then serves the first requests."""
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(*SOURCES[self.runtime])
        self.client.create_function(
            FunctionName=name,
            Runtime=self.runtime,
            Handler="handler.handler",
            Role=boto.ROLE,
            Code={"ZipFile": package.getvalue()},
            MemorySize=1769,
        )
        self.call(name, WARM_UP)

    def end(self, name: str) -> None:
        self.client.delete_function(FunctionName=name)

    def call(self, name: str, count: int) -> np.ndarray:
        """Latencies of so many requests, one at a time, in us."""
        request = (
            f"POST {FUNCTIONS}/{name}/invocations HTTP/1.1\r\nHost: {self.address}\r\n"
            "Content-Length: 2\r\n\r\n{}"
        ).encode()
        times = np.empty(count)
        for index in range(count):
            began = time.perf_counter_ns()
            self.connection.sendall(request)
            answer = self.connection.recv(65_536)
            times[index] = (time.perf_counter_ns() - began) / 1e3
            if not (answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"{}")):
                raise SystemExit(f"{name} was answered: {answer!r}")
        return times

    def measure(self, name: str, block: int) -> Quantiles:
        times = self.call(name, LEAD + block)[LEAD:]
        return tuple(float(it) for it in np.percentile(times, PERCENTILES))


@contextlib.contextmanager
def platform(runtime: str) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        server = Platform(Path(work), runtime)
        try:
            yield server
        finally:
            server.connection.close()
            server.stop()


def one_round(old: Platform, turn: int, block: int) -> dict[str, Quantiles]:
    """A block of each contender; those that are fresh are started before, and end after it."""
    with platform(old.runtime) as new:
        old.start("fresh")
        new.start("fresh")
        contenders = [
            (AGED, old, AGED),
            (SAME_PLATFORM, old, "fresh"),
            (NEW_PLATFORM, new, "fresh"),
        ]
        turn %= len(contenders)
        # Until the platforms have done what the starts left to do.
        time.sleep(0.1)
        figures = {
            title: server.measure(name, block)
            for title, server, name in contenders[turn:] + contenders[:turn]
        }
        old.end("fresh")
    return figures


def measure(age: int, options: argparse.Namespace) -> dict[str, list[Quantiles]]:
    """All rounds of each contender, where the aged one has served ``age`` requests."""
    is_kept = options.rounds * (LEAD + options.block) <= age / 5
    rounds: dict[str, list[Quantiles]] = defaultdict(list)
    with platform("nodejs20.x" if options.node else "python3.11") as old:
        for turn in range(options.rounds):
            if turn == 0 or not is_kept:
                old.start(AGED)
                old.call(AGED, age - WARM_UP)
            for title, quantiles in one_round(old, turn, options.block).items():
                rounds[title].append(quantiles)
            if not is_kept:
                old.end(AGED)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=20, help="at each age, 2 at least")
    parser.add_argument("--block", type=int, default=500, help="requests to each, in a round")
    parser.add_argument("--after", type=int, nargs="+", default=AFTER, metavar="N")
    parser.add_argument("--node", action="store_true", help="functions in Node.js, not Python")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: an interval takes 2 at least")
    if min(options.after) < WARM_UP:
        parser.error(f"--after is {WARM_UP} at least: so many has a fresh instance served")
    ages = {}
    for age in options.after:
        ages[age] = measure(age, options)
        print(f"measured after {age}", file=sys.stderr)
    show(ages)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(ages, indent=2) + "\n")


def show(ages: dict[int, dict[str, list[Quantiles]]]) -> None:
    for index, percentile in enumerate(PERCENTILES):
        titles = (AGED, SAME_PLATFORM, NEW_PLATFORM)
        print(f"\n| p{percentile} after, us |" + "".join(f" {title} |" for title in titles), end="")
        print(f" to {SAME_PLATFORM} | to {NEW_PLATFORM} |\n|---" + "|---" * 5 + "|")
        for age, rounds in ages.items():
            by_title = {title: [it[index] for it in rounds[title]] for title in titles}
            medians = [f"{statistics.median(values):.0f}" for values in by_title.values()]
            ratios = [str(ratio(by_title[AGED], by_title[title])) for title in titles[1:]]
            print("| " + " | ".join([f"{age:,}", *medians, *ratios]) + " |")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
