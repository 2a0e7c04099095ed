"""Runs of Uncia merged: every row is there, and its times are Unix times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import uncia_run

TIMES = ("scheduled", "sent", "connected", "first_byte", "received", "started", "ended")
EPOCH = 1_747_081_446_154_000_000


def rows(run: str, count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "run": run,
            "platform": "embedded",
            "function": f"f{index % 3}",
            "invocation": f"{run}-{index}",
            "attempt": 1,
            "outcome": "ok",
            "scheduled": index * 10,
            "sent": index * 10 + 1,
            "started": index * 10 + 2 if index % 2 else None,
            "execution": 5,
            "allocated_memory": 128 << 20,
        }
        for index in range(first, first + count)
    ]


def table(values: list[dict[str, Any]], name: str = "invocations", epoch: int = EPOCH) -> pa.Table:
    return record.conform(pa.Table.from_pylist(values), name, epoch)


def stream(path: Path, values: pa.Table, batch: int = 4) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, values.schema) as writer:
        for part in values.unify_dictionaries().to_batches(max_chunksize=batch):
            writer.write_batch(part)
    return path


def read(path: Path, name: str = "invocations") -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if value is not None}
        for row in record.read(path, name).to_pylist()
    ]


def moved(values: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    return [
        {
            key: value + by if key in TIMES else value
            for key, value in row.items()
            if value is not None
        }
        for row in values
    ]


@settings(deadline=None, max_examples=12)
@given(
    runs=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 2 * 10**18), st.booleans()),
        min_size=1,
        max_size=4,
    ).filter(lambda runs: any(run[0] for run in runs))
)
def test_runs_become_one_table_of_unix_times(
    runs: list[tuple[int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    expected = []
    for number, (count, epoch, open_still) in enumerate(runs):
        run = folder / "in" / f"run{number}"
        run.mkdir(parents=True)
        values = rows(f"r{number}", count)
        data = table(values, epoch=epoch) if values else record.empty("invocations", epoch)
        if open_still:
            stream(run / "invocations.000-a.arrows", data.slice(0, 3))
            stream(run / "invocations.001-b.arrows", data.slice(3))
        else:
            record.write(data, run / "invocations.parquet")
        expected += moved(values, epoch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncia_run, "BATCH_ROWS", 5)
        done = uncia_run.convert([folder / "in"], folder / "out")
    assert read(folder / "out") == expected
    assert record.epoch_unix_ns(record.read(folder / "out")) == 0
    assert done.rows == {"invocations": len(expected)}


def test_instances_spans_and_counters_come_along(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    record.write(table(rows("r", 2)), run / "invocations.parquet")
    common = {"run": "r", "function": "f", "started": 5}
    instances = [
        {**common, "instance": "i1", "initialized": 7, "ended": 90, "end_reason": "keep_alive",
         "idle": [{"start": 10, "end": 20}, {"start": 30, "end": 90}]},
        {**common, "instance": "i2", "idle": []},
        {**common, "instance": "i3"},
    ]  # fmt: skip
    # A batch that does not begin at the first value of its buffers.
    stream(run / "instances.arrows", table(instances, "instances"), batch=2)
    spans = [{"run": "r", "invocation": "r-1", "name": "queue", "start": 1, "end": 2,
              "clock": "platform"}]  # fmt: skip
    record.write(table(spans, "spans"), run / "spans.parquet", "spans")
    counters = [{"run": "r", "time": 3, "counter": "load", "value": 0.5}]
    record.write(table(counters, "machine"), run / "machine.parquet", "machine")
    bills = record.empty("bill")
    record.write(bills, run / "bill.parquet", "bill")
    done = uncia_run.convert([run], tmp_path / "out")
    assert done.rows == {"invocations": 2, "instances": 3, "spans": 1, "machine": 1}
    assert done.warnings == [f"{run / 'bill.parquet'} is left out: tables of bill are not merged"]
    first, second, third = read(tmp_path / "out", "instances")
    assert first == instances[0] | {
        "started": EPOCH + 5,
        "initialized": EPOCH + 7,
        "ended": EPOCH + 90,
        "idle": [
            {"start": EPOCH + 10, "end": EPOCH + 20},
            {"start": EPOCH + 30, "end": EPOCH + 90},
        ],
    }
    assert second == instances[1] | {"started": EPOCH + 5}
    assert third == instances[2] | {"started": EPOCH + 5}
    (span,) = read(tmp_path / "out", "spans")
    assert (span["start"], span["end"]) == (EPOCH + 1, EPOCH + 2)
    (counter,) = read(tmp_path / "out", "machine")
    assert (counter["time"], counter["value"]) == (EPOCH + 3, 0.5)


def test_single_files_and_a_file_as_result(tmp_path: Path) -> None:
    case = tmp_path / "one.parquet"
    record.write(table(rows("a", 3)), case)
    two = stream(tmp_path / "two.arrows", table(rows("b", 3), epoch=0))
    foreign = tmp_path / "three.parquet"  # of another tool: no metadata, some of the columns
    pa.parquet.write_table(
        pa.table({"function": ["f"], "invocation": ["i"], "attempt": [1], "outcome": ["ok"]}),
        foreign,
    )
    assert uncia_run.detect([case, two, foreign])
    uncia_run.convert([case, two, foreign], tmp_path / "all.parquet")
    result = read(tmp_path / "all.parquet")
    assert result[:6] == [*moved(rows("a", 3), EPOCH), *moved(rows("b", 3), 0)]
    assert result[6] == {"function": "f", "invocation": "i", "attempt": 1, "outcome": "ok"}


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    values = rows("r", 8)
    bad: list[dict[str, Any]] = [
        {"outcome": "fine"},
        {"function": None},
        {"execution": -1},
        {"allocated_memory": -5, "outcome": "fine"},
    ]
    for index, change in enumerate(bad):
        values[2 * index] = values[2 * index] | change
    # As another tool may have written it: no column says that it may not be null.
    loose = pa.Table.from_pylist(values)
    file = tmp_path / "x.parquet"
    pa.parquet.write_table(loose, file)
    done = uncia_run.convert([file], tmp_path / "out", strict=False)
    assert done.skipped == 4
    assert read(tmp_path / "out") == moved([values[index] for index in (1, 3, 5, 7)], 0)
    with pytest.raises(UnciaError, match=r"line 1, column outcome: 'fine' is not one of ok"):
        uncia_run.convert([file], tmp_path / "none", strict=True)
    assert not (tmp_path / "none").exists()


def test_a_stream_that_a_crash_cut_counts_up_to_its_last_whole_batch(tmp_path: Path) -> None:
    whole = stream(tmp_path / "invocations.arrows", table(rows("r", 12)))
    whole.write_bytes(whole.read_bytes()[:-300])
    done = uncia_run.convert([whole], tmp_path / "out")
    assert 4 <= done.rows["invocations"] < 12
    assert "is cut off, as a crash leaves it" in done.warnings[0]
    assert read(tmp_path / "out") == moved(rows("r", done.rows["invocations"]), EPOCH)


def test_what_is_no_table_is_an_error(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pa.parquet.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(UnciaError, match="is no table of Uncia's") as caught:
        uncia_run.convert([other], tmp_path / "out")
    assert "it lacks function, invocation, attempt, outcome." in (caught.value.hint or "")
    assert not uncia_run.detect([other])
    damaged = tmp_path / "invocations.parquet"
    record.write(table(rows("r", 3)), damaged)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(UnciaError, match=r"invocations\.parquet is damaged"):
        uncia_run.convert([damaged], tmp_path / "out")
    damaged.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UnciaError, match="cannot be read as a table"):
        uncia_run.convert([damaged], tmp_path / "out")
    late = tmp_path / "late.parquet"
    record.write(table(rows("r", 3), epoch=(1 << 63) - 5), late)
    with pytest.raises(UnciaError, match="beyond 64 bits"):
        uncia_run.convert([late], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnciaError, match="holds no table of Uncia's"):
        uncia_run.convert([tmp_path / "empty"], tmp_path / "out")
    newer = tmp_path / "newer.parquet"
    data = table(rows("r", 1)).replace_schema_metadata(
        {"uncia.table": "invocations", "uncia.schema_version": "99"}
    )
    pa.parquet.write_table(data, newer)
    with pytest.raises(UnciaError, match="schema version 99"):
        uncia_run.convert([newer], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_values_without_a_sign_beyond_64_bits_are_bad_rows(tmp_path: Path) -> None:
    good = table(rows("a", 2))
    for name in ("execution", "scheduled"):
        values = pa.array([5, 2**64 - 1], pa.uint64())
        at = good.schema.get_field_index(name)
        pyarrow.parquet.write_table(good.set_column(at, name, values), tmp_path / "big.parquet")
        result = uncia_run.convert([tmp_path / "big.parquet"], tmp_path / name)
        assert result.rows == {"invocations": 1}
        with pytest.raises(UnciaError, match=rf"{name}.*64 bits"):
            uncia_run.convert([tmp_path / "big.parquet"], tmp_path / f"s-{name}", strict=True)


def test_a_column_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    result = table(rows("a", 2))
    twice = result.append_column("execution", result.column("execution"))
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(UnciaError, match=r"twice.parquet has the column execution more than once"):
        uncia_run.convert([tmp_path / "twice.parquet"], tmp_path / "out")


@pytest.mark.parametrize("epoch", ["9223372036854775808", "-1" + "0" * 5000, "noon", "1_0", ""])
def test_an_epoch_that_is_none_is_an_error(tmp_path: Path, epoch: str) -> None:
    result = table(rows("a", 2))
    message = result.replace_schema_metadata(
        {**result.schema.metadata, b"uncia.epoch_unix_ns": epoch.encode()}
    )
    pyarrow.parquet.write_table(message, tmp_path / "far.parquet")
    with pytest.raises(UnciaError, match=r"far.parquet: the table's epoch is .* no Unix time"):
        uncia_run.convert([tmp_path / "far.parquet"], tmp_path / "out")


def test_phases_are_merged(tmp_path: Path) -> None:
    phases = [{"duration": 5, "threads": 1, "memory": 64 << 20}]
    made = [{**row, "phases": phases} for row in rows("made", 3)]
    for run, values in (("plain", rows("plain", 2)), ("made", made)):
        (tmp_path / run).mkdir()
        record.write(table(values), tmp_path / run / "invocations.parquet")
    uncia_run.convert([tmp_path / "plain", tmp_path / "made"], tmp_path / "out")
    assert [row.get("phases") for row in read(tmp_path / "out")] == [None] * 2 + [phases] * 3


def test_runs_from_before_the_column_worker_are_merged(tmp_path: Path) -> None:
    later = [{**row, "worker": "w"} for row in rows("later", 3)]
    for run, values in (("earlier", rows("earlier", 2)), ("later", later)):
        (tmp_path / run).mkdir()
        data = table(values)
        data = data if run == "later" else data.drop_columns(["worker"])
        pa.parquet.write_table(data, tmp_path / run / "invocations.parquet")
    uncia_run.convert([tmp_path / "earlier", tmp_path / "later"], tmp_path / "out")
    assert read(tmp_path / "out") == moved([*rows("earlier", 2), *later], EPOCH)


@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        ("execution", pa.array([0.5, 5.0, None, -5.0]), 2),
        ("execution", pa.array(["x", "5", None, "6"]), 1),
        ("execution", pa.array([10**30, 5, None, 6], pa.decimal128(38, 0)), 1),
        ("execution", pa.array([-1, 5, None, 6], pa.duration("ms")), 1),
        ("started", pa.array([10**15, 5, None, 6], pa.timestamp("s")), 1),
    ],
)
def test_a_cell_of_another_type_that_is_no_integer_costs_its_row(
    tmp_path: Path, name: str, values: pa.Array, wrong: int
) -> None:
    data = pa.Table.from_pylist(rows("r", 4)).drop_columns([name]).append_column(name, values)
    pa.parquet.write_table(data, tmp_path / "x.parquet")
    done = uncia_run.convert([tmp_path / "x.parquet"], tmp_path / "out")
    assert (done.rows, done.skipped) == ({"invocations": 4 - wrong}, wrong)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("outcome", pa.array([b"\xff"])),
        ("outcome", pa.array([{"a": 1}])),
        ("execution", pa.array([True])),
        ("execution", pa.array([[1]])),
    ],
)
def test_a_column_of_a_wrong_type_is_named_with_its_file(
    tmp_path: Path, name: str, values: pa.Array
) -> None:
    data = pa.Table.from_pylist(rows("r", 1)).drop_columns([name]).append_column(name, values)
    pa.parquet.write_table(data, tmp_path / "x.parquet")
    with pytest.raises(UnciaError, match=rf"x\.parquet: invocations\.{name} must be .*, but is "):
        uncia_run.convert([tmp_path / "x.parquet"], tmp_path / "out")
