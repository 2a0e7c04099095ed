"""What a warm request takes on the embedded platform, segment by segment and beside peers.

On the embedded platform a Python function that only reads its clock is called one request at a time
by a bare socket (five segments on one clock, beside the budget of each). Then, on it and on each of
its peers (``peers/``), a ``hello`` that answers the same JSON everywhere is called over one
connection

* one request at a time by the load generator (``one at a time``) and by Python's ``http.client``;
* 100 times a second by the load generator (``100/s``).

Each repetition starts every contender anew, in an order that rotates. Printed are medians over the
repetitions of each figure's p50 and p99, in microseconds, and the ratio to the first engine. With
``--awake``, each engine also is a contender that keeps CPUs awake between requests (`stay_awake`).

    .venv/bin/python benches/platform/warm.py [--repeat 5] [--requests 3000] [--seconds 10]
        [--engine NAME=PATH ...] [--awake] [--peer NAME ... | --no-peers]
        [--cache DIR] [--json FILE]

Peers are installed into DIR (the user's cache folder) the first time.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from ending import stop_on_sigterm
from peers import HELLO, Peer, check_hello, choice

from uncia import engine, record
from uncia.stats.quantiles import quantile
from uncia.workload.arrivals import constant
from uncia.workload.client import ClosedLoop, Load, Stream, drive

SOURCE = """
import time

def handler(event, context):
    return [time.time_ns(), time.time_ns()]
"""
HELLO_SOURCE = f"""
def handler(event, context):
    return {HELLO}
