"""The tables as Python sees them: schema, round trips, truncation, other readers."""

from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.errors import UnciaError
from uncia.record.markdown import markdown

ROOT = Path(__file__).resolve().parents[2]

END_OF_STREAM_BYTES = 8
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def rows(times: list[int | None]) -> pa.Table:
    count = len(times)
    data = pa.table(
        {
            "function": pa.array([f"f{i % 3}" for i in range(count)], pa.utf8()),
            "invocation": pa.array([f"i{i}" for i in range(count)], pa.utf8()),
            "attempt": pa.array([1] * count, pa.int64()),
            "outcome": pa.array(["ok"] * count, pa.utf8()),
            "received": pa.array(times, pa.int64()),
        }
    )
    return record.conform(data, "invocations", epoch=42)


def stream(table: pa.Table, path: Path, batch_rows: int = 10) -> list[int]:
    """Write ``table`` as a stream; return the file sizes after the head and each batch."""
    head = pa.BufferOutputStream()
    with pa.ipc.new_stream(head, table.schema):
        pass
    ends = [len(head.getvalue()) - END_OF_STREAM_BYTES]
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write_batch(batch)
            ends.append(sink.tell())
    return ends


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs/reference/tables.md").read_text()
    assert page == markdown(), "python -m uncia.record.markdown > docs/reference/tables.md"


@settings(deadline=None, max_examples=30)
@given(times=st.lists(st.none() | INT64, max_size=50))
def test_parquet_keeps_values_nulls_and_epoch(
    times: list[int | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("record") / "invocations.parquet"
    record.write(rows(times), path)
    back = record.read(path)
    assert back.column("received").to_pylist() == times
    assert record.epoch_unix_ns(back) == 42
    assert back.schema.equals(record.schema("invocations", 42), check_metadata=True)


@settings(deadline=None, max_examples=40)
@given(cut=st.floats(min_value=0, max_value=1))
def test_a_stream_cut_anywhere_is_read_to_its_last_whole_batch(
    cut: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    path = folder / "invocations.arrows"
    ends = stream(rows(list(range(50))), path)
    keep = ends[0] + int((ends[-1] - ends[0]) * cut)
    with path.open("r+b") as file:
        file.truncate(keep)
    whole = sum(end <= keep for end in ends[1:])
    assert record.read(folder).num_rows == whole * 10
    assert record.recover_folder(folder) == {"invocations.arrows": whole * 10}
    assert not path.exists()
    assert record.read(folder).num_rows == whole * 10


def test_recovery_of_several_streams_goes_past_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "a.arrows").write_bytes(b"no stream")
    stream(rows([1, 2]), tmp_path / "b.arrows")
    with pytest.raises(UnciaError, match=r"a\.arrows"):
        record.recover_folder(tmp_path)
    assert (tmp_path / "a.arrows").exists()
    assert record.read(tmp_path / "b.parquet").num_rows == 2


def test_other_readers_read_it(tmp_path: Path) -> None:
    path = record.write(rows([5, None, 7]), tmp_path / "invocations.parquet")
    relation = duckdb.sql(f"select function, sum(received) from '{path}' group by 1 order by 1")
    assert relation.fetchall() == [("f0", 5), ("f1", None), ("f2", 7)]
    frame = polars.read_parquet(path)
    assert frame["received"].to_list() == [5, None, 7]
    data = pandas.read_parquet(path)
    assert data["function"].tolist() == ["f0", "f1", "f2"]
    assert data["received"].isna().tolist() == [False, True, False]


def test_a_missing_nullable_column_is_null_and_a_missing_required_one_an_error() -> None:
    table = rows([1])
    assert record.conform(table.drop_columns(["received"]), "invocations")["received"].null_count
    with pytest.raises(UnciaError, match="required column outcome"):
        record.conform(table.drop_columns(["outcome"]), "invocations")


LATEST = {
    "invocations": rows([1, 2]),
    "instances": record.conform(
        pa.table({"function": ["f"], "instance": ["i"], "started": [1]}), "instances"
    ),
    "machine": record.conform(
        pa.table({"time": [1], "counter": ["mhz"], "value": [2.5]}), "machine"
    ),
}


@pytest.mark.parametrize("table", LATEST)
def test_a_run_from_before_the_column_worker_is_read(table: str, tmp_path: Path) -> None:
    earlier, later = tmp_path / "earlier", tmp_path / "later"
    old = LATEST[table].drop_columns(["worker"])
    for folder in (earlier, later):
        folder.mkdir()
    pa.parquet.write_table(old, earlier / f"{table}.parquet")
    stream(old, later / f"{table}.arrows")
    for folder in (earlier, later):
        back = record.read(folder, table)
        assert back.equals(LATEST[table])
        assert back["worker"].null_count == back.num_rows > 0
    assert record.recover_folder(later) == {f"{table}.arrows": old.num_rows}
    assert record.read(later, table).equals(LATEST[table])
    named = (
        LATEST[table]
        .drop_columns(["worker"])
        .append_column("worker", pa.array(["w"] * old.num_rows))
    )
    merged = record.merge([record.read(earlier, table), record.conform(named, table)], table)
    assert merged["worker"].to_pylist() == [None] * old.num_rows + ["w"] * old.num_rows


PHASES = [
    [{"duration": 5, "threads": 2, "memory": 7}, {"duration": 0, "threads": 0, "memory": 0}],
    [],
    None,
]


def with_phases() -> pa.Table:
    data = rows([1, 2, 3]).drop_columns(["phases"])
    return record.conform(data.append_column("phases", pa.array(PHASES)), "invocations")


def test_phases_stay_as_they_are(tmp_path: Path) -> None:
    table = with_phases()
    path = record.write(table, tmp_path / "invocations.parquet")
    stream(table, tmp_path / "later.arrows", batch_rows=1)
    record.recover_folder(tmp_path)
    for written in (path, tmp_path / "later.parquet"):
        assert record.read(written)["phases"].to_pylist() == PHASES
    total = "list_sum(list_transform(phases, lambda x: x.duration * x.threads))"
    assert duckdb.sql(f"select {total} from '{path}'").fetchall() == [(10,), (None,), (None,)]
    assert polars.read_parquet(path)["phases"].to_list() == PHASES
    merged = record.merge([rows([4]).drop_columns(["phases"]), table])
    assert merged["phases"].to_pylist() == [None, *PHASES]


def test_scanned_rows_are_those_of_the_table_without_all_of_them(tmp_path: Path) -> None:
    count = 150_000
    table = rows(list(range(count)))
    names = ["received", "function", "phases"]
    (tmp_path / "whole").mkdir()
    path = record.write(table, tmp_path / "whole" / "invocations.parquet")
    parts = list(record.scan(path.parent, names))
    assert max(part.num_rows for part in parts) < count // 2
    assert record.merge([table]).select(names).to_pylist() == [
        row for part in parts for row in part.to_pylist()
    ]
    stream(table.slice(0, 20), tmp_path / "cut.arrows", batch_rows=7)
    assert sum(part.num_rows for part in record.scan(tmp_path / "cut.arrows", names)) == 20
    joined = tmp_path / "joined.parquet"
    record.concatenate([path, path], joined, "invocations")
    assert record.read(joined).num_rows == 2 * count
    assert record.read(joined).slice(count)["received"].to_pylist() == list(range(count))
    with pytest.raises(UnciaError, match="holds no table"):
        list(record.scan(tmp_path / "whole" / "..", names))
    other = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pa.table({"latency": [1]}), other)
    with pytest.raises(UnciaError, match=r"other\.parquet: .*no column latency"):
        list(record.scan(other, names))


def test_an_unknown_column_and_a_wrong_type_are_errors() -> None:
    table = rows([1])
    with pytest.raises(UnciaError, match="no column latency"):
        record.conform(table.append_column("latency", pa.array([1])), "invocations")
    bad = table.drop_columns(["received"]).append_column("received", pa.array(["soon"]))
    with pytest.raises(UnciaError, match=r"invocations\.received must be int64"):
        record.conform(bad, "invocations")


@pytest.mark.parametrize("version", ["999", "latest", ""])
def test_another_schema_version_is_refused(version: str, tmp_path: Path) -> None:
    table = rows([1]).replace_schema_metadata({"uncia.schema_version": version})
    pa.parquet.write_table(table, tmp_path / "invocations.parquet")
    with pytest.raises(UnciaError, match=f"schema version {version};"):
        record.read(tmp_path)


def test_a_column_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    table = rows([1])
    twice = table.append_column("function", table["function"])
    pa.parquet.write_table(twice, tmp_path / "invocations.parquet")
    for use in (record.read, lambda path: list(record.scan(path, ["function"]))):
        with pytest.raises(UnciaError, match="the column function stands there more than once"):
            use(tmp_path)


def test_a_folder_without_tables_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="not the folder of a run"):
        record.read(tmp_path)


