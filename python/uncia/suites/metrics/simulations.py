"""What ``simulation.json`` says of a model, for each seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.simulated import SimulatedRows


def _values(path: tuple[str, ...], factor: float, subject: SimulatedRows) -> Sequence[float | None]:
    return [at(values, path, factor) for values in subject.values]


def at(values: Any, path: tuple[str, ...], factor: float = 1) -> float | None:
    """The number at a path; None if there is none, or no such class of invocations."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return None if values is None else float(values) * factor


def _relative(path: tuple[str, ...], subject: SimulatedRows) -> Sequence[float | None]:
    """A number in percent of that of the file's first model, seed by seed."""
    shares: list[float | None] = []
    for values, base in zip(subject.values, subject.base_values, strict=True):
        mine, other = at(values, path), at(base, path)
        shares.append(None if mine is None or not other else 100 * mine / other)
    return shares


def _part(what: str, whole: str, subject: SimulatedRows) -> Sequence[float | None]:
    """One count in percent of another."""
    return [
        100 * values[what] / values[whole] if values[whole] else None for values in subject.values
    ]


def _metric(name: str, unit: str, description: str, *path: str, counts_all: bool = False) -> Metric:
    """A number of ``simulation.json``, as it is."""
    return Metric(
        name,
        "number",
        unit,
        description,
        simulate=partial(_values, path, 1),
        counts_all=counts_all,
    )


def _percent(name: str, description: str, key: str, *, counts_all: bool = False) -> Metric:
    """A part of a whole in ``simulation.json``, in percent."""
    return Metric(
        name,
        "number",
        "%",
        description,
        simulate=partial(_values, (key,), 100),
        is_geometric=False,
        counts_all=counts_all,
    )


_COST: Final = "cost_usd_per_million_at_equal_revenue"

METRICS: Final = (
    _metric(
        "throughput",
        "rps",
        "Invocations that ended in the window.",
        "throughput_in_window_per_s",
        counts_all=True,
    ),
    _metric("makespan", "s", "Until all invocations had ended.", "end_s", counts_all=True),
    *(
        _percent(name, f"{words}, of what there is.", key, counts_all=True)
        for name, words, key in (
            ("cpu_used", "CPU used in the window", "cpu_utilization"),
            ("cpu_used_least", "CPU used by the worker that used least", "cpu_utilization_min"),
            ("cpu_reserved", "CPU reserved in the window", "cpu_reservation"),
            ("memory_used", "Memory used in the window", "memory_utilization"),
            (
                "memory_used_least",
                "Memory used by the worker that used least",
                "memory_utilization_min",
            ),
            ("memory_reserved", "Memory reserved in the window", "memory_reservation"),
        )
    ),
    *(
        _metric(f"{qos}_{name}", unit, f"{words} of {qos} invocations.", "qos", qos, key)
        for qos in ("interactive", "batch")
        for name, unit, words, key in (
            ("slowdown", "x", "Mean slowdown", "slowdown_mean"),
            ("slowdown_p50", "x", "Median slowdown", "slowdown_p50"),
            ("slowdown_p99", "x", "Slowdown, 99th percentile,", "slowdown_p99"),
            ("completion", "s", "Mean completion time", "completion_mean_s"),
            ("completion_p50", "s", "Median completion time", "completion_p50_s"),
            ("duration", "s", "Mean execution", "execution_mean_s"),
        )
    ),
    *(
        Metric(
            f"{qos}_cost",
            "number",
            "%",
            f"Cost of {qos} invocations at equal revenue, of that under the file's first model.",
            simulate=partial(_relative, ("qos", qos, _COST)),
        )
        for qos in ("interactive", "batch")
    ),
    _percent("cold_starts", "Invocations that met a new instance.", "cold_share"),
    _metric(
        "price_factor",
        "x",
        "All prices times this earn as much as the file's first model.",
        "price_factor_at_equal_revenue",
        counts_all=True,
    ),
    _metric(
        "offered", "x", "CPU that is asked for over what there is.", "offered_load", counts_all=True
    ),
    Metric(
        "preempted",
        "number",
        "%",
        "Preemptions, of the invocations that arrived.",
        simulate=partial(_part, "preempted", "arrived"),
        is_geometric=False,
        counts_all=True,
    ),
)
