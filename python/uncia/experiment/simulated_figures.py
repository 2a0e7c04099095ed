"""What a simulation came to: the figures in ``simulation.json`` of one model with one seed.

Tables are read some rows at a time. What is kept of a row is its completion time, for quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia import record
from uncia.experiment.prices import Revenue
from uncia.experiment.simulation import RULES, Model, SimulationFile
from uncia.stats.quantiles import QUANTILES, rank
from uncia.stats.tally import Sample
from uncia.units import GIB

_COLUMNS: Final = ("scheduled", "ended", "execution", "outcome", "start", "qos")
_COUNTERS: Final = (
    ("cpu_utilization", "cpu_used_micro_vcpu", "cpu_available_micro_vcpu"),
    ("cpu_reservation", "cpu_reserved_micro_vcpu", "cpu_available_micro_vcpu"),
    ("memory_utilization", "memory_used_bytes", "memory_available_bytes"),
    ("memory_reservation", "memory_reserved_bytes", "memory_available_bytes"),
)


@dataclass
class _Served:
    """Invocations that were served, of one class; times in ns."""

    cold: int = 0
    execution: int = 0
    completion: int = 0
    completions: Sample = field(default_factory=Sample)

    def add(self, rows: pa.Table) -> None:
        self.cold += _count(pc.equal(rows["start"], "cold"))
        self.execution += pc.sum(rows["execution"]).as_py() or 0
        completion = pc.subtract(rows["ended"], rows["scheduled"])
        self.completion += pc.sum(completion).as_py() or 0
        self.completions.add(completion)

    @property
    def count(self) -> int:
        return self.completions.size


def figures(
    file: SimulationFile,
    clipped: int,
    model: Model,
    tables: Path,
    done: Mapping[str, Any],
    earned: Revenue,
) -> dict[str, Any]:
    """What a model came to with a seed.

    Args:
        file: what was simulated.
        clipped: requests that have less of a worker than the trace says.
        model: the billing model.
        tables: the folder of its tables.
        done: the engine's account.
        earned: its revenue.
    """
    window = file.until if file.until is not None else _last(tables)
    by_qos, in_window = _served(tables, window)
    served = sum(it.count for it in by_qos.values())
    cold = sum(it.cold for it in by_qos.values())
    seconds = done["end_ns"] / 10**9
    counts = ("events", "arrived", "served", "preempted", "lost", "rejected", "unfinished")
    return {
        "policies": {**RULES[model].policies, **file.policies},
        "end_s": seconds,
        **{name: done[name] for name in counts},
        "starts": done["starts"],
        "failures": done["failures"],
        "clipped": clipped,
        "throughput_per_s": done["served"] / seconds if seconds else None,
        "window_s": window / 10**9,
        "throughput_in_window_per_s": in_window / (window / 10**9) if window else None,
        "offered_load": (
            int(done["cpu_offered"]) / (file.cluster.workers * file.cluster.vcpu * window)
            if window
            else None
        ),
        **_shares(tables, window),
        "requests_in_system": (int(done["in_system"]) / done["end_ns"] if done["end_ns"] else None),
        "cold_share": cold / served if served else None,
        **_idle(tables),
        "hints": {name: done[f"hints_{name}"] for name in ("taken", "refused")},
        "qos": {
            qos: _of_class(by_qos[qos], qos, done, earned)
            for qos in ("interactive", "batch")
            if qos in by_qos
        },
        "cost_usd": float(earned.cost),
        "revenue_usd_per_worker_hour": float(earned.rate * 3600),
        "price_factor_at_equal_revenue": _number(earned.factor),
        "totals": done["totals"],
        "running": done["running"],
    }


def _idle(tables: Path) -> dict[str, float]:
    """Allocated memory of idle instances over time, GB-s: all of it, and that on hints' account."""
    idle = on_hint = 0.0
    for part in record.scan(tables, ["allocated_memory", "idle", "hint_idle"], "instances"):
        memory = part["allocated_memory"].combine_chunks()
        lists = part["idle"].combine_chunks()
        intervals = pc.list_flatten(lists)
        lengths = pc.subtract(
            pc.struct_field(intervals, "end"), pc.struct_field(intervals, "start")
        )
        of_each = memory.take(pc.list_parent_indices(lists))
        idle += float(np.dot(of_each.to_numpy().astype(float), lengths.to_numpy().astype(float)))
        times = pc.fill_null(part["hint_idle"].combine_chunks(), 0)
        on_hint += float(np.dot(memory.to_numpy().astype(float), times.to_numpy().astype(float)))
    unit = GIB * 10**9
    return {"idle_gb_s": idle / unit, "hint_idle_gb_s": on_hint / unit}


