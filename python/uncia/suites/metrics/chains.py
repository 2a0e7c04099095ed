"""Chains as a whole: parts of their latency, what is billed for them, and how many failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import (
    bootstrap,
    chain_parts,
    columns,
    comparison,
    hop_chains,
    hops,
    lineage,
)
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, Ints, minimum_rows, quantile
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.stats.chain_parts import ChainKind, ChainParts
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
_BYTE_NS_PER_GB_S: Final = 2**30 * 10**9
_GROUPS: Final = 150
"""Random groups in which chains are billed, as rows are elsewhere (`uncia.report.costs`)."""

_MOST_WITHHELD: Final = 0.1
"""If more than this part of the complete chains is withheld, the others are no sample of them."""

_FEWEST: Final = minimum_rows(QUANTILES["p50"])
"""Chains that an interval needs."""


def kinds(subject: SubjectRows) -> list[ChainKind]:
    """Its chains by their kind, with the parts of those that are complete."""
    return chain_parts.of_experiment(subject.invocations, subject.run.spans, subject.meta)


def _complete(subject: SubjectRows) -> list[ChainParts]:
    return [it for kind in subject.once(kinds) for it in kind.parts]


def _known(subject: SubjectRows) -> tuple[list[ChainParts], str]:
    """The parts of its complete chains, and why there are none."""
    parts = _complete(subject)
    return _sample(parts, [it for it in parts if not it.withheld])


def _timed(subject: SubjectRows) -> tuple[list[ChainParts], str]:
    """Its complete chains whose latency is known, and why there are none."""
    parts = _complete(subject)
    return _sample(parts, [it for it in parts if it.latency is not None])


def _sample(parts: Sequence[ChainParts], known: list[ChainParts]) -> tuple[list[ChainParts], str]:
    """Those that are known, or none and why: a clock that lies must not choose among them."""
    if not parts:
        return [], "no chain was complete"
    lost = len(parts) - len(known)
    if lost <= _MOST_WITHHELD * len(parts):
        return known, ""
    ((why, _),) = Counter(it.withheld for it in parts if it.withheld).most_common(1)
    return [], f"{lost:,} of {len(parts):,} complete chains are withheld: {why}"


def _mean(name: str, subject: SubjectRows, tariff: str) -> Figure:
    """The mean of a part, or of the latency, over chains."""
    del tariff
    # The client's clock is enough for that of chains whose end it sees.
    parts, why = subject.once(_timed if name == "latency" else _known)
    if not parts:
        return Figure(None, why=why)
    values = np.array([getattr(it, name) for it in parts], dtype=np.float64) / _NS_PER_MS
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
    if any(it.guessed for it in parts):
        why = "functions invoked others on their own, and no row says whether they waited"
        return Figure(None, why=f"it has an upper bound alone: {why}")
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
    owners = pa.array(hop_chains.roots_of(table), pa.utf8())
    is_billed = pc.and_(pc.invert(hop_chains.executions(table, subject.meta)), pc.is_valid(owners))
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
        for stream, chains in hop_chains.by_stream(subject.invocations, described).items()
        if described[stream]["kind"] == "sequence"
        for time in hops.times_between(
            lineage.without_followers(chain, described[stream]) for chain in chains
        ).values()
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


def failures(subject: SubjectRows) -> Any:
    """Whether the chain of each request failed, in their order.

    Of an asynchronous chain the client's answer says no more than that it was begun.
    """
    described = columns.chains_of(subject.meta)
    alone = {n: it for n, it in described.items() if it["kind"] == "asynchronous"}
    unfinished = [
        chain.root["invocation"]
        for stream, chains in hop_chains.by_stream(subject.invocations, alone).items()
        for chain in chains
        if not lineage.is_complete(chain, alone[stream])
    ]
    roots = subject.requests
    is_unfinished = pc.is_in(
        columns.words(roots, "invocation"), value_set=pa.array(unfinished, pa.utf8())
    )
    return pc.or_(pc.invert(columns.is_word(roots, "outcome", "ok")), is_unfinished)


def _failed(subject: SubjectRows, tariff: str) -> Figure:
    """The share of chains that failed."""
    del tariff
    flags = subject.once(failures).to_pylist()
    if not flags:
        return Figure(None, why="no chain was begun")
    count = sum(flags)
    return Figure(100.0 * count / len(flags), rows=len(flags), count=count)


def _timed_out(subject: SubjectRows, tariff: str) -> Figure:
    """The share of chains that failed, and of which an invocation timed out."""
    del tariff
    table = subject.invocations
    rows = table.append_column("root", pa.array(hop_chains.roots_of(table), pa.utf8()))
    late = rows.filter(columns.is_word(rows, "outcome", "timeout"))
    roots = rows.filter(columns.is_request(rows))
    if not roots.num_rows:
        return Figure(None, why="no chain was begun")
    failed = roots.filter(subject.once(failures))
    of_late = pc.unique(columns.words(late, "root"))
    count = int(pc.sum(pc.is_in(columns.words(failed, "root"), value_set=of_late)).as_py() or 0)
    share = 100.0 * count / roots.num_rows
    return Figure(share, rows=roots.num_rows, count=count)


def _first_success(subject: SubjectRows, tariff: str) -> Figure:
    """The number of the first request that succeeded, from 1: a single observation."""
    del tariff
    flags = columns.is_word(subject.requests, "outcome", "ok").to_pylist()
    if True not in flags:
        return Figure(None, why="no request succeeded")
    return Figure(float(flags.index(True) + 1), rows=1)


_of_complete: Final = partial(Metric, of="complete")

METRICS: Final = (
    *(
        _of_complete(
            f"chain_{name}", "time", "ms", f"Mean {name} of complete chains.", partial(_mean, name)
        )
        for name in (*chain_parts.PARTS, "latency")
    ),
    _of_complete(
        "billed_over_self",
        "ratio",
        "x",
        "What is billed for over the time of own work, of complete chains.",
        partial(_over_self, "billed"),
    ),
    _of_complete(
        "executed_over_self",
        "ratio",
        "x",
        "Executions over the time of own work, of complete chains.",
        partial(_over_self, "executed"),
    ),
    Metric("chain_cost", "cost", "USD", "Of a million chains under a tariff.", _cost, of="chains"),
    Metric(
        "memory_time",
        "number",
        "GBs",
        "Memory times billed time of a chain.",
        _memory_time,
        of="chains",
    ),
    *(
        _of_complete(
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
        "Share of chains whose client had no good answer, or that did not come to their end.",
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
