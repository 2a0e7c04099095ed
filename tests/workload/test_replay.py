"""Replay of tables: what is replayed is what was recorded, to the row and the nanosecond."""

import hashlib
import json
import struct
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_oracle import dry_run

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.record.schema import TABLE_KEY
from uncia.units import NS_PER_MIN, NS_PER_S, format_duration
from uncia.workload.replay import Replay, expand, expansion

S = NS_PER_S


class Holder(Form):
    replay: Replay


def read(**given: Any) -> Replay:
    """The form as a file has it: plain data only."""
    document = yamlio.load(json.dumps({"replay": given}), "w.yaml")
    return yamlio.validate(Holder, document).replay


def write_invocations(path: Path, rows: list[dict[str, Any]]) -> Path:
    filled = [
        {"invocation": f"i{number}", "attempt": 1, "outcome": "ok", **row}
        for number, row in enumerate(rows)
    ]
    columns = ("function", "experiment", "invocation", "attempt", "outcome", "scheduled", "sent")
    types = record.schema("invocations")
    table = pa.table(
        {
            name: pa.array([row.get(name) for row in filled], type=types.field(name).type)
            for name in (*columns, "started")
        }
    )
    return record.write(table, path, "invocations")


def write_arrivals(path: Path, rows: list[tuple[Any, Any, Any]]) -> Path:
    functions, minutes, counts = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "function": pa.array(functions, pa.utf8()),
            "minute": pa.array(minutes, pa.int64()),
            "count": pa.array(counts, pa.int64()),
        }
    )
    pq.write_table(table.replace_schema_metadata({TABLE_KEY: "arrivals"}), path)
    return path


def times(replay: Replay, seed: int = 1) -> dict[str, list[int]]:
    return {item.function: item.arrivals.engine()["times_ns"] for item in expand(replay, seed)}


def counts(replay: Replay, seed: int = 1) -> dict[str, list[int]]:
    return {item.function: item.arrivals.engine()["counts"] for item in expand(replay, seed)}


