"""Chains of hops as rows tell them: the row that began each, and what it led to.

The invocation of a hop leads by its parents to the client's row that began its chain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.turns import turns

_STREAM: Final = re.compile(r"-(?P<stream>[0-9]+)-[0-9]+$")
_COLUMNS: Final = (
    *("invocation", "parent", "stage", "function", "outcome", "start", "instance"),
    *("scheduled", "sent", "received", "started", "ended"),
    *("queued", "initialization", "execution", "billed", "attempt"),
)
_TEXTS: Final = frozenset(_COLUMNS[:7])
_STAMPS: Final = ("call", "handler", "transfer")

Row = dict[str, Any]


@dataclass
class Chain:
    """One chain: the row that began it, other attempts of that, and its hops.

    Attributes:
        root, hops, attempts: these rows.
        before: of each turn of a stage the turns that it follows on; nothing of the first, and in
            chains that the client carries on.
    """

    root: Row
    hops: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """The timestamps of a hop: its call, its handler and its payload's if it reported those."""

    call: Row
    handler: Row | None
    transfer: Row | None


def executions(table: pa.Table, experiment: Mapping[str, object] | None) -> Any:
    """Whether each row is an execution of a sequence, which is no invocation of a function."""
    sequences = {
        n for n, chain in columns.chains_of(experiment).items() if chain["kind"] == "sequence"
    }
    numbers = [stream_of(text) for text in columns.words(table, "invocation").to_pylist()]
    is_sequence = pa.array([number in sequences for number in numbers], pa.bool_())
    return pc.and_(is_sequence, pc.invert(columns.is_hop(table)))


def stream_of(invocation: str | None) -> int | None:
    """Return the number of the stream that an invocation of the client's belongs to."""
    match = _STREAM.search(invocation or "")
    return None if match is None else int(match["stream"])


def rows_of(table: pa.Table) -> list[Row]:
    """The columns that are needed, as plain values."""
    plain = pa.table(
        {
            name: columns.words(table, name) if name in _TEXTS else columns.integers(table, name)
            for name in _COLUMNS
        }
    )
    rows: list[Row] = plain.to_pylist()
    return rows


def by_stream(
    table: pa.Table, described: Mapping[int, Mapping[str, Any]]
) -> dict[int, list[Chain]]:
    """The chains of each stream that has some."""
    if not described:
        return {}
    is_hop = columns.is_hop(table)
    chains: dict[int, list[Chain]] = {stream: [] for stream in described}
    before = {stream: _before(chain) for stream, chain in described.items()}
    owner = begun(rows_of(table.filter(pc.invert(is_hop))))
    for name, chain in owner.items():
        stream = stream_of(name)
        if stream is not None and stream in described:
            chain.before = before[stream]
            chains[stream].append(chain)
    hops = rows_of(table.filter(is_hop))
    parents = {hop["invocation"]: hop["parent"] for hop in hops}
    for hop in hops:
        of_hop = owner_of(hop["parent"], parents, owner)
        if of_hop is not None:
            of_hop.hops.append(hop)
    return chains


def _before(described: Mapping[str, Any]) -> dict[str, list[str]]:
    """The turns that each turn of a chain's stages follows on."""
    stages = described["stages"]
    named = {name: turns(name, stage["repeat"]) for name, stage in stages.items()}
    before: dict[str, list[str]] = defaultdict(list)
    for name, of_stage in named.items():
        for earlier, later in pairwise(of_stage):
            before[later].append(earlier)
        for follower in stages[name].get("next", ()):
            if follower in named:
                before[named[follower][0]].append(of_stage[-1])
    return dict(before)


def roots_of(table: pa.Table) -> list[str | None]:
    """The root of each invocation; of one that nothing leads to, None."""
    names = columns.words(table, "invocation").to_pylist()
    parents = columns.words(table, "parent").to_pylist()
    of_name = {name: parent for name, parent in zip(names, parents, strict=True) if parent}
    roots = {name: name for name, parent in zip(names, parents, strict=True) if parent is None}

    def root(name: str) -> str | None:
        passed: list[str] = []
        at: str | None = name
        while at is not None and at not in roots and len(passed) <= len(of_name):
            passed.append(at)
            at = of_name.get(at)
        root = None if at is None else roots.get(at)
        if root is not None:
            roots.update(dict.fromkeys(passed, root))
        return root

    return [root(name) for name in names]


def begun(roots: Iterable[Row]) -> dict[str, Chain]:
    """A chain for each invocation that began one: of several attempts it goes on from the best."""
    chains: dict[str, Chain] = {}
    for row in roots:
        chain = chains.setdefault(row["invocation"], Chain(row))
        if chain.root is row:
            continue
        first, second = sorted((chain.root, row), key=success)
        chain.root = second
        chain.attempts.append(first)
    return chains


def success(root: Row) -> tuple[bool, bool, int]:
    """What orders attempts: the one that went well, else the last that has the client's outcome."""
    return root["outcome"] == "ok", not is_preempted(root), root["attempt"] or 0


def is_preempted(row: Row) -> bool:
    """As `uncia.stats.columns.is_preempted`, of one row."""
    return row["outcome"] == "preempted" and row["received"] is None


def owner_of(name: str | None, parents: Mapping[str, str], owner: dict[str, Chain]) -> Chain | None:
    """The chain that leads to an invocation; what is found on the way is noted in ``owner``."""
    passed: list[str] = []
    while name is not None and name not in owner and len(passed) <= len(parents):
        passed.append(name)
        name = parents.get(name)
    chain = owner.get(name) if name is not None else None
    if chain is not None:
        owner.update(dict.fromkeys(passed, chain))
    return chain


def calls_of(spans: pa.Table | None, table: pa.Table) -> dict[str, Call]:
    """The timestamps of each hop that functions reported, by its invocation.

    Args:
        spans: of the run.
        table: invocations, to which the hops belong.
    """
    if spans is None or spans.num_rows == 0:
        return {}
    is_stamp = pc.is_in(columns.words(spans, "name"), value_set=pa.array(_STAMPS))
    of_table = columns.words(table, "invocation").combine_chunks()
    is_of_table = pc.is_in(columns.words(spans, "invocation"), value_set=of_table)
    rows = spans.filter(pc.and_(is_stamp, is_of_table)).to_pylist()
    reported: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["invocation"] is not None:
            reported[row["invocation"]].setdefault(row["name"], row)
    return {
        name: Call(rows["call"], rows.get("handler"), rows.get("transfer"))
        for name, rows in reported.items()
        if "call" in rows
    }
