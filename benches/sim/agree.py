"""The same requests through the embedded platform and through the simulator, side by side.

A trace of three functions is drawn from a seed and replayed by ``uncia run`` on a platform with a
capacity of 2 vCPU and 1 GB, where `functions/phases` (in C) does what each row says; then ``uncia
simulate`` serves the same rows, with starts as long as those of the real run. Throughput and use of
the CPU are counted in the same way from the rows of both, until the last arrival; the bill is that
of all rows, by one tariff.

Run it on a machine with two CPUs that is otherwise idle, with the engine built for release:

    make build && .venv/bin/python benches/sim/agree.py --out DIR [--trace short] [--seed 1]
        [--model sim]

Runs that DIR has already are not repeated. For each trace and model it prints the real figures over
the simulated ones, the median of the seeds and its range; 1 if a median is beyond its limit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from uncia import record, tariffs
from uncia.experiment.simulation import RULES, Model

ROOT: Final = Path(__file__).parents[2]
NS: Final = 10**9
MB: Final = 1 << 20
VCPU: Final = 2
MEMORY_MB: Final = 1024
MODELS: Final[tuple[Model, ...]] = ("slim", "sim", "npfu")
LIMITS: Final = {"throughput": 0.10, "utilization": 0.10, "bill": 0.05}
"""How far the real run may be from the simulation, as a part of it."""


@dataclass(frozen=True)
class Function:
    """A function of the trace.

    Attributes:
        share: its part of the requests.
        vcpu, spot, memory_mb: what it is allocated, and how much of the CPU is spot.
        is_batch: whether it is batch work, and preemptible.
        phases: part of a request's duration, threads, memory in MB.
    """

    share: float
    vcpu: int
    spot: int
    memory_mb: int
    is_batch: bool
    phases: tuple[tuple[float, int, int], ...]

    def settings(self, model: Model) -> dict[str, Any]:
        """Its settings in an experiment file, as far as the billing model honours them."""
        rules = RULES[model]
        vcpu, memory = float(self.vcpu), float(self.memory_mb)
        if rules.fixed_ratio:
            ratio = MEMORY_MB / VCPU
            vcpu, memory = max(vcpu, memory / ratio), max(memory, vcpu * ratio)
        spot = self.spot if rules.honours_spot else 0
        return {
            "cpu": f"{vcpu:g}vCPU",
            "memory": f"{math.ceil(memory)}MB",
            "spot_cpu": f"{spot}vCPU",
            "preemptible": self.is_batch and rules.honours_spot,
            "qos": "batch" if self.is_batch else "interactive",
        }


FUNCTIONS: Final = {
    "page": Function(0.5, 1, 0, 128, False, ((0.4, 1, 48), (0.3, 0, 32), (0.3, 1, 64))),
    "model": Function(0.2, 2, 1, 256, False, ((0.3, 1, 96), (0.4, 2, 160), (0.3, 1, 96))),
    "batch": Function(0.3, 1, 1, 192, True, ((0.5, 1, 64), (0.5, 1, 128))),
}


@dataclass(frozen=True)
class Trace:
    """Poisson arrivals for so long; durations are uniform, from half to 1.5 times the mean."""

    window_s: float
    mean_s: float
    load: float
    """CPU time that is asked for, over what there is in the window."""

    def rows(self, seed: int) -> list[dict[str, Any]]:
        """The requests, as rows of a table of invocations."""
        draw = random.Random(f"{seed}-{self}")
        names, shares = list(FUNCTIONS), [it.share for it in FUNCTIONS.values()]
        busy = sum(
            it.share * part * threads for it in FUNCTIONS.values() for part, threads, _ in it.phases
        )
        rate = self.load * VCPU / (busy * self.mean_s)
        rows: list[dict[str, Any]] = []
        at = draw.expovariate(rate)
        while at < self.window_s:
            (name,) = draw.choices(names, shares)
            duration = self.mean_s * draw.uniform(0.5, 1.5)
            rows.append(_row(len(rows), name, round(at * NS), duration))
            at += draw.expovariate(rate)
        return rows


TRACES: Final = {
    "long": Trace(window_s=30, mean_s=1.5, load=0.5),
    "short": Trace(window_s=20, mean_s=0.15, load=0.5),
    "near": Trace(window_s=20, mean_s=0.3, load=0.9),
    "above": Trace(window_s=20, mean_s=0.3, load=1.4),
}


def _row(number: int, name: str, scheduled: int, duration_s: float) -> dict[str, Any]:
    function = FUNCTIONS[name]
    phases = [
        {"duration": round(part * duration_s * NS), "threads": threads, "memory": memory * MB}
        for part, threads, memory in function.phases
    ]
    return {
        "invocation": f"i{number}",
        "attempt": 1,
        "outcome": "ok",
        "function": name,
        "scheduled": scheduled,
        "execution": sum(it["duration"] for it in phases),
        "allocated_cpu": function.vcpu * 10**6,
        "spot_cpu": function.spot * 10**6,
        "allocated_memory": function.memory_mb * MB,
        "preemptible": function.is_batch,
        "qos": "batch" if function.is_batch else "interactive",
        "phases": phases,
    }


def uncia(*arguments: str | Path) -> None:
    """Run the command; its output is shown if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "uncia", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def write_yaml(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a file of YAML."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


def carry_out(trace: Trace, seed: int, model: Model, folder: Path) -> None:
    """Serve the trace twice, into ``folder/real`` and ``folder/simulated``."""
    folder.mkdir(parents=True, exist_ok=True)
    types = record.schema("invocations")
    rows = trace.rows(seed)
    columns = {
        name: pa.array([row[name] for row in rows], types.field(name).type) for name in rows[0]
    }
    record.write(pa.table(columns), folder / "trace.parquet", "invocations")
    rules = RULES[model]
    real = write_yaml(
        folder / "real.yaml",
        {
            "name": "agree",
            "seed": seed,
            "platform": {
                "kind": "embedded",
                "capacity_cpu": f"{VCPU}vCPU",
                "capacity_memory": f"{MEMORY_MB}MB",
                "cpu_sharing": "idle" if rules.honours_spot else "pinned",
                "policies": dict(rules.policies),
                "keep_alive": "10min",
                "max_instances": 1000,
            },
            "functions": {
                name: {
                    "source": "phases",
                    "runtime": "provided",
                    "timeout": "300s",
                    **it.settings(model),
                }
                for name, it in FUNCTIONS.items()
            },
            "experiments": {
                "replay": {
                    "arrivals": {
                        "kind": "replay",
                        "table": "trace.parquet",
                        "map": {name: name for name in FUNCTIONS},
                    },
                    "fields": {"phases": {"kind": "column", "column": "phases"}},
                    "parameters": {"phases": "{{phases}}"},
                    "expect": {"preempted": "allowed"},
                }
            },
        },
    )
    uncia("run", real, "--out", folder / "real", "--quiet")
    simulated = write_yaml(
        folder / "simulated.yaml",
        {
            "name": "agree",
            "seed": seed,
            "cluster": {"workers": 1, "vcpu": VCPU, "memory": f"{MEMORY_MB}MB"},
            "models": [model],
            "starts": {"run": "real", "function": "page"},
            "trace": {"path": "trace.parquet"},
        },
    )
    uncia("simulate", simulated, "--out", folder / "simulated", "--no-report", "--quiet")


def measured(run: Path, tariff: Path) -> dict[str, float]:
    """What a run came to, from its rows; CPU times are in seconds, the bill is in USD."""
    table = record.read(run)
    rows = table.to_pylist()
    begin = min(row["scheduled"] for row in rows)
    window = max(row["scheduled"] for row in rows) - begin
    served = [row for row in rows if row["outcome"] == "ok"]
    used = 0.0
    for row in rows:
        if row["started"] is None or row["cpu_user"] is None:
            continue
        length = max(1, row["ended"] - row["started"])
        within = max(0, min(row["ended"], begin + window) - row["started"])
        used += (row["cpu_user"] + row["cpu_system"]) * within / length
    interactive = [it for it in served if it["qos"] == "interactive"]

    def seconds(name: str) -> float:
        return sum(row[name] or 0 for row in rows) / NS

    return {
        "throughput": sum(it["ended"] <= begin + window for it in served) / window * NS,
        "utilization": used / (VCPU * window),
        "bill": float(sum(line.exact_cost or 0 for line in tariffs.bill(table, [str(tariff)]))),
        "served": len(served),
        "failed": sum(row["outcome"] not in ("ok", "preempted") for row in rows),
        "preempted": sum(row["outcome"] == "preempted" for row in rows),
        "cold": sum(row["start"] == "cold" for row in served),
        "cpu": seconds("cpu_user") + seconds("cpu_system"),
        "execution": seconds("execution"),
        "borrowed": seconds("borrowed_cpu_time"),
        "lent": seconds("lent_cpu_time"),
        "interactive_s": statistics.fmean(it["ended"] - it["scheduled"] for it in interactive) / NS,
    }


def compare(folder: Path) -> dict[str, dict[str, float]]:
    """The figures of both sides."""
    simulated = folder / "simulated"
    (tariff,) = simulated.glob("tariff-*.yaml")
    return {side: measured(folder / side, tariff) for side in ("real", "simulated")}


def ratio(sides: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    """A real figure over the simulated one; None if both or the latter are nothing."""
    real, simulated = sides["real"][name], sides["simulated"][name]
    return real / simulated if simulated else None


def cell(values: list[float | None]) -> str:
    """The median of ratios, and their range."""
    known = [it for it in values if it is not None]
    if not known:
        return "-"
    return f"{statistics.median(known):.2f} ({min(known):.2f} to {max(known):.2f})"


def main() -> int:
    """Run what is missing, and print how far each real run is from its simulation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--trace", action="append", choices=TRACES)
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--model", action="append", choices=MODELS)
    arguments = parser.parse_args()
    beyond = 0
    names = [*LIMITS, "cpu", "execution", "interactive_s", "cold", "borrowed", "lent"]
    print(f"| trace | model | {' | '.join(names)} | |\n{'|---' * (len(names) + 3)}|")
    for trace in arguments.trace or TRACES:
        for model in arguments.model or MODELS:
            runs = [
                figures(arguments.out, trace, seed, model) for seed in arguments.seed or (1, 2, 3)
            ]
            ratios = {name: [ratio(sides, name) for sides in runs] for name in names}
            wrong = [
                name
                for name, limit in LIMITS.items()
                if abs(statistics.median(it or 0 for it in ratios[name]) - 1) > limit
            ]
            beyond += bool(wrong)
            text = " | ".join(cell(ratios[name]) for name in names)
            print(f"| {trace} | {model} | {text} | {', '.join(wrong)} |", flush=True)
    return 1 if beyond else 0


def figures(out: Path, trace: str, seed: int, model: Model) -> dict[str, dict[str, float]]:
    """The figures of both sides, which are run if there are none."""
    folder = out / f"{trace}-{model}-{seed}"
    file = folder / "figures.json"
    if not file.exists():
        carry_out(TRACES[trace], seed, model, folder)
        file.write_text(json.dumps(compare(folder), indent=1))
    sides: dict[str, dict[str, float]] = json.loads(file.read_text())
    return sides


if __name__ == "__main__":
    sys.exit(main())
