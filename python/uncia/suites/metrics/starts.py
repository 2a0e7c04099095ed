"""Starts of instances: how long requests waited for one, and the phases of those starts.

*Prepare* and *load* are ServerlessBench's (SoCC 2020, Figure 9): until the sandbox with the code is
there, and from then until the function asks for its first event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from uncia.stats import bootstrap, columns
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Ints, minimum_rows, quantile
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
PREPARE: Final = ("fetch", "unpack", "cgroup", "spawn", "assign", "network", "mount", "mounts")
PULL: Final = ("fetch", "unpack")
LOAD: Final = ("extensions", "exec", "runtime", "fork", "restore", "handler")
PHASES: Final = (*PREPARE, *LOAD, "thaw")
"""What the platform calls them (docs/explanation/cold-start.md)."""


def _waited(subject: SubjectRows) -> Ints:
    """How long each request that ended ok waited until it had an instance, ascending, in ns."""
    rows = subject.ok
    queued = columns.integers(rows, "queued")
    started = pc.fill_null(columns.integers(rows, "initialization"), 0)
    # One without `queued` is not known to have waited or not.
    return columns.ordered(pc.add(queued, started))


def _start(name: str, subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    values, order = _waited(subject), QUANTILES[name]
    value, n, needed = quantile(values, order), int(values.size), minimum_rows(order)
    if value is None:
        return Figure(None, why="no request succeeded whose wait the platform reports")
    if n < needed:
        return Figure(value / _NS_PER_MS, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "start")
    draws = bootstrap.quantiles(values, tuple(QUANTILES.values()), rng) / _NS_PER_MS
    return Figure(value / _NS_PER_MS, draws[list(QUANTILES).index(name)], n)


def _phases(names: Sequence[str], subject: SubjectRows, tariff: str) -> Figure:
    """The mean sum of phases over the invocations that have one of them."""
    del tariff
    spans = subject.run.spans
    wanted = columns.words(subject.ok, "invocation").combine_chunks()
    chosen = spans.filter(
        pc.and_(
            pc.and_(
                pc.is_in(columns.words(spans, "name"), value_set=pa.array(names, pa.utf8())),
                columns.is_word(spans, "clock", "platform"),
            ),
            pc.is_in(columns.words(spans, "invocation"), value_set=wanted),
        )
    )
    if not chosen.num_rows:
        return Figure(None, why=f"no start has a phase {' or '.join(names)}")
    lengths = pc.subtract(columns.integers(chosen, "end"), columns.integers(chosen, "start"))
    of_each = pa.table({"name": columns.words(chosen, "invocation"), "length": lengths})
    sums = of_each.group_by("name", use_threads=False).aggregate([("length", "sum")])
    values = np.sort(sums.column("length_sum").to_numpy().astype(np.float64)) / _NS_PER_MS
    mean, n, needed = float(values.mean()), int(values.size), minimum_rows(QUANTILES["p50"])
    if n < needed:
        return Figure(mean, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, *names)
    return Figure(mean, bootstrap.means(values, rng), n)


METRICS: Final = (
    *(
        Metric(
            f"start_{name}",
            "time",
            "ms",
            f"Until a request had its instance, its queueing included, {name}.",
            partial(_start, name),
        )
        for name in QUANTILES
    ),
    Metric(
        "prepare",
        "time",
        "ms",
        "Mean time of a start until the sandbox is there with its code.",
        partial(_phases, PREPARE),
    ),
    Metric(
        "pull",
        "time",
        "ms",
        "Mean time of a start in which its package is fetched and unpacked.",
        partial(_phases, PULL),
    ),
    Metric(
        "load",
        "time",
        "ms",
        "Mean time of a start from the runtime's program until the"
        " function asks for its first event.",
        partial(_phases, LOAD),
    ),
    *(
        Metric(
            f"phase_{name}",
            "time",
            "ms",
            f"Mean of the phase {name} of starts that have it.",
            partial(_phases, (name,)),
        )
        for name in PHASES
    ),
)
