"""Execution time against memory size."""

import re
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.providers import LAMBDA_MB
from uncia.report import plots, theme, vega
from uncia.report.data import RunData
from uncia.report.numbers import count, figure, figure4, times
from uncia.report.page import Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns
from uncia.stats.quantiles import quantile
from uncia.units import MIB, NS_PER_MS

POSITION: Final = 70
ROWS: Final = Rows("invocations", {"outcome": "ok"}, required=True)

_MICRO: Final = 1e6
_IDEAL_POINTS: Final = 60


def section(run: RunData, ok: pa.Table) -> Section | None:
    """For each function measured at several memory sizes: its execution time and the ideal."""
    rows = _measured(run, ok)
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
        [
            Column("function", "function"),
            Column("experiment", "experiment"),
            Column("memory", "memory", figure4, "MB"),
            Column("vCPU", "allocated_vcpu", figure),
            Column("n", "n", count),
            Column("p5", "p5", figure, "ms"),
            Column("median", "p50", figure, "ms"),
            Column("p95", "p95", figure, "ms"),
            Column("ideal", "ideal", figure, "ms"),
            Column(
                "median / ideal",
                lambda row: row["p50"] / row["ideal"] if row["ideal"] else None,
                times,
            ),
        ],
        flat,
        "Execution time is the column execution over rows of invocations with outcome ok; memory"
        f" is allocated_memory, vCPU is allocated_cpu (where that is null: memory / {LAMBDA_MB}"
        " MB). Ideal: the median at the largest size times its vCPU, divided by this size's vCPU,"
        " neither counted above 1 because one thread cannot use more.",
    )
    return Section(
        "memory",
        "Duration against memory",
        [
            Chart(
                "memory",
                _durations(flat, ideal),
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


def _durations(rows: list[dict[str, Any]], ideal: list[dict[str, Any]]) -> vega.Spec:
    """Quantiles of execution time at each size, and the curves of the ideal."""
    values = [value for row in rows for value in (row["p5"], row["p95"])]
    values += [row["value"] for row in ideal]
    x = vega.quantity(
        "memory",
        "memory size, MB",
        scale={"type": "log", "base": 2, "nice": False, "padding": 18},
        axis={"values": sorted({row["memory"] for row in rows}), "format": "d", "grid": False},
    )
    log = vega.logarithmic(values, padding=10)
    p50 = vega.quantity("p50", "execution, ms", **log)
    colour = vega.colours("function", plots.order_of(rows, "function"))
    return vega.chart(
        vega.layer(
            "line",
            ideal,
            {"strokeDash": vega.DASHED, "strokeWidth": 1.6, "color": theme.REFERENCE},
            x=x,
            y=vega.quantity("value", "execution, ms", **log),
            detail={"field": "function", "type": "nominal"},
        ),
        vega.layer(
            "rule",
            rows,
            {"strokeWidth": 7, "opacity": 0.28},
            x=x,
            y=vega.quantity("p5", **log),
            y2={"field": "p95"},
            color=colour,
        ),
        vega.layer("line", rows, {"strokeWidth": 2}, x=x, y=p50, color=colour),
        vega.layer(
            "point",
            rows,
            {"filled": True, "size": 70, "opacity": 1},
            x=x,
            y=p50,
            color=colour,
            tooltip=vega.tips(
                ("function",),
                ("memory", "memory, MB", ""),
                ("p50", "median, ms", ",.4~g"),
                ("p5", "p5, ms", ",.4~g"),
                ("p95", "p95, ms", ",.4~g"),
            ),
        ),
        height=300,
    )


def _measured(run: RunData, rows: pa.Table) -> list[dict[str, Any]]:
    """Execution quantiles of each experiment that ran at a single, known memory size."""
    measured = []
    for name, ok in run.each(rows).items():
        execution = columns.ordered(columns.integers(ok, "execution"))
        sizes = np.unique(columns.measured(columns.integers(ok, "allocated_memory")))
        if execution.size == 0 or sizes.size != 1:
            continue
        memory = int(sizes[0]) / MIB
        vcpu = _vcpu(ok, memory)
        found = {
            label: (quantile(execution, Fraction(share, 100)) or 0) / NS_PER_MS
            for label, share in (("p5", 5), ("p50", 50), ("p95", 95))
        }
        if found["p5"] <= 0:
            continue
        meta = run.experiment_meta.get(name, {})
        measured.append(
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
    return measured


def _vcpu(table: pa.Table, memory_mb: float) -> float:
    """The vCPU allocated; by Lambda's rule from the memory size if the platform did not say."""
    found = columns.ordered(columns.integers(table, "allocated_cpu"))
    if found.size and found[0] > 0:
        return float(found[0]) / _MICRO
    return memory_mb / LAMBDA_MB


def _function(name: str, meta: dict[str, object], table: pa.Table) -> str:
    """What was measured, apart from its size: experiments of one sweep have this in common."""
    declared = meta.get("functions")
    if isinstance(declared, list) and len(declared) == 1:
        return str(declared[0])
    functions = list(columns.count_words(table, "function"))
    stem = functions[0] if len(functions) == 1 else name
    return re.sub(r"[-_]\d+$", "", stem)
