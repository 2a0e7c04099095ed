"""What a worker that has joined a controller adds to a function on this machine alone.

The same ``hello`` behind ``uncia-engine serve`` and behind ``serve --controller`` with one worker
that joined it on loopback, in turn, with the same client: one request at a time, and as many as
16 closed loops get in some seconds.

    .venv/bin/python benches/platform/workers.py [--repeat 3] [--requests 1000] [--seconds 5]
        [--engine FILE]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import io
import json
import statistics
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ending import stop_on_sigterm
from peers import HELLO

ROOT = Path(__file__).resolve().parents[2]
SOURCE = f"def handler(event, context):\n    return {HELLO}\n"
LOOPS = 16
PATH = "/2015-03-31/functions/hello/invocations"


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[dict[str, str]]:
    """An engine, with what it says when it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def platform(engine: str, folder: Path, has_worker: bool) -> Iterator[str]:
    """The address of a platform with ``hello``."""
    command = [engine, "serve", "--listen", "127.0.0.1:0", "--state", str(folder / "state")]
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(started(command + ["--controller"] * has_worker))
        if has_worker:
            joining = ["--join", ready["url"], "--state", str(folder / "worker")]
            stack.enter_context(started([engine, "serve", *joining]))
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("handler.py", SOURCE)
        function = {
            "FunctionName": "hello",
            "Runtime": "python3.11",
            "Handler": "handler.handler",
            "Role": "arn:aws:iam::000000000000:role/any",
            "MemorySize": 1769,
            "Code": {"ZipFile": base64.b64encode(package.getvalue()).decode()},
        }
        connection = http.client.HTTPConnection(ready["address"], timeout=60)
        connection.request("POST", "/2015-03-31/functions", json.dumps(function))
        answer = connection.getresponse()
        if answer.status != 201:
            raise SystemExit(f"the function was not created: {answer.read().decode()}")
        yield ready["address"]


def ask(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", PATH, b"{}")
    answer = connection.getresponse()
    if answer.status != 200 or json.loads(answer.read()) != HELLO:
        raise SystemExit(f"hello answered with status {answer.status}")


def measure(address: str, requests: int, seconds: float) -> dict[str, float]:
    """The figures of one platform."""
    connection = http.client.HTTPConnection(address, timeout=60)
    times = []
    for _ in range(requests + 100):
        began = time.perf_counter()
        ask(connection)
        times.append(time.perf_counter() - began)
    times = sorted(times[100:])
    counts = [0] * LOOPS
    deadline = time.perf_counter() + seconds

    def loop(index: int) -> None:
        mine = http.client.HTTPConnection(address, timeout=60)
        while time.perf_counter() < deadline:
            ask(mine)
            counts[index] += 1

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "per_s": sum(counts) / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--engine", default=str(ROOT / "target/release/uncia-engine"))
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {"alone": [], "on a worker": []}
    for _ in range(options.repeat):
        for name, runs in figures.items():
            with (
                tempfile.TemporaryDirectory() as folder,
                platform(options.engine, Path(folder), name != "alone") as address,
            ):
                runs.append(measure(address, options.requests, options.seconds))
    for key in ("p50_us", "p99_us", "per_s"):
        medians = {
            name: statistics.median(it[key] for it in runs) for name, runs in figures.items()
        }
        print(f"{key:8}", *(f"{name} {value:10.1f}" for name, value in medians.items()), sep="  ")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
