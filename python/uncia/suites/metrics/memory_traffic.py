"""Bytes to and from memory while requests run, as the monitor resctrl counts the machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

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

_MOST_TIME: Final = 0.9
_EVEN: Final = 0.99
"""Of a sample's length: one of a second may take a little longer."""

_BYTES_PER_GB: Final = 1e9
_BYTES_PER_MB: Final = 1e6


def _by_block(subject: SubjectRows) -> tuple[Floats, Floats, float] | str:
    """Bytes and requests that were due in each block of the schedule, shape (blocks,), and its s.

    A block is a second, or as many as the samples take: what is told of several seconds at once
    says nothing of how they differ. Samples are split where a block ends. Of several monitors each
    counts all of the machine: the first of those that watched all the time is taken. A sentence if
    none did.
    """
    due = columns.ordered(columns.due(subject.requests))
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
    monitors = pc.fill_null(columns.words(rows, "monitor"), "")
    for name in pc.unique(monitors):
        of_one = rows.filter(pc.equal(monitors, name))
        ends = columns.integers(of_one, "time").to_numpy() - int(due[0])
        begins = ends - columns.integers(of_one, "interval").to_numpy()
        # What was watched before and after is no affair of these requests.
        during = (ends > 0) & (begins < seconds * NS_PER_S)
        of_one, ends, begins = of_one.filter(pa.array(during)), ends[during], begins[during]
        if (
            ends.size
            and begins[0] <= 0
            and ends[-1] >= seconds * NS_PER_S
            and (begins[1:] <= ends[:-1] + _LARGEST_GAP_NS).all()
        ):
            break
    else:
        return f"no monitor has counted {COUNTER} all the time"
    lengths = np.sort(ends - begins)
    # Of the samples that make up most of the time: one that was held up changes little.
    most = np.searchsorted(np.cumsum(lengths), _MOST_TIME * lengths.sum())
    block = max(1, -(-int(lengths[most] * _EVEN) // NS_PER_S))
    blocks = seconds // block
    if blocks == 0:
        return f"a sample of {COUNTER} took longer than its requests"
    edges = np.arange(blocks + 1, dtype=np.int64) * block * NS_PER_S
    # A counter that grows evenly within each sample.
    counted = np.concatenate([[0.0], np.cumsum(of_one["value"].to_numpy())])
    at = np.concatenate([begins[:1], ends])
    requests = np.bincount((due - due[0]) // (block * NS_PER_S), minlength=blocks)[:blocks]
    return np.diff(np.interp(edges, at, counted)), requests.astype(np.float64), float(block)


def _bandwidth(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    blocks = _by_block(subject)
    if isinstance(blocks, str):
        return Figure(None, why=blocks)
    transferred, _, block = blocks
    return _over(transferred, np.full_like(transferred, block), _BYTES_PER_GB, subject)


def _traffic(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    blocks = _by_block(subject)
    if isinstance(blocks, str):
        return Figure(None, why=blocks)
    transferred, requests, _ = blocks
    return _over(transferred, requests, _BYTES_PER_MB, subject)


def _over(transferred: Floats, under: Floats, unit: float, subject: SubjectRows) -> Figure:
    """Bytes over something, both by block, which are drawn together."""
    blocks, needed = int(transferred.size), minimum_rows(QUANTILES["p50"])
    value = float(transferred.sum() / under.sum()) / unit
    if blocks < needed:
        return Figure(value, rows=blocks, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, COUNTER)
    draws = bootstrap.ratios_of_sums(transferred, under, rng) / unit
    return Figure(value, draws, blocks)


METRICS: Final = (
    Metric(
        "memory_bandwidth",
        "number",
        "GB/s",
        "Bytes to and from memory in a second, of the whole machine; whole seconds are drawn, or as"
        " many as a sample took.",
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
