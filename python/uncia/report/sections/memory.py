"""Execution time against memory size, with the ideal reciprocal."""

import re
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.providers import LAMBDA_MB
from uncia.report import plots, theme, vega
from uncia.report.data import RunData
from uncia.report.numbers import count, figure, times, whole
from uncia.report.page import Chart, Note, Section
from uncia.report.sections import Rows
from uncia.report.sections.latency import SAMPLES
from uncia.report.table import Column, Table
from uncia.stats import columns
from uncia.stats.quantiles import quantile
from uncia.units import MIB, NS_PER_MS

POSITION: Final = 70
ROWS: Final = Rows("invocations", {"outcome": "ok"}, required=True)

_MICRO: Final = 1e6
_IDEAL_POINTS: Final = 60


def section(run: RunData, ok: pa.Table) -> Section | None:
    """Show the execution time of each function that was measured at several memory sizes."""
    rows = _measured(run, ok)
    by_function: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_function.setdefault(row["function"], []).append(row)
    several = {
        name: sorted(sizes, key=lambda row: row["memory"])
        for name, sizes in by_function.items()
        if len({row["memory"] for row in sizes}) > 1
    }
    if not several:
        return None
    ideal = _ideal(several)
    flat = [row for sizes in several.values() for row in sizes]
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
                "Points and line: medians. Bars: p5 to p95. Dashed: the ideal, with which half the"
                " CPU takes twice as long."
            ),
            _table(flat),
        ],
        "CPU scales with memory. A function that is bound by CPU should take longer in proportion"
        " as its memory shrinks; if it is faster than that, the platform gave more CPU than was"
        " allocated, and if it is slower, less.",
    )


def _ideal(several: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The curve of each function's ideal, which its sizes get as ``ideal`` as well.

    The ideal is the median at the largest size, in inverse proportion to the vCPU.
    """
    curves = []
    for name, sizes in several.items():
        largest = sizes[-1]
        work = largest["p50"] * largest["vcpu"]
        per_mb = largest["allocated_vcpu"] / largest["memory"]
        for size in np.geomspace(sizes[0]["memory"], largest["memory"], _IDEAL_POINTS):
            curves.append(
                {
                    "function": name,
                    "memory": float(size),
                    "value": work / min(1.0, per_mb * float(size)),
                }
            )
        for row in sizes:
            row["ideal"] = work / row["vcpu"]
    return curves


def _table(rows: list[dict[str, Any]]) -> Table:
    """Show the quantiles of each size beside the ideal."""
    return Table(
        [
            Column("function", "function"),
            Column("experiment", "experiment"),
            Column("memory", "memory", whole, "MB"),
            Column("vCPU", "allocated_vcpu", figure),
            Column("n", "n", count, explanation=SAMPLES),
            Column("p5", "p5", figure, "ms", "5 % of the executions took no longer."),
            Column("median", "p50", figure, "ms"),
            Column("p95", "p95", figure, "ms", "95 % of the executions took no longer."),
            Column(
                "ideal",
                "ideal",
                figure,
                "ms",
                "The median at the largest size, scaled in inverse proportion to the vCPU.",
            ),
            Column(
                "median / ideal",
                lambda row: row["p50"] / row["ideal"] if row["ideal"] else None,
                times,
                explanation="Below 1, the platform gave more CPU than was allocated.",
            ),
        ],
        rows,
        "Execution time is the column execution over rows of invocations with outcome ok; memory"
        f" is allocated_memory, vCPU is allocated_cpu (where that is null: memory / {LAMBDA_MB}"
        " MB). Ideal: the median at the largest size times its vCPU, divided by this size's vCPU,"
        " neither counted above 1 because one thread cannot use more.",
    )


def _durations(rows: list[dict[str, Any]], ideal: list[dict[str, Any]]) -> vega.Spec:
    """Draw quantiles of execution time at each size, and the curves of the ideal."""
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
                ("p50", "median, ms", ",.4~r"),
                ("p5", "p5, ms", ",.4~r"),
                ("p95", "p95, ms", ",.4~r"),
            ),
        ),
        height=300,
    )


def _measured(run: RunData, rows: pa.Table) -> list[dict[str, Any]]:
    """Compute execution quantiles of each experiment that ran at a single, known memory size."""
    measured = []
    for name, ok in run.by_experiment(rows).items():
        execution = columns.ordered(columns.integers(ok, "execution"))
        sizes = np.unique(columns.measured(columns.integers(ok, "allocated_memory")))
        if execution.size == 0 or sizes.size != 1:
            continue
        memory = int(sizes[0]) / MIB
        vcpu = _vcpu(ok, memory)
        quantiles = {
            label: (quantile(execution, Fraction(share, 100)) or 0) / NS_PER_MS
            for label, share in (("p5", 5), ("p50", 50), ("p95", 95))
        }
        if quantiles["p5"] <= 0:
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
                **quantiles,
            }
        )
    return measured


def _vcpu(table: pa.Table, memory_mb: float) -> float:
    """Return the allocated vCPU; if the platform did not report it, by Lambda's rule."""
    allocated = columns.ordered(columns.integers(table, "allocated_cpu"))
    if allocated.size and allocated[0] > 0:
        return float(allocated[0]) / _MICRO
    return memory_mb / LAMBDA_MB


def _function(name: str, meta: dict[str, object], table: pa.Table) -> str:
    """Name the function without its size, so that the experiments of a sweep have the same name."""
    declared = meta.get("functions")
    if isinstance(declared, list) and len(declared) == 1:
        return str(declared[0])
    functions = list(columns.count_words(table, "function"))
    stem = functions[0] if len(functions) == 1 else name
    return re.sub(r"[-_]\d+$", "", stem)