def test_merging_unifies_dictionaries_and_keeps_order() -> None:
    merged = record.merge([rows([1]), rows([2, 3]), rows([])])
    assert merged["received"].to_pylist() == [1, 2, 3]
    assert merged["function"].to_pylist() == ["f0", "f0", "f1"]


TABLE = {"function": ["f"], "invocation": ["i"], "attempt": [1], "outcome": ["ok"]}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("started", pa.array([1_700_000_000_000_000], pa.timestamp("us"))),
        ("started", pa.array([1_700_000_000_000], pa.timestamp("ms", tz="Europe/Berlin"))),
        ("execution", pa.array([1_700_000_000], pa.duration("s"))),
        ("execution", pa.array([1_700_000_000_000_000_000.0])),
    ],
)
def test_times_of_other_units_become_ns(name: str, values: pa.Array) -> None:
    result = record.conform(pa.table({**TABLE, name: values}), "invocations")
    assert result.column(name).to_pylist() == [1_700_000_000_000_000_000]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("execution", pa.array([True])),
        ("execution", pa.array([0.5])),
        ("execution", pa.array([5], pa.date32())),
        ("allocated_memory", pa.array([5], pa.duration("s"))),
        ("execution", pa.array([[5]])),
    ],
)
def test_what_is_no_whole_number_names_its_column(name: str, values: pa.Array) -> None:
    with pytest.raises(UnciaError, match=rf"^invocations\.{name} must be int64, but is "):
        record.conform(pa.table({**TABLE, name: values}), "invocations")


def test_times_from_1970_do_not_stand_beside_an_epoch() -> None:
    rows = pa.table({**TABLE, "started": pa.array([1], pa.timestamp("us"))})
    with pytest.raises(UnciaError, match=r"invocations\.started is timestamp\[us\], which counts"):
        record.conform(rows.replace_schema_metadata({"uncia.epoch_unix_ns": "5"}), "invocations")