def refused(**given: Any) -> str:
    with pytest.raises(UnciaError) as caught:
        expand(read(**given), 1)
    return str(caught.value)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three functions, out of order, with a retry and each source of times."""
    return write_invocations(
        tmp_path / "trace.parquet",
        [
            {"function": "b", "scheduled": 7 * S, "sent": 99 * S, "started": 98 * S},
            {"function": "a", "sent": 5 * S + 1, "started": 97 * S},
            {"function": "c", "started": 4 * S},
            {"function": "a", "scheduled": 4 * S},
            {"function": "a", "scheduled": 4 * S, "attempt": 2},
            {"function": "b", "scheduled": 6 * S},
            {"function": "b", "scheduled": 7 * S},
        ],
    )


def test_times_are_those_of_the_rows_from_the_first_on(trace: Path) -> None:
    result = expansion(read(table=str(trace)), 1)
    assert [item.function for item in result.replayed] == ["a", "b", "c"]
    assert result.retries == 1
    assert times(read(table=str(trace))) == {"a": [0, S + 1], "b": [2 * S, 3 * S, 3 * S], "c": [0]}
    a, b, _ = (item.arrivals for item in result.replayed)
    assert a.engine()["kind"] == "times"
    assert (a.expected_requests(), b.expected_requests()) == (2, 3)
    assert (b.expected_before(3 * S), b.span_ns()) == (1, 3 * S)
    assert b.sentence() == "at 3 recorded times within 3.0 s"
    assert a.model_dump(mode="json") == {
        "kind": "times",
        "times": ["0ns", format_duration(S + 1)],
    }


def test_a_window_is_half_open_and_times_count_from_its_start(trace: Path) -> None:
    assert times(read(table=str(trace), window=["4s", "7s"])) == {
        "a": [0, S + 1],
        "b": [2 * S],
        "c": [0],
    }
    assert times(read(table=str(trace), window=["5s", "6001ms"])) == {"a": [1], "b": [S]}


def test_functions_replayed_apart_keep_their_distance(trace: Path) -> None:
    assert times(read(table=str(trace), functions=["b"])) == {"b": [2 * S, 3 * S, 3 * S]}


def test_speed_divides_times_exactly(tmp_path: Path) -> None:
    moments = [0, 1, 2, 3, 10**18 + 7]
    path = write_invocations(
        tmp_path / "t.parquet", [{"function": "f", "scheduled": moment} for moment in moments]
    )
    assert times(read(table=str(path), speed=2))["f"] == [0, 0, 1, 1, 5 * 10**17 + 3]
    assert times(read(table=str(path), speed=1.1))["f"][-1] == (10**18 + 7) * 10 // 11
    assert times(read(table=str(path), speed=0.5))["f"][:4] == [0, 2, 4, 6]
    assert "does not fit 64-bit nanoseconds" in refused(table=str(path), speed=0.1)


def test_experiments_of_a_run_are_replayed_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_invocations(
        folder / "invocations.parquet",
        [
            {"function": "f", "experiment": "warm", "scheduled": 10 * S},
            {"function": "f", "experiment": "cold", "scheduled": 1 * S},
            {"function": "f", "experiment": "warm", "scheduled": 12 * S},
        ],
    )
    assert "has several experiments" in refused(table=str(folder))
    assert "They are: cold, warm." in refused(table=str(folder))
    assert "no experiment 'wram', did you mean warm?" in refused(
        table=str(folder), experiment="wram"
    )
    assert times(read(table=str(folder), experiment="warm")) == {"f": [0, 2 * S]}


def test_a_run_that_died_is_replayed_from_its_streams(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "dead"
    folder.mkdir()
    rows = record.read(trace)
    stream = folder / "invocations.000-warm.arrows"
    with pa.ipc.new_stream(str(stream), rows.schema) as writer:
        writer.write_table(rows)
    expected = times(read(table=str(trace)))
    assert times(read(table=str(folder))) == expected
    assert times(read(table=str(stream))) == expected
    # A relative path starts from the folder that is given.
    relative = Replay(table=Path("dead"))
    assert len(expand(relative, 1, tmp_path)) == 3


def test_a_sample_is_the_seed_s_and_grows(tmp_path: Path) -> None:
    names = [f"function-{number}" for number in range(40)]
    path = write_invocations(
        tmp_path / "t.parquet", [{"function": name, "scheduled": 5} for name in names]
    )

    def drawn(seed: int, sample: int) -> list[str]:
        return [item.function for item in expand(read(table=str(path), sample=sample), seed)]

    def lot(name: str) -> bytes:
        return hashlib.sha256(struct.pack("<Q", 7) + b"sample/" + name.encode()).digest()

    assert drawn(7, 10) == sorted(sorted(names, key=lot)[:10])
    assert set(drawn(7, 10)) < set(drawn(7, 20))
    assert drawn(7, 10) != drawn(8, 10)
    assert drawn(2**64 - 1, 40) == sorted(names)
    assert "41 functions are asked for, but only 40" in refused(table=str(path), sample=41)


def test_counts_of_minutes_are_kept(tmp_path: Path) -> None:
    path = write_arrivals(
        tmp_path / "t.parquet",
        [("b", 12, 5), ("a", 10, 1), ("a", 13, 2), ("b", 11, 0), ("b", 12, 1), ("c", 14, 9)],
    )
    assert counts(read(table=str(path))) == {
        "a": [1, 0, 0, 2],
        "b": [0, 0, 6],
        "c": [0, 0, 0, 0, 9],
    }
    result = expand(read(table=str(path), window=["12min", "14min"], speed=2.5), 1)
    assert [(item.function, item.arrivals.engine()) for item in result] == [
        (
            name,
            {
                "kind": "counts",
                "counts": kept,
                "bucket_ns": 24 * S,
                "placement": "exponential",
                "phase": True,
            },
        )
        for name, kept in (("a", [0, 2]), ("b", [6]))
    ]
    even = expand(read(table=str(path), placement="equidistant", speed=7), 1)[0].arrivals.engine()
    assert (even["placement"], even["bucket_ns"]) == ("equidistant", round(60 * S / 7))


def test_what_cannot_be_replayed_is_told(tmp_path: Path, trace: Path) -> None:
    minutes = write_arrivals(tmp_path / "minutes.parquet", [("a", 3, 1), ("b", 5, 0)])
    assert "does not exist" in refused(table=str(tmp_path / "none.parquet"))
    assert "has no function 'bb', did you mean b?" in refused(table=str(trace), functions=["bb"])
    assert "no arrival is left from 10s to 20s" in refused(table=str(trace), window=["10s", "20s"])
    assert "The arrivals of the table are from 4s to 7s" in refused(
        table=str(trace), window=["10s", "20s"]
    )
    assert "there is nothing to place" in refused(table=str(trace), placement="uniform")
    assert "no arrival is left in the minutes 4 to 8" in refused(
        table=str(minutes), window=["4min", "9min"]
    )
    assert "cuts a minute" in refused(table=str(minutes), window=["90s", "3min"])
    assert "which has no experiments" in refused(table=str(minutes), experiment="warm")
    assert "no arrival is left" in refused(table=str(minutes), functions=["b"])
    assert "shorter than a nanosecond" in refused(table=str(minutes), speed=1e12)


def test_arrivals_that_somebody_else_wrote_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "counted.parquet"
    pq.write_table(
        pa.table({"function": ["a", "a", "b"], "minute": [8, 9, 8], "count": [3, 2, 1]}), path
    )
    assert counts(read(table=str(path), window=["8min", "10min"])) == {"a": [3, 2], "b": [1]}


def test_files_that_are_no_tables_of_ours_are_told(tmp_path: Path) -> None:
    def file(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    assert "cannot be read as a table" in refused(table=file("a.parquet", b"PAR1 not really PAR1"))
    assert "cannot be read as a table" in refused(table=file("a.arrows", b"\xff\xff\xff\xff"))
    assert "cannot be read as a table" in refused(table=file("empty.arrows", b""))
    assert "is not a table: a replay reads" in refused(table=file("a.csv", b"function,minute\n"))
    (tmp_path / "folder").mkdir()
    assert "not the folder of a run" in refused(table=str(tmp_path / "folder"))
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"function": ["a"], "minute": [1]}), other)
    assert "is not a table of Uncia" in refused(table=str(other))
    pq.write_table(pa.table({"function": ["a"], "minute": ["x"], "count": [1]}), other)
    assert "cannot be read as a table" in refused(table=str(other))
    spans = tmp_path / "spans.parquet"
    record.write(record.empty("spans"), spans, "spans")
    assert "holds the table spans; a replay reads invocations or arrivals" in refused(
        table=str(spans)
    )
    empty = tmp_path / "none.parquet"
    record.write(record.empty("invocations"), empty, "invocations")
    assert "the table is empty" in refused(table=str(empty))
    short = tmp_path / "short.parquet"
    pq.write_table(
        pa.table({"function": ["a"]}).replace_schema_metadata({TABLE_KEY: "arrivals"}), short
    )
    assert "the table arrivals lacks its column minute" in refused(table=str(short))
    newer = tmp_path / "newer.parquet"
    metadata = {TABLE_KEY: "invocations", "uncia.schema_version": "999"}
    pq.write_table(record.read(empty).replace_schema_metadata(metadata), newer)
    assert "table schema version 999" in refused(table=str(newer))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", 1, -3), "row 3 has the count -3 (allowed: 0 to 1,000,000,000)"),
        (("a", -1, 3), "row 3 has the minute -1 (allowed: 0 to 5,270,400)"),
        (("a", 10**12, 3), "row 3 has the minute 1,000,000,000,000 (allowed: "),
        (("a", 1, 2**63 - 1), "row 3 has the count 9,223,372,036,854,775,807 (allowed: "),
        (("a", 1, None), "row 3 has no count"),
        (("a", None, 3), "row 3 has no minute"),
        ((None, 1, 3), "row 3 has no function"),
    ],
)
def test_a_bad_number_is_told_with_its_row(
    tmp_path: Path, row: tuple[Any, Any, Any], message: str
) -> None:
    path = write_arrivals(tmp_path / "t.parquet", [("a", 1, 1), ("b", 1, 1), row])
    assert message in refused(table=str(path))


def test_a_row_without_a_time_is_told_with_its_number(tmp_path: Path) -> None:
    rows = [
        {"function": "a", "scheduled": 1},
        # Not an arrival, so it needs no time.
        {"function": "a", "attempt": 2},
        {"function": "b"},
    ]
    path = write_invocations(tmp_path / "t.parquet", rows)
    assert "row 3 has no time: scheduled, sent and started are null" in refused(table=str(path))
    path = write_invocations(tmp_path / "t.parquet", rows[1:2])
    assert "all rows are further attempts" in refused(table=str(path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"speed": 0}, "w.yaml:1: replay.speed: must be greater than 0, not 0"),
        ({"speed": "2"}, "replay.speed: must be a valid number"),
        ({"speed": 1.2345678901234567}, "more digits than can be computed with exactly"),
        ({"sample": 0}, "replay.sample: must be greater than or equal to 1"),
        ({"functions": []}, "replay.functions: needs at least 1, not 0"),
        ({"window": ["5s"]}, "replay.window: a window is written [from, to]"),
        ({"window": ["5s", "5s"]}, "replay.window: the window 5s to 5s is empty"),
        ({"window": [0, "5s"]}, "replay.window[0]: 0 has no unit"),
        ({"placement": "even"}, "'even' is not known"),
        ({"tabel": "x"}, "replay.tabel: unknown key, did you mean table?"),
        ({"table": 5}, "replay.table: "),
    ],
)
def test_mistakes_in_the_form_are_told_with_their_place(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnciaError) as caught:
        read(**{"table": "trace.parquet", **given})
    assert message in caught.value.message


def test_nan_is_no_speed() -> None:
    with pytest.raises(UnciaError, match=r"w.yaml:3: replay.speed: must be a finite number"):
        yamlio.validate(
            Holder, yamlio.load("replay:\n  table: t.parquet\n  speed: .nan\n", "w.yaml")
        )


def test_the_form_reads_back_as_the_same() -> None:
    replay = read(table="a/b.parquet", window=["0s", "5min"], speed=1.5, sample=3)
    assert read(**replay.model_dump(mode="json", exclude_none=True)) == replay


recorded = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 50 * S), st.integers(1, 2)),
    min_size=1,
    max_size=40,
)
speeds = st.sampled_from([0.25, 0.3, 1, 1.1, 2, 3, 60, 1440])


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(rows=recorded, begin=st.integers(0, 50 * S), length=st.integers(1, 60 * S), speed=speeds)
def test_every_first_attempt_in_the_window_is_replayed_once(
    tmp_path: Path,
    rows: list[tuple[str, int, int]],
    begin: int,
    length: int,
    speed: float,
) -> None:
    path = write_invocations(
        tmp_path / "t.parquet",
        [{"function": f, "scheduled": time, "attempt": attempt} for f, time, attempt in rows],
    )
    exact = Fraction(str(speed))
    expected: dict[str, list[int]] = {}
    for function, time, attempt in sorted(rows):
        if attempt == 1 and begin <= time < begin + length:
            expected.setdefault(function, []).append(int((time - begin) // exact))
    replay = read(table=str(path), speed=speed, window=[f"{begin}ns", f"{begin + length}ns"])
    if not expected:
        with pytest.raises(UnciaError):
            expand(replay, 1)
        return
    assert times(replay) == expected
    assert expansion(replay, 1).retries == sum(attempt == 2 for _, _, attempt in rows)
    sampled = times(replay.model_copy(update={"sample": 1}), seed=3)
    assert len(sampled) == 1
    assert all(expected[function] == item for function, item in sampled.items())


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 100)), min_size=1
    ),
    begin=st.integers(0, 30),
    length=st.integers(1, 10),
    speed=speeds,
)
def test_every_minute_in_the_window_keeps_its_count(
    tmp_path: Path, rows: list[tuple[str, int, int]], begin: int, length: int, speed: float
) -> None:
    path = write_arrivals(tmp_path / "t.parquet", list(rows))
    expected: Counter[tuple[str, int]] = Counter()
    for function, minute, count in rows:
        if begin <= minute < begin + length and count:
            expected[function, minute - begin] += count
    replay = read(table=str(path), speed=speed, window=[f"{begin}min", f"{begin + length}min"])
    if not expected:
        with pytest.raises(UnciaError):
            expand(replay, 1)
        return
    result = expand(replay, 1)
    assert [item.function for item in result] == sorted({function for function, _ in expected})
    assert {
        (item.function, bucket): count
        for item in result
        for bucket, count in enumerate(item.arrivals.engine()["counts"])
        if count
    } == expected
    for item in result:
        bucket = Fraction(item.arrivals.engine()["bucket_ns"])
        assert abs(bucket - NS_PER_MIN / Fraction(str(speed))) <= Fraction(1, 2)


def test_the_engine_sends_what_was_recorded(
    engine_binary: Path, tmp_path: Path, trace: Path
) -> None:
    minutes = write_arrivals(tmp_path / "m.parquet", [("d", 2, 3), ("d", 4, 1), ("e", 3, 2)])
    replayed = [
        *expand(read(table=str(trace), speed=2), 1),
        *expand(read(table=str(minutes), window=["2min", "4min"], speed=60), 1),
    ]
    table = dry_run(
        engine_binary,
        tmp_path,
        5,
        [{"function": item.function, "arrivals": item.arrivals.engine()} for item in replayed],
    )
    result: dict[str, list[int]] = {}
    for row in table.to_pylist():
        result.setdefault(row["function"], []).append(row["scheduled"])
    assert {name: result[name] for name in "abc"} == {
        "a": [0, (S + 1) // 2],
        "b": [S, 3 * S // 2, 3 * S // 2],
        "c": [0],
    }
    assert [time // S for time in result["d"]] == [0, 0, 0]
    assert [time // S for time in result["e"]] == [1, 1]


def test_a_trace_of_many_rows_stays_in_columns(tmp_path: Path) -> None:
    """A million rows of 300 functions: each function's times are an array, not objects."""
    import numpy as np

    rng = np.random.default_rng(1)
    size, functions = 1_000_000, 300
    codes = rng.integers(0, functions, size).astype(np.int32)
    moments = rng.integers(0, 3_600 * S, size)
    schema = record.schema("invocations")
    text = pa.array(np.zeros(size, dtype=np.int32))
    given = {
        "function": pa.DictionaryArray.from_arrays(codes, [f"f{i:03}" for i in range(functions)]),
        "invocation": pa.array(np.arange(size)).cast(pa.utf8()),
        "attempt": pa.array(np.ones(size, dtype=np.int64)),
        "outcome": pa.DictionaryArray.from_arrays(text, ["ok"]),
        "started": pa.array(moments),
    }
    path = tmp_path / "t.parquet"
    names = [name for name in schema.names if name in given]
    record.write(pa.table({name: given[name] for name in names}), path, "invocations")
    replayed = expand(read(table=str(path)), 1)
    assert len(replayed) == functions
    assert sum(item.arrivals.expected_requests() for item in replayed) == size
    result = replayed[17]
    expected = np.sort(moments[codes == 17] - moments.min())
    assert result.arrivals.engine()["times_ns"] == expected.tolist()


