"""A number that no int64 holds costs its own row, whichever analysis meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cost_rows import S, row, table

from uncia.backends import Backend, connect
from uncia.costs.advice import hints
from uncia.costs.advice.rows import billable_rows, collect_facts, source_table
from uncia.costs.decompose import decompositions
from uncia.tariffs import bill

ABSURD = "a value is negative or absurd"
LAMBDA = "aws-lambda-x86"
GCP = "gcp-run-request"  # of which there are instances that are always on, and concurrency


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def with_huge(column: str) -> pa.Table:
    """Three invocations, of which the last has 2^64 - 1 in a column."""
    times = {"throttled_time": 5, "cpu_wait": 5}
    made = table([row(started=k * 3 * S, ended=k * 3 * S + S, **times) for k in range(3)])
    index = made.column_names.index(column)
    values = [*made.column(index).to_pylist()[:2], 2**64 - 1]
    return made.set_column(index, column, pa.array(values, pa.uint64()))


@pytest.mark.parametrize("column", ["allocated_cpu", "allocated_memory"])
def test_an_absurd_allocation_stays_absurd_under_used_peak(column: str, backend: Backend) -> None:
    data = with_huge(column)
    (line,) = bill(data, [LAMBDA], backend=backend, fit="used-peak")
    assert (line.rows, line.unpriced) == (2, {ABSURD: 1})
    (parts,) = decompositions(data, [LAMBDA], backend=backend, fit="used-peak")
    assert (parts.rows, dict(parts.left_out)) == (2, {ABSURD: 1})


@pytest.mark.parametrize("column", ["cpu_user", "cpu_system", "throttled_time", "cpu_wait"])
def test_times_that_do_not_fit_are_added_up(column: str, backend: Backend) -> None:
    (parts,) = decompositions(with_huge(column), [LAMBDA], backend=backend, by_time=True)
    is_billed = column in ("cpu_user", "cpu_system")
    assert (parts.rows, dict(parts.left_out)) == ((2, {ABSURD: 1}) if is_billed else (3, {}))


@pytest.mark.parametrize(
    ("column", "rows", "with_times"),
    [
        ("allocated_cpu", 2, 2),
        ("allocated_memory", 2, 2),
        ("started", 3, 2),
        ("ended", 3, 2),
        ("throttled_time", 3, 3),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_advice_counts_the_other_rows(
    column: str, rows: int, with_times: int, stored: bool, backend: Backend, tmp_path: Path
) -> None:
    source: Any = with_huge(column)
    if stored:
        pq.write_table(source, tmp_path / "rows.parquet")
        source = tmp_path / "rows.parquet"
    keyed, _ = source_table(backend, source, None, lambda _: None)
    selected = billable_rows(keyed)
    (facts,) = collect_facts(backend, selected, "v_execution", None).values()
    assert (facts.rows, facts.start_rows) == (rows, with_times)
    throttled = backend.collect(selected.select("throttled")).column(0).to_pylist()
    assert throttled == [5, 5, None if column == "throttled_time" else 5][:rows]
    if column == "ended":
        frame = hints(source, tariffs=[GCP], backend=backend)
        assert any("when requests ran was not measured" in str(note) for note in frame["note"])


def test_times_are_plausible_within_a_year_of_each_other(backend: Backend) -> None:
    year, low, high = 366 * 24 * 3600 * S, -(2**63), 2**63 - 1
    pairs = [(0, year), (0, year + 1), (year, 0), (low, high), (high, high), (None, 5), (5, 4)]
    data = table([row(started=start, ended=end) for start, end in pairs])
    keyed, _ = source_table(backend, data, None, lambda _: None)
    times = backend.collect(billable_rows(keyed).select("started", "ended"))
    kept = {(0, year), (year, 0), (5, 4)}
    expected = [pair if pair in kept else (None, None) for pair in pairs]
    assert [tuple(it.values()) for it in times.to_pylist()] == expected
