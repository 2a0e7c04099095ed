"""DuckDB as a backend: what it reads, refuses, and leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet
import pytest

from uncia.backends import connect
from uncia.errors import UnciaError


def written(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), path)
    return path


def test_a_master_is_none_of_duckdbs(tmp_path: Path) -> None:
    with (
        pytest.raises(UnciaError, match="has no --master"),
        connect("duckdb", master="local[2]", temporary=tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_it_spills_to_its_own_folder_and_removes_it(tmp_path: Path) -> None:
    with connect("duckdb", memory_limit="1GB", temporary=tmp_path) as backend:
        (folder,) = tmp_path.iterdir()
        numbers = ibis.range(0, 4).unnest().name("n").as_table()
        rows = backend.table(pa.table({"n": list(range(4))}))
        assert backend.collect(rows.aggregate(n=rows.n.sum())).to_pylist() == [{"n": 6}]
        assert numbers.columns == ("n",)
        settings = "current_setting('memory_limit') m, current_setting('temp_directory') t"
        asked = backend._connection.raw_sql(f"select {settings}")  # type: ignore[attr-defined]
        assert asked.fetchall() == [("1.0 GiB", str(folder))]
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(RuntimeError, match="mine"),
        connect("duckdb", temporary=tmp_path),
    ):
        raise RuntimeError("mine")
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_told(tmp_path: Path) -> None:
    with connect("duckdb", memory_limit="64MB", temporary=tmp_path) as backend:
        backend._connection.raw_sql(  # type: ignore[attr-defined]
            "create table big as select range::varchar as n from range(2000000)"
        )
        big = backend._connection.table("big")  # type: ignore[attr-defined]
        lists = big.aggregate(n=big.n.collect())
        with pytest.raises(UnciaError, match="out of memory") as caught:
            backend.collect(lists.cross_join(lists.view()))
        assert caught.value.hint == "Give more with --memory-limit."


def test_partition_columns_have_the_types_of_the_record(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    written(folder / "function=007" / "allocated_memory=128" / "a.parquet", execution=[1])
    written(folder / "function=a%2Fb" / "allocated_memory=256" / "b.parquet", execution=[2])
    with connect() as backend:
        rows = backend.table(folder)
        dtypes = {name: str(dtype) for name, dtype in rows.schema().items()}
        assert dtypes == {"execution": "int64", "function": "string", "allocated_memory": "int64"}
        expected = [("007", 128, 1), ("a/b", 256, 2)]
        # The files themselves, as a shell expands a pattern, are the same table.
        for source in (folder, sorted(folder.rglob("*.parquet")), folder / "function=007"):
            result = backend.collect(backend.table(source).order_by("execution")).to_pylist()
            got = [
                (item["function"], item["allocated_memory"], item["execution"]) for item in result
            ]
            assert got == expected[: len(got)]
            assert got
        written(folder / "function=f" / "plain" / "k=1" / "c.parquet", execution=[3])
        with pytest.raises(UnciaError, match="by turns"):
            backend.table(folder)


def test_nested_plain_folders_are_read_and_unfinished_ones_are_not(tmp_path: Path) -> None:
    written(tmp_path / "rows" / "x" / "a.parquet", execution=[1])
    written(tmp_path / "rows" / "b.parquet", execution=[2])
    written(tmp_path / "rows" / "_temporary" / "0" / "c.parquet", execution=[3])
    written(tmp_path / "rows" / ".d.parquet", execution=[4])
    with connect() as backend:
        result = backend.collect(backend.table(tmp_path / "rows"))["execution"].to_pylist()
    assert sorted(result) == [1, 2]


def test_types_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first = written(tmp_path / "k=1" / "a.parquet", execution=[1])
    second = written(tmp_path / "b.parquet", execution=[[1]])
    with connect() as backend, pytest.raises(UnciaError, match="the column execution is"):
        backend.table([first, second])


def test_a_damaged_file_is_named_when_it_is_opened_or_read(tmp_path: Path) -> None:
    good = written(tmp_path / "good.parquet", execution=list(range(1000)))
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(good.read_bytes()[:-20])
    with connect() as backend:
        with pytest.raises(UnciaError, match=f"^{bad} cannot be read as Parquet"):
            backend.table([good, bad])
        broken = bytearray(good.read_bytes())
        broken[4:200] = b"\xff" * 196
        bad.write_bytes(broken)
        with pytest.raises(UnciaError, match=f"^{bad} cannot be read as Parquet"):
            backend.collect(backend.table([good, bad]))


def test_an_extension_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with connect() as backend:
        connection = backend._connection  # type: ignore[attr-defined]
        # Nothing installed here, and nothing to fetch it from.
        connection.raw_sql(f"SET extension_directory = '{tmp_path / 'extensions'}'")
        connection.raw_sql(f"SET custom_extension_repository = '{tmp_path / 'none'}'")
        for address in ("s3://bucket/rows.parquet", "s3a://bucket/", "gs://bucket/*.parquet"):
            with pytest.raises(UnciaError, match="DuckDB's extension httpfs") as caught:
                backend.table(address)
            assert "INSTALL httpfs" in str(caught.value)


def test_ones_own_settings_of_ibis_and_tables_of_others_stay_as_they_are() -> None:
    other = ibis.duckdb.connect().create_table("mine", pa.table({"n": [1, 2]}))
    with connect("duckdb") as backend:
        assert backend.collect(other.aggregate(n=other.n.sum())).to_pylist() == [{"n": 3}]
        assert backend.collect(ibis.memtable(pa.table({"n": [4]}))).to_pylist() == [{"n": 4}]
        assert ibis.options.sql.fuse_selects
        with pytest.raises(UnciaError, match="cannot compute this"):
            backend.collect(other.mutate(x=other.n.cast("string").cast("date")))
    assert ibis.options.sql.fuse_selects


def test_a_cast_that_fails_is_no_sum_beyond_38_digits() -> None:
    with connect() as backend:
        rows = backend.table(pa.table({"a": ["x"]}))
        with pytest.raises(UnciaError, match="Could not convert string 'x'"):
            backend.collect(rows.select(a=rows.a.cast("int64")))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path / "out.parquet", execution=[7])
    with connect() as backend:
        rows = backend.table(pa.table({"a": [2**62]}))
        with pytest.raises(UnciaError, match="beyond 64 bits"):
            backend.write(rows.select(a=rows.a * 4), path)
        with pytest.raises(UnciaError, match="it is a folder"):
            backend.write(rows, tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert pa.parquet.read_table(path)["execution"].to_pylist() == [7]


def test_a_listener_hears_of_each_query(tmp_path: Path) -> None:
    reports: list[tuple[int, float | None]] = []
    with connect("duckdb", temporary=tmp_path) as backend:
        rows = backend.table(pa.table({"n": list(range(4))}))
        backend.watch(lambda query, percent: reports.append((query, percent)))
        for _ in range(2):
            assert backend.collect(rows.aggregate(n=rows.n.sum())).to_pylist() == [{"n": 6}]
    assert {query for query, _ in reports} == {1, 2}
    assert all(percent is None or 0 <= percent <= 100 for _, percent in reports)
