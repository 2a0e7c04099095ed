"""Chains of dependent requests: how long stages, the time between them and whole chains took.

A row with a parent belongs to the chain of its parent; a chain begins with a row without one. Rows
of later stages have no scheduled time, so that a stage is measured from when it was sent, and a
chain from when its first request was to be sent to the last answer of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import Ints
from uncia.stats.summary import quantiles

_NS_PER_MS: Final = 1e6
_Flags: TypeAlias = NDArray[np.bool_]


def summarise(
    table: pa.Table, experiment: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """The chains of one experiment, one summary for each kind of chain, in order of first sending.

    Args:
        table: the invocations of the experiment. Rows without a stage count in no chain.
        experiment: its description in ``run.yaml``, whose ``streams`` say which stages a chain has;
            without it a chain has the stages that any of its kind has rows of.

    Returns:
        Plain JSON values, an empty list where no row has a parent. Of each kind of chain: ``begun``
        (first requests), ``complete`` (chains with a row of every stage that is ok),
        ``latency_ms`` (quantiles over complete chains) and ``stages``: of each its name,
        ``function``, ``requests``, ``ok``, ``response_ms`` (received - sent, of those that are ok)
        and ``between_ms`` (sent - received of the parent).
    """
    rows = table.filter(pc.is_valid(columns.words(table, "stage")))
    if rows.num_rows == columns.words(rows, "parent").null_count:
        return []
    rows = rows.take(pc.sort_indices(columns.integers(rows, "sent")))
    parents = _parents(rows)
    first = _first(parents)
    kinds = _kinds(rows, first)
    declared = {} if experiment is None else _declared(experiment)
    return [
        _summarise(rows, parents, first, kinds == kind, declared)
        for kind in dict.fromkeys(kinds.tolist())
    ]


def _declared(experiment: Mapping[str, object]) -> dict[str, set[str]]:
    """The stages of each chain, by the number of the stream that begins it."""
    chains: dict[str, set[str]] = {}
    stages: set[str] = set()
    streams = experiment.get("streams")
    for position, stream in enumerate(streams if isinstance(streams, list) else []):
        if not isinstance(stream, Mapping) or not isinstance(stream.get("stage"), str):
            continue
        # The streams of later stages come right after the one that begins the chain.
        if not stream.get("after"):
            stages = chains.setdefault(str(position), set())
        stages.add(stream["stage"])
    return chains


def _parents(rows: pa.Table) -> Ints:
    """Of each row the position of its parent; of others that of their invocation's first row."""
    ids = columns.words(rows, "invocation").combine_chunks()
    found = pc.index_in(columns.words(rows, "parent"), value_set=ids)
    own = pa.array(np.arange(rows.num_rows), pa.int32())
    same = pc.index_in(ids, value_set=ids, skip_nulls=True)
    return np.asarray(pc.coalesce(found, same, own).to_numpy(), dtype=np.int64)


def _first(parents: Ints) -> Ints:
    """Of each row the position of the row that its chain begins with.

    In a damaged table parents may go round in a circle: rows that end in one are chains by
    themselves.
    """
    first = parents
    # Each step doubles how far it goes back.
    for _ in range(parents.size.bit_length()):
        first = first[first]
    return np.where(parents[first] == first, first, np.arange(parents.size))


def _kinds(rows: pa.Table, first: Ints) -> Ints:
    """Which chain of the experiment a row is of: first requests of one stream differ in number."""
    ids = columns.words(rows, "invocation").combine_chunks().take(pa.array(first))
    streams = pc.replace_substring_regex(ids, pattern="[^-]*$", replacement="")
    return np.asarray(pc.dictionary_encode(streams).indices.to_numpy(), dtype=np.int64)


def _summarise(
    rows: pa.Table, parents: Ints, first: Ints, chosen: _Flags, declared: Mapping[str, set[str]]
) -> dict[str, Any]:
    at = np.flatnonzero(chosen)
    sent, received = _times(rows, "sent"), _times(rows, "received")
    is_ok = np.asarray(columns.is_word(rows, "outcome", "ok").to_numpy(), dtype=bool)
    heads, chain = np.unique(first[at], return_inverse=True)
    names = columns.words(rows, "stage").combine_chunks()
    seen = pc.dictionary_encode(names.take(pa.array(at)))
    stage_of = np.asarray(seen.indices.to_numpy(), dtype=np.int64)
    whole = declared.get(_stream(rows, int(heads[0])), set(seen.dictionary.to_pylist()))
    # A request that was tried again has a row for each attempt.
    once = np.unique(np.stack([chain, stage_of])[:, is_ok[at]], axis=1)
    complete = np.bincount(once[0], minlength=heads.size) >= len(whole)
    scheduled = columns.integers(rows, "scheduled")
    begin = _times(rows, "scheduled", pc.coalesce(scheduled, columns.integers(rows, "sent")))
    last = np.full(heads.size, np.iinfo(np.int64).min)
    np.maximum.at(last, chain, received[at])
    latency = np.sort((last - begin[heads])[complete])
    functions = columns.words(rows, "function").combine_chunks()
    stages = []
    for name in pc.unique(names.take(pa.array(at))):
        own = at[np.asarray(pc.equal(names.take(pa.array(at)), name).to_numpy(False), dtype=bool)]
        good = own[is_ok[own]]
        followers = own[(parents[own] != own) & is_ok[parents[own]]]
        between = np.sort(sent[followers] - received[parents[followers]])
        stages.append(
            {
                "stage": name.as_py(),
                "function": functions[int(own[0])].as_py(),
                "requests": int(own.size),
                "ok": int(good.size),
                "response_ms": quantiles(np.sort(received[good] - sent[good]), _NS_PER_MS),
                "between_ms": quantiles(between, _NS_PER_MS),
            }
        )
    return {
        "begun": int(heads.size),
        "complete": int(complete.sum()),
        "latency_ms": quantiles(latency, _NS_PER_MS),
        "stages": stages,
    }


def _stream(rows: pa.Table, position: int) -> str:
    """The number of the stream of a request: ids end in ``-STREAM-NUMBER``."""
    words = str(columns.words(rows, "invocation")[position].as_py()).rsplit("-", 2)
    return words[1] if len(words) == 3 else ""


def _times(rows: pa.Table, name: str, values: Any = None) -> Ints:
    """A column of times; where there is none, 0, which nothing that is complete or ok has."""
    found = columns.integers(rows, name) if values is None else values
    return np.asarray(pc.fill_null(found, 0).to_numpy(), dtype=np.int64)
