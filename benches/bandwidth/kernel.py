"""The model against the kernel of this machine: settings drawn from a seed, measured and simulated.

    .venv/bin/python benches/bandwidth/kernel.py [--settings 30] [--seed 1] [--json FILE]

Each setting is measured in several control groups, because each has a period timer with an offset
of its own: tasks that need a given CPU time and begin at random phases, then a probe. The simulator
is given the setting and this kernel's version and tick rate; for durations nothing of what was
measured, for throttles where the group's ticks and refills stand, which the profile shows.

A group in which the host took more than a fifth of a percent of a CPU is measured again, up to four
times; how many groups stayed disturbed is said.

Printed are, for each setting, the mean duration with its standard error (over groups) and the
model's, and the Wasserstein-1 distance of the throttles' intervals in parts of the period, beside
that which as many simulated runs have by chance. Results
go to the file one by one; a second run with the same file goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from uncia import engine
from uncia import record as tables
from uncia.bandwidth import kernels, profiles, simulated_match
from uncia.bandwidth.simulate import Probe, Setting, Task, simulate

T = TypeVar("T")

MS = 1_000_000
TRIES = 4
MOST_STEAL = 0.002  # of a CPU
IDLE_PERIODS = 6
MODEL_GROUPS = 40
PROBES = 3
PROBE_NS = 500 * MS
CHANCES = 20
PROBE_REPEATS = 5  # each run settles in one of several patterns, by the phase at which it begins


def draw(seed: int, count: int) -> list[dict[str, int]]:
    """Settings in ns: periods of 5 to 100 ms, quotas of 1 ms to 1 vCPU, tasks of 1 to 500 ms."""
    numbers = random.Random(seed)
    settings = []
    while len(settings) < count:
        period = numbers.choice([5, 10, 20, 25, 40, 50, 80, 100]) * MS
        share = numbers.uniform(0.05, 1.0)
        quota = round(period * share / 1000) * 1000
        cpu = round(MS * 500 ** numbers.random())
        wall = cpu * period / quota
        if quota >= MS and wall <= 1_200 * MS:
            settings.append({"period": period, "quota": min(quota, period), "cpu": cpu})
    return settings


def steal() -> float:
    """Seconds that the host has taken from this machine's CPUs so far."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def quiet(measured: Callable[[], T]) -> tuple[T, bool]:
    """What was measured, once more if the host took time meanwhile; and whether it did at last."""
    for _ in range(TRIES):
        before, begun = steal(), time.monotonic()
        result = measured()
        taken = (steal() - before) / (time.monotonic() - begun)
        if taken <= MOST_STEAL:
            return result, False
    return result, True


def config(setting: dict[str, int], extra: dict[str, Any], folder: str) -> dict[str, Any]:
    """The engine's configuration to measure in one control group."""
    return {
        "period_ns": setting["period"],
        "quota_ns": setting["quota"],
        "baseline_ns": 0,
        "out": folder,
        "run": "bench",
        **extra,
    }


def record(setting: dict[str, int], extra: dict[str, Any], folder: str) -> None:
    """Measures in one control group."""
    engine.run(["cpu", "profile", "--config", "-"], config=config(setting, extra, folder))


def measure(setting: dict[str, int], extra: dict[str, Any]) -> Any:
    """Rows of tasks in one control group."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        record(setting, extra, folder)
        return tables.read(folder)


def apart(setting: dict[str, int], simulated: Setting, group: int) -> float | None:
    """How far one group's intervals between throttles are from the model's, in ns."""
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        record(setting, probe(group), folder)
        return simulated_match.compare(profiles.read(Path(folder)), simulated)["interval"]


def tasks(setting: dict[str, int], groups: int, seconds: float, group: int) -> dict[str, Any]:
    """The engine's configuration of tasks in one of several groups."""
    period, quota, cpu = setting["period"], setting["quota"], setting["cpu"]
    idle = IDLE_PERIODS * period
    wall = idle + 1.5 * period + cpu * period / quota
    repeat = max(4, min(60, int(seconds * 1e9 / groups / wall)))
    return {"task": {"cpu_ns": [cpu]}, "repeat": repeat, "idle_ns": idle, "seed": group}


def probe(group: int) -> dict[str, Any]:
    """The engine's configuration of a probe in one of several groups."""
    return {"duration_ns": PROBE_NS, "repeat": PROBE_REPEATS, "seed": group}


def model(setting: dict[str, int], kernel: kernels.Kernel, hz: int) -> dict[str, Any]:
    """What the simulator is given of a setting, but for its work."""
    return {
        "period_ns": setting["period"],
        "quota_ns": setting["quota"],
        "hz": hz,
        "scheduler": kernel.scheduler,
        "throttling": kernel.throttling,
        "timer": kernel.timer,
    }


