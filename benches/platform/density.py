"""What many instances take: memory, a neighbour's latency, the sampler's CPU, requests a second.

* ``frozen``: of many deployed functions a part has an instance each, frozen. Printed are the memory
  of the worker and of all instances, and the latency of one warm function at 100 requests a second
  and the worker's CPU time for each, in turn alone and beside them.
* ``sampler``: so many instances run an invocation at the same time, and the thread that samples
  their memory takes so much of a core.
* ``throughput``: ``hello`` as fast as it goes, by the load generator on the same machine.

    .venv/bin/python benches/platform/density.py [--functions 1000] [--instances 500] [--rounds 3]
        [--seconds 10] [--sampled 100] [--json FILE] [PART...]

The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from greedy import CALM, FUNCTIONS, RATE_PER_S, create, latencies

from uncia import record
from uncia.platforms import boto
from uncia.platforms.server import Server
from uncia.units import MIB, NS_PER_S
from uncia.workload.client import ClosedLoop, Load, Stream, drive

MEMORY_MB = 128
WARM_MB = 1769
STARTS_AT_ONCE = 4
KEEP_ALIVE_MS = 3_600_000
READY_TIMEOUT_S = 300.0
CONNECTIONS = (1, 2, 4, 8, 16, 32)
SAMPLED_S = 5
SAMPLER = "uncia-sampler"
WAIT = "import time\n\ndef handler(event, context):\n    time.sleep(event['seconds'])\n"

Figures = dict[str, float]


class Platform(Server):
    """An embedded platform on a state folder of its own."""

    def __init__(self, work: Path, max_instances: int) -> None:
        config = {"max_instances": max_instances, "keep_alive_ms": KEEP_ALIVE_MS}
        self.group = "uncia-" + hashlib.sha256(str((work / "state").resolve()).encode()).hexdigest()
        super().__init__(work / "state", config | {"shutdown_grace_ms": 100})
        self.client = boto.client(self.address)

    def invoke(self, name: str, event: object = None) -> None:
        answer = self.client.invoke(FunctionName=name, Payload=json.dumps(event or {}).encode())
        answer["Payload"].read()
        if "FunctionError" in answer:
            raise SystemExit(f"{name} was not answered: {answer}")

    def wait_for(self, state: str, count: int) -> None:
        """Waits until so many instances are in this state."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (instances := self.health()["instances"])[state] != count:
            if time.monotonic() > deadline:
                raise SystemExit(f"not {count} instances {state}, but {instances}")
            time.sleep(0.05)

    def health(self) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/uncia/v1/health") as answer:
            return json.load(answer)

    def charged(self) -> int | None:
        """What the kernel has charged to the control groups of all instances; None: unknown."""
        for folder in Path("/sys/fs/cgroup").glob("**/uncia-*"):
            for file in ("memory.usage_in_bytes", "memory.current"):
                if self.group.startswith(folder.name) and (folder / file).exists():
                    return int((folder / file).read_text())
        return None


@contextlib.contextmanager
def platform(max_instances: int) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        server = Platform(Path(work), max_instances)
        try:
            yield server
        finally:
            server.stop()


def descendants(pid: int) -> list[int]:
    """All processes that the process has started, and theirs."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text()
            parent = int(text.rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    descendants, todo = [], [pid]
    while todo:
        more = children[todo.pop()]
        descendants += more
        todo += more
    return descendants


def proportional_bytes(pid: int) -> int:
    """Memory of the process, of what it shares with others its part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def kernel_bytes() -> int:
    """What the kernel of this machine has for itself and cannot give back, page tables included."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = {name: int(value.split()[0]) for name, _, value in (it.partition(":") for it in lines)}
    return (
        sum(fields[name] for name in ("SUnreclaim", "PageTables", "KernelStack", "Percpu")) * 1024
    )


def frozen(options: argparse.Namespace) -> Figures:
    names = [f"f{number}" for number in range(options.functions)]
    holders = names[: options.instances]
    calls: dict[str, list[tuple[np.ndarray, float]]] = {"alone": [], "beside": []}
    worker, instances, charged, kernel = [], [], [], []
    with platform(options.instances + 100) as server, ThreadPoolExecutor(STARTS_AT_ONCE) as pool:
        create(server.client, "calm", CALM, WARM_MB)

        def deploy(name: str) -> None:
            create(server.client, name, CALM, MEMORY_MB)

        list(pool.map(deploy, names))
        latencies(server.address, 1, connections=1)
        for _ in range(options.rounds):
            before = kernel_bytes()
            calls["alone"].append(call(server, options.seconds))
            list(pool.map(server.invoke, holders))
            # And the warm one, which is at rest here, too: over one connection it has one instance.
            server.wait_for("frozen", len(holders) + 1)
            processes = descendants(server.process.pid)
            worker.append(proportional_bytes(server.process.pid))
            instances.append(sum(map(proportional_bytes, processes)))
            charged.append(server.charged() or 0)
            kernel.append(kernel_bytes() - before)
            calls["beside"].append(call(server, options.seconds))
            for name in holders:
                server.client.delete_function(FunctionName=name)
            server.wait_for("frozen", 1)
            list(pool.map(deploy, holders))
    figures = {
        "worker_bytes": statistics.median(worker),
        "instances_bytes": statistics.median(instances),
        "charged_bytes": statistics.median(charged),
        "kernel_bytes": statistics.median(kernel),
    }
    for name, rounds in calls.items():
        # Each round's, so that one bad moment of the machine is not the figure.
        for percentile in (50, 99):
            values = [float(np.percentile(times, percentile)) for times, _ in rounds]
            figures[f"{name}_p{percentile}_ms"] = statistics.median(values)
        figures[f"{name}_cpu_ms"] = statistics.median(cpu_ms for _, cpu_ms in rounds)
    return figures


def call(server: Platform, seconds: int) -> tuple[np.ndarray, float]:
    """Latencies of the warm function, and the worker's CPU time for each request, in ms."""
    before = cpu_ns(server.process.pid)
    times = latencies(server.address, seconds, connections=1)
    used = cpu_ns(server.process.pid) - before
    return times, used / len(times) / 1e6


