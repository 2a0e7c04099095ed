"""What hostile clients and functions do to the latency of a function beside them.

For each attack a platform of its own is started. A function ``calm`` is called at a fixed rate, in
turn alone and during the attack, whose effects are printed as `greedy.py` prints those of greed:
attacks here go for what is nobody's in particular, such as connections, descriptors and processes.

Printed beside the table, alone and during the attack: what of a request lies before the platform
gave it to the instance (in), in the function, and after (out); and how long in a second the
platform's thread and the function's had to wait for a CPU (`waiting.py`).

``threads`` is no attack: it only uses as much CPU as the attacks' clients do, and so shows what of
the difference is the machine's.

    .venv/bin/python benches/platform/hostile.py [--rounds 3] [--seconds 10] [--no-precedence]
        [--json FILE] [KIND...]
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ending import stop_on_sigterm
from greedy import (
    CALM,
    FUNCTIONS,
    calls,
    compare,
    create,
    figures,
    greed,
    latencies,
    repeated,
    resident_bytes,
    watch,
)
from waiting import segments_ms, waits_of

from uncia.platforms import boto
from uncia.platforms.server import Server

IDLE = 1_000
SLOW = 200
# Of each slow client, and of each that sends long heads.
PAUSE_S = 0.1
LONG = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 1_000_000 + b"\r\n\r\n"
INVOKE = f"POST {FUNCTIONS}/calm/invocations HTTP/1.1\r\nHost: localhost\r\n".encode()

Attack = Callable[[str], AbstractContextManager[None]]


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


class Crowd:
    """Clients that all have sent the same beginning, and go on with the same piece."""

    def __init__(self, address: str, count: int, beginning: bytes, piece: bytes) -> None:
        self.address, self.count = address, count
        self.beginning, self.piece = beginning, piece
        self.clients: list[socket.socket] = []

    def __call__(self) -> None:
        """Sends a piece from each; those whose connection was closed connect again."""
        for client in self.clients[:]:
            try:
                client.sendall(self.piece)
            except OSError:
                self.clients.remove(client)
                client.close()
        while len(self.clients) < self.count:
            client = connect(self.address)
            client.sendall(self.beginning)
            self.clients.append(client)

    def close(self) -> None:
        for client in self.clients:
            client.close()


def crowd(count: int, beginning: bytes, piece: bytes) -> Attack:
    @contextlib.contextmanager
    def attack(address: str) -> Iterator[None]:
        clients = Crowd(address, count, beginning, piece)
        with contextlib.closing(clients), repeated(clients, pause_s=PAUSE_S):
            yield

    return attack


def send_long_head(address: str) -> None:
    with connect(address) as client:
        client.sendall(LONG)
        client.recv(100)


def spin() -> None:
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass


CLIENTS: dict[str, Attack] = {
    "threads": lambda address: repeated(*[spin] * 4, pause_s=PAUSE_S),
    "idle connections": crowd(IDLE, b"", b""),
    "slow heads": crowd(SLOW, INVOKE, b"X-A: b\r\n"),
    "slow bodies": crowd(SLOW, INVOKE + b"Content-Length: 6000000\r\n\r\n", b" " * 1000),
    "slow chunks": crowd(SLOW, INVOKE + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 100),
    "long heads": lambda address: repeated(*[lambda: send_long_head(address)] * 4, pause_s=PAUSE_S),
}

# The bodies of handlers that go on until their time is up.
HANDLERS = {
    "descriptors": """
    import os, time
    for _ in range(30):
        if os.fork() == 0:
            break
    keep = []
    while True:
        try:
            keep += os.pipe()
        except OSError:
            time.sleep(0.01)
            for number in keep:
                os.close(number)
            keep = []
""",
    "fork bomb": """
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
""",
    "connections of the host's network": """
    import socket
    host, port = ADDRESS
    keep = []
    while True:
        try:
            keep.append(socket.create_connection((host, port), timeout=1))
        except OSError:
            keep = []
""",
}


@contextlib.contextmanager
def attack(kind: str, server: Server) -> Iterator[None]:
    if kind in CLIENTS:
        with CLIENTS[kind](server.address):
            yield
    else:
        with greed(server.address, 1):
            yield


def measure(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """One attack on a platform of its own."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        settings = {"shutdown_grace_ms": 100, "precedence": options.precedence}
        server = Server(Path(work) / "state", settings)
        try:
            client = boto.client(server.address)
            create(client, "calm", CALM, 1769)
            if kind in HANDLERS:
                host, port = server.address.split(":")
                source = HANDLERS[kind].replace("ADDRESS", repr((host, int(port))))
                tags = {"network": "host" if "ADDRESS" in HANDLERS[kind] else "none"}
                source = "def handler(event, context):\n" + source
                create(client, "greedy", source, 1769, max_instances="1", **tags)
            latencies(server.address, 1)
            idle = resident_bytes(server.process.pid)
            alone, beside, most = [], [], idle
            for _ in range(options.rounds):
                alone.append(observe(server, options.seconds))
                with watch(server.process.pid) as seen, attack(kind, server):
                    beside.append(observe(server, options.seconds))
                most = max(most, seen[0])
        finally:
            server.stop()
    for name, observed in (("alone", alone), ("beside", beside)):
        print(f"{kind}, {name}: {where(observed)}", file=sys.stderr)
    return figures([it.latencies for it in alone], [it.latencies for it in beside], most - idle)


class Observed(NamedTuple):
    """What was seen of the calm function for a time."""

    #: In ms.
    latencies: np.ndarray
    segments: dict[str, np.ndarray]
    #: How long threads waited for a CPU, in ms a second, by whose they are.
    waits: dict[str, float]


def observe(server: Server, seconds: int) -> Observed:
    waited = waits_of(server.process.pid, "calm")
    before = waited()
    rows = calls(server.address, seconds)
    after = waited()
    segments = segments_ms(rows)
    waits = {party: (after[party] - before[party]) / seconds for party in before}
    return Observed(np.sum(list(segments.values()), axis=0), segments, waits)


def where(observed: list[Observed]) -> str:
    """A line with p50 and p99 of each segment in ms, and the waits."""
    parts = []
    for name in observed[0].segments:
        p50, p99 = np.quantile(np.concatenate([it.segments[name] for it in observed]), [0.5, 0.99])
        parts.append(f"{name} {p50:.2f}, {p99:.2f}")
    for party in observed[0].waits:
        parts.append(f"{party} waited {np.mean([it.waits[party] for it in observed]):.1f} ms/s")
    return "; ".join(parts)


def main() -> None:
    kinds = [*CLIENTS, *HANDLERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(kinds)}")
    parser.add_argument(
        "--no-precedence", dest="precedence", action="store_false", help="the kernel alone decides"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    compare(parser, "attack", kinds, measure)


if __name__ == "__main__":
    stop_on_sigterm()
    main()
