"""Bytes that `streams` move through memory in a second, as they count them: spans `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.stats import bootstrap, columns, hop_chains
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, minimum_rows
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_SPAN: Final = "memory"
_STEP_BYTES: Final = 24
"""Bytes that one step of the function moves; it moves whole steps only."""


def _moved(event: Any) -> int:
    """What the threads of a request move, in bytes; 0 if its event does not say."""
    threads, traffic = (event.get(name) for name in ("threads", "traffic"))
    if not isinstance(threads, int) or not isinstance(traffic, int):
        return 0
    return threads * (traffic // _STEP_BYTES) * _STEP_BYTES


def _bandwidth(subject: SubjectRows, tariff: str) -> Figure:
    """All that is moved, over the time that it takes; requests are drawn."""
    del tariff
    of_stream = [_moved(stream.get("event", {})) for stream in subject.meta.get("streams", [])]
    names = columns.words(subject.ok, "invocation").to_pylist()
    moved = {
        name: of_stream[number]
        for name in names
        if (number := hop_chains.stream_of(name)) is not None and number < len(of_stream)
    }
    spans = subject.run.spans
    rows = [
        (moved[row["invocation"]], row["end"] - row["start"])
        for row in spans.filter(columns.is_word(spans, "name", _SPAN)).to_pylist()
        if moved.get(row["invocation"]) and row["end"] > row["start"]
    ]
    if not rows:
        return Figure(None, why="no request has moved anything through memory that it tells of")
    sums = np.array(rows, dtype=np.float64)
    # Bytes in a nanosecond are GB in a second.
    value, needed = float(sums[:, 0].sum() / sums[:, 1].sum()), minimum_rows(QUANTILES["p50"])
    if len(rows) < needed:
        return Figure(value, rows=len(rows), needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, _SPAN)
    return Figure(value, bootstrap.ratios_of_sums(sums[:, 0], sums[:, 1], rng), len(rows))


METRICS: Final = (
    Metric(
        "stream_bandwidth",
        "number",
        "GB/s",
        "Bytes that threads of streams move through memory in a second, as they count them.",
        _bandwidth,
    ),
)
