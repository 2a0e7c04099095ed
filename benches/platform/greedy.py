"""What a function that wants everything does to its neighbours and to the platform.

For each kind of greed a platform of its own is started. A function ``calm`` is called at a fixed
rate, in turn alone and while another function is greedy; printed are its latency both times and the
most memory that the worker had, over what it had before.

``spin`` is no greed at the platform's cost: it only uses the CPU that it is allocated, and so shows
what of the difference is the machine's. For the same reason the greedy function has as many
instances as requests are sent to it (``--instances``), but for ``self-invocation``, which is about
having many.

    .venv/bin/python benches/platform/greedy.py [--rounds 3] [--seconds 10] [--json FILE] [KIND...]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ending import stop_on_sigterm

from uncia import record
from uncia.platforms import boto
from uncia.platforms.server import Server
from uncia.units import MIB
from uncia.workload.arrivals import constant
from uncia.workload.client import Load, Stream, drive

RATE_PER_S = 100
# Until greed is at its height.
LEAD_S = 1.0
LIMIT_S = 4
RSS_POLL_S = 0.02
FUNCTIONS = "/2015-03-31/functions"

Samples = list[np.ndarray]

CALM = "def handler(event, context):\n    return {}\n"
_PRELUDE = """
import itertools, json, os, socket, threading, time, urllib.request

def connect(variable):
    address = os.environ[variable].removeprefix("http://")
    host, port = address.split(":")
    return socket.create_connection((host, int(port)))

