"""What many instances take: memory, a neighbour's latency, the sampler's CPU, requests a second.

* ``frozen``: of many deployed functions a part has an instance each, frozen. Printed are the memory
  of the worker and of all instances, and what they do to others: the latency of a warm function at
  100 requests a second and the worker's CPU time for each of them, beside those on a second
  platform, which has no other function. Both run throughout and are called in turn, an equal number
  of rounds before the functions are deployed and with them; the ratios have intervals (`in_turn`).
  Those before show what the measurement makes of equals.
* ``sampler``: so many instances run an invocation at the same time, and the thread that samples
  their memory takes so much of a core.
* ``throughput``: ``hello`` as fast as it goes, by the load generator on the same machine.

    .venv/bin/python benches/platform/density.py [--functions 1000] [--instances 500] [--rounds 10]
        [--seconds 5] [--sampled 100] [--json FILE] [PART...]

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
from ending import stop_on_sigterm
from greedy import CALM, FUNCTIONS, RATE_PER_S, create, latencies
from in_turn import Ratio, ratio

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

# What is known of a load on the warm function, in ms.
CALLED = ("p50", "p99", "CPU time of the worker")

Figures = dict[str, float]
# Of each contender, those of each round.
Rounds = dict[str, list[Figures]]


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
    rounds: dict[str, Rounds] = {}
    with (
        platform(options.instances + 100) as full,
        platform(100) as empty,
        ThreadPoolExecutor(STARTS_AT_ONCE) as pool,
    ):
        contenders = {"with": full, "without": empty}
        for server in contenders.values():
            create(server.client, "calm", CALM, WARM_MB)
            latencies(server.address, 1, connections=1)
        rounds["before"] = in_turn(contenders, options)
        before = kernel_bytes()
        list(pool.map(lambda name: create(full.client, name, CALM, MEMORY_MB), names))
        list(pool.map(full.invoke, names[: options.instances]))
        # And the warm one, which is at rest here, too: over one connection it has one instance.
        full.wait_for("frozen", options.instances + 1)
        processes = descendants(full.process.pid)
        figures: Figures = {
            "worker_bytes": proportional_bytes(full.process.pid),
            "instances_bytes": sum(map(proportional_bytes, processes)),
            "charged_bytes": full.charged() or 0,
            "kernel_bytes": kernel_bytes() - before,
        }
        rounds["beside"] = in_turn(contenders, options)
    for when, by_contender in rounds.items():
        for key in CALLED:
            values = {name: [it[key] for it in by_contender[name]] for name in contenders}
            figures |= {
                f"{when} {name} {key}": statistics.median(values[name]) for name in contenders
            }
            parts = ratio(values["with"], values["without"])._asdict()
            figures |= {f"{when} ratio {key} {part}": value for part, value in parts.items()}
    return figures


def in_turn(contenders: dict[str, Platform], options: argparse.Namespace) -> Rounds:
    """Calls the warm function of each platform in rounds; who is first alternates."""
    rounds: Rounds = {name: [] for name in contenders}
    for turn in range(options.rounds):
        for name in sorted(contenders, reverse=turn % 2 == 1):
            rounds[name].append(call(contenders[name], options.seconds))
    return rounds


def call(server: Platform, seconds: int) -> Figures:
    """Quantiles of the warm function's latency, and the worker's CPU time for each request."""
    before = cpu_ns(server.process.pid)
    times = latencies(server.address, seconds, connections=1)
    used = cpu_ns(server.process.pid) - before
    p50, p99 = np.percentile(times, (50, 99))
    figures = (float(p50), float(p99), used / len(times) / 1e6)
    return dict(zip(CALLED, figures, strict=True))


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
    for when, title in (("before", "before there are any"), ("beside", "beside them")):
        print(f"\n| a warm function at {RATE_PER_S}/s, {title}, ms | with | without | ratio |")
        print("|---|---|---|---|")
        for key in CALLED:
            medians = [f"{figures[f'{when} {name} {key}']:.2f}" for name in ("with", "without")]
            parts = (figures[f"{when} ratio {key} {part}"] for part in Ratio._fields)
            print("| " + " | ".join([key, *medians, str(Ratio(*parts))]) + " |")


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
    parser.add_argument("--rounds", type=int, default=10, help="2 at least")
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    parser.add_argument("--sampled", type=int, default=100, help="instances that run at once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: an interval takes 2 at least")
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
    stop_on_sigterm()
    main()