def cpu_ns(pid: int) -> int:
    """CPU time of a process, that of threads which have ended included."""
    # Its clock, as clock_getcpuclockid(3) computes it.
    return time.clock_gettime_ns(~pid << 3 | 2)


def print_frozen(figures: Figures, options: argparse.Namespace) -> None:
    total = figures["worker_bytes"] + figures["instances_bytes"]
    print(f"\n| {options.instances} frozen of {options.functions} functions | MiB |\n|---|---|")
    for name, value in (
        ("worker (PSS)", figures["worker_bytes"]),
        ("instances and what started them (PSS)", figures["instances_bytes"]),
        ("**together**", total),
        ("charged to the instances' control groups", figures["charged_bytes"]),
        ("the kernel's own, more than before", figures["kernel_bytes"]),
    ):
        print(f"| {name} | {value / MIB:.0f} |")
    print(f"\n| a warm function at {RATE_PER_S}/s, ms | alone | beside them |\n|---|---|---|")
    for title, key in (("p50", "p50"), ("p99", "p99"), ("CPU time of the worker", "cpu")):
        cells = (f" {figures[f'{name}_{key}_ms']:.2f} |" for name in ("alone", "beside"))
        print(f"| {title} |" + "".join(cells))


def thread_ns(pid: int) -> dict[str, int]:
    """CPU time of a process's threads by name; of those with the same name, together."""
    times: dict[str, int] = defaultdict(int)
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            used = (task / "schedstat").read_text().split()[0]
            times[(task / "comm").read_text().strip()] += int(used)
    return times


def sampler(options: argparse.Namespace) -> Figures:
    count = options.sampled
    with platform(count + 10) as server, ThreadPoolExecutor(count) as pool:
        create(server.client, "wait", WAIT, MEMORY_MB, timeout_s=60)
        # All at once, so that each has an instance of its own; then all again on warm ones.
        for seconds in (5, 2 * SAMPLED_S):
            waiting = [pool.submit(invoke_once, server, seconds) for _ in range(count)]
            if seconds == 2 * SAMPLED_S:
                server.wait_for("busy", count)
                began, before = time.monotonic_ns(), thread_ns(server.process.pid)[SAMPLER]
                time.sleep(SAMPLED_S)
                used = thread_ns(server.process.pid)[SAMPLER] - before
                passed = time.monotonic_ns() - began
            for it in waiting:
                it.result()
    return {"sampler_cores": used / passed}


def invoke_once(server: Platform, seconds: float) -> None:
    url = f"http://{server.address}{FUNCTIONS}/wait/invocations"
    body = json.dumps({"seconds": seconds}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=120) as answer:
        answer.read()


def throughput(options: argparse.Namespace) -> Figures:
    """Answers a second by number of connections, the median of rounds."""
    by_count: dict[int, list[float]] = {count: [] for count in CONNECTIONS}
    with platform(2 * max(CONNECTIONS)) as server:
        create(server.client, "hello", CALM, WARM_MB)
        url = f"http://{server.address}{FUNCTIONS}/hello/invocations"
        closed_loop(url, max(CONNECTIONS), 2)
        for _ in range(options.rounds):
            for count in CONNECTIONS:
                by_count[count].append(closed_loop(url, count, options.seconds))
    return {f"{count} connections": statistics.median(rates) for count, rates in by_count.items()}


def closed_loop(url: str, clients: int, seconds: int) -> float:
    loop = ClosedLoop(clients, duration_ns=seconds * NS_PER_S)
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
        out = Path(work) / "invocations.arrows"
        stream = Stream("hello", [("hello", url)], closed=loop, body=b"{}")
        # It shares the processors with the platform: without precedence over it.
        drive(Load("density", None, "embedded", [stream], seed=1, out=out, realtime=False))
        rows = record.read(Path(work), "invocations")
    ok = rows.filter(pc.equal(rows["outcome"].cast("string"), "ok"))
    passed = pc.max(ok["received"]).as_py() - pc.min(ok["sent"]).as_py()
    if ok.num_rows < rows.num_rows:
        print(f"{rows.num_rows - ok.num_rows} of {rows.num_rows} failed", file=sys.stderr)
    return float(ok.num_rows * NS_PER_S / passed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parts = {"frozen": frozen, "sampler": sampler, "throughput": throughput}
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--functions", type=int, default=1_000)
    parser.add_argument("--instances", type=int, default=500, help="of them, frozen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="of each load")
    parser.add_argument("--sampled", type=int, default=100, help="instances that run at once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := set(options.parts) - parts.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    results = {}
    for part in options.parts or parts:
        results[part] = figures = parts[part](options)
        if part == "frozen":
            print_frozen(figures, options)
        elif part == "sampler":
            share = figures["sampler_cores"]
            print(f"\nsampler beside {options.sampled} instances: {share:.1%} of a core")
        else:
            print("\n| `hello` | requests a second |\n|---|---|")
            for name, rate in figures.items():
                print(f"| {name} | {rate:.0f} |")
        sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
