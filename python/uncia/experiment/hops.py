"""Hops: invocations that no client sent, because functions or the platform did.

The platform's word counts: what a function reports of itself says which stage it was, and stands
alone only where the platform keeps no log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uncia import record
from uncia.experiment.join import Joined, counting, identified, join
from uncia.experiment.stages import ChainPlan
from uncia.stats import columns
from uncia.stats.chains import first_ancestors
from uncia.stats.columns import pc
from uncia.stats.hop_chains import stream_of
from uncia.stats.lineage import behind_triggers

_Positions = NDArray[np.int64]

# Columns of a hop that its root gives it.
_OF_ROOT = ("run", "experiment")


@dataclass(frozen=True)
class Assembled:
    """A run's rows: the client's, joined with the platform's log, and the hops that they caused.

    Attributes:
        rows: the client's rows in their order, their preempted attempts, and the hops behind them.
        joined: how the client's rows and the log fit together.
        unknown: requests that functions reported as hops and the platform did not log.
    """

    rows: pa.Table
    joined: Joined
    unknown: list[str]


def assemble(client: pa.Table, platform: pa.Table) -> Assembled:
    """Join a run's rows with the platform's log.

    Args:
        client: the rows of the load generator, with those of the hops that functions reported.
        platform: the platform's log, with times since the same epoch.
    """
    is_reported = columns.is_hop(client)
    sent, reported = client.filter(pc.invert(is_reported)), client.filter(is_reported)
    joined = join(sent, platform)
    hops = caused(sent, identified(sent, platform))
    stages = _stages(hops, reported)
    hops = hops.set_column(hops.column_names.index("stage"), "stage", stages)
    logged = columns.words(hops, "request_id").combine_chunks()
    is_unknown = pc.invert(pc.is_in(columns.words(reported, "request_id"), value_set=logged))
    strangers = joined.strangers - hops.num_rows
    return Assembled(
        record.merge(
            [joined.rows, joined.preempted, record.conform(hops, "invocations")], "invocations"
        ),
        replace(joined, strangers=strangers),
        columns.words(reported.filter(is_unknown), "request_id").to_pylist(),
    )


def caused(client: pa.Table, platform: pa.Table) -> pa.Table:
    """The platform's rows that lead to one of the client's by their parents.

    Each is given the run and the experiment of that row, its root.
    """
    known = columns.words(client, "invocation").combine_chunks()
    is_client = pc.is_in(columns.words(platform, "invocation"), value_set=known)
    others = platform.filter(pc.invert(is_client))
    count = client.num_rows
    ids = pa.concat_arrays([known, columns.words(others, "invocation").combine_chunks()])
    by_parent = pc.index_in(columns.words(others, "parent"), value_set=ids, skip_nulls=True)
    # Those of the client are roots; without a parent that is known, a row leads to itself.
    itself = pa.array(np.arange(count, count + others.num_rows), pa.int32())
    parents = np.concatenate([np.arange(count), _numbers(pc.coalesce(by_parent, itself))])
    root = first_ancestors(parents)[count:]
    leads = root < count
    hops = others.filter(pa.array(leads))
    roots = pa.array(root[leads])
    for name in _OF_ROOT:
        values = columns.words(client, name).combine_chunks().take(roots)
        index = hops.column_names.index(name)
        hops = hops.set_column(index, name, values)
    return hops


def outstanding(client: pa.Table, platform: pa.Table, chain: ChainPlan, stream: int) -> int:
    """How many hops of chains are still to come: each invocation that went well has its next.

    Args:
        client: the rows of the client, of one experiment.
        platform: the platform's log so far.
        chain: what the stream's chains are.
        stream: the number of the stream in the experiment.
    """
    roots = client.filter(pc.invert(columns.is_hop(client)))
    numbers = [stream_of(text) for text in columns.words(roots, "invocation").to_pylist()]
    roots = roots.filter(pa.array([number == stream for number in numbers], pa.bool_()))
    hops = counting(caused(roots, platform))
    followers = followers_of(chain)
    first = chain.first
    if first is None:
        return 0
    invocations = columns.words(hops, "invocation").to_pylist()
    parents = dict(zip(invocations, columns.words(hops, "parent").to_pylist(), strict=True))
    by_triggers = behind_triggers(parents)
    stages = dict(zip(invocations, columns.words(hops, "stage").to_pylist(), strict=True))
    # What functions invoke on their own, and what triggers begin, stands for no stage.
    stages = {name: stage for name, stage in stages.items() if name not in by_triggers}
    is_good = columns.is_word(hops, "outcome", "ok").to_pylist()
    good = {name for name, is_ok in zip(invocations, is_good, strict=True) if is_ok}
    waited = [
        *_texts(roots.filter(columns.is_word(roots, "outcome", "ok")), "invocation", first),
        *((name, stage) for name, stage in stages.items() if name in good),
    ]
    present = Counter(parents[name] for name, stage in stages.items() if stage in followers)
    return sum(
        max(0, followers.get(str(stage), 0) - present[invocation]) for invocation, stage in waited
    )


def followers_of(chain: ChainPlan) -> Mapping[str, int]:
    """How many invocations follow each stage, by what the rows call it."""
    followers: dict[str, int] = {}
    for stage in chain.stages:
        for turn in stage.turns()[:-1]:
            followers[turn] = 1
        followers[stage.turns()[-1]] = len(stage.next)
    return followers


def without(spans: pa.Table, invocations: list[str]) -> pa.Table:
    """The spans that are of none of these invocations."""
    if not invocations:
        return spans
    known = pa.array(invocations, pa.utf8())
    return spans.filter(pc.invert(pc.is_in(columns.words(spans, "invocation"), value_set=known)))


def _texts(table: pa.Table, name: str, stage: str) -> list[tuple[str, str]]:
    return [(invocation, stage) for invocation in columns.words(table, name).to_pylist()]


def _stages(hops: pa.Table, reported: pa.Table) -> Any:
    """The stage of each hop as the platform logged it, else as the function that called it says."""
    requests = columns.words(reported, "request_id").combine_chunks()
    position = pc.index_in(columns.words(hops, "request_id"), value_set=requests, skip_nulls=True)
    callers = columns.words(reported, "stage").combine_chunks().take(position)
    return pc.coalesce(columns.words(hops, "stage"), callers)


def _numbers(values: Any) -> _Positions:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
