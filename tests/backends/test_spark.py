"""DuckDB and a real Spark of two worker processes give the same integers.

All that needs this Spark is in this file, as files are divided among processes, and each process
would start a cluster of its own.
"""

from __future__ import annotations

import time
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from spark_rows import chained_requests, requests_and_instances, rows
from tariff_oracle import price
from tariff_rows import table

from uncia import record
from uncia.backends import connect
from uncia.costs.advice.frames import choice_frame, hint_frame
from uncia.costs.advice.gather import study
from uncia.costs.coldstarts import analysed
from uncia.costs.decompose import decompose
from uncia.costs.instances import instances as price_instances
from uncia.errors import UnciaError
from uncia.tariffs import bill, billable, catalogue
from uncia.tariffs.equation import query


@pytest.fixture(scope="module")
def invocations(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A folder of eight files, and the rows in it."""
    folder = tmp_path_factory.mktemp("rows")
    made = rows(3000, seed=5)
    data = table(made)
    for number in range(8):
        part = data.slice(number * 375, 375)
        pa.parquet.write_table(part, folder / f"part-{number}.parquet")
    return folder, made


def tasks(spark: Any) -> dict[str, int]:
    """Tasks that each worker has finished."""
    executors = spark._session.sparkContext._jsc.sc().statusStore().executorList(True)
    result = [executors.apply(index) for index in range(executors.size())]
    return {item.id(): item.completedTasks() for item in result if item.id() != "driver"}


def alike(first: pa.Table, second: pa.Table, *keys: str) -> None:
    """Two answers have the same columns, types and values, whatever the order of rows."""
    assert first.schema == second.schema
    order = [(key, "ascending") for key in keys or first.column_names]
    assert first.sort_by(order).to_pylist() == second.sort_by(order).to_pylist()


def test_every_tariff_bills_alike_on_both(
    spark: Any, duckdb: Any, invocations: tuple[Path, list[dict[str, Any]]]
) -> None:
    folder, made = invocations
    tariffs = catalogue.resolve(None)
    assert len(tariffs) >= 12
    before = tasks(spark)
    answers = {}
    for engine in (duckdb, spark):
        planned = query(engine.table(folder), tariffs, ["function"])
        answers[engine.name] = engine.collect(planned.aggregation())
    alike(answers["duckdb"], answers["spark"], "g_function")
    sums = [field.type for field in answers["spark"].schema if "billed" in field.name]
    assert sums
    assert set(sums) == {pa.decimal128(38, 0)}

    until = time.monotonic() + 30
    while len([item for item, done in tasks(spark).items() if done > before.get(item, 0)]) < 2:
        assert time.monotonic() < until, f"one worker did it all: {tasks(spark)}"
        time.sleep(0.1)

    # The same sums in plain Python; the oracle has no rule for what is no whole, sane row.
    lines = {
        (line.tariff, line.group["function"]): line
        for line in bill(folder, ["aws-lambda-x86", "alibaba-fc"], ["function"], spark)
    }
    for (tariff, function), line in lines.items():
        selected = [item for item in made if item["function"] == function and sane(item)]
        prices = [result for item in selected if (result := price(tariff, item)) is not None]
        assert line.rows == len(prices)
        assert line.billable_byte_ns == sum(item.memory for item in prices)
        assert line.exact_cost == sum((item.cost for item in prices), Fraction(0))


def sane(row: dict[str, Any]) -> bool:
    from uncia.tariffs.rows import MAX_VALUES

    return all(row[name] is None or 0 <= row[name] <= most for name, most in MAX_VALUES.items())


def test_all_rows_at_once_and_rows_in_memory(
    spark: Any, duckdb: Any, invocations: tuple[Path, list[dict[str, Any]]]
) -> None:
    data = table(invocations[1][:400])
    chosen = ["gcp-run-request", "azure-flex", "spfu"]
    assert bill(data, chosen, backend=spark) == bill(data, chosen, backend=duckdb)


def test_bill_parts_cold_starts_and_instances_are_alike(spark: Any, duckdb: Any) -> None:
    asked, lives = requests_and_instances()
    result: dict[str, list[pd.DataFrame]] = {}
    for backend in (duckdb, spark):
        data, started = backend.table(asked), backend.table(lives, "instances")
        starts = analysed(data, [], instances=started, points=21, backend=backend)
        result[backend.name] = [
            decompose(data, ["gcp-run-request"], group_by=["platform"], backend=backend),
            starts.cdf,
            price_instances(started, ["gcp-run-instance"], invocations=data, backend=backend),
        ]
    assert len(set(result["duckdb"][1]["exact"])) > 5
    for first, second in zip(result["duckdb"], result["spark"], strict=True):
        pd.testing.assert_frame_equal(first, second, check_exact=True)


@pytest.mark.timeout(900)  # dozens of queries, each compiled and planned
def test_advice_is_alike(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pa.parquet.write_table(chained_requests(), path)
    result = {}
    for engine in (duckdb, spark):
        with study(
            path,
            p95="600ms",
            functions=None,
            tariffs=["gcp-run-request"],
            fit="allocated",
            confidence=0.95,
            of="execution",
            present=None,
            backend=engine,
        ) as known:
            result[engine.name] = choice_frame(known), hint_frame(known)
    for mine, other in zip(result["duckdb"], result["spark"], strict=True):
        assert mine.to_dict("list") == other.to_dict("list")
    hints = set(result["spark"][1]["hint"])
    assert {"merge chain", "concurrency"} <= hints  # so that joins and windows ran there too


def test_the_wider_type_of_files_and_columns_without_any(
    spark: Any, duckdb: Any, tmp_path: Path
) -> None:
    text = pa.array(["a", None], pa.string()).dictionary_encode()
    first = {"execution": pa.array([1, None], pa.int32()), "function": text, "burst": pa.nulls(2)}
    second = {"execution": pa.array([2**60]), "outcome": pa.nulls(1), "extra": pa.array([True])}
    third = {"function": pa.nulls(1), "burst": pa.array([3], pa.uint16())}
    paths = [tmp_path / f"it's [{number}].parquet" for number in range(3)]
    for path, columns in zip(paths, (first, second, third), strict=True):
        pa.parquet.write_table(pa.table(columns), path)
    answers = [engine.collect(engine.table(paths)) for engine in (duckdb, spark)]
    alike(*answers, "execution", "burst")
    expected = pa.schema(
        {
            "execution": pa.int64(),
            "function": pa.string(),
            "burst": pa.int32(),
            "outcome": pa.string(),
            "extra": pa.bool_(),
        }
    )
    assert {name: answers[1].schema.field(name).type for name in expected.names} == {
        field.name: field.type for field in expected
    }
    assert Counter(answers[1]["execution"].to_pylist()) == {1: 1, None: 2, 2**60: 1}


def test_rows_in_memory_keep_their_values(spark: Any, duckdb: Any) -> None:
    data = pa.table(
        {
            "function": pa.array(["f", None, "g"]).dictionary_encode(),
            "execution": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
            "memory_peak": pa.nulls(3),
            "total": pa.array([Decimal(10**38 - 1), None, Decimal(-1)], pa.decimal128(38, 0)),
            "preemptible": pa.array([True, None, False]),
        }
    )
    alike(*(engine.collect(engine.table(data)) for engine in (duckdb, spark)), "execution")
    inline = ibis.memtable(data.select(["execution", "total"]))
    collected = spark.collect(inline.order_by("execution"))
    assert collected["execution"].to_pylist() == [-(2**63), 2**63 - 1, None]


def test_a_stream_beside_a_file(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    data = record.conform(run_rows(), "invocations")
    record.write(data, tmp_path / "a.parquet")
    stream = tmp_path / "b.arrows"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    sources = [tmp_path / "a.parquet", stream]
    alike(
        *(
            engine.collect(engine.table(sources).select("function", "execution", "outcome"))
            for engine in (duckdb, spark)
        )
    )


def run_rows() -> pa.Table:
    names = [column.name for column in record.columns("invocations") if not column.nullable]
    usual: dict[str, Any] = {"attempt": 1, "outcome": "ok", "function": "f", "invocation": "i"}
    columns = {name: [usual[name]] * 2 for name in names} | {"execution": [5, None]}
    return pa.table(columns)


KEYS = ["a/b", "x y", "=e", "ä%20", "007", "NULL", None]


def test_phases_pass_through_either(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    phases = [[{"duration": 2**53 + 1, "threads": 2, "memory": 7}], [], None]

    def made(first: int, lists: list[Any]) -> pa.Table:
        plain = [{"function": "f", "invocation": f"i{first + i}", "attempt": 1, "outcome": "ok"}
                 for i in range(3)]  # fmt: skip
        data = pa.Table.from_pylist(plain).append_column("phases", pa.array(lists))
        return record.conform(data, "invocations")

    record.write(made(0, phases), tmp_path / "a.parquet")
    older = made(3, phases).drop_columns(["phases"])
    pa.parquet.write_table(older, tmp_path / "b.parquet")
    streamed = made(6, phases)
    with pa.ipc.new_stream(str(tmp_path / "c.arrows"), streamed.schema) as writer:
        writer.write_table(streamed)
    for engine in (duckdb, spark):
        rows = engine.table([tmp_path / name for name in ("a.parquet", "b.parquet", "c.arrows")])
        engine.write(rows, tmp_path / f"{engine.name}.parquet")
        back = record.read(tmp_path / f"{engine.name}.parquet").sort_by("invocation")
        assert back["phases"].to_pylist() == [*phases, None, None, None, *phases]


def test_partitioned_folders_are_read_by_either(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    data = pa.table(
        {
            "function": KEYS,
            "allocated_memory": [1, 2, 3, None, 5, 6, 7],
            "execution": list(range(7)),
        }
    )
    for writer in (duckdb, spark):
        folder = tmp_path / f"by {writer.name}"
        writer.write(writer.table(data), folder, ["allocated_memory", "function"])
        assert not [path for path in folder.rglob("*") if path.name[0] in "._"]
        for reader in (duckdb, spark):
            back = reader.collect(reader.table(folder)).select(data.column_names)
            alike(back, data, "execution")
        with pytest.raises(UnciaError, match="exists already"):
            writer.write(writer.table(data), folder, ["function"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by duckdb", "by spark"]


def test_addresses_are_left_to_the_engines(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    data = pa.table({"function": ["f", "g"], "allocated_memory": [1, 2], "execution": [3, 4]})
    for writer in (duckdb, spark):
        folder = f"file://{tmp_path}/{writer.name}"
        writer.write(writer.table(data), folder, ["allocated_memory"])
        for reader in (duckdb, spark):
            alike(reader.collect(reader.table(f"{folder}/").select(data.column_names)), data)
        assert not writer.has(folder, "invocations")
    empty = pa.table({"function": [""], "execution": [1]})
    with pytest.raises(UnciaError, match="function holds an empty text"):
        spark.write(spark.table(empty), f"file://{tmp_path}/empty", ["function"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["duckdb", "spark"]


def test_a_file_appears_only_when_it_is_whole(spark: Any, duckdb: Any, tmp_path: Path) -> None:
    data = pa.table({"execution": [2**62, 2**62], "function": ["f", ""]})
    for engine in (duckdb, spark):
        path = tmp_path / f"{engine.name}.parquet"
        rows = engine.table(data)
        engine.write(rows.order_by("execution").limit(1), path)
        assert pa.parquet.read_table(path)["execution"].to_pylist() == [2**62]
        with pytest.raises(UnciaError, match="beyond 64 bits"):
            engine.write(rows.select(x=rows.execution + rows.execution), path)
        with pytest.raises(UnciaError, match="function holds an empty text"):
            engine.write(rows, tmp_path / "folder", ["function"])
        with pytest.raises(UnciaError, match="is no folder"):
            engine.write(rows, tmp_path / "none" / "x.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["duckdb.parquet", "spark.parquet"]
    assert pa.parquet.read_table(tmp_path / "spark.parquet").num_rows == 1


def test_sums_beyond_38_digits_are_errors(spark: Any, duckdb: Any) -> None:
    half = Decimal(6 * 10**37)
    data = pa.table({"k": [1, 1], "a": pa.array([half, half], pa.decimal128(38, 0))})
    whole = pa.table({"a": [2**62, 2**62]})
    for engine in (duckdb, spark):
        rows, numbers = engine.table(data), engine.table(whole)
        for expression in (
            rows.aggregate(a=rows.a.sum()),
            rows.group_by("k").aggregate(a=rows.a.sum().cast("decimal(38, 0)")),
            numbers.aggregate(a=numbers.a.sum().cast("int64")),
        ):
            with pytest.raises(UnciaError, match="38 digits"):
                engine.collect(expression)


def test_what_cannot_be_read_is_named(spark: Any, tmp_path: Path) -> None:
    good, cut, empty = (tmp_path / f"{name}.parquet" for name in ("good", "cut", "empty"))
    pa.parquet.write_table(pa.table({"execution": list(range(1000))}), good)
    cut.write_bytes(good.read_bytes()[:-20])
    empty.write_bytes(b"")
    for bad in (cut, empty):
        with pytest.raises(UnciaError, match=f"{bad} cannot be read as Parquet"):
            spark.table([good, bad])
    broken = bytearray(good.read_bytes())
    broken[4:200] = b"\xff" * 196
    cut.write_bytes(broken)
    with pytest.raises(UnciaError, match=f"{cut} cannot be read as Parquet"):
        spark.collect(spark.table([good, cut]))
    with pytest.raises(UnciaError, match="no file system for this address"):
        spark.table("s3a://bucket/rows.parquet")
    (tmp_path / "none.parquet").mkdir()
    with pytest.raises(UnciaError, match="holds no Parquet file"):
        spark.table(tmp_path / "none.parquet")


def test_a_second_backend_uses_the_spark_that_runs(spark: Any) -> None:
    with connect("spark") as second:
        rows = second.table(pa.table({"a": [1, 2]}))
        assert second.collect(rows.aggregate(a=rows.a.sum())).to_pylist() == [{"a": 3}]
    rows = spark.table(pa.table({"a": [1, 2]}))
    assert spark.collect(rows.count().as_table()).num_rows == 1
    with pytest.raises(UnciaError, match=r"already, so it cannot use local\[1\]"):
        spark_on("local[1]")
    with (
        pytest.raises(UnciaError, match="its memory cannot be limited"),
        connect("spark", memory_limit="2GB"),
    ):
        pass


def spark_on(master: str) -> None:
    with connect("spark", master=master):
        pass


def test_all_tariffs_are_compared() -> None:
    assert {tariff.id for tariff in catalogue.resolve(None)} == set(billable())
