"""Huawei 2025: requests with their allocation and use, and the cold starts joined to them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trace_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import COLD_STARTS, REQUESTS, cold_start, left_over, request, write

from uncia import record
from uncia.errors import UnciaError
from uncia.tariffs import bill
from uncia.traces import huawei2025

IDS = st.sampled_from([f"{i:04x}" for i in range(6)])
PODS = st.sampled_from(["pool22-300-128-0000177166", "pool24-600-512-01", "odd", "", "NaN"])
COST = st.decimals(0, 50_000, places=6).map(str)


def maybe(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(values, st.sampled_from(["", "NaN"]))


ROW = st.builds(
    request,
    time_worker=maybe(st.decimals(2_592_000, 2_678_400, places=3).map(str)),
    requestID=IDS,
    funcName=st.sampled_from(["411", "296.0"]),
    userID=st.sampled_from(["301", "2"]),
    podID=PODS,
    runtimeCost=maybe(COST),
    cpu_usage=maybe(st.decimals(0, 10, places=6).map(str)),
    memory_usage=maybe(st.decimals(0, 10_240, places=6).map(str)),
    requestBodySize=maybe(st.integers(0, 10**7).map(lambda size: f"{size}.0")),
)


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(ROW, min_size=1, max_size=15),
    starts=st.lists(
        st.builds(cold_start, IDS, PODS.filter(lambda p: len(p) > 3), COST), max_size=8
    ),
)
def test_the_table_is_what_plain_python_computes(
    rows: list[list[object]],
    starts: list[list[object]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    file = write(folder / "part.csv", REQUESTS, rows)
    cold = [write(folder / "cold.csv", COLD_STARTS, starts)] if starts else []
    huawei2025.convert([file, *cold], folder / "out")
    expected = oracle.huawei2025([file], cold)
    found = [
        {key: row[key] for key in expected[0]} for row in record.read(folder / "out").to_pylist()
    ]
    assert found == expected


def test_a_request_of_the_release_is_read_as_documented(tmp_path: Path) -> None:
    file = write(tmp_path / "R5" / "part_0.csv.gz", REQUESTS, [request()])
    done = huawei2025.convert([tmp_path / "R5"], tmp_path / "out")
    row = record.read(tmp_path / "out").to_pylist()[0]
    assert {key: value for key, value in row.items() if value is not None} == {
        "platform": "huawei-R5",
        "function": "411---301---pool22-300-128",
        "invocation": "b54cf4cd",
        "request_id": "b54cf4cd",
        "attempt": 1,
        "request_bytes": 2,
        "outcome": "ok",
        "instance": "pool22-300-128-0000177166",
        "started": 2_592_000_019_171_000,
        "ended": 2_592_000_020_000_000,
        "execution": 829_000,
        "allocated_cpu": 300_000,
        "allocated_memory": 128 << 20,
        "cpu_user": 49_579,  # 0.059806 cores x 829 us = 49,579.174 ns
        "memory_avg": 35_901_439,  # 34.238280 x 2^20 = 35,901,438.689...
    }
    assert done.warnings == []
    assert file.exists()


def test_a_cold_start_of_another_pod_is_not_marked_but_counted(tmp_path: Path) -> None:
    pod = "pool22-300-128-1"
    rows = [request(requestID=name, podID=pod, cpu_usage="0.0") for name in ("a", "b", "c")]
    starts = [
        cold_start("a", pod, "2.239314"),
        cold_start("a", "pool22-300-128-2", "9"),
        cold_start("b", "pool22-300-128-3", "9"),
    ]
    done = huawei2025.convert(
        [
            write(tmp_path / "requests.csv", REQUESTS, rows),
            write(tmp_path / "starts.csv", COLD_STARTS, starts),
        ],
        tmp_path / "out",
    )
    table = record.read(tmp_path / "out")
    assert table["start"].to_pylist() == ["cold", None, None]
    assert table["initialization"].to_pylist() == [2_239_314_000, None, None]
    assert any(warning.startswith("1 request caused") for warning in done.warnings)
    assert any(warning.startswith("3 requests ran, but") for warning in done.warnings)


def test_the_table_can_be_billed(tmp_path: Path) -> None:
    file = write(tmp_path / "part.csv", REQUESTS, [request(), request(requestID="other")])
    huawei2025.convert([file], tmp_path / "out")
    lines = {line.tariff: line for line in bill(tmp_path / "out", ["aws-lambda-x86", "spfu"])}
    assert all(line.rows == 2 for line in lines.values())


def test_cold_starts_alone_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "starts.csv", COLD_STARTS, [cold_start("a", "p-1-1-x", "1")])
    with pytest.raises(UnciaError, match="no invocations"):
        huawei2025.convert([file], tmp_path / "out")
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("time_worker", "noon"),
        ("requestID", ""),
        ("funcName", "-1"),
        ("podID", "a pod"),
        ("userID", "1.5"),
        ("runtimeCost", "-0.1"),
        ("runtimeCost", "99999999"),
        ("cpu_usage", "501"),
        ("memory_usage", "-3"),
        ("requestBodySize", "2.5"),
    ],
)
def test_a_bad_cell_is_told_with_its_place(column: str, text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "part.csv", REQUESTS, [request(), request(**{column: text})])
    with pytest.raises(UnciaError, match=f"line 3, column {column}: '{text}' is not"):
        huawei2025.convert([file], tmp_path / "out", strict=True)
    assert left_over(tmp_path) == []
    done = huawei2025.convert([file], tmp_path / "out")
    assert (done.skipped, done.rows["invocations"]) == (1, 1)
