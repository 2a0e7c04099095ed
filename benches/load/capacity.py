"""`uncia capacity` of servers whose capacity is known: how often it is inside, how wide, how long.

    python benches/load/capacity.py --servers 20 [--first 0] [--json FILE]

Server n has 1 to 4 workers, in turn; every four servers these take 5 ms for each request, then
exponential times of mean 5 ms. A worker is a place in a schedule: a request ends at its worker's
time, and no CPU is used for it. A search takes one to five minutes. Servers are numbered, so that a
list may be taken in pieces: --first says which comes first.
"""

import argparse
import asyncio
import heapq
import json
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MEAN_S = 0.005
WORKERS = (1, 2, 3, 4)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Known:
    """A server whose capacity is known.

    Attributes:
        kind: of service times, ``fixed`` or ``exponential``.
    """

    number: int
    workers: int
    kind: str

    @classmethod
    def of(cls, number: int) -> "Known":
        """The server of a number."""
        turn, worker = divmod(number, len(WORKERS))
        return cls(number, WORKERS[worker], ("fixed", "exponential")[turn % 2])

    @property
    def capacity(self) -> float:
        """Requests a second."""
        return self.workers / MEAN_S

    def service(self) -> Callable[[], float]:
        """Draws service times, in seconds."""
        rng = random.Random(self.number)
        return (lambda: MEAN_S) if self.kind == "fixed" else lambda: rng.expovariate(1 / MEAN_S)


class Connected(asyncio.Protocol):
    """A connection: each request ends when the worker that it waits for has served it."""

    def __init__(self, free: list[float], service: Callable[[], float]) -> None:
        self._free, self._service = free, service
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take requests, none of which has a body."""
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        loop = asyncio.get_running_loop()
        for _ in requests:
            end = max(loop.time(), heapq.heappop(self._free)) + self._service()
            heapq.heappush(self._free, end)
            assert self._transport is not None
            loop.call_at(end, self._transport.write, ANSWER)


def serve(known: Known, port: Connection) -> None:
    """Serve until killed, and say at which port."""

    async def run() -> None:
        free, service = [0.0] * known.workers, known.service()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connected(free, service), "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def serving(known: Known) -> Iterator[str]:
    """Serve in a process of its own; yields the URL."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(known, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/"
    finally:
        process.kill()
        process.join()


def search(known: Known) -> dict[str, Any]:
    """Search a server's capacity; what came out, beside what it is."""
    with serving(known) as url, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "uncia", "capacity", url, "--json", "--quiet"]
        command += ["--seed", str(known.number), "--out", str(Path(folder) / "run")]
        began = time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    if not ended.stdout:
        sys.exit(f"server {known.number}: {ended.stderr}")
    bounds = json.loads(ended.stdout)
    low, high = bounds["low_per_s"], bounds["high_per_s"]
    has_both = low is not None and high is not None
    return {
        **asdict(known),
        "capacity": known.capacity,
        "low": low,
        "high": high,
        "inside": has_both and low <= known.capacity <= high,
        "width": (high - low) / known.capacity if has_both else None,
        "decided": bounds["decided"],
        "probes": len(bounds["probes"]),
        "seconds": seconds,
    }


def main() -> None:
    """Search, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path, help="a line for each server is appended")
    options = parser.parse_args()
    print("| server | workers | service | capacity/s | low | high | inside | width | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for number in range(options.first, options.first + options.servers):
        row = search(Known.of(number))
        rows.append(row)
        cells = [number, row["workers"], row["kind"], f"{row['capacity']:.0f}"]
        bounds = [row["low"], row["high"]]
        cells += ["-" if bound is None else f"{bound:.1f}" for bound in bounds]
        cells += [row["inside"], "-" if row["width"] is None else f"{row['width']:.1%}"]
        print("| " + " | ".join(map(str, [*cells, f"{row['seconds']:.0f}"])) + " |", flush=True)
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    inside = sum(row["inside"] for row in rows)
    widths = [row["width"] for row in rows if row["width"] is not None]
    print(f"\ninside {inside} of {len(rows)}", end="")
    if widths:
        print(f"; width {statistics.median(widths):.1%}, at most {max(widths):.1%}", end="")
    print(f"; at most {max(row['seconds'] for row in rows):.0f} s")


if __name__ == "__main__":
    main()
