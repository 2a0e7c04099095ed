"""Chains as a whole: parts of their latency, what is billed for them, and how many failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import bootstrap, chain_parts, columns, comparison, hops
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Ints, minimum_rows, quantile
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.stats.chain_parts import ChainParts
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
_BYTE_NS_PER_GB_S: Final = 2**30 * 10**9
_GROUPS: Final = 150
"""Random groups in which chains are billed, as rows are elsewhere (`uncia.report.costs`)."""

_FEWEST: Final = minimum_rows(QUANTILES["p50"])
"""Chains that an interval needs."""


def _known(subject: SubjectRows) -> tuple[list[ChainParts], str]:
    """The parts of its complete chains, and why there are none."""
    kinds = chain_parts.of_experiment(subject.invocations, subject.run.spans, subject.meta)
    parts = [it for kind in kinds for it in kind.parts]
    known = [it for it in parts if not it.withheld]
    if known:
        return known, ""
    return [], parts[0].withheld if parts else "no chain was complete"


def _mean(value: Callable[[ChainParts], float], subject: SubjectRows, tariff: str) -> Figure:
    """The mean over chains."""
    del tariff
    parts, why = subject.once(_known)
    if not parts:
        return Figure(None, why=why)
    values = np.array([value(it) for it in parts], dtype=np.float64)
    mean, n = float(values.mean()), len(parts)
    if n < _FEWEST:
        return Figure(mean, rows=n, needed=_FEWEST)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "chains")
    return Figure(mean, bootstrap.means(values, rng), n)


def _over_self(name: str, subject: SubjectRows, tariff: str) -> Figure:
    """A sum over all chains, over that of own work; both are of the same resampled chains."""
    del tariff
    parts, why = subject.once(_known)
    amounts = [getattr(it, name) for it in parts]
    if not parts or None in amounts:
        return Figure(None, why=why or "the platform does not say what it bills for")
    self_times = np.array([it.self_time for it in parts], dtype=np.float64)
    of_all, n = np.array(amounts, dtype=np.float64), len(parts)
    if self_times.sum() <= 0:
        return Figure(None, why="its invocations did no work of their own")
    value = float(of_all.sum() / self_times.sum())
    if n < _FEWEST:
        return Figure(value, rows=n, needed=_FEWEST)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, name)
    chosen = rng.integers(0, n, (bootstrap.RESAMPLES, n))
    return Figure(value, bootstrap.ratio(of_all[chosen].sum(1), self_times[chosen].sum(1)), n)


def _invoked(subject: SubjectRows) -> tuple[pa.Table, Ints, int]:
    """Its invocations of functions, the number of each one's chain, and how many chains."""
    table = subject.invocations
    owners = pa.array(hops.roots_of(table), pa.utf8())
    is_billed = pc.and_(pc.invert(hops.executions(table, subject.meta)), pc.is_valid(owners))
    table, owners = table.filter(is_billed), owners.filter(is_billed)
    known = pc.unique(owners)
    numbers = pc.index_in(owners, value_set=known)
    return table, np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64), len(known)


def _cost(subject: SubjectRows, tariff: str) -> Figure:
    """The bill of a million chains, without what steps of workflows cost."""
    from uncia.tariffs import bill

    table, chain, count = subject.once(_invoked)
    if count == 0:
        return Figure(None, why="nothing was invoked")
    order = bootstrap.generator(bootstrap.SEED, "chains", subject.name).permutation(count)
    group_of_chain = order % _GROUPS
    names = pa.array([str(number) for number in group_of_chain[chain]], pa.utf8())
    costs: list[float] = []
    sizes: list[int] = []
    chains_of_group = np.bincount(group_of_chain, minlength=_GROUPS)
    for line in bill(table.append_column("group", names), [tariff], group_by=("group",)):
        group = line.group["group"]
        if line.rows and line.cost_usd is not None and group is not None:
            costs.append(float(line.cost_usd))
            sizes.append(int(chains_of_group[int(str(group))]))
    if len(costs) < min(count, _GROUPS):
        return Figure(None, why=f"{tariff} has no price for these rows")
    priced = comparison.GroupedCost(np.array(costs, np.float64), np.array(sizes, np.int64))
    measured = subject.measured(None, subject.form.experiment)
    whole = comparison.Measured(measured.summary, measured.latency, measured.lag, {tariff: priced})
    return comparison.figures({subject.name: whole}, subject.name)[subject.name, "cost", tariff]


def _memory_time(subject: SubjectRows, tariff: str) -> Figure:
    """Memory times billed time of all that a chain causes: the bill of the paper."""
    del tariff
    table, chain, count = subject.once(_invoked)
    # Nobody pays for what was preempted.
    is_kept = pc.invert(columns.is_preempted(table))
    table, chain = table.filter(is_kept), chain[is_kept.to_numpy().astype(bool)]
    billed = columns.integers(table, "billed").to_pylist()
    memory = columns.integers(table, "allocated_memory").to_pylist()
    if not billed or None in billed or None in memory:
        return Figure(None, why="the platform does not say what it bills for")
    sums = np.zeros(count)
    for position, time, size in zip(chain.tolist(), billed, memory, strict=True):
        sums[position] += time * size / _BYTE_NS_PER_GB_S
    if count < _FEWEST:
        return Figure(float(sums.mean()), rows=count, needed=_FEWEST)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "memory_time")
    return Figure(float(sums.mean()), bootstrap.means(sums, rng), count)


