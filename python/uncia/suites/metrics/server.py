"""What the server does while functions run: rates, modes, and what each invocation used.

The modes are those of FaaSProfiler's paper (MICRO 2019, section 4.1): above capacity latency grows
along the schedule; far below it requests meet instances that are paused or not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.runs.capacity import FILE, KnownCapacity
from uncia.stats import bootstrap, breakdown, columns, modes, slopes
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Floats, minimum_rows
from uncia.suites.metrics import Metric
from uncia.suites.metrics.gates import METRICS as GATES
from uncia.suites.metrics.gates import charged
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
_S_PER_HOUR: Final = 3600
_PER_MILLION: Final = 1e6
_PER_THOUSAND: Final = 1e3
_OF_PMU: Final = frozenset({"cycles", "instructions", "branch_misses", "llc_misses"})
_COST, _MEAN = (
    next(metric for metric in GATES if metric.name == name) for name in ("cost", "mean")
)


def _rate(subject: SubjectRows) -> float | None:
    """Requests a second, by when they were due."""
    due = columns.ordered(columns.integers(subject.requests, "scheduled"))
    span = int(due[-1] - due[0]) if due.size > 1 else 0
    return (due.size - 1) * NS_PER_S / span if span > 0 else None


def _offered(subject: SubjectRows, tariff: str) -> Figure:
    """The rate of requests; a share of a capacity is as uncertain as that capacity."""
    del tariff
    rate, rows = _rate(subject), subject.requests.num_rows
    if rate is None:
        return Figure(None, why="fewer than two requests were due at a time")
    searched = KnownCapacity.read(subject.run.path)
    if searched is None and subject.is_scaled:
        why = (
            f"{FILE} of the capacity that it is a share of is missing in {subject.run.path};"
            " make the run again with --resume"
        )
        return Figure(rate, rows=rows, why=why)
    if searched is None:
        return Figure(rate, np.full(bootstrap.RESAMPLES, rate), rows)
    low, high = (rate * it / searched.per_s for it in (searched.low_per_s, searched.high_per_s))
    if not searched.decided:
        why = f"the search of the capacity was not decided: {low:.4g} to {high:.4g}/s"
        return Figure(rate, rows=rows, why=why)
    # Of one search for whatever is a share of it: what two such have in common cancels out.
    rng = bootstrap.generator(bootstrap.SEED, searched.search, "capacity")
    return Figure(rate, rng.uniform(low, high, bootstrap.RESAMPLES), rows)


def _revenue(subject: SubjectRows, tariff: str) -> Figure:
    assert _COST.compute is not None, "it is of rows"
    cost, rate = _COST.compute(subject, tariff), _offered(subject, "")
    if cost.value is None or rate.value is None:
        return cost if cost.value is None else rate
    # A request that was turned away is charged nothing, and one with hops several times.
    rows = sum(int(it.rows.sum()) for it in charged(subject, tariff).values())
    if rows < subject.ok.num_rows:
        unpriced = subject.ok.num_rows - rows
        why = (
            f"{tariff} has no price for {unpriced:,} of {subject.ok.num_rows:,} rows that ended ok"
        )
        return Figure(None, why=why)
    factor = _S_PER_HOUR / _PER_MILLION * rows / subject.requests.num_rows
    value = cost.value * rate.value * factor
    if cost.draws is None or rate.draws is None:
        return Figure(value, rows=cost.rows, why=rate.why)
    return Figure(value, cost.draws * rate.draws * factor, cost.rows)


def _power(subject: SubjectRows, tariff: str) -> Figure:
    """The rate over mean latency (Kleinrock, "Power and deterministic rules of thumb", 1979).

    It falls where a rate gains by a smaller factor than latency grows by.
    """
    assert _MEAN.compute is not None, "it is of rows"
    rate, mean = _offered(subject, tariff), _MEAN.compute(subject, tariff)
    if rate.value is None or mean.value is None or mean.value <= 0:
        return Figure(None, why=rate.why or mean.why or "no latency is above 0")
    value = rate.value / mean.value
    if rate.draws is None or mean.draws is None:
        return Figure(value, rows=mean.rows, needed=mean.needed, why=rate.why)
    return Figure(value, bootstrap.ratio(rate.draws, mean.draws), mean.rows)


def _growth(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    rows = subject.ok
    due = columns.integers(rows, "scheduled")
    latency = columns.difference(rows, "received", "scheduled")
    known = pc.and_(pc.is_valid(due), pc.is_valid(latency))
    gains = slopes.gains(due.filter(known).to_numpy(), latency.filter(known).to_numpy())
    if gains.size < slopes.MIN_BLOCKS:
        return Figure(None, why=f"it has fewer than {slopes.MIN_BLOCKS} whole seconds")
    slope = slopes.of_gains([gains])
    assert slope is not None, "there are enough blocks"
    # Its bounds are one-sided: twice as far out is what an interval of both sides has about.
    spread = max(slope.high - slope.value, slope.value - slope.low) / 1.645
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "growth")
    draws = rng.normal(slope.value, spread, bootstrap.RESAMPLES)
    return Figure(100 * slope.value, 100 * draws, rows.num_rows)


def _mean(values: Floats, subject: SubjectRows, name: str, none: str) -> Figure:
    n, needed = int(values.size), minimum_rows(QUANTILES["p50"])
    if n == 0:
        return Figure(None, why=none)
    mean = float(values.mean())
    if n < needed:
        return Figure(mean, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, name)
    return Figure(mean, bootstrap.means(values, rng), n)


def _of_column(column: str, scale: float, subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    values = subject.ordered(column).astype(np.float64) / scale
    return _mean(values, subject, column, f"no request succeeded with {column} known")


def _sums(subject: SubjectRows, names: Sequence[str]) -> Floats:
    """Of the invocations that ended ok with all of these columns, these, shape (names, rows)."""
    rows = [columns.integers(subject.ok, name).combine_chunks() for name in names]
    known = pc.is_valid(rows[0])
    for row in rows[1:]:
        known = pc.and_(known, pc.is_valid(row))
    return np.array([row.filter(known).to_numpy() for row in rows], dtype=np.float64)


def _ratio(
    over: Sequence[str], under: Sequence[str], scale: float, subject: SubjectRows, tariff: str
) -> Figure:
    """The sum of columns over the sum of others, over all invocations, which are drawn together."""
    del tariff
    names = list(dict.fromkeys([*over, *under]))
    values = _sums(subject, names)
    n, needed = values.shape[1], minimum_rows(QUANTILES["p50"])
    parts = [sum(values[names.index(name)] for name in side) for side in (over, under)]
    total = float(np.sum(parts[1]))
    if n == 0 or total <= 0:
        why = f"no request succeeded with {' and '.join(names)} known"
        if not _OF_PMU.isdisjoint(names):
            why += ", which need the setting counters and a processor that shows its PMU"
        return Figure(None, why=why)
    value = float(np.sum(parts[0])) / total * scale
    if n < needed:
        return Figure(value, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, *names)
    draws = bootstrap.ratios_of_sums(np.asarray(parts[0]), np.asarray(parts[1]), rng) * scale
    return Figure(value, draws, n)


def _waiting(subject: SubjectRows, tariff: str) -> Figure:
    """The share by which modes are told apart."""
    del tariff
    hits, known = modes.waking(subject.invocations)
    if not known:
        return Figure(None, why="the platform says of no request how its instance was")
    return Figure(100 * hits / known, rows=known, count=hits)


def _unthawed(subject: SubjectRows, tariff: str) -> Figure:
    """The mean of `queued` without what it took paused instances to go on."""
    del tariff
    thawing = pc.fill_null(breakdown.thaws(subject.ok, subject.run.spans), 0)
    values = columns.ordered(pc.subtract(columns.integers(subject.ok, "queued"), thawing))
    why = "no request succeeded with queued known"
    return _mean(values.astype(np.float64) / _NS_PER_MS, subject, "unthawed", why)


METRICS: Final = (
    Metric("due", "number", "/s", "Requests that are due a second.", _offered, counts_all=True),
    Metric("power", "number", "/s/ms", "Requests that are due a second over mean latency.", _power),
    Metric("revenue", "cost", "USD", "Of an hour at this rate, under a tariff.", _revenue),
    Metric(
        "growth",
        "number",
        "%",
        "What latency grows by along the schedule: above 2, the rate is not sustained.",
        _growth,
    ),
    Metric(
        "waking",
        "share",
        "%",
        "Share of requests after the first starts that met a paused instance or none.",
        _waiting,
        counts_all=True,
    ),
    *(
        Metric(name, "time", "ms", description, partial(_of_column, column, _NS_PER_MS))
        for name, column, description in (
            ("user_mean", "cpu_user", "Mean CPU time in user mode."),
            ("system_mean", "cpu_system", "Mean CPU time in the kernel."),
            ("queued_mean", "queued", "Mean time until an instance was free."),
            ("wait_mean", "cpu_wait", "Mean time in which threads waited for a CPU."),
            ("initialization_mean", "initialization", "Mean initialization, where there was one."),
        )
    ),
    Metric(
        "queue_mean",
        "time",
        "ms",
        "Mean time until an instance was free, without thawing it.",
        _unthawed,
    ),
    Metric(
        "system_part",
        "number",
        "%",
        "CPU time in the kernel, of all CPU time.",
        partial(_ratio, ("cpu_system",), ("cpu_user", "cpu_system"), 100.0),
    ),
    *(
        Metric(
            name,
            "number",
            "/ms",
            description,
            partial(_ratio, (column,), ("cpu_user", "cpu_system"), _NS_PER_MS),
        )
        for name, column, description in (
            ("faults", "page_faults", "Page faults in a millisecond of CPU time."),
            ("switches", "context_switches", "Context switches in a millisecond of CPU time."),
        )
    ),
    Metric(
        "ipc",
        "number",
        "",
        "Instructions per cycle.",
        partial(_ratio, ("instructions",), ("cycles",), 1.0),
    ),
    *(
        Metric(
            name,
            "number",
            "",
            description,
            partial(_ratio, (column,), ("instructions",), _PER_THOUSAND),
        )
        for name, column, description in (
            ("branch_mpki", "branch_misses", "Mispredicted branches in a thousand instructions."),
            (
                "llc_mpki",
                "llc_misses",
                "Misses of the last-level cache in a thousand instructions.",
            ),
        )
    ),
)
