"""Where a warm request's time goes on the embedded platform, request by request.

A Python function that only reads its clock is called

* one request at a time by a bare socket (``segments``: five times on one clock);
* one request at a time by the load generator (``closed``) and by Python's ``http.client``
  (``stdlib``);
* 100 times a second by the load generator (``open``).

Printed are medians over the repetitions of each figure's p50 and p99, in microseconds. With several
engines they are measured in turn, in every repetition.

    .venv/bin/python benches/platform/warm.py [--repeat 5] [--engine NAME=PATH ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import io
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from uncia import record
from uncia.stats.quantiles import quantile
from uncia.workload.arrivals import constant
from uncia.workload.client import ClosedLoop, Load, Stream, drive

SOURCE = """
import time

def handler(event, context):
    return [time.time_ns(), time.time_ns()]
"""
SEGMENTS = ("to submit", "to socket", "to handler", "to answer read", "to client")
QUANTILES = {"p50": Fraction(1, 2), "p99": Fraction(99, 100)}
FUNCTION = "/2015-03-31/functions/f"
WARM_UP, REQUESTS = 500, 3_000
RATE_PER_S, DURATION_S = 100, 10

Figures = dict[str, float]


def code() -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", SOURCE)
    return base64.b64encode(buffer.getvalue()).decode()


@contextlib.contextmanager
def platform(binary: str) -> Iterator[str]:
    """The address of a platform with the function ``f``, whose one instance is warm."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        config = Path(work) / "config.json"
        config.write_text(json.dumps({"keep_alive_ms": 600_000}))
        state = str(Path(work) / "state")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--state", state]
        process = subprocess.Popen([*command, "--config", str(config)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            address = str(json.loads(process.stdout.readline())["address"])
            connection = http.client.HTTPConnection(address)
            body = {
                "FunctionName": "f",
                "Runtime": "python3.11",
                "Role": "arn:aws:iam::000000000000:role/r",
                "Handler": "handler.handler",
                "MemorySize": 1769,
                "Code": {"ZipFile": code()},
            }
            connection.request("POST", "/2015-03-31/functions", json.dumps(body))
            assert connection.getresponse().read() is not None
            connection.close()
            yield address
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def segments(address: str, count: int) -> np.ndarray:
    """Five times of each request (rows), in ns."""
    host, _, port = address.rpartition(":")
    request = (
        f"POST {FUNCTION}/invocations HTTP/1.1\r\nHost: {address}\r\nContent-Length: 2\r\n\r\n{{}}"
    ).encode()
    found = []
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
            found.append(np.diff(times)[[0, 1, 2, 4, 5]])
    return np.array(found)


def stdlib(address: str, count: int) -> np.ndarray:
    connection = http.client.HTTPConnection(address)
    found = []
    for _ in range(count):
        began = time.perf_counter_ns()
        connection.request("POST", f"{FUNCTION}/invocations", b"{}")
        connection.getresponse().read()
        found.append(time.perf_counter_ns() - began)
    connection.close()
    return np.array(found)


def generated(address: str, stream: Stream) -> np.ndarray:
    """Latencies of the load generator's requests, from their scheduled times."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        out = Path(work)
        rows_file = out / "invocations.arrows"
        drive(Load("warm", None, "embedded", [stream], seed=1, out=rows_file))
        rows = record.read(out, "invocations")
        assert pc.unique(rows["outcome"].cast("string")).to_pylist() == ["ok"]
        since = "sent" if stream.closed else "scheduled"
        return np.asarray(pc.subtract(rows["received"], rows[since]).to_numpy())


def quantiles(name: str, values: np.ndarray) -> Figures:
    ordered = np.sort(values)
    found = {key: quantile(ordered, p) for key, p in QUANTILES.items()}
    return {f"{name} {key}": value / 1e3 for key, value in found.items() if value is not None}


def measure(binary: str) -> Figures:
    """One platform, all clients."""
    figures: Figures = {}
    with platform(binary) as address:
        target = [("f", f"http://{address}{FUNCTION}/invocations")]
        segments(address, WARM_UP)
        parts = segments(address, REQUESTS)
        for name, values in zip(SEGMENTS, parts.T, strict=True):
            figures |= quantiles(name, values)
        figures |= quantiles("sum", parts.sum(axis=1))
        closed = Stream("f", target, closed=ClosedLoop(1, requests=REQUESTS), body=b"{}")
        figures |= quantiles("closed", generated(address, closed))
        figures |= quantiles("stdlib", stdlib(address, REQUESTS))
        arrivals = constant.Process.model_validate(
            {"kind": "constant", "rate": f"{RATE_PER_S}/s", "duration": f"{DURATION_S}s"}
        )
        figures |= quantiles("open", generated(address, Stream("f", target, arrivals, body=b"{}")))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--engine", action="append", metavar="NAME=PATH")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    installed = shutil.which("uncia-engine", path=str(Path(sys.executable).parent))
    named = options.engine or [f"uncia={installed}"]
    engines = dict(name.split("=", 1) for name in named)
    found: dict[str, list[Figures]] = {name: [] for name in engines}
    for repetition in range(options.repeat):
        for name, binary in engines.items():
            found[name].append(measure(binary))
            print(f"{repetition + 1}/{options.repeat} {name}", file=sys.stderr)
    print("| figure, us |" + "".join(f" {name} |" for name in engines))
    print("|---|" + "---|" * len(engines))
    for key in next(iter(found.values()))[0]:
        medians = (statistics.median(run[key] for run in runs) for runs in found.values())
        print(f"| {key} |" + "".join(f" {value:.0f} |" for value in medians))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