def compare(setting: dict[str, int], groups: int, seconds: float) -> dict[str, Any]:
    """One setting, measured and simulated."""
    durations, disturbed = [], 0
    for group in range(groups):
        task = tasks(setting, groups, seconds, group)
        rows, noisy = quiet(partial(measure, setting, task))
        disturbed += noisy
        durations.append(rows["execution"].to_numpy())
    made = model(setting, kernels.here(), kernels.tick_rate() or 250)
    simulated = Setting(**made, runs=100, work=Probe(duration_ns=PROBE_NS))
    far = []
    for group in range(PROBES):
        result, noisy = quiet(partial(apart, setting, simulated, group))
        disturbed += noisy
        far += [] if result is None else [result]
    return judge(setting, made, durations, far) | {"disturbed_groups": disturbed}


def judge(
    setting: dict[str, int], made: dict[str, Any], durations: list[Any], far: list[float]
) -> dict[str, Any]:
    """A setting's durations, an array for each group, and distances, beside the simulator's."""
    period, idle = setting["period"], IDLE_PERIODS * setting["period"]
    means = [float(group.mean()) / MS for group in durations]
    work = Task(cpu_ns=[setting["cpu"]], gap_ns=(idle, idle + period))
    modelled = simulate([Setting(**made, runs=100, work=work)] * MODEL_GROUPS, seed=1)
    mean, model_mean = float(np.mean(means)), float(modelled.durations().mean() / MS)
    return {
        **setting,
        "tasks": sum(len(group) for group in durations),
        "measured_ms": mean,
        "standard_error_ms": float(np.std(means, ddof=1) / len(means) ** 0.5),
        "model_ms": model_mean,
        "error": model_mean / mean - 1,
        "w1_periods": float(np.mean(far)) / period if far else None,
        **by_chance(setting, made),
    }


def by_chance(setting: dict[str, int], made: dict[str, Any]) -> dict[str, float | None]:
    """How far as many simulated runs as a group has are from a hundred: the mean of several tries,
    and the 95th percentile, in periods. What a measured group is nearer than that, chance explains.
    """
    names = ("w1_by_chance", "w1_by_chance_p95")
    work = Probe(duration_ns=PROBE_NS)
    result = []
    for seed in range(CHANCES):
        timer = {"offset": random.Random(seed).randrange(setting["period"])}
        base = Setting(**{**made, "timer": timer}, runs=PROBE_REPEATS, work=work)
        many = base.model_copy(update={"runs": 100})
        few, all_ = (
            simulated_match.throttles(simulate([item], number).spans)["interval"]
            for number, item in ((seed + 1, base), (0, many))
        )
        if len(few):
            result.append(simulated_match.distance(few, all_) / setting["period"])
    if not result:
        return dict.fromkeys(names)
    return dict(zip(names, (float(np.mean(result)), float(np.quantile(result, 0.95))), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--settings", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=8, help="control groups for each setting")
    parser.add_argument("--seconds", type=float, default=24, help="for the tasks of a setting")
    parser.add_argument("--most", type=int, help="stop after so many more settings")
    parser.add_argument("--json", type=Path, help="results, one by one; gone on with if there")
    given = parser.parse_args()
    done: list[dict[str, Any]] = []
    if given.json is not None and given.json.exists():
        done = json.loads(given.json.read_text())
    wanted = draw(given.seed, given.settings)[len(done) :]
    for setting in wanted[: given.most]:
        comparison = compare(setting, given.groups, given.seconds)
        done.append(comparison)
        if given.json is not None:
            given.json.write_text(json.dumps(done, indent=1))
        print(line(comparison), flush=True)
    print(verdict(done))
    return 0


def line(found: dict[str, Any]) -> str:
    far = found["w1_periods"]
    return (
        f"period {found['period'] / MS:5.1f} quota {found['quota'] / MS:6.3f} cpu"
        f" {found['cpu'] / MS:7.3f} ms: measured {found['measured_ms']:8.3f} +-"
        f" {found['standard_error_ms']:.3f}, model {found['model_ms']:8.3f} ms"
        f" ({found['error']:+.1%}); W1 {'too few' if far is None else f'{far:.2%} of the period'}"
        + ("" if far is None else f" (by chance {found['w1_by_chance']:.2%})")
        + (f"; {found['disturbed_groups']} groups disturbed" if "disturbed_groups" in found else "")
    )


def verdict(done: list[dict[str, Any]]) -> str:
    errors = [abs(item["error"]) for item in done]
    far = [item["w1_periods"] for item in done if item["w1_periods"] is not None]
    within = sum(
        abs(item["model_ms"] - item["measured_ms"])
        <= max(0.03 * item["measured_ms"], 2 * item["standard_error_ms"])
        for item in done
    )
    lines = [
        f"{len(done)} settings: mean absolute error of the mean duration {np.mean(errors):.2%}"
    ]
    lines.append(f"within 3 % or two standard errors: {within}")
    if far:
        lines.append(
            f"W1 of throttle intervals, {len(far)} settings: mean {np.mean(far):.2%} of the period,"
            f" worst {max(far):.2%}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