"""
# What each may take, as a median, in us.
BUDGET_US = {
    "to submit": 35,
    "to socket": 10,
    "to handler": 45,
    "to answer read": 20,
    "to client": 40,
}
SEGMENTS = tuple(BUDGET_US)
SUM = "their sum"
QUANTILES = {"p50": Fraction(1, 2), "p99": Fraction(99, 100)}
FUNCTIONS = "/2015-03-31/functions"
CLIENTS = ("one at a time", "http.client", "100/s")
WARM_UP = 500
STAY_AWAKE_MS = 1_000
RATE_PER_S = 100
HEADERS = {"Content-Type": "application/json"}

Figures = dict[str, float]


def code(source: str) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", source)
    return base64.b64encode(buffer.getvalue()).decode()


@contextlib.contextmanager
def platform(binary: str, stay_awake_ms: int) -> Iterator[str]:
    """The address of a platform with the functions ``clock`` and ``hello``."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        config = Path(work) / "config.json"
        settings = {"keep_alive_ms": 600_000}
        if stay_awake_ms:  # earlier engines do not know it
            settings["stay_awake_ms"] = stay_awake_ms
        config.write_text(json.dumps(settings))
        state = str(Path(work) / "state")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--state", state]
        process = subprocess.Popen([*command, "--config", str(config)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            address = str(json.loads(process.stdout.readline())["address"])
            for name, source in (("clock", SOURCE), ("hello", HELLO_SOURCE)):
                create(address, name, source)
            yield address
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def create(address: str, name: str, source: str, **tags: str) -> None:
    body = {
        "FunctionName": name,
        "Runtime": "python3.11",
        "Role": "arn:aws:iam::000000000000:role/r",
        "Handler": "handler.handler",
        "MemorySize": 1769,
        "Code": {"ZipFile": code(source)},
        "Tags": {f"uncia:{key}": value for key, value in tags.items()},
    }
    connection = http.client.HTTPConnection(address)
    connection.request("POST", FUNCTIONS, json.dumps(body))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 201:
        raise SystemExit(f"{name} was not created: {text.decode()}")


def segments(address: str, count: int) -> np.ndarray:
    """Five times of each request (rows), in ns."""
    host, _, port = address.rpartition(":")
    request = (
        f"POST {FUNCTIONS}/clock/invocations HTTP/1.1\r\nHost: {address}\r\n"
        "Content-Length: 2\r\n\r\n{}"
    ).encode()
    result = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            sent = time.time_ns()
            connection.sendall(request)
            answer = connection.recv(65536)
            received = time.time_ns()
            head, _, body = answer.partition(b"\r\n\r\n")
            lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
            headers = {name: value for name, _, value in lines}
            started = int(headers[b"x-uncia-started-unix-ns"])
            ended = int(headers[b"x-uncia-ended-unix-ns"])
            accepted = started - int(headers[b"x-uncia-queued-ns"])
            first, last = json.loads(body)
            times = (sent, accepted, started, first, last, ended, received)
            result.append(np.diff(times)[[0, 1, 2, 4, 5]])
    return np.array(result)


def stdlib(address: str, path: str, count: int) -> np.ndarray:
    connection = http.client.HTTPConnection(address)
    result = []
    for _ in range(count):
        began = time.perf_counter_ns()
        connection.request("POST", path, b"{}", HEADERS)
        answer = connection.getresponse()
        answer.read()
        result.append(time.perf_counter_ns() - began)
        assert answer.status == 200
    connection.close()
    return np.array(result)


def generated(stream: Stream) -> np.ndarray:
    """Latencies of the load generator's requests, from their scheduled times."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        out = Path(work)
        rows_file = out / "invocations.arrows"
        # One connection: what waits for it waits at the client, as the emulator needs.
        drive(Load("warm", None, "any", [stream], seed=1, out=rows_file, max_connections=1))
        rows = record.read(out, "invocations")
        assert pc.unique(rows["outcome"].cast("string")).to_pylist() == ["ok"]
        since = "sent" if stream.closed else "scheduled"
        return np.asarray(pc.subtract(rows["received"], rows[since]).to_numpy())


def quantiles(name: str, values: np.ndarray) -> Figures:
    ordered = np.sort(values)
    result = {key: quantile(ordered, p) for key, p in QUANTILES.items()}
    return {f"{name} {key}": value / 1e3 for key, value in result.items() if value is not None}


def by_client(address: str, path: str, options: argparse.Namespace) -> Figures:
    """What each client sees of ``hello``."""
    check_hello(address, path)
    stdlib(address, path, WARM_UP)
    target = [("hello", f"http://{address}{path}")]
    result = ClosedLoop(1, requests=options.requests)
    arrivals = constant.Process.model_validate(
        {"kind": "constant", "rate": f"{RATE_PER_S}/s", "duration": f"{options.seconds}s"}
    )
    measures: tuple[Callable[[], np.ndarray], ...] = (
        lambda: generated(Stream("hello", target, closed=result, headers=HEADERS, body=b"{}")),
        lambda: stdlib(address, path, options.requests),
        lambda: generated(Stream("hello", target, arrivals, headers=HEADERS, body=b"{}")),
    )
    figures: Figures = {}
    for name, measure in zip(CLIENTS, measures, strict=True):
        figures |= quantiles(name, measure())
    return figures


def measure_engine(binary: str, stay_awake_ms: int, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    with platform(binary, stay_awake_ms) as address:
        segments(address, WARM_UP)
        parts = segments(address, options.requests)
        for name, values in zip(SEGMENTS, parts.T, strict=True):
            figures |= quantiles(name, values)
        figures |= quantiles(SUM, parts.sum(axis=1))
        return figures | by_client(address, f"{FUNCTIONS}/hello/invocations", options)


def measure_peer(peer: Peer, installed: Path, options: argparse.Namespace) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="uncia-bench-") as work,
        peer.serve(installed, Path(work)) as (address, path),
    ):
        return by_client(address, path, options)


def contenders(options: argparse.Namespace) -> dict[str, Callable[[], Figures]]:
    """What is measured, engines first; peers that are missing are installed."""
    named = options.engine or [f"uncia={engine.binary()}"]
    result: dict[str, Callable[[], Figures]] = {}
    for name, _, binary in (text.partition("=") for text in named):
        result[name] = partial(measure_engine, binary, 0, options)
        if options.awake:
            result[f"{name}, awake"] = partial(measure_engine, binary, STAY_AWAKE_MS, options)
    for peer, folder in choice.install(options).items():
        result[peer.NAME] = partial(measure_peer, peer, folder, options)
    return result


def print_segments(medians: dict[str, Figures]) -> None:
    engines = {name: it for name, it in medians.items() if f"{SEGMENTS[0]} p50" in it}
    print("\n| segment, us | budget |" + "".join(f" {name} p50 | p99 |" for name in engines))
    print("|---|---|" + "---|---|" * len(engines))
    for segment, budget in (*BUDGET_US.items(), (SUM, sum(BUDGET_US.values()))):
        cells = (
            f" {it[f'{segment} p50']:.0f} | {it[f'{segment} p99']:.0f} |" for it in engines.values()
        )
        print(f"| {segment} | {budget} |" + "".join(cells))


def print_clients(medians: dict[str, Figures]) -> None:
    print("\n| `hello`, us |" + "".join(f" {client} p50 | p99 |" for client in CLIENTS))
    print("|---|" + "---|---|" * len(CLIENTS))
    first = next(iter(medians.values()))
    for name, figures in medians.items():
        keys = [f"{client} {quantile}" for client in CLIENTS for quantile in QUANTILES]
        ratios = [
            "" if figures is first else f" ({figures[key] / first[key]:.1f} x)" for key in keys
        ]
        cells = (f" {figures[key]:.0f}{ratio} |" for key, ratio in zip(keys, ratios, strict=True))
        print(f"| {name} |" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3_000, help="one at a time, each client")
    parser.add_argument("--seconds", type=int, default=10, help=f"at {RATE_PER_S}/s")
    parser.add_argument("--engine", action="append", metavar="NAME=PATH")
    parser.add_argument("--awake", action="store_true", help="engines with stay_awake, too")
    choice.add_options(parser)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measures = contenders(options)
    result: dict[str, list[Figures]] = {name: [] for name in measures}
    names = list(measures)
    for repetition in range(options.repeat):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            result[name].append(measures[name]())
            print(f"{repetition + 1}/{options.repeat} {name}", file=sys.stderr)
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in result.items()
    }
    print_segments(medians)
    print_clients(medians)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
