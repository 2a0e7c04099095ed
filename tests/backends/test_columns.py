"""Columns that an engine would mistake: two of one name, durations, numbers without a sign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis.expr.datatypes as dt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uncia import record
from uncia.backends import connect
from uncia.backends.dtypes import is_untyped, type_name
from uncia.backends.integers import signed
from uncia.backends.spark import _plain
from uncia.errors import UnciaError
from uncia.tariffs import bill

ROWS = pa.table({"execution": [10**8], "outcome": ["throttled"]})


@pytest.mark.parametrize("stored", [False, True])
def test_a_column_is_there_once(tmp_path: Path, stored: bool) -> None:
    source: Any = ROWS.append_column("outcome", pa.array(["ok"]))
    if stored:
        pq.write_table(source, tmp_path / "rows.parquet")
        source = tmp_path / "rows.parquet"
    name = str(source) if stored else "the table"
    with connect() as backend, pytest.raises(UnciaError) as caught:
        backend.table(source)
    assert caught.value.message == f"{name} has the column outcome more than once"


@pytest.mark.parametrize("stored", [False, True])
def test_letters_of_either_case_are_the_same_in_names(tmp_path: Path, stored: bool) -> None:
    source: Any = ROWS.append_column("Outcome", pa.array(["ok"]))
    if stored:
        pq.write_table(source, tmp_path / "rows.parquet")
        source = tmp_path / "rows.parquet"
    words = "has the columns Outcome and outcome, and engines take letters of either case for the"
    with connect() as backend, pytest.raises(UnciaError, match=words):
        backend.table(source)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_durations_are_of_ns(tmp_path: Path, unit: str, stored: bool) -> None:
    durations = pa.array([100], pa.duration(unit))
    source: Any = ROWS.set_column(0, "execution", durations)
    if stored:
        pq.write_table(source, tmp_path / "rows.parquet")
        source = tmp_path / "rows.parquet"
    with connect() as backend:
        if unit == "ns":
            assert backend.table(source).execution.to_pyarrow().to_pylist() == [100]
            return
        with pytest.raises(UnciaError, match=rf"the column execution is duration\[{unit}\]") as it:
            backend.table(source)
        # The importer takes only tables that have what it cannot make up.
        assert it.value.hint == (
            "Write it as duration[ns] or whole ns, or convert it: uncia trace import uncia (add the"
            " columns function, invocation, attempt first)."
        )


def test_a_table_in_memory_may_have_columns_of_other_types() -> None:
    identifiers = pa.array([b"0123456789abcdef"], pa.binary(16))
    with connect() as backend:
        table = backend.table(ROWS.append_column("trace", identifiers))
        assert table.execution.to_pyarrow().to_pylist() == [10**8]
        waits = pa.array([[1]], pa.list_(pa.duration("ns")))
        with pytest.raises(UnciaError, match="DuckDB cannot hold the table: Parser Error"):
            backend.table(ROWS.append_column("waits", waits))


UNSIGNED = pa.array([5, None, 2**63, 2**64 - 1], pa.uint64())
SIGNED = [5, None, 2**63 - 1, 2**63 - 1]


def test_numbers_without_a_sign_are_the_largest_that_fit_on_every_engine() -> None:
    table = pa.table({"native": UNSIGNED, "as_in_spark": UNSIGNED.cast(pa.decimal128(20, 0))})
    with connect() as backend:
        rows = backend.table(table)
        columns = backend.collect(rows.select(**{it: signed(rows[it]) for it in rows.columns}))
    assert columns.to_pydict() == {"native": SIGNED, "as_in_spark": SIGNED}
    sent = _plain(pa.table({"x": UNSIGNED, "text": pa.array(["a"] * 4).dictionary_encode()}))
    assert sent.to_pydict() == {"x": SIGNED, "text": ["a"] * 4}
    assert sent.schema.types == [pa.int64(), pa.string()]


def test_numbers_without_a_sign_in_a_stream_cost_their_rows_alone(tmp_path: Path) -> None:
    schema = record.schema("instances")
    needed = {it.name: 0 if pa.types.is_int64(it.type) else "x" for it in schema if not it.nullable}
    rows = pa.Table.from_pylist([needed] * 4, schema)
    rows = rows.set_column(schema.get_field_index("ended"), "ended", UNSIGNED)
    with pa.ipc.new_stream(tmp_path / "instances.arrows", rows.schema) as stream:
        stream.write_table(rows)
    with connect() as backend:
        read = backend.table(tmp_path / "instances.arrows", "instances")
        assert backend.collect(read.select("ended")).column(0).to_pylist() == SIGNED
    with pytest.raises(UnciaError, match=r"instances\.ended must be int64, but is uint64"):
        record.read(tmp_path / "instances.arrows", "instances")


def test_numbers_with_and_without_a_sign_are_one_column(tmp_path: Path) -> None:
    """Files of either kind are billed together as each of them alone."""
    columns = {
        "plain": pa.array([7], pa.int64()),
        "unsigned": UNSIGNED,
        "durations": pa.array([8], pa.duration("ns")),
    }
    for name, column in columns.items():
        pq.write_table(pa.table({"execution": column}), tmp_path / f"{name}.parquet")
    with connect() as backend:
        table = backend.table([tmp_path / f"{name}.parquet" for name in columns])
        assert table.schema()["execution"].is_int64()
        values = table.execution.to_pyarrow().to_pylist()
    assert values == [7, 5, None, 2**63 - 1, 2**63 - 1, 8]
    pq.write_table(
        pa.table({"execution": pa.array([1], pa.decimal128(38, 0))}), tmp_path / "decimal.parquet"
    )
    with connect() as backend:
        mixed = backend.table([tmp_path / "plain.parquet", tmp_path / "decimal.parquet"])
        assert mixed.schema()["execution"].is_decimal()


def test_types_are_named_in_ordinary_words(tmp_path: Path) -> None:
    times = pa.array([1], pa.time64("ns"))
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"execution": times}), file)
    with connect() as backend:
        schema = backend.table(file).schema()
    assert type_name(schema["execution"]) == "time_ns"
    assert is_untyped(dt.null)
    assert not is_untyped(schema["execution"])
    with pytest.raises(UnciaError, match="the column execution is time_ns, but bills are exact"):
        bill(file, ["aws-lambda-x86"])