def _count(flags: pa.ChunkedArray) -> int:
    return int(pc.sum(flags.cast(pa.int64())).as_py() or 0)


def _last(tables: Path) -> int:
    """When the last of the requests that have a row arrived."""
    parts = record.scan(tables, ["scheduled"])
    return max((pc.max(part["scheduled"]).as_py() or 0 for part in parts), default=0)


def _served(tables: Path, window: int) -> tuple[dict[str, _Served], int]:
    """What was served, by class, and how many of it within the window."""
    by_qos: dict[str, _Served] = {}
    in_window = 0
    for part in record.scan(tables, _COLUMNS):
        ok = part.filter(pc.equal(part["outcome"].cast(pa.string()), "ok"))
        in_window += _count(pc.less_equal(ok["ended"], window))
        words = ok["qos"].cast(pa.string())
        for qos in words.unique().to_pylist():
            by_qos.setdefault(qos, _Served()).add(ok.filter(pc.equal(words, qos)))
    return by_qos, in_window


def _of_class(
    served: _Served, qos: str, done: Mapping[str, Any], earned: Revenue
) -> dict[str, Any]:
    """Completion times, slowdown and cold starts of what was served; cost at equal revenue."""
    count = served.count
    completions = served.completions.ordered()
    p50, p99 = (float(completions[rank(count, QUANTILES[name]) - 1]) for name in ("p50", "p99"))
    cost, billed = earned.cost_by_qos.get(qos, Fraction(0)), earned.served_by_qos.get(qos, 0)
    slowdown = done["slowdown"][qos] or {"mean": None, "p50": None, "p99": None}
    return {
        "served": count,
        "completion_mean_s": float(served.completion) / count / 10**9,
        "completion_p50_s": p50 / 10**9,
        "completion_p99_s": p99 / 10**9,
        "execution_mean_s": float(served.execution) / count / 10**9,
        **{f"slowdown_{name}": slowdown[name] for name in ("mean", "p50", "p99")},
        "cold_share": served.cold / count,
        "cost_usd_per_million_at_equal_revenue": _number(
            None if earned.factor is None or not billed else cost * earned.factor * 10**6 / billed
        ),
    }


def _shares(tables: Path, window: int) -> dict[str, float | None]:
    """Utilisation and reservation within the window: of all workers, and the least of one.

    Both are what was used over what there was, which a worker that is gone lacks. Rows are means
    since the row before; of one that reaches beyond the window, the part within counts. None for a
    window of no length, and the least for workers that were there.
    """
    amounts = _amounts(tables, window)
    shares: dict[str, float | None] = {}
    for name, used, there in _COUNTERS:
        parts, wholes = amounts.get(used, {}), amounts.get(there, {})
        whole = math.fsum(wholes.values())
        each = [parts[worker] / wholes[worker] for worker in wholes if wholes[worker]]
        shares[name] = math.fsum(parts.values()) / whole if whole else None
        shares[f"{name}_min"] = min(each, default=None)
    return shares


def _amounts(tables: Path, window: int) -> dict[str, dict[str, float]]:
    """Values of counters times their durations within the window, by counter and worker."""
    # Workers give account at the same times.
    times: set[int] = set()
    for part in record.scan(tables, ["time"], "machine"):
        times.update(np.unique(part["time"].to_numpy()).tolist())
    ends = np.array(sorted(times), dtype=np.int64)
    lengths = np.diff(np.minimum(ends, window), prepend=0)
    places: dict[tuple[str, str], int] = {}
    sums = np.zeros(0)
    for part in record.scan(tables, ["time", "counter", "worker", "value"], "machine"):
        keys = pa.table({name: part[name].cast(pa.string()) for name in ("counter", "worker")})
        known = keys.group_by(["counter", "worker"]).aggregate([]).to_pylist()
        for row in known:
            places.setdefault((row["counter"], row["worker"]), len(places))
        sums = np.concatenate([sums, np.zeros(len(places) - sums.size)])
        columns = [keys[name].to_pylist() for name in ("counter", "worker")]
        where = np.fromiter(
            (places[key] for key in zip(*columns, strict=True)), np.int64, part.num_rows
        )
        positions = np.searchsorted(ends, part["time"].to_numpy())
        # In the order of rows, so that rounding does not depend on how many are read at a time.
        np.add.at(sums, where, part["value"].to_numpy() * lengths[positions])
    amounts: dict[str, dict[str, float]] = {}
    for (counter, worker), place in places.items():
        amounts.setdefault(counter, {})[worker] = float(sums[place])
    return amounts


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
