"""Retries of writers that met another: spans `retry` of functions such as `smallbank`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.stats import bootstrap, columns
from uncia.stats.comparison import Figure
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_SPAN: Final = "retry"
_FEWEST: Final = 30
"""Requests, for an interval of their mean."""


def _retries(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    spans = subject.run.spans
    counted = Counter(
        columns.words(spans.filter(columns.is_word(spans, "name", _SPAN)), "invocation").to_pylist()
    )
    table = subject.invocations
    table = table.filter(columns.is_word(table, "outcome", "ok"))
    names = columns.words(table, "invocation").to_pylist()
    if not names:
        return Figure(None, why="no request succeeded")
    values = np.array([counted[name] for name in names], dtype=np.int64)
    mean = float(values.mean())
    if values.size < _FEWEST:
        return Figure(mean, rows=int(values.size), needed=_FEWEST)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "retries")
    return Figure(mean, bootstrap.means(values, rng), int(values.size))


METRICS: Final = (
    Metric(
        "retries",
        "number",
        "per request",
        "How often a request found a document changed meanwhile, on average.",
        _retries,
    ),
)
