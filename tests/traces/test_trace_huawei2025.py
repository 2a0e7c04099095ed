"""Huawei 2025: requests with their allocation and use, and the cold starts joined to them."""

from __future__ import annotations

import itertools
from collections import Counter
from csv import DictReader
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trace_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import COLD_STARTS, REQUESTS, cold_start, left_over, request, write

from uncia import record
from uncia.backends import connect
from uncia.errors import UnciaError
from uncia.tariffs import bill
from uncia.tariffs import rows as tariff_rows
from uncia.traces import lines, parts
from uncia.traces.huawei import pods as huawei_pods
from uncia.traces.huawei import requests as huawei2025
from uncia.units import INT64_MAX

S = 10**9

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
    result = [
        {key: row[key] for key in expected[0]} for row in record.read(folder / "out").to_pylist()
    ]
    assert result == expected


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
    assert done.noted == {"cpu_usage is zero": 3}


def test_the_table_can_be_billed(tmp_path: Path) -> None:
    file = write(tmp_path / "part.csv", REQUESTS, [request(), request(requestID="other")])
    huawei2025.convert([file], tmp_path / "out")
    lines = {line.tariff: line for line in bill(tmp_path / "out", ["aws-lambda-x86", "spfu"])}
    assert all(line.rows == 2 for line in lines.values())


def test_cold_starts_alone_become_instances_and_spans(tmp_path: Path) -> None:
    rows = [
        cold_start("a", "pool22-300-128-1", "2.239314"),
        cold_start("b", "odd", "NaN"),
        cold_start("NaN", "pool22-400-256-2", "1"),
    ]
    rows[1][7] = ""  # podAllocationCost: where the phases begin is not known
    file = write(tmp_path / "R3" / "starts.csv", COLD_STARTS, [*rows, cold_start("c", "", "1")])
    done = huawei2025.convert([file], tmp_path / "out")
    assert done.rows == {"instances": 3, "spans": 8}
    assert (done.read, sum(done.rejected.values())) == (4, 1)
    assert list(done.rejected) == [
        "podID: not a name of 1 to 200 characters without space or slash"
    ]
    assert done.noted == {
        "totalCost_cold_start: empty or NaN": 1,
        "podAllocationCost: empty or NaN": 1,
        "requestID: empty or NaN": 1,
        "pod names no flavour": 1,
    }
    first, second, third = record.read(tmp_path / "out", "instances").to_pylist()
    began = 2_592_000_100_000_000
    assert {key: value for key, value in first.items() if value is not None} == {
        "platform": "huawei-R3",
        "function": "411---301---pool22-300-128",
        "instance": "pool22-300-128-1",
        "started": began,
        "initialized": began + 2_239_314_000,
        "start": "cold",
        "allocated_cpu": 300_000,
        "allocated_memory": 128 << 20,
    }
    assert (second["initialized"], second["allocated_cpu"]) == (None, None)
    assert (third["initialized"], third["instance"]) == (began + S, "pool22-400-256-2")
    spans = record.read(tmp_path / "out", "spans").to_pylist()
    mine = [span for span in spans if span["instance"] == "pool22-300-128-1"]
    assert [(span["name"], span["end"] - span["start"]) for span in mine] == [
        ("pod allocation", 27_000_000),
        ("code", 45_000_000),
        ("dependencies", 454_000_000),
        ("scheduling", 1_713_000_000),
    ]
    assert mine[0]["start"] == began
    assert all(item["end"] == two["start"] for item, two in itertools.pairwise(mine))
    assert {span["invocation"] for span in mine} == {"a"}


def test_what_is_believed_is_what_bills_believe() -> None:
    assert huawei2025.MAX_TIME == tariff_rows.MAX_TIME
    assert huawei_pods.MAX_CORES * 10**6 == tariff_rows.MAX_CPU
    assert huawei_pods.MAX_MEMORY == tariff_rows.MAX_MEMORY


