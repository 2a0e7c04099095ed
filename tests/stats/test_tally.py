"""Rows that are read some at a time are summarised as those of a table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from uncia import record
from uncia.stats import errors, summary
from uncia.stats.tally import COLUMNS, Sample, Tally

TIMES = st.one_of(st.none(), st.integers(0, 10**12))
ROW = st.tuples(TIMES, TIMES, TIMES, st.sampled_from(["ok", "preempted"]), st.integers(0, 3))


def _table(rows: list[tuple[int | None, int | None, int | None, str, int]]) -> pa.Table:
    times = list(zip(*(row[:3] for row in rows), strict=True)) or [(), (), ()]
    count = len(rows)
    data = {
        "function": [f"f{row[4]}" for row in rows],
        "invocation": [f"a-{number % 2}-{number}" for number in range(count)],
        "attempt": [1] * count,
        "outcome": [row[3] for row in rows],
        "error": [None if row[3] == "ok" else f"why {row[4]}" for row in rows],
        "start": [None if row[4] == 0 else "cold" for row in rows],
        "instance": [f"i{row[4]}" for row in rows],
        "burst": [None if row[4] == 3 else row[4] for row in rows],
        **dict(zip(("scheduled", "sent", "received"), map(list, times), strict=True)),
    }
    schema = record.schema("invocations")
    arrays = {name: pa.array(values, pa.string()) for name, values in data.items() if name in
              ("function", "invocation", "outcome", "error", "start", "instance")}  # fmt: skip
    whole = {name: pa.array(values, pa.int64()) for name, values in data.items()
             if name not in arrays}  # fmt: skip
    assert set(arrays) | set(whole) <= set(schema.names)
    return record.conform(pa.table(arrays | whole), "invocations")


@given(st.lists(ROW, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_where_rows_are_cut_changes_nothing(
    rows: list[tuple[int | None, int | None, int | None, str, int]], cuts: list[int]
) -> None:
    table = _table(rows)
    ends = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    parts = [table.slice(a, b - a) for a, b in pairwise(ends)]
    narrow = [part.select(list(COLUMNS)) for part in parts]
    assert summary.of_tally(Tally(narrow), {}) == summary.summarise(table, {})
    counts = sum((errors.count(part) for part in parts), start=errors.count(table.slice(0, 0)))
    assert errors.of_counts(counts) == errors.distinct(table)


def test_values_that_are_all_alike_take_no_room() -> None:
    sample = Sample()
    for _ in range(3):
        sample.add(pa.chunked_array([pa.array([7] * 1_000)]))
    values = sample.ordered()
    assert values.strides == (0,)
    assert (values.size, values[2_999], values.mean()) == (3_000, 7, 7.0)
    mixed = Sample()
    for part in ([5, 5], [None, 3], [9, 1]):
        mixed.add(pa.chunked_array([pa.array(part, pa.int64())]))
    assert np.array_equal(mixed.ordered(), [1, 3, 5, 5, 9])