def _gaps(subject: SubjectRows) -> Ints:
    """The times between stages of sequences, ascending, in ns."""
    described = columns.chains_of(subject.meta)
    times = [
        time
        for stream, chains in hops.by_stream(subject.invocations, described).items()
        if described[stream]["kind"] == "sequence"
        for time in hops.times_between(chains).values()
    ]
    return np.sort(np.array(times, dtype=np.int64))


def _gap(name: str, subject: SubjectRows, tariff: str) -> Figure:
    """From the end of a stage of a sequence to the start of the next, by the platform's clock."""
    del tariff
    values = subject.once(_gaps)
    order = QUANTILES[name]
    value, n, needed = quantile(values, order), int(values.size), minimum_rows(order)
    if value is None:
        return Figure(None, why="no stage of a sequence followed another")
    if n < needed:
        return Figure(value / _NS_PER_MS, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "gap")
    draws = bootstrap.quantiles(values, tuple(QUANTILES.values()), rng) / _NS_PER_MS
    return Figure(value / _NS_PER_MS, draws[list(QUANTILES).index(name)], n)


def _roots(subject: SubjectRows) -> list[bool]:
    """Whether each request that began a chain ended ok, in their order."""
    table = subject.invocations
    roots = table.filter(columns.is_request(table))
    flags: list[bool] = columns.is_word(roots, "outcome", "ok").to_pylist()
    return flags


def _failed(subject: SubjectRows, tariff: str) -> Figure:
    """The share of chains whose client had no answer that is ok."""
    del tariff
    flags = _roots(subject)
    if not flags:
        return Figure(None, why="no chain was begun")
    count = len(flags) - sum(flags)
    return Figure(100.0 * count / len(flags), rows=len(flags), count=count)


def _timed_out(subject: SubjectRows, tariff: str) -> Figure:
    """The share of chains whose client had no good answer, and of which an invocation timed out."""
    del tariff
    table = subject.invocations
    rows = table.append_column("root", pa.array(hops.roots_of(table), pa.utf8()))
    late = rows.filter(columns.is_word(rows, "outcome", "timeout"))
    roots = rows.filter(columns.is_request(rows))
    if not roots.num_rows:
        return Figure(None, why="no chain was begun")
    failed = roots.filter(pc.invert(columns.is_word(roots, "outcome", "ok")))
    of_late = pc.unique(columns.words(late, "root"))
    count = int(pc.sum(pc.is_in(columns.words(failed, "root"), value_set=of_late)).as_py() or 0)
    share = 100.0 * count / roots.num_rows
    return Figure(share, rows=roots.num_rows, count=count)


def _first_success(subject: SubjectRows, tariff: str) -> Figure:
    """The number of the first request that succeeded, from 1: a single observation."""
    del tariff
    flags = _roots(subject)
    if True not in flags:
        return Figure(None, why="no request succeeded")
    return Figure(float(flags.index(True) + 1), rows=1)


def _part(name: str) -> Callable[[SubjectRows, str], Figure]:
    def value(parts: Any) -> float:
        return float(getattr(parts, name)) / _NS_PER_MS

    return partial(_mean, value)


METRICS: Final = (
    *(
        Metric(f"chain_{name}", "time", "ms", f"Mean {name} of complete chains.", _part(name))
        for name in (*chain_parts.PARTS, "latency")
    ),
    Metric(
        "billed_over_self",
        "ratio",
        "x",
        "What is billed for over the time of own work, of complete chains.",
        partial(_over_self, "billed"),
    ),
    Metric(
        "executed_over_self",
        "ratio",
        "x",
        "Executions over the time of own work, of complete chains.",
        partial(_over_self, "executed"),
    ),
    Metric("chain_cost", "cost", "USD", "Of a million chains under a tariff.", _cost),
    Metric("memory_time", "number", "GBs", "Memory times billed time of a chain.", _memory_time),
    *(
        Metric(
            f"gap_{name}",
            "time",
            "ms",
            f"From the end of a stage of a sequence to the start of the next, {name}.",
            partial(_gap, name),
        )
        for name in QUANTILES
    ),
    Metric(
        "chain_failed",
        "share",
        "%",
        "Share of chains whose client had no good answer.",
        _failed,
        counts_all=True,
    ),
    Metric(
        "chain_timed_out",
        "share",
        "%",
        "Share of chains that failed with an invocation that timed out.",
        _timed_out,
        counts_all=True,
    ),
    Metric(
        "first_success",
        "number",
        "requests",
        "Number of the first request that succeeded.",
        _first_success,
        counts_all=True,
    ),
)