def test_the_same_pod_and_request_in_two_regions_are_two(tmp_path: Path) -> None:
    pod = "pool22-300-128-1"
    for region in ("R1", "R2"):
        write(tmp_path / "in" / region / "part.csv", REQUESTS, [request(podID=pod)])
    write(tmp_path / "in" / "R2_cold.csv", COLD_STARTS, [cold_start("b54cf4cd", pod, "2")])
    huawei2025.convert([tmp_path / "in"], tmp_path / "out", partition_by="platform")
    expected = [("huawei-R1", pod, None), ("huawei-R2", pod, 2 * S)]
    table = record.read(tmp_path / "out")
    names = ("platform", "instance", "initialization")
    assert sorted(zip(*(table[name].to_pylist() for name in names), strict=True)) == expected
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("part-0.parquet")) == [
        "platform=huawei-R1",
        "platform=huawei-R2",
    ]
    assert record.read(tmp_path / "out", "instances")["platform"].to_pylist() == ["huawei-R2"]
    lines = bill(tmp_path / "out", ["aws-lambda-x86"])
    assert [line.rows for line in lines] == [2]
    with connect("duckdb") as backend:
        result = backend.collect(backend.table(tmp_path / "out").group_by("platform").agg())
    assert sorted(result["platform"].to_pylist()) == ["huawei-R1", "huawei-R2"]


PLANTED = {
    "podID: not a name of 1 to 200 characters without space or slash": {"podID": "a pod"},
    "memory above 10240 MB": {"podID": "pool22-6600-16384-1"},
    "allocation above 1000 vCPU": {"podID": "pool22-1000001-128-1"},
    "runtimeCost: not seconds, 0 or more": {"runtimeCost": "-0.1"},
    "runtimeCost: above 366 days": {"runtimeCost": "31622400.000001"},
    "cpu_usage: not cores, 0 or more": {"cpu_usage": "many"},
    "cpu_usage: above 1000 cores": {"cpu_usage": "1001"},
    "cpu_usage: not cores that give at most a year of CPU time": {
        "cpu_usage": "2",
        "runtimeCost": "31622400",
    },
    "memory_usage: above 4 TiB": {"memory_usage": "4194305"},
    "requestBodySize: not whole bytes, 0 or more": {"requestBodySize": "0.5"},
    "time_worker: not seconds, 0 or more": {"time_worker": "-1"},
}


