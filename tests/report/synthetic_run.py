"""Run folders made from a seed, in the form that `uncia run` writes, for tests of what reads them.

The numbers are drawn, not measured; their shapes are those of a small platform: warm requests of a
millisecond, cold ones of a tenth of a second, CPU-bound ones that slow down with the memory size.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from uncia import record
from uncia.stats import summary

MS = 1_000_000
S = 1_000_000_000
MIB = 1_048_576
EPOCH = 1_760_000_000 * S
FULL_VCPU_MB = 1769

TARIFFS = {
    # id: (USD per vCPU-second, per GB-second, per invocation, granularity in ms)
    "aws-lambda-x86": (0.0, 0.0000166667, 2e-7, 1),
    "gcp-run-request": (0.000024, 0.0000025, 4e-7, 100),
    "azure-consumption": (0.0, 0.000016, 2e-7, 1),
    "huawei-functiongraph": (0.0, 0.00001108, 1.67e-7, 1),
    "cloudflare-workers": (0.00002, 0.0, 3e-7, 1),
    "slim": (0.0, 0.0000166667, 0.0, 100),
    "sim": (0.00001, 0.000005, 0.0, 1),
    "spfu": (0.00001, 0.000005, 0.0, 1),
}


@dataclass
class Rows:
    """Rows of one experiment, column by column; what is not given is null."""

    name: str
    meta: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def table(self, run: str) -> pa.Table:
        n = len(next(iter(self.columns.values()), []))
        data: dict[str, Any] = {
            "run": [run] * n,
            "experiment": [self.name] * n,
            "platform": ["embedded"] * n,
            "invocation": [f"{self.name}-{i}" for i in range(n)],
            "attempt": [1] * n,
            "open_loop": [True] * n,
            **self.columns,
        }
        schema = record.schema("invocations", EPOCH)
        if n == 0:
            return schema.empty_table()
        return record.conform(
            pa.table({name: pa.array(values) for name, values in data.items()}),
            "invocations",
            EPOCH,
        )


def experiment(
    name: str,
    rng: np.random.Generator,
    *,
    n: int = 400,
    memory_mb: int = FULL_VCPU_MB,
    execution_ms: float = 0.3,
    cold: bool = False,
    wait_ms: float = 0.0,
    bursts: Iterable[int] | None = None,
    function: str | None = None,
    slow: float = 1.0,
    outcomes: Mapping[str, int] | None = None,
    platform_columns: bool = True,
    expect: Iterable[str] = (),
    start_ns: int = 0,
) -> Rows:
    """One experiment: `n` requests at 100/s, or bursts of the given sizes each second.

    `outcomes` says how many of the first rows end otherwise than ok.
    """
    sizes = [] if bursts is None else list(bursts)
    if bursts is None:
        scheduled = start_ns + np.arange(n, dtype=np.int64) * 10 * MS
        burst = None
    else:
        n = sum(sizes)
        burst = np.repeat(np.arange(len(sizes)), sizes)
        scheduled = start_ns + burst.astype(np.int64) * S
    jitter = rng.lognormal(0.0, 0.35, n) * slow
    share = min(1.0, memory_mb / FULL_VCPU_MB)
    lag = rng.integers(5_000, 90_000, n)
    connect = np.where(rng.random(n) < 0.1, rng.integers(80_000, 200_000, n), 0)
    queued = (rng.exponential(0.05, n) * MS * (4 if burst is not None else 1)).astype(np.int64)
    initialization = (90 * MS * jitter).astype(np.int64) if cold else None
    execution = ((execution_ms / share * jitter + wait_ms) * MS).astype(np.int64) + 100_000
    network = (0.25 * MS * rng.lognormal(0, 0.3, n)).astype(np.int64) + 50_000
    sent = scheduled + lag
    connected = sent + connect
    first = connected + queued + execution + network
    if initialization is not None:
        first = first + initialization
    received = first + rng.integers(2_000, 30_000, n)
    outcome = ["ok"] * n
    position = 0
    for word, count in (outcomes or {}).items():
        outcome[position : position + count] = [word] * count
        position += count
    answered = np.array([word in ("ok", "function_error", "throttled") for word in outcome])
    ok = np.array([word == "ok" for word in outcome])

    def some(values: Any, where: Any = answered) -> list[int | None]:
        return [int(v) if w else None for v, w in zip(values, where, strict=True)]

    columns: dict[str, list[Any]] = {
        "function": [function or name] * n,
        "scheduled": [int(v) for v in scheduled],
        "sent": [int(v) for v in sent],
        "connected": [int(v) for v in connected],
        "first_byte": some(first),
        "received": some(received),
        "connection_reused": [bool(v == 0) for v in connect],
        "outcome": outcome,
        "status": [
            200 if word == "ok" else 429 if word == "throttled" else None for word in outcome
        ],
    }
    if burst is not None:
        columns["burst"] = [int(v) for v in burst]
    if platform_columns:
        columns |= {
            "start": [("cold" if cold else "warm") if good else None for good in ok],
            "instance": [
                f"{name}-i{i if cold else 0}" if good else None for i, good in enumerate(ok)
            ],
            "started": some(first - execution, ok),
            "ended": some(first, ok),
            "queued": some(queued, ok),
            "execution": some(execution, ok),
            "billed": some(execution, ok),
            "allocated_memory": [memory_mb * MIB] * n,
            "allocated_cpu": [round(memory_mb / FULL_VCPU_MB * 1_000_000)] * n,
            "cpu_user": some((execution - wait_ms * MS) * share * 0.8, ok),
            "memory_avg": some(np.full(n, 30 * MIB), ok),
            "memory_peak": some(np.full(n, 36 * MIB), ok),
        }
        if initialization is not None:
            columns["initialization"] = some(initialization, ok)
    meta: dict[str, Any] = {
        "description": "",
        "functions": [function or name],
        "wait_ns": int(wait_ms * MS),
        "expect": list(expect),
    }
    return Rows(name, meta, columns)


def demo(seed: int = 1, *, slow: float = 1.0) -> list[Rows]:
    """Experiments as in the demonstration, with `slow` times the durations."""
    rng = np.random.default_rng(seed)
    sizes = [1, 10, 50] * 4
    rows = [
        experiment("warm", rng, n=600, function="hello", slow=slow),
        experiment("cold", rng, n=60, cold=True, function="hello", slow=slow),
        experiment("burst-warm", rng, bursts=sizes, function="hello", slow=slow),
        experiment("burst-cold", rng, bursts=sizes, cold=True, function="hello", slow=slow),
        experiment(
            "burst-wait",
            rng,
            bursts=[1, 10, 50],
            wait_ms=1000,
            function="sleep",
            slow=slow,
            outcomes={"throttled": 3},
            expect=["throttled"],
        ),
    ]
    rows += [
        experiment(
            f"pyaes-{mb}", rng, n=60, memory_mb=mb, execution_ms=24, function="pyaes", slow=slow
        )
        for mb in (128, 256, 512, 1024, 1769)
    ]
    rows.append(experiment("resize", rng, n=80, execution_ms=41, memory_mb=1024, slow=slow))
    return rows


def bill(
    run: str, experiments: list[Rows], *, price: float = 1.0
) -> tuple[pa.Table, dict[str, Any]]:
    """A bill by experiment and function under every tariff of this file, and its summary."""
    rows: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    for tariff, (per_vcpu, per_gb, fee, granularity) in TARIFFS.items():
        cost_all = Decimal(0)
        billable_cpu = billable_mem = used_cpu = used_mem = 0
        fee_all, rounding_all, count_all = Decimal(0), Decimal(0), 0
        for part in experiments:
            billed = [v for v in part.columns.get("billed", []) if v is not None]
            if not billed:
                continue
            n, step = len(billed), granularity * MS
            rounded = sum(v + (step - v % step) % step for v in billed)
            cpu = part.columns["allocated_cpu"][0]
            memory = part.columns["allocated_memory"][0]
            used = sum(v for v in part.columns["cpu_user"] if v is not None) * 1_000_000
            used_bytes = sum(billed) * 30 * MIB
            per_ns = (
                Decimal(cpu) / 10**6 * Decimal(per_vcpu) + Decimal(memory) / 2**30 * Decimal(per_gb)
            ) * Decimal(price)
            fees = Decimal(fee) * n
            cost = (per_ns * rounded / S + fees).quantize(Decimal("1e-18"))
            rounding = (per_ns * (rounded - sum(billed)) / S).quantize(Decimal("1e-18"))
            rows.append(
                {
                    "run": run,
                    "experiment": part.name,
                    "function": part.columns["function"][0],
                    "tariff": tariff,
                    "rows": n,
                    "billable_micro_vcpu_ns": Decimal(cpu * rounded),
                    "billable_byte_ns": Decimal(memory * rounded),
                    "used_micro_vcpu_ns": Decimal(used),
                    "used_byte_ns": Decimal(used_bytes),
                    "fee_usd": fees.quantize(Decimal("1e-18")),
                    "rounding_usd": rounding,
                    "cost_usd": cost,
                }
            )
            cost_all += cost
            fee_all += fees
            rounding_all += rounding
            count_all += n
            billable_cpu += cpu * rounded
            billable_mem += memory * rounded
            used_cpu += used
            used_mem += used_bytes
        if not count_all:
            continue
        rows.append(
            {
                "run": run,
                "tariff": tariff,
                "rows": count_all,
                "billable_micro_vcpu_ns": Decimal(billable_cpu),
                "billable_byte_ns": Decimal(billable_mem),
                "used_micro_vcpu_ns": Decimal(used_cpu),
                "used_byte_ns": Decimal(used_mem),
                "fee_usd": fee_all.quantize(Decimal("1e-18")),
                "rounding_usd": rounding_all.quantize(Decimal("1e-18")),
                "cost_usd": cost_all,
            }
        )
        totals[tariff] = {
            "billable_vcpu_s": billable_cpu / 1e15,
            "billable_gb_s": billable_mem / 2**30 / 1e9,
            "used_vcpu_s": used_cpu / 1e15,
            "used_gb_s": used_mem / 2**30 / 1e9,
            "used_vcpu_rows": count_all,
            "used_memory_rows": count_all,
            "cost_usd": float(cost_all),
            "cost_usd_per_million": float(cost_all / count_all * 10**6),
            "inflation_vcpu": billable_cpu / used_cpu if used_cpu else None,
            "inflation_memory": billable_mem / used_mem if used_mem else None,
            "fee_share": float(fee_all / cost_all) if cost_all else None,
            "rounding_share": float(rounding_all / cost_all) if cost_all else None,
            "rows": count_all,
            "unpriced_rows": 0,
            "unpriced": {},
            "not_billable": {
                "throttled": sum(
                    part.columns.get("outcome", []).count("throttled") for part in experiments
                )
            },
        }
    if not rows:
        return record.empty("bill"), {}
    names = record.schema("bill").names
    columns = {name: [row.get(name) for row in rows] for name in names if name != "invocation"}
    return record.conform(pa.table(columns), "bill"), totals


def spans(run: str, experiments: list[Rows]) -> pa.Table:
    """Startup phases of every cold row, on the platform's clock, and the handler's own span."""
    rows = []
    phases = (("cgroup", 1), ("namespaces", 2), ("runtime", 60), ("handler import", 27))
    for part in experiments:
        started = part.columns.get("started")
        if started is None:
            continue
        for i, (begin, start) in enumerate(zip(started, part.columns["start"], strict=True)):
            if begin is None:
                continue
            common = {"run": run, "invocation": f"{part.name}-{i}", "instance": f"{part.name}-i{i}"}
            if start == "cold":
                at = begin - 90 * MS
                for name, ms in phases:
                    rows.append(
                        {
                            **common,
                            "name": name,
                            "start": at,
                            "end": at + ms * MS,
                            "clock": "platform",
                        }
                    )
                    at += ms * MS
            rows.append(
                {
                    **common,
                    "name": "handler",
                    "start": begin,
                    "end": begin + MS,
                    "clock": "function",
                }
            )
    if not rows:
        return record.empty("spans", EPOCH)
    return record.conform(pa.Table.from_pylist(rows), "spans", EPOCH)


def instances(run: str, experiments: list[Rows]) -> pa.Table:
    """An instance for each name in the rows, living from its first start to a second after."""
    rows = []
    for part in experiments:
        result: dict[str, list[int]] = {}
        for name, start in zip(
            part.columns.get("instance", []), part.columns.get("started", []), strict=True
        ):
            if name is not None:
                result.setdefault(name, []).append(start)
        for name, times in result.items():
            rows.append(
                {
                    "run": run,
                    "platform": "embedded",
                    "function": part.columns["function"][0],
                    "instance": name,
                    "started": min(times),
                    "initialized": min(times) + 90 * MS,
                    "ended": max(times) + S,
                    "end_reason": "keep_alive",
                    "start": "cold",
                    "invocations": len(times),
                }
            )
    if not rows:
        return record.empty("instances", EPOCH)
    return record.conform(pa.Table.from_pylist(rows), "instances", EPOCH)


def machine(run: str) -> pa.Table:
    """Counters of the machine, one sample of each a second for twenty seconds."""
    rows = [
        {"run": run, "time": second * S, "counter": counter, "value": base + second % 3}
        for second in range(20)
        for counter, base in (
            ("cpu.busy_percent", 60.0),
            ("cpu.steal_percent", 0.0),
            ("load.1m", 2),
        )
    ]
    return record.conform(pa.Table.from_pylist(rows), "machine", EPOCH)


def write(
    folder: Path,
    experiments: list[Rows],
    *,
    run: str | None = None,
    with_bill: bool = True,
    price: float = 1.0,
    warnings: Iterable[str] = (),
) -> Path:
    """Write a whole run folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    run = run or folder.name
    meta = {
        "run": run,
        "status": "complete",
        "title": "demo",
        "description": "Functions of six kinds on the embedded platform.",
        "seed": 1769,
        "epoch_unix_ns": EPOCH,
        "started": "2025-10-09T08:53:20Z",
        "ended": "2025-10-09T08:55:01Z",
        "versions": {"uncia": "0.1.0", "engine": "0.1.0", "python": "3.11.2"},
        "platform": {"kind": "embedded"},
        "machine": {
            "os": "Debian GNU/Linux 12",
            "kernel": "6.18.0",
            "cpu_model": "Xeon",
            "cpus": 2,
            "memory_bytes": 8 * 1024 * MIB,
            "virtualised": True,
            "cpu_quota": None,
        },
        "warnings": list(warnings),
        "failures": [],
        "experiments": {part.name: part.meta for part in experiments},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
    table = record.merge([part.table(run) for part in experiments])
    record.write(table, folder / "invocations.parquet")
    record.write(spans(run, experiments), folder / "spans.parquet", "spans")
    record.write(instances(run, experiments), folder / "instances.parquet", "instances")
    record.write(machine(run), folder / "machine.parquet", "machine")
    totals: dict[str, Any] = {}
    if with_bill:
        billed, totals = bill(run, experiments, price=price)
        record.write(billed, folder / "bill.parquet", "bill")
    text = {
        "run": run,
        "schema_version": record.SCHEMA_VERSION,
        "status": "complete",
        "experiments": summary.experiments(table, meta),
        "tariffs": totals,
        "warnings": list(warnings),
        "failures": [],
    }
    (folder / "summary.json").write_text(json.dumps(text, indent=2), encoding="utf-8")
    return folder
