"""Helpers for columns of Arrow tables: durations, counts of words, groups.

Nulls (values that were not measured) are ignored, never read as 0. A missing column counts as null
throughout, so that tables of earlier schema versions and of other origin can be read.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import compute

from uncia.stats.quantiles import Ints
from uncia.units import MAX_TIME

Column: TypeAlias = Any
"""A pyarrow.ChunkedArray, untyped: published stubs are several versions behind pyarrow and refuse
correct code (such as comparing a column with a plain value)."""

pc: Any = compute

NO_EXPERIMENT = "(no experiment)"
"""The name for rows without an experiment."""


def column(table: pa.Table, name: str, kind: Any) -> Column:
    """A column cast to `kind` (dictionaries become plain); all null if it is missing."""
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    return table.column(name).cast(kind)


def integers(table: pa.Table, name: str) -> Column:
    """An int64 column (times, durations, sizes, counts)."""
    return column(table, name, pa.int64())


def words(table: pa.Table, name: str) -> Column:
    """A text column as plain utf8."""
    return column(table, name, pa.string())


def difference(table: pa.Table, end: str, start: str) -> Column:
    """``end - start`` for each row, ns; null where either is."""
    return pc.subtract(integers(table, end), integers(table, start))


def latency(table: pa.Table, begin: str = "scheduled") -> Column:
    """``received - begin`` for each row, ns; null where either is, or where it is absurd."""
    took = difference(table, "received", begin)
    return pc.if_else(_is_absurd(took), pa.scalar(None, pa.int64()), took)


def is_absurd(table: pa.Table) -> Column:
    """Whether each row was answered before it was due, or more than a year later.

    Such times are of two clocks, or of two units.
    """
    return _is_absurd(difference(table, "received", "scheduled"))


def _is_absurd(took: Column) -> Column:
    outside = pc.or_(pc.less(took, 0), pc.greater(took, MAX_TIME))
    return pc.fill_null(outside, False)


def due(table: pa.Table) -> Column:
    """When each row was due, or else sent, as in closed loops; null of hops."""
    return pc.coalesce(integers(table, "scheduled"), integers(table, "sent"))


def measured(values: Column) -> Ints:
    """The values that are not null, in row order, as a numpy array of int64."""
    return np.asarray(values.drop_null().to_numpy(), dtype=np.int64)


def ordered(values: Column) -> Ints:
    """The values that are not null, ascending."""
    return np.sort(measured(values))


def count_words(table: pa.Table, name: str) -> dict[str, int]:
    """Count each word of a column, most frequent first; nulls are ignored."""
    counted = pc.value_counts(words(table, name).drop_null())
    pairs = [(str(item["values"]), int(item["counts"])) for item in counted.to_pylist()]
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def is_word(table: pa.Table, name: str, word: str) -> Column:
    """Whether each row has `word` in the column; false where it is null."""
    return pc.fill_null(pc.equal(words(table, name), word), False)


def is_answer(table: pa.Table) -> Column:
    """Whether each row was answered by a function, be it with an error: it had an instance."""
    return pc.or_(is_word(table, "outcome", "ok"), is_word(table, "outcome", "function_error"))


def is_hop(table: pa.Table) -> Column:
    """Whether each row is a hop: caused by another, and not by what a client decided to send."""
    caused = pc.is_valid(words(table, "parent"))
    return pc.and_(caused, pc.is_null(column(table, "open_loop", pa.bool_())))


def is_preempted(table: pa.Table) -> Column:
    """Whether each row is an attempt that was preempted: no answer, as the next attempt has that.

    Each row is classified by itself, so that tables can be read some rows at a time.
    """
    return pc.and_(is_word(table, "outcome", "preempted"), pc.is_null(integers(table, "received")))


def is_request(table: pa.Table) -> Column:
    """Whether each row is a request of a client: no hop, and no attempt that was preempted."""
    return pc.invert(pc.or_(is_hop(table), is_preempted(table)))


def by_word(table: pa.Table, name: str, nothing: str = NO_EXPERIMENT) -> dict[str, pa.Table]:
    """Split a table by the words of a column, in order of first appearance.

    Args:
        table: any table.
        name: the text column.
        nothing: the key for rows where it is null.
    """
    keys = pc.fill_null(words(table, name), nothing)
    return {str(key.as_py()): table.filter(pc.equal(keys, key)) for key in pc.unique(keys)}


def chains_of(experiment: Mapping[str, object] | None) -> dict[int, dict[str, Any]]:
    """The chains of an experiment that no client carries on, by the number of their stream."""
    streams = None if experiment is None else experiment.get("streams")
    return {
        position: dict(stream["hops"])
        for position, stream in enumerate(streams if isinstance(streams, list) else [])
        if isinstance(stream, Mapping) and isinstance(stream.get("hops"), Mapping)
    }


def experiments_of(run_meta: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The experiments of a resolved run description, by name, in its order.

    Accepts a mapping of name to description, or a list of descriptions with the key ``name``.
    """
    experiments = run_meta.get("experiments")
    if isinstance(experiments, Mapping):
        return {
            str(name): dict(meta) if isinstance(meta, Mapping) else {}
            for name, meta in experiments.items()
        }
    if isinstance(experiments, list):
        return {
            str(meta["name"]): dict(meta)
            for meta in experiments
            if isinstance(meta, Mapping) and "name" in meta
        }
    return {}
