"""The kernel's enforcement of a CPU quota beside the worker's event-driven one.

The function ``pyaes`` runs on the embedded platform at several CPU shares and in several lengths,
once under the kernel's bandwidth control and once under event-driven enforcement, in turn, with
rests of random length between the requests. (``spin`` would not do: whoever reads its own CPU clock
has the kernel account for it, and is throttled earlier than at the next tick.) For each share:

* *share*: CPU time over duration, relative to the share that was paid for. A short task has more
  than its share by Equation (2) as well, because its last period is not full: the column *by (2)*;
* *error*: mean absolute difference of the duration from Equation (2), relative to it;
* *cost*: CPU time of the worker's enforcing thread, of one CPU while there was the instance, rests
  included. What the kernel's own enforcement costs cannot be told apart.
* *looks*: how often that thread looked at the instance in each period, and what a look took.

    .venv/bin/python benches/bandwidth/enforcement.py [--repeat 12] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uncia import functions
from uncia.bandwidth.engine import ask
from uncia.platforms import Context, Deployment, Enforcement, FunctionSpec
from uncia.platforms.embedded import EmbeddedPlatform, Options, connect
from uncia.platforms.journal import Journal
from uncia.units import MIB, NS_PER_MS, NS_PER_S

ENFORCEMENTS: tuple[Enforcement, ...] = ("kernel", "event-driven")
PERIOD_NS = 20 * NS_PER_MS
# 128, 512, 1024 and 1536 MB at Lambda's 1769 MB for a vCPU.
SHARES_MICRO = (72_357, 289_429, 578_858, 868_287)
LENGTHS_MS = (5, 16, 50)
REST_S = (0.10, 0.14)
CALIBRATION = 200
MICRO = 1_000_000


@dataclass
class Figures:
    """One share under one enforcement; shares relative to what was paid for."""

    enforcement: str
    vcpu: float
    rows: int
    share: float
    share_by_equation: float
    error: float
    throttled: float
    cost: float
    looks_per_period: float
    look_us: float


def deploy(platform: EmbeddedPlatform, name: str, cpu: int, enforcement: str) -> Deployment:
    """``pyaes`` with this share."""
    made = functions.package(functions.load("pyaes"), "python")
    return platform.deploy(
        FunctionSpec(
            name=name,
            package=made.read_bytes(),
            runtime=made.runtime,
            handler=made.handler,
            memory=256 * MIB,
            timeout=60 * NS_PER_S,
            settings={
                "cpu": cpu,
                "pause_after": 60 * NS_PER_S,
                "period": PERIOD_NS,
                "enforcement": enforcement,
            },
        )
    )


def iterations(platform: EmbeddedPlatform) -> float:
    """How many iterations of ``pyaes`` take a millisecond of CPU time."""
    probe = deploy(platform, "calibration", MICRO, "kernel")
    event = {"length": 16, "iterations": CALIBRATION}
    for _ in range(5):
        platform.invoke(probe, event)
    rows = _rows(platform)
    platform.remove(probe)
    return CALIBRATION / (min(row["cpu_user"] + row["cpu_system"] for row in rows) / NS_PER_MS)


def measure(
    platform: EmbeddedPlatform, cpu: int, enforcement: Enforcement, per_ms: float, repeat: int
) -> Figures:
    """Requests of every length, one after the other."""
    chance = random.Random(cpu)
    function = deploy(platform, f"{enforcement}-{cpu}", cpu, enforcement)
    platform.invoke(function, {"length": 16, "iterations": 1})
    _rows(platform)
    began = time.monotonic_ns()
    before = _enforcer(platform)
    for _ in range(repeat):
        for length in LENGTHS_MS:
            time.sleep(chance.uniform(*REST_S))
            platform.invoke(function, {"length": 16, "iterations": round(length * per_ms)})
    after = _enforcer(platform)
    wall = time.monotonic_ns() - began
    spent, looks = (after[key] - before[key] for key in ("cpu_ns", "looks"))
    rows = _rows(platform)
    platform.remove(function)
    quota = PERIOD_NS * cpu // MICRO
    used = [row["cpu_user"] + row["cpu_system"] for row in rows]
    tasks = [{"period_ns": PERIOD_NS, "quota_ns": quota, "cpu_ns": value} for value in used]
    expected = [int(answer["ns"]) for answer in ask("duration", {"tasks": tasks})]
    took = [row["execution"] for row in rows]
    errors = [abs(ran - eq2) / eq2 for ran, eq2 in zip(took, expected, strict=True)]
    return Figures(
        enforcement=enforcement,
        vcpu=cpu / MICRO,
        rows=len(rows),
        share=sum(used) / sum(took) / (cpu / MICRO),
        share_by_equation=sum(used) / sum(expected) / (cpu / MICRO),
        error=sum(errors) / len(errors),
        throttled=sum(row["throttled_time"] for row in rows) / sum(took),
        cost=spent / wall,
        looks_per_period=looks * PERIOD_NS / wall,
        look_us=spent / looks / 1e3 if looks else 0.0,
    )


def _rows(platform: EmbeddedPlatform) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = platform.collect().invocations.to_pylist()
    wrong = [row["error"] for row in rows if row["outcome"] != "ok"]
    if wrong:
        raise SystemExit(f"an invocation failed: {wrong[0]}")
    return rows


def _enforcer(platform: EmbeddedPlatform) -> dict[str, int]:
    server = platform._server
    assert server is not None, "it is started"
    with urllib.request.urlopen(f"http://{server.address}/uncia/v1/health") as answer:
        result: dict[str, int] = json.load(answer)["enforcer"]
    return result


def show(figures: list[Figures]) -> None:
    """A table in Markdown."""
    print("| vCPU | enforcement | share | by (2) | error | throttled | cost | looks |")
    print("|---|---|---|---|---|---|---|---|")
    for it in sorted(figures, key=lambda it: (it.vcpu, it.enforcement != "kernel")):
        cost = f"{it.cost:.2%} | {it.looks_per_period:.1f} of {it.look_us:.0f} us"
        if it.enforcement == "kernel":
            cost = "|"
        print(
            f"| {it.vcpu:.3f} | {it.enforcement} | {it.share:.3f} | {it.share_by_equation:.3f}"
            f" | {it.error:.1%} | {it.throttled:.1%} | {cost} |"
        )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=12, help="requests of each length")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as work:
        run = f"enforcement-{time.time_ns()}"
        journal = Journal(run, Path(work))
        platform = connect(Options(kind="embedded"), Context(run, journal))
        try:
            platform.start()
            per_ms = iterations(platform)
            for cpu in SHARES_MICRO:
                for enforcement in ENFORCEMENTS:
                    figures.append(measure(platform, cpu, enforcement, per_ms, arguments.repeat))
        finally:
            platform.close()
            journal.close()
    show(figures)
    if arguments.json is not None:
        text = json.dumps([asdict(it) for it in figures], indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