def head(path, *lines):
    return "\\r\\n".join([f"POST {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()

def invoke(kind):
    url = os.environ["AWS_ENDPOINT_URL_LAMBDA"] + "/2015-03-31/functions/greedy/invocations"
    headers = {"x-amz-invocation-type": kind}
    request = urllib.request.Request(url, b"{}", headers)
    return urllib.request.urlopen(request, timeout=30).read()

def handler(event, context):
"""

# The bodies of handlers that go on until their time is up.
KINDS = {
    "spin": "    while True: pass",
    "endless chunks": """
    id = context.aws_request_id
    path = f"/2018-06-01/runtime/invocation/{id}/response"
    connection = connect("AWS_LAMBDA_RUNTIME_API")
    connection.sendall(head(path, "Transfer-Encoding: chunked"))
    while True:
        connection.sendall(b"1\\r\\nx\\r\\n" * 10_000)
""",
    "unfinished bodies": """
    path = "/2015-03-31/functions/greedy/invocations"
    opening = head(path, "Content-Length: 6000000") + b"[" + b" " * 5_900_000
    waiting = []
    while True:
        if len(waiting) < 64:
            connection = connect("AWS_ENDPOINT_URL_LAMBDA")
            connection.setblocking(False)
            waiting.append([connection, memoryview(opening)])
        for pair in waiting[:]:
            try:
                pair[1] = pair[1][pair[0].send(pair[1]):]
            except BlockingIOError:
                pass
            except OSError:
                waiting.remove(pair)
        time.sleep(0.001)
""",
    "requests without end": """
    request = head("/2018-06-01/runtime/invocation/none/response", "Content-Length: 1") + b"x"
    while True:
        with connect("AWS_LAMBDA_RUNTIME_API") as connection:
            threading.Thread(
                target=lambda: [None for _ in iter(lambda: connection.recv(65536), b"")]
            ).start()
            try:
                while True:
                    connection.sendall(request * 1_000)
            except OSError:
                pass
""",
    "socket buffers": """
    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    keep = []
    while True:
        try:
            ours = socket.create_connection(listener.getsockname())
            keep += [ours, listener.accept()[0]]
            ours.setblocking(False)
            while True:
                ours.send(b"x" * 1_000_000)
        except OSError:
            time.sleep(0.001)
""",
    "log flood": "    while True: print('x' * 10_000)",
    "event flood": "    while True: invoke('Event')",
    "self-invocation": "    return json.loads(invoke('RequestResponse'))",
}
NEEDS_PLATFORM = ("unfinished bodies", "event flood", "self-invocation")


def package(source: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", source)
    return buffer.getvalue()


def create(
    client: Any, name: str, source: str, memory: int, *, timeout_s: int = LIMIT_S, **tags: str
) -> None:
    client.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Handler="handler.handler",
        Role="arn:aws:iam::000000000000:role/any",
        Code={"ZipFile": package(source)},
        MemorySize=memory,
        Timeout=timeout_s,
        Tags={f"uncia:{key}": value for key, value in tags.items()},
    )


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def repeated(*works: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Does each of these over and over, in a thread of its own, whatever the network says."""
    over = threading.Event()

    def repeat(work: Callable[[], None]) -> None:
        while not over.wait(pause_s):
            with contextlib.suppress(OSError):
                work()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(LEAD_S)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def greed(address: str, callers: int) -> AbstractContextManager[None]:
    """Keeps so many requests of the greedy function in flight."""
    url = f"http://{address}{FUNCTIONS}/greedy/invocations"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call() -> None:
        # 429 while many instances run; what it answers otherwise says nothing here either.
        with opener.open(url, b"{}", timeout=60) as answer:
            answer.read()

    return repeated(*[call] * callers, pause_s=0.01)


@contextlib.contextmanager
def watch(pid: int) -> Iterator[list[int]]:
    """The most memory that the process had, after the block."""
    over, most = threading.Event(), [resident_bytes(pid)]

    def look() -> None:
        while not over.wait(RSS_POLL_S):
            most[0] = max(most[0], resident_bytes(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def latencies(address: str, seconds: int, connections: int | None = None) -> np.ndarray:
    """Of the calm function, in ms; over at most so many connections."""
    rows = calls(address, seconds, connections)
    return np.asarray(pc.subtract(rows["received"], rows["scheduled"])) / 1e6


def calls(address: str, seconds: int, connections: int | None = None) -> pa.Table:
    """Rows of the calm function, which is called for so long."""
    process = {"kind": "constant", "rate": f"{RATE_PER_S}/s", "duration": f"{seconds}s"}
    url = f"http://{address}{FUNCTIONS}/calm/invocations"
    arrivals = constant.Process.model_validate(process)
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        out = Path(work) / "invocations.arrows"
        stream = Stream("calm", [("calm", url)], arrivals, body=b"{}")
        drive(
            Load(
                run="greedy",
                experiment=None,
                platform="embedded",
                streams=[stream],
                seed=1,
                out=out,
                max_connections=connections,
            )
        )
        rows = record.read(Path(work), "invocations")
    outcomes = pc.unique(rows["outcome"].cast("string")).to_pylist()
    if outcomes != ["ok"]:
        errors = pc.unique(rows["error"].cast("string").drop_null()).to_pylist()
        raise SystemExit(f"the calm function was answered with {outcomes}: {errors}")
    return rows


def measure(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """One kind of greed on a platform of its own."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        # Nobody waits in vain for events that go on for ever.
        server = Server(Path(work) / "state", {"shutdown_grace_ms": 100})
        try:
            client = boto.client(server.address)
            create(client, "calm", CALM, 1769)
            tags = {"network": "platform" if kind in NEEDS_PLATFORM else "none"}
            if kind != "self-invocation" or options.instances is not None:
                tags["max_instances"] = str(options.instances or options.callers)
            create(client, "greedy", _PRELUDE + KINDS[kind], options.memory, **tags)
            latencies(server.address, 1)
            idle = resident_bytes(server.process.pid)
            alone, beside, most = [], [], idle
            for _ in range(options.rounds):
                alone.append(latencies(server.address, options.seconds))
                with watch(server.process.pid) as seen, greed(server.address, options.callers):
                    beside.append(latencies(server.address, options.seconds))
                most = max(most, seen[0])
        finally:
            server.stop()
    return figures(alone, beside, most - idle)


def figures(alone: Samples, beside: Samples, more_bytes: int) -> dict[str, float]:
    """Of the calm function's latencies in all rounds, and of the worker's memory."""
    result = {"worker_mib": more_bytes / MIB}
    for name, samples in (("alone", alone), ("beside", beside)):
        together = np.concatenate(samples)
        result[f"{name}_p50_ms"], result[f"{name}_p99_ms"] = np.quantile(together, [0.5, 0.99])
    return {key: float(value) for key, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--callers", type=int, default=1, help="greedy requests at a time")
    parser.add_argument("--instances", type=int, help="of the greedy function (as --callers)")
    parser.add_argument("--memory", type=int, default=1769, help="MB of the greedy function")
    compare(parser, "greed", list(KINDS), measure)


def compare(
    parser: argparse.ArgumentParser,
    what: str,
    kinds: list[str],
    measure: Callable[[str, argparse.Namespace], dict[str, float]],
) -> None:
    """Measures each of the kinds that were asked for, and prints a table."""
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = set(options.kinds) - set(kinds)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    result = {}
    print(f"| {what} | p50 alone | beside | p99 alone | beside | ratio | worker's memory |")
    print("|---|---|---|---|---|---|---|")
    for kind in options.kinds or kinds:
        result[kind] = it = measure(kind, options)
        print(
            f"| {kind} | {it['alone_p50_ms']:.2f} | {it['beside_p50_ms']:.2f} "
            f"| {it['alone_p99_ms']:.2f} | {it['beside_p99_ms']:.2f} "
            f"| {it['beside_p99_ms'] / it['alone_p99_ms']:.1f} | {it['worker_mib']:+.0f} MiB |",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    stop_on_sigterm()
    main()
