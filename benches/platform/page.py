"""What the page costs: CPU time of `uncia serve` at a constant rate, with and without viewers.

The load generator calls one function at the rate. Meanwhile the page is open in turns: for one
window by nobody, for the next by one viewer, for the next by fifty, who all read. Of each window it
takes the CPU time of the platform (`uncia-engine`, without its instances) and of the command that
computes the bills (`uncia`). Printed are the medians over the windows, in percent of a CPU, and
what viewers add.

    .venv/bin/python benches/platform/page.py [--rate 1000] [--window 10] [--repeat 5]

The engine should be a release build, and nothing else should run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ending import stop_on_sigterm

from uncia import functions
from uncia.platforms import boto

VIEWERS = (0, 1, 50)
SETTLE_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=1_000, help="invocations a second")
    parser.add_argument("--window", type=float, default=10.0, help="seconds")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (command, ready):
        url = deploy(ready["address"])
        seconds = (SETTLE_S + options.window) * len(VIEWERS) * options.repeat + 15
        load = subprocess.Popen(
            [
                *(sys.executable, "-m", "uncia", "load", url),
                *("--rate", f"{options.rate}/s", "--duration", f"{seconds:.0f}s"),
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(5)
        # What a first viewer costs once: imports, and the plan of the bills.
        with watching(ready["address"], 1):
            time.sleep(10)
        shares: dict[int, list[tuple[float, float]]] = {viewers: [] for viewers in VIEWERS}
        rates = []
        for _ in range(options.repeat):
            for viewers in VIEWERS:
                with watching(ready["address"], viewers):
                    time.sleep(SETTLE_S)
                    began, before = time.monotonic(), cpu(ready["pid"], command)
                    first = invocations(ready["address"])
                    time.sleep(options.window)
                    length = time.monotonic() - began
                    used = [b - a for a, b in zip(before, cpu(ready["pid"], command), strict=True)]
                    rates.append((invocations(ready["address"]) - first) / length)
                shares[viewers].append((100 * used[0] / length, 100 * used[1] / length))
        load.terminate()
        load.wait()
    print(f"{statistics.median(rates):,.0f} invocations a second; percent of a CPU, medians")
    print("viewers  platform  command  added by viewers")
    nobody = [sum(pair) for pair in shares[0]]
    for viewers, pairs in shares.items():
        platform, bills = (statistics.median(column) for column in zip(*pairs, strict=True))
        added = [sum(pair) - base for pair, base in zip(pairs, nobody, strict=True)]
        spread = f"{statistics.median(added):.2f} ({min(added):.2f} to {max(added):.2f})"
        print(f"{viewers:7}  {platform:8.2f}  {bills:7.2f}  {spread}")


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """A quiet `uncia serve`: the number of its process, and what it says when it listens."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uncia", "serve", "--json", "--quiet"),
            *("--listen", "127.0.0.1:0", "--state", str(folder / "s")),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.pid, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def deploy(address: object) -> str:
    """Deploy the function `hello` in Python; return its URL."""
    client = boto.client(str(address))
    package = functions.package("hello", "python")
    client.create_function(
        FunctionName="hello",
        Runtime=f"python3.{sys.version_info.minor}",
        Role="arn:aws:iam::000000000000:role/any",
        Handler=package.handler,
        MemorySize=512,
        Code={"ZipFile": package.read_bytes()},
    )
    client.get_waiter("function_active_v2").wait(FunctionName="hello")
    url = client.create_function_url_config(FunctionName="hello", AuthType="NONE")
    return str(url["FunctionUrl"])


@contextmanager
def watching(address: object, viewers: int) -> Iterator[None]:
    """So many streams of the page's events, all read by one thread each."""
    host, _, port = str(address).rpartition(":")
    connections = []
    for _ in range(viewers):
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("GET", "/uncia/v1/live")
        response = connection.getresponse()
        assert response.status == 200, response.status
        threading.Thread(target=drain, args=(response,), daemon=True).start()
        connections.append((connection, response))
    try:
        yield
    finally:
        for connection, _ in connections:
            if connection.sock is not None:
                connection.sock.shutdown(2)
            connection.close()


def drain(response: http.client.HTTPResponse) -> None:
    """Read until the stream ends, in whatever way."""
    try:
        while response.read1(1 << 16):
            pass
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        pass


def cpu(*processes: object) -> list[float]:
    """CPU time of each process so far, in seconds, without its children."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
    return [(int(stat[11]) + int(stat[12])) / ticks for stat in stats]


def invocations(address: object) -> int:
    """How many invocations have ended."""
    host, _, port = str(address).rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    counts = [line.split()[-1] for line in lines if line.startswith("uncia_invocations_total{")]
    return sum(map(int, counts))


if __name__ == "__main__":
    stop_on_sigterm()
    main()
