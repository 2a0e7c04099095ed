"""Chains of dependent requests: times of stages, between stages, and of whole chains.

A row with a parent belongs to the chain of its parent; a chain begins with a row without one. Rows
of later stages have no scheduled time, so a stage is measured from when it was sent, and a chain
from the scheduled time of its first request to the last answer.
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
    """Summarise the chains of one experiment, one summary for each kind, in order of first sending.

    Args:
        table: the invocations of the experiment. Rows without a stage are in no chain, and hops
            (`uncia.stats.hops`) in none of the client's.
        experiment: its description in ``run.yaml``, whose ``streams`` list the stages of a chain;
            without it, a chain has all stages that occur in chains of its kind.

    Returns:
        Plain JSON values, an empty list if no row has a parent. For each kind of chain: ``begun``
        (first requests), ``complete`` (chains with an ok row of every stage), ``latency_ms``
        (quantiles over complete chains) and ``stages``, each with its name (``stage``),
        ``function``, ``requests``, ``ok``, ``response_ms`` (received - sent, of ok rows) and
        ``between_ms`` (sent - received of the parent).
    """
    is_sent = columns.is_request(table)
    rows = table.filter(pc.and_(is_sent, pc.is_valid(columns.words(table, "stage"))))
    if rows.num_rows == columns.words(rows, "parent").null_count:
        return []
    rows = rows.take(pc.sort_indices(columns.integers(rows, "sent")))
    parents = _parents(rows)
    first = first_ancestors(parents)
    kinds = _kinds(rows, first)
    declared = {} if experiment is None else declared_stages(experiment)
    return [
        _summarise(rows, parents, first, kinds == kind, declared)
        for kind in dict.fromkeys(kinds.tolist())
    ]


def first_ancestors(parents: Ints) -> Ints:
    """The position of the row that leads to each row by the positions of parents.

    In a damaged table, parents may form a cycle; rows that lead into one lead to themselves.

    Args:
        parents: of each row the position of its parent; of a row without one its own.
    """
    first = parents
    # Each step doubles the distance to the ancestor.
    for _ in range(parents.size.bit_length()):
        first = first[first]
    return np.where(parents[first] == first, first, np.arange(parents.size))


def declared_stages(experiment: Mapping[str, object]) -> dict[str, set[str]]:
    """The stages of each chain, by the number of its first stream."""
    chains: dict[str, set[str]] = {}
    stages: set[str] = set()
    streams = experiment.get("streams")
    for position, stream in enumerate(streams if isinstance(streams, list) else []):
        if not isinstance(stream, Mapping) or not isinstance(stream.get("stage"), str):
            continue
        # The streams of later stages follow directly on the first one of their chain.
        if not stream.get("after"):
            stages = chains.setdefault(str(position), set())
        stages.add(stream["stage"])
    return chains


def _parents(rows: pa.Table) -> Ints:
    """The position of each row's parent; without one, that of the first row of its invocation."""
    ids = columns.words(rows, "invocation").combine_chunks()
    by_parent = pc.index_in(columns.words(rows, "parent"), value_set=ids)
    itself = pa.array(np.arange(rows.num_rows), pa.int32())
    same = pc.index_in(ids, value_set=ids, skip_nulls=True)
    return np.asarray(pc.coalesce(by_parent, same, itself).to_numpy(), dtype=np.int64)


def _kinds(rows: pa.Table, first: Ints) -> Ints:
    """The kind of each row's chain: the stream of its first request, as ids end in the number."""
    ids = columns.words(rows, "invocation").combine_chunks().take(pa.array(first))
    streams = pc.replace_substring_regex(ids, pattern="[^-]*$", replacement="")
    return np.asarray(pc.dictionary_encode(streams).indices.to_numpy(), dtype=np.int64)


def _summarise(
    rows: pa.Table, parents: Ints, first: Ints, chosen: _Flags, declared: Mapping[str, set[str]]
) -> dict[str, Any]:
    rows_of_kind = np.flatnonzero(chosen)
    sent, received = _times(rows, "sent"), _times(rows, "received")
    is_ok = np.asarray(columns.is_word(rows, "outcome", "ok").to_numpy(), dtype=bool)
    heads, chain = np.unique(first[rows_of_kind], return_inverse=True)
    names = columns.words(rows, "stage").combine_chunks()
    stage_names = pc.dictionary_encode(names.take(pa.array(rows_of_kind)))
    stage_of = np.asarray(stage_names.indices.to_numpy(), dtype=np.int64)
    expected = declared.get(_stream(rows, int(heads[0])), set(stage_names.dictionary.to_pylist()))
    # A retried request has a row for each attempt.
    once = np.unique(np.stack([chain, stage_of])[:, is_ok[rows_of_kind]], axis=1)
    complete = np.bincount(once[0], minlength=heads.size) >= len(expected)
    scheduled = columns.integers(rows, "scheduled")
    begin = _times(rows, "scheduled", pc.coalesce(scheduled, columns.integers(rows, "sent")))
    last = np.full(heads.size, np.iinfo(np.int64).min)
    np.maximum.at(last, chain, received[rows_of_kind])
    latency = np.sort((last - begin[heads])[complete])
    functions = columns.words(rows, "function").combine_chunks()
    stages = []
    for code, name in enumerate(stage_names.dictionary.to_pylist()):
        members = rows_of_kind[stage_of == code]
        good = members[is_ok[members]]
        followers = members[(parents[members] != members) & is_ok[parents[members]]]
        between = np.sort(sent[followers] - received[parents[followers]])
        stages.append(
            {
                "stage": name,
                "function": functions[int(members[0])].as_py(),
                "requests": int(members.size),
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
    """A column of times, with 0 for null; only rows that are not ok have nulls."""
    times = columns.integers(rows, name) if values is None else values
    return np.asarray(pc.fill_null(times, 0).to_numpy(), dtype=np.int64)
