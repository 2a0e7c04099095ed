"""Azure 2019 and Huawei 2023: counts conserved, days placed, profiles exact."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import trace_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import DURATIONS, INVOCATIONS, MEMORY, counts, left_over, write

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import azure2019, lines
from uncia.traces.huawei import minutes as huawei2023

IDS = st.sampled_from(["o1", "o2", "o3"])
COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 10**15), st.just("12.0"), st.just("1e3"))
CELLS = st.dictionaries(st.integers(1, 1440), COUNTS, max_size=6)
TRIGGERS = st.sampled_from(["http", "timer", ""])
FUNCTIONS = st.lists(st.tuples(IDS, IDS, IDS, TRIGGERS, CELLS), min_size=1, max_size=8)


def invocations(folder: Path, day: int, functions: list[tuple[object, ...]]) -> Path:
    rows = [[*ids, *counts(cells)] for *ids, cells in functions]
    name = f"invocations_per_function_md.anon.d{day:02}.csv"
    return write(folder / name, INVOCATIONS, rows)


def arrivals(folder: Path) -> dict[tuple[str, int], dict[str, object]]:
    table = record.read(folder, "arrivals")
    rows = {
        (row["function"], row["minute"]): {
            key: row[key] for key in ("count", "owner", "app", "trigger")
        }
        for row in table.to_pylist()
    }
    assert len(rows) == table.num_rows, "a function has two rows for a minute"
    return rows


@settings(deadline=None, max_examples=10)
@given(days=st.dictionaries(st.sampled_from([1, 2, 14]), FUNCTIONS, min_size=1, max_size=2))
def test_azure_counts_are_those_of_plain_python(
    days: dict[int, list[tuple[object, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    files = {day: invocations(folder, day, functions) for day, functions in days.items()}
    expected = oracle.azure2019_arrivals(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 8192)
        if not expected:
            with pytest.raises(UnciaError, match="empty"):
                azure2019.convert(files.values(), folder / "out")
            assert left_over(folder) == []
            return
        azure2019.convert(files.values(), folder / "out")
    assert arrivals(folder / "out") == expected
    table = record.read(folder / "out", "arrivals")
    assert sum(table["count"].to_pylist()) == sum(int(r["count"]) for r in expected.values())


def test_a_day_is_placed_by_the_name_of_its_file(tmp_path: Path) -> None:
    file = invocations(tmp_path, 3, [("o", "a", "f", "queue", {1: 5, 1440: 7})])
    done = azure2019.convert([file], tmp_path / "out")
    assert list(arrivals(tmp_path / "out")) == [("o/a/f", 2880), ("o/a/f", 4319)]
    assert any("no invocations of day 1, 2" in warning for warning in done.warnings)


def test_a_function_that_is_there_twice_a_day_is_summed_and_said(tmp_path: Path) -> None:
    rows = [("o", "a", "f", "http", {1: 5, 2: 1}), ("o", "a", "f", "timer", {1: 7})]
    done = azure2019.convert([invocations(tmp_path, 1, rows)], tmp_path / "out")
    result = arrivals(tmp_path / "out")
    assert [(row["count"], row["trigger"]) for row in result.values()] == [(12, None), (1, "http")]
    assert done.warnings == ["1 row repeated a function within a day; their counts were summed"]


@pytest.mark.parametrize("cell", ["-1", "1.5", "", "NaN", "many", "1e99", "0x1F", "+", "١"])
def test_a_bad_count_is_told_with_its_minute(cell: str, tmp_path: Path) -> None:
    rows = [("o", "a", "f", "http", {1: 5}), ("o", "a", "g", "http", {1: 5, 700: cell})]
    file = invocations(tmp_path, 1, rows)
    with pytest.raises(UnciaError) as raised:
        azure2019.convert([file], tmp_path / "out", strict=True)
    index = f"{file}, line 3" + (", column 700" if cell.isascii() else "")
    assert raised.value.message.startswith(index)
    assert left_over(tmp_path) == []
    done = azure2019.convert([file], tmp_path / "out")
    assert done.skipped == 1
    assert list(arrivals(tmp_path / "out")) == [("o/a/f", 0)]


def test_two_files_of_a_day_and_a_name_without_one_are_refused(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [("o", "a", "f", "http", {1: 5})]
    result = invocations(tmp_path / "x", 1, rows)
    two = invocations(tmp_path / "y", 1, rows)
    with pytest.raises(UnciaError, match="both of day 1"):
        azure2019.convert([result, two], tmp_path / "out")
    result.rename(tmp_path / "counts.csv")
    with pytest.raises(UnciaError, match="does not say which day"):
        azure2019.convert([tmp_path / "counts.csv"], tmp_path / "out")


VALUES = st.decimals(min_value=0, max_value=10**7, places=7).map(lambda value: f"{value:f}")


@settings(deadline=None, max_examples=15)
@given(
    durations=st.lists(st.lists(VALUES, min_size=10, max_size=10), min_size=1, max_size=5),
    memory=st.lists(st.lists(VALUES, min_size=9, max_size=9), min_size=1, max_size=5),
)
def test_profiles_are_exact(
    durations: list[list[str]],
    memory: list[list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    files = [
        write(
            folder / "function_durations_percentiles.anon.d02.csv",
            DURATIONS,
            [["o", "a", f"f{i}", v[0], i, *v[1:]] for i, v in enumerate(durations)],
        ),
        write(
            folder / "app_memory_percentiles.anon.d01.csv",
            MEMORY,
            [["o", f"a{i}", i, *v] for i, v in enumerate(memory)],
        ),
    ]
    azure2019.convert(files, folder / "out.parquet")
    expected = {}
    names = ["mean", "minimum", "maximum", *(Fraction(p, 100) for p in (0, 1, 25, 50, 75, 99, 100))]
    for i, values in enumerate(durations):
        for name, text in zip(names, values, strict=True):
            expected[f"o/a/f{i}", "a", name] = (oracle.nearest(text, 10**6), None, 1440, i)
    names = ["mean", *(Fraction(p, 100) for p in (1, 5, 25, 50, 75, 95, 99, 100))]
    for i, values in enumerate(memory):
        for name, text in zip(names, values, strict=True):
            expected[None, f"a{i}", name] = (None, oracle.nearest(text, 1 << 20), 0, i)
    rows = record.read(folder / "out.parquet", "profiles").to_pylist()
    assert len(rows) == len(expected)
    for row in rows:
        statistic = row["statistic"]
        if statistic == "quantile":
            statistic = Fraction(Decimal(repr(row["quantile"])))
        result = (row["duration"], row["memory"], row["minute"], row["count"])
        assert result == expected[row["function"], row["app"], statistic]
        assert (row["owner"], row["minutes"]) == ("o", 1440)


def test_durations_that_the_trace_lacks_or_has_below_0_are_no_rows(tmp_path: Path) -> None:
    values = ["1", "1", "1", "1", "1", "1", "1"]
    rows = [
        ["o", "a", "f", "-41692", 5, "", "3.5", *values],
        ["o", "a", "f", "100", 5, "1", "2", *values],
    ]
    file = write(tmp_path / "function_durations_percentiles.anon.d01.csv", DURATIONS, rows)
    done = azure2019.convert([file], tmp_path / "out")
    table = record.read(tmp_path / "out", "profiles").to_pylist()
    plain = [(row["statistic"], row["duration"]) for row in table if row["quantile"] is None]
    assert sorted(plain) == [
        ("maximum", 2_000_000),
        ("maximum", 3_500_000),
        ("mean", 100_000_000),
        ("minimum", 1_000_000),
    ]
    assert any("1 duration below 0" in warning for warning in done.warnings)
    assert any("1 row repeated" in warning for warning in done.warnings)


def huawei(folder: Path, metric: str, day: int, times: list[int], cells: list[list[str]]) -> Path:
    header = ["day", "time", *map(str, range(len(cells[0])))]
    rows = [[day, time, *row] for time, row in zip(times, cells, strict=True)]
    return write(folder / metric / f"day_{day:03}.csv", header, rows)


SECONDS = st.lists(st.integers(0, 600), min_size=1, max_size=30, unique=True)
REQUESTS = st.sampled_from(["0", "1", "816.0", "12", "", "NaN", "nan", "26684.000", "1.2e1"])


@settings(deadline=None, max_examples=25)
@given(times=SECONDS, by_minute=st.booleans(), block=st.sampled_from([32, 1 << 24]), data=st.data())
def test_huawei_requests_are_those_of_plain_python(
    times: list[int],
    by_minute: bool,
    block: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    step = 60 if by_minute else 1
    row = st.lists(REQUESTS, min_size=4, max_size=4)
    cells = data.draw(st.lists(row, min_size=len(times), max_size=len(times)))
    day = data.draw(st.sampled_from([0, 234]))
    metric = "requests_minute" if by_minute else "requests_second"
    file = huawei(folder, metric, day, [day * 86_400 + time * step for time in times], cells)
    expected, without = oracle.huawei2023([file], step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        if not expected:
            with pytest.raises(UnciaError, match="empty"):
                huawei2023.convert([file], folder / "out")
            return
        done = huawei2023.convert([file], folder / "out")
    result = {key: row["count"] for key, row in arrivals(folder / "out").items()}
    assert result == expected
    assert any("without data" in warning for warning in done.warnings) == (without > 0)
    assert all(str(without) in warning for warning in done.warnings)


def test_what_has_no_place_in_the_tables_is_left_out_and_said(tmp_path: Path) -> None:
    metrics = ("platform_delay", "cpu_usage", "memory_usage", "cpu_limit", "instances")
    folder = tmp_path / "private_dataset"
    for metric in metrics:
        huawei(folder, f"{metric}_minute", 0, [0], [["1"]])
    with pytest.raises(UnciaError, match="1 file of platform_delay not read") as raised:
        huawei2023.convert([folder], tmp_path / "out")
    assert "requests_minute" in str(raised.value.hint)
    for metric in ("function_delay_minute", "function_delay_second", "requests_second"):
        huawei(folder, metric, 0, [60], [["1.5"]])
    huawei(folder, "requests_minute", 0, [60], [["7"]])
    done = huawei2023.convert([folder], tmp_path / "out")
    assert {key: row["count"] for key, row in arrivals(tmp_path / "out").items()} == {("0", 1): 7}
    message = "\n".join(done.warnings)
    for metric in metrics:
        assert f"1 file of {metric} not read: no table has a place for it" in message
    assert "1 file of requests_second not read: requests_minute counts the same" in message
    assert "1 file of function_delay not read: profiles are of minutes" in message
    assert "1 file of function_delay not read: the release does not say its unit" in message
    with pytest.raises(UnciaError, match="--delay-unit is s or ms"):
        huawei2023.convert([folder], tmp_path / "more", delay_unit="us")
    huawei2023.convert([folder], tmp_path / "more", delay_unit="ms")
    delays = record.read(tmp_path / "more", "profiles").to_pylist()
    assert [(row["function"], row["minute"], row["duration"]) for row in delays] == [
        ("0", 1, 1_500_000)
    ]


def test_limits_of_memory_are_profiles_of_all_pods(tmp_path: Path) -> None:
    file = huawei(tmp_path, "memory_limit_minute", 0, [0, 60], [["256", "NaN"], ["", "0.3"]])
    done = huawei2023.convert([file], tmp_path / "out.parquet")
    assert (done.read, done.rows) == (2, {"profiles": 2})
    assert any("2 cells without data" in warning for warning in done.warnings)
    rows = record.read(tmp_path / "out.parquet", "profiles").to_pylist()
    assert [{key: value for key, value in row.items() if value is not None} for row in rows] == [
        {
            "function": function,
            "minute": minute,
            "minutes": 1,
            "statistic": "mean",
            "basis": "all pods together",
            "memory": memory,
        }
        for function, minute, memory in (("0", 0, 256 << 20), ("1", 1, 314_573))
    ]


def test_two_clouds_and_a_folder_without_meaning_are_refused(tmp_path: Path) -> None:
    for cloud in ("private_dataset", "public_dataset"):
        huawei(tmp_path / cloud, "requests_minute", 0, [0], [["1"]])
    with pytest.raises(UnciaError, match="two clouds"):
        huawei2023.convert(tmp_path.glob("p*"), tmp_path / "out")
    file = huawei(tmp_path, "somewhere", 0, [0], [["1"]])
    with pytest.raises(UnciaError, match="says what it holds"):
        huawei2023.convert([file], tmp_path / "out")
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("day", "time", "column"),
    [("0", "60", "time"), ("0", "90", "time"), ("1", "120", "time"), ("x", "120", "day")],
)
def test_a_time_that_is_twice_or_of_another_day_is_refused(
    day: str, time: str, column: str, tmp_path: Path
) -> None:
    rows = [["0", "0", "1"], ["0", "60", "2"], [day, time, "4"]]
    file = write(tmp_path / "requests_minute" / "day_000.csv", ["day", "time", "7"], rows)
    with pytest.raises(UnciaError, match=f"line 4, column {column}"):
        huawei2023.convert([file], tmp_path / "out", strict=True)
    done = huawei2023.convert([file], tmp_path / "out")
    assert done.skipped == 1
    result = {key: row["count"] for key, row in arrivals(tmp_path / "out").items()}
    assert result == {("7", 0): 1, ("7", 1): 2}
