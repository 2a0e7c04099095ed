"""Execution time against memory size."""

import re
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.report import charts, numbers
from uncia.report.data import RunData
from uncia.report.page import Chart, Note, Section, Table
from uncia.stats import columns
from uncia.stats.quantiles import quantile

FULL_VCPU_MB: Final = 1769
"""The memory size at which AWS Lambda's share of CPU is one whole vCPU; used where a platform does
not report the CPU it allocated."""

_MIB: Final = 2**20
_NS_PER_MS: Final = 1e6
_MICRO: Final = 1e6
_IDEAL_POINTS: Final = 60


def scaling(run: RunData) -> Section | None:
    """For each function measured at several memory sizes: its execution time and the ideal."""
    rows = _measured(run)
    by_function: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_function.setdefault(row["function"], []).append(row)
    several = {
        name: sorted(found, key=lambda row: row["memory"])
        for name, found in by_function.items()
        if len({row["memory"] for row in found}) > 1
    }
    if not several:
        return None
    ideal = []
    for name, found in several.items():
        largest = found[-1]
        work = largest["p50"] * largest["vcpu"]
        per_mb = largest["allocated_vcpu"] / largest["memory"]
        for size in np.geomspace(found[0]["memory"], largest["memory"], _IDEAL_POINTS):
            ideal.append(
                {
                    "function": name,
                    "memory": float(size),
                    "value": work / min(1.0, per_mb * float(size)),
                }
            )
        for row in found:
            row["ideal"] = work / row["vcpu"]
    flat = [row for found in several.values() for row in found]
    table = Table(
        (
            "<function",
            "<experiment",
            "memory, MB",
            "vCPU",
            "n",
            "p5, ms",
            "median, ms",
            "p95, ms",
            "ideal, ms",
            "median / ideal",
        ),
        [
            [
                row["function"],
                row["experiment"],
                numbers.figure(row["memory"], 4),
                numbers.figure(row["allocated_vcpu"]),
                numbers.count(row["n"]),
                numbers.figure(row["p5"]),
                numbers.figure(row["p50"]),
                numbers.figure(row["p95"]),
                numbers.figure(row["ideal"]),
                numbers.times(row["p50"] / row["ideal"] if row["ideal"] else None),
            ]
            for row in flat
        ],
        "Execution time is the column execution over rows of invocations with outcome ok; memory"
        f" is allocated_memory, vCPU is allocated_cpu (where that is null: memory / {FULL_VCPU_MB}"
        " MB). Ideal: the median at the largest size times its vCPU, divided by this size's vCPU,"
        " neither counted above 1 because one thread cannot use more.",
    )
    return Section(
        "memory",
        "Duration against memory",
        [
            Chart(
                "memory",
                charts.memory(flat, ideal),
                "Execution time against memory size on logarithmic axes, with the ideal reciprocal",
            ),
            Note(
                "Points and line: medians. Bars: p5 to p95. Dashed: the ideal, in which half the"
                " CPU takes twice as long."
            ),
            table,
        ],
        "CPU comes in proportion to memory. A function that is bound by CPU should take longer in"
        " proportion as its memory shrinks; faster than that means the platform gave more CPU than"
        " was allocated, slower means it gave less.",
    )


def _measured(run: RunData) -> list[dict[str, Any]]:
    """Execution quantiles of each experiment that ran at a single, known memory size."""
    rows = []
    for name, table in run.tables.items():
        ok = table.filter(columns.is_word(table, "outcome", "ok"))
        execution = columns.ordered(columns.integers(ok, "execution"))
        sizes = np.unique(columns.measured(columns.integers(ok, "allocated_memory")))
        if execution.size == 0 or sizes.size != 1:
            continue
        memory = int(sizes[0]) / _MIB
        vcpu = _vcpu(ok, memory)
        found = {
            label: (quantile(execution, Fraction(share, 100)) or 0) / _NS_PER_MS
            for label, share in (("p5", 5), ("p50", 50), ("p95", 95))
        }
        if found["p5"] <= 0:
            continue
        meta = run.experiment_meta.get(name, {})
        rows.append(
            {
                "function": _function(name, meta, ok),
                "experiment": name,
                "memory": memory,
                "allocated_vcpu": vcpu,
                "vcpu": min(1.0, vcpu),
                "n": int(execution.size),
                **found,
            }
        )
    return rows


def _vcpu(table: pa.Table, memory_mb: float) -> float:
    """The vCPU allocated; by Lambda's rule from the memory size if the platform did not say."""
    found = columns.ordered(columns.integers(table, "allocated_cpu"))
    if found.size and found[0] > 0:
        return float(found[0]) / _MICRO
    return memory_mb / FULL_VCPU_MB


def _function(name: str, meta: dict[str, object], table: pa.Table) -> str:
    """What was measured, apart from its size: experiments of one sweep have this in common."""
    declared = meta.get("functions")
    if isinstance(declared, list) and len(declared) == 1:
        return str(declared[0])
    functions = list(columns.count_words(table, "function"))
    stem = functions[0] if len(functions) == 1 else name
    return re.sub(r"[-_]\d+$", "", stem)