@settings(deadline=None, max_examples=15)
@given(
    planted=st.lists(
        st.one_of(st.sampled_from([*PLANTED, "cut", "long", "bytes"]), st.just("good")),
        min_size=1,
        max_size=60,
    ),
    block=st.sampled_from([300, 1 << 24]),
)
def test_every_rejected_row_is_counted_by_its_reason_and_kept(
    planted: list[str], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    file = write(folder / "R1" / "part.csv", REQUESTS, [request()])
    expected: list[list[str]] = []
    with file.open("ab") as out:
        for line, what in enumerate(planted, start=3):
            row = ",".join(map(str, request(**PLANTED.get(what, {}))))
            reason = what
            if what == "cut":
                row, reason = row.rpartition(",")[0], "broken line: 17 cells instead of 18"
            elif what == "long":
                row, reason = row + 40 * ",", "broken line: more than 36 cells instead of 18"
            elif what == "bytes":
                row, reason = row.replace("pool", "p\xffol"), "broken line: not ASCII text"
            out.write(row.encode("latin-1") + b"\n")
            if what != "good":
                expected.append([str(file), str(line), reason, row.replace("\xff", "\\xff")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        done = huawei2025.convert([file], folder / "out")
    assert done.rejected == Counter(reason for _, _, reason, _ in expected)
    assert done.read == 1 + len(planted) == done.rows["invocations"] + len(expected)
    assert record.read(folder / "out").num_rows == done.rows["invocations"]
    if not expected:
        assert done.rejected_file is None
        assert not (folder / "out" / "rejected.csv").exists()
        return
    assert done.rejected_file == folder / "out" / "rejected.csv"
    with done.rejected_file.open(newline="") as rejected:
        kept = [
            [row["file"], row["line"], row["reason"], row["row"]] for row in DictReader(rejected)
        ]
    assert kept == expected


def test_of_several_bad_cells_the_leftmost_is_the_reason(tmp_path: Path) -> None:
    rows = [
        request(runtimeCost="x", cpu_usage="y"),
        request(),
        request(cpu_usage="z", time_worker="noon"),
        request(cpu_usage="many"),
    ]
    file = write(tmp_path / "part.csv", REQUESTS, rows)
    done = huawei2025.convert([file], tmp_path / "out")
    assert done.rejected_file is not None
    with done.rejected_file.open(newline="") as rejected:
        kept = [(row["line"], row["column"], row["row"]) for row in DictReader(rejected)]
    assert kept == [
        (line, column, ",".join(map(str, rows[int(line) - 2])))
        for line, column in (("2", "runtimeCost"), ("4", "time_worker"), ("5", "cpu_usage"))
    ]


def test_large_allocations_are_kept_if_asked_for(tmp_path: Path) -> None:
    pods = ["p-6600-10240-1", "p-6600-10241-1", "p-6600-16384-1", "p-6600-99999999-1"]
    file = write(tmp_path / "part.csv", REQUESTS, [request(podID=pod) for pod in pods])
    done = huawei2025.convert([file], tmp_path / "out")
    assert done.rejected == {"memory above 10240 MB": 3}
    done = huawei2025.convert([file], tmp_path / "more", max_memory=16384 << 20)
    assert done.rejected == {"memory above 16384 MB": 1}
    done = huawei2025.convert([file], tmp_path / "all", max_memory=INT64_MAX)
    assert done.rejected == {"memory above 4 TiB": 1}
    assert sorted(record.read(tmp_path / "all")["allocated_memory"].to_pylist()) == [
        10240 << 20,
        10241 << 20,
        16384 << 20,
    ]


def test_what_was_not_measured_is_null_and_noted(tmp_path: Path) -> None:
    rows = [
        request(podID="odd", cpu_usage="NaN"),
        request(podID="", memory_usage=""),
        request(podID="pool22-0-128-1", cpu_usage="0.000000"),
        request(runtimeCost="0", cpu_usage="0"),
    ]
    done = huawei2025.convert(
        [write(tmp_path / "part.csv", REQUESTS, rows)], tmp_path / "out", sort=False
    )
    assert done.noted == {
        "podID: empty or NaN": 1,
        "pod names no flavour": 3,
        "cpu_usage: empty or NaN": 1,
        "memory_usage: empty or NaN": 1,
        "cpu_usage is zero": 1,
    }
    table = record.read(tmp_path / "out")
    assert table["cpu_user"].to_pylist() == [None, 49_579, 0, 0]
    assert table["allocated_memory"].to_pylist() == [None, None, None, 128 << 20]
    assert table["memory_avg"].null_count == 1
    assert table["instance"].to_pylist() == ["odd", None, "pool22-0-128-1", rows[3][5]]


@pytest.mark.parametrize("sort", [None, True, False])
def test_many_rows_are_sorted_if_asked_for(
    sort: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SORTED_ROWS", 20)
    monkeypatch.setattr(parts, "GROUP_ROWS", 8)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 500)
    times = [7 * i % 50 for i in range(50)]
    rows = [request(time_worker=time, requestID=f"r{time}") for time in times]
    rows[3][0] = "NaN"
    done = huawei2025.convert(
        [write(tmp_path / "part.csv", REQUESTS, rows)], tmp_path / "out", sort=sort
    )
    result = record.read(tmp_path / "out")["request_id"].to_pylist()
    order = [f"r{time}" for time in sorted(times) if time != times[3]] + [f"r{times[3]}"]
    assert result == (order if sort else [f"r{time}" for time in times])
    assert any("not sorted" in warning for warning in done.warnings) == (not sort)
    metadata = pq.read_metadata(done.tables["invocations"])
    groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert groups == [8, 8, 8, 8, 8, 8, 2]


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
        ("cpu_usage", "1000.000001"),
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
