"""Bytes to and from memory while requests run, as the monitor resctrl counts the machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.stats import bootstrap, columns
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Floats, minimum_rows
from uncia.suites.metrics import Metric
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

COUNTER: Final = "resctrl.mbm_total_bytes"
_LARGEST_GAP_NS: Final = 1_000_000
"""Between two samples, which else one begins where the last has ended."""

_BYTES_PER_GB: Final = 1e9
_BYTES_PER_MB: Final = 1e6


def _by_second(subject: SubjectRows) -> tuple[Floats, Floats] | str:
    """Bytes and requests that were due in each whole second of the schedule, shape (seconds,).

    Samples are split where a second ends. A sentence if the seconds were not all watched.
    """
    due = columns.ordered(columns.due(subject.invocations))
    seconds = int((due[-1] - due[0]) // NS_PER_S) if due.size else 0
    if seconds == 0:
        return "its requests were not due over a whole second"
    rows = subject.run.machine
    is_of_machine = pc.and_(
        columns.is_word(rows, "counter", COUNTER),
        pc.and_(pc.is_null(rows["cgroup"]), pc.is_null(rows["host"])),
    )
    rows = rows.filter(pc.and_(is_of_machine, pc.is_valid(rows["interval"])))
    rows = rows.take(pc.sort_indices(columns.integers(rows, "time")))
    ends = columns.integers(rows, "time").to_numpy() - int(due[0])
    begins = ends - columns.integers(rows, "interval").to_numpy()
    edges = np.arange(seconds + 1, dtype=np.int64) * NS_PER_S
    if (
        not ends.size
        or begins[0] > 0
        or ends[-1] < edges[-1]
        or (begins[1:] > ends[:-1] + _LARGEST_GAP_NS).any()
    ):
        return f"no monitor has counted {COUNTER} all the time"
    # A counter that grows evenly within each sample.
    counted = np.concatenate([[0.0], np.cumsum(rows["value"].to_numpy())])
    at = np.concatenate([begins[:1], ends])
    requests = np.bincount((due - due[0]) // NS_PER_S, minlength=seconds)[:seconds]
    return np.diff(np.interp(edges, at, counted)), requests.astype(np.float64)


def _bandwidth(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    seconds = _by_second(subject)
    if isinstance(seconds, str):
        return Figure(None, why=seconds)
    transferred, _ = seconds
    return _over(transferred, np.ones_like(transferred), _BYTES_PER_GB, subject)


def _traffic(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    seconds = _by_second(subject)
    if isinstance(seconds, str):
        return Figure(None, why=seconds)
    return _over(*seconds, _BYTES_PER_MB, subject)


def _over(transferred: Floats, under: Floats, unit: float, subject: SubjectRows) -> Figure:
    """Bytes over something, both by second, which are drawn together."""
    seconds, needed = int(transferred.size), minimum_rows(QUANTILES["p50"])
    value = float(transferred.sum() / under.sum()) / unit
    if seconds < needed:
        return Figure(value, rows=seconds, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, COUNTER)
    draws = bootstrap.ratios_of_sums(transferred, under, rng) / unit
    return Figure(value, draws, seconds)


METRICS: Final = (
    Metric(
        "memory_bandwidth",
        "number",
        "GB/s",
        "Bytes to and from memory in a second, of the whole machine; whole seconds are drawn.",
        _bandwidth,
        counts_all=True,
    ),
    Metric(
        "memory_traffic",
        "number",
        "MB",
        "Bytes to and from memory for a request that is due, of the whole machine.",
        _traffic,
        counts_all=True,
    ),
)