def test_times_too_far_apart_are_told(tmp_path: Path) -> None:
    rows = [{"function": "a", "scheduled": time} for time in (-(2**62), 2**62)]
    path = write_invocations(tmp_path / "t.parquet", rows)
    assert "further apart than 292 years" in refused(table=str(path))


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each form that a replay reads."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [{"function": f"f{i % 3}", "scheduled": i * S} for i in range(50)]
    invocations = write_invocations(folder / "i.parquet", rows)
    arrivals = write_arrivals(folder / "a.parquet", [("a", i, i) for i in range(1, 30)])
    table, stream = record.read(invocations), folder / "i.arrows"
    with pa.ipc.new_stream(str(stream), table.schema) as writer:
        writer.write_table(table)
    return {path.name: path.read_bytes() for path in (invocations, arrivals, stream)}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(
    name=st.sampled_from(["i.parquet", "a.parquet", "i.arrows"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    kept=st.just(1.0) | st.floats(0, 1),
)
def test_a_damaged_file_is_read_or_told(
    whole_files: dict[str, bytes],
    tmp_path: Path,
    name: str,
    changes: list[tuple[float, int]],
    kept: float,
) -> None:
    content = bytearray(whole_files[name])
    for index, byte in changes:
        content[int(index * len(content))] = byte
    path = tmp_path / name
    path.write_bytes(content[: int(kept * len(content))])
    try:
        replayed = expand(read(table=str(path)), 1)
    except UnciaError:
        return
    for item in replayed:
        engine = item.arrivals.engine()
        assert all(number >= 0 for number in engine.get("times_ns") or engine["counts"])
