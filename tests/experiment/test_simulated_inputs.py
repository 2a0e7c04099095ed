"""What ``uncia simulate`` takes besides functions: tables, starts of a run, several seeds."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from typer.testing import CliRunner

import uncia
from uncia import record, tariffs, yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import request_checks, simulation
from uncia.experiment.simulation import SimulationFile, TracedFunction
from uncia.record.schema import conform

MS = 10**6
CLUSTER = {"workers": 2, "vcpu": 4, "memory": "1GB"}
POISSON = {"kind": "poisson", "rate": "20/s", "duration": "3s"}
FUNCTIONS = {
    "api": {
        "vcpu": 1,
        "memory": "128MB",
        "arrivals": POISSON,
        "phases": [
            {"drawn": {"distribution": "exponential", "mean": "20ms"}, "memory": "64MB"},
            {"duration": "5ms", "vcpu": 0, "memory": "32MB"},
        ],
    }
}
FILE: dict[str, Any] = {
    "name": "first",
    "seed": 5,
    "cluster": CLUSTER,
    "models": ["sim"],
    "starts": ["40ms", "90ms"],
    "functions": FUNCTIONS,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "run"
    uncia.simulate(FILE, out=folder)
    return folder


def _rows(**columns: list[Any]) -> pa.Table:
    count = len(next(iter(columns.values())))
    base: dict[str, list[Any]] = {
        "function": ["f"] * count,
        "invocation": [f"i{number}" for number in range(count)],
        "attempt": [1] * count,
        "outcome": ["ok"] * count,
    }
    return conform(pa.table(base | columns), "invocations")


def _simulate(folder: Path, trace: dict[str, Any], **keys: Any) -> tuple[dict[str, Any], pa.Table]:
    file = {"name": "traced", "cluster": CLUSTER, "models": ["sim"], "trace": trace, **keys}
    result = uncia.simulate(file, out=folder)
    rows = record.read(folder).sort_by([("scheduled", "ascending")])
    return result["sim"], rows


def test_a_run_is_simulated_again_from_its_rows(run: Path, tmp_path: Path) -> None:
    before = record.read(run).sort_by([("scheduled", "ascending")])
    result, after = _simulate(tmp_path / "again", {"path": str(run)})
    assert result["served"] == before.num_rows > 40
    assert after["scheduled"].equals(before["scheduled"])
    # One phase of the same length and CPU time; a rate is a whole number of micro-vCPU.
    for execution, again in zip(
        before["execution"].to_pylist(), after["execution"].to_pylist(), strict=True
    ):
        assert abs(execution - again) <= 1
    for cpu, again in zip(
        before["cpu_user"].to_pylist(), after["cpu_user"].to_pylist(), strict=True
    ):
        assert abs(cpu - again) <= 1_000
    assert after["memory_peak"].equals(before["memory_peak"])
    assert set(after["allocated_memory"].to_pylist()) == {128 * 2**20}


def test_what_is_no_request_is_counted_by_reason(tmp_path: Path) -> None:
    outcomes = ["ok", "function_error", "timeout", "timeout", "ok", "ok", "ok"]
    rows = _rows(
        outcome=outcomes,
        started=[0, 10 * MS, 20 * MS, 30 * MS, None, 50 * MS, 9_000 * MS],
        execution=[5 * MS, 5 * MS, 5 * MS, 5 * MS, 5 * MS, None, 5 * MS],
    )
    path = tmp_path / "invocations.parquet"
    record.write(rows, path, "invocations")
    trace = {"path": str(path), "window": "2s", "used_vcpu": 1, "used_memory": "1MB"}
    result, _ = _simulate(tmp_path / "out", trace)
    assert result["served"] == 1
    described = yamlio.load(tmp_path / "out" / "run.yaml").data
    assert described["warnings"] == [
        "Invocations of the trace that are no requests: 2 with the outcome timeout, 1 with the"
        " outcome function_error, 1 without a time of arrival, 1 without a duration, 1 after the"
        " window."
    ]


def test_phases_of_rows_are_those_that_run(tmp_path: Path) -> None:
    phases = [
        [
            {"duration": 10 * MS, "threads": 2, "memory": 50},
            {"duration": 20 * MS, "threads": 0, "memory": 20},
        ],
        None,
        [{"duration": 5 * MS, "threads": 1, "memory": 30}],
    ]
    rows = _rows(
        function=["f", "g", "f"],
        scheduled=[2 * MS, 0, 100 * MS],
        execution=[30 * MS, 8 * MS, 5 * MS],
        cpu_user=[20 * MS, 3 * MS, 5 * MS],
        cpu_system=[0, 1 * MS, 0],
        memory_peak=[50, 70, 30],
        allocated_cpu=[2_000_000, None, 2_000_000],
        phases=phases,
    )
    record.write(rows, tmp_path / "trace.parquet")
    result, after = _simulate(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert result["served"] == 3
    assert after["function"].to_pylist() == ["g", "f", "f"]
    assert after["execution"].to_pylist() == [8 * MS, 30 * MS, 5 * MS]
    assert after["cpu_user"].to_pylist() == [4 * MS, 20 * MS, 5 * MS]
    # 10 ms of 50 bytes and 20 ms of 20.
    assert after["memory_avg"].to_pylist() == [70, 30, 30]
    assert after["allocated_cpu"].to_pylist() == [1_000_000, 2_000_000, 2_000_000]


def test_what_a_trace_lacks_is_asked_for(tmp_path: Path) -> None:
    rows = _rows(
        outcome=["ok", "ok", "timeout"],
        started=[10**18, 10**18 + 5, None],
        execution=[7, 8, None],
        memory_avg=[3, None, None],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    with pytest.raises(UnciaError, match=r"CPU time of 2 invocations") as error:
        _simulate(tmp_path / "run", {"path": str(path)})
    assert "trace.used_vcpu" in str(error.value.hint)
    with pytest.raises(UnciaError, match=r"memory of 1 invocations"):
        _simulate(tmp_path / "run", {"path": str(path), "used_vcpu": 1})
    trace = {"path": str(path), "used_vcpu": 1, "used_memory": "1KB"}
    _, after = _simulate(tmp_path / "run", trace)
    # Times from the first request on.
    assert after["scheduled"].to_pylist() == [0, 5]
    assert not list(tmp_path.glob(".uncia-*")), "nothing is left beside the run"


def test_functions_beyond_all_workers_are_refused_or_clipped(tmp_path: Path) -> None:
    rows = _rows(
        scheduled=[0],
        execution=[MS],
        cpu_user=[8 * MS],
        memory_peak=[2**30],
        allocated_cpu=[8_000_000],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    with pytest.raises(UnciaError, match="no worker has as much"):
        _simulate(tmp_path / "run", {"path": str(path)})
    trace = {"path": str(path), "too_large": "clip"}
    _, after = _simulate(tmp_path / "run", trace)
    # 8 ms of CPU time on four cores.
    assert after["execution"].to_pylist() == [2 * MS]


@pytest.mark.parametrize(
    ("cpu", "spot", "reserved"),
    [(100, 50, 16), (20, 10, 10), (20, 20, 0), (20, 0, 16), (8, 6, 2)],
)
def test_what_is_clipped_stays_reserved(cpu: int, spot: int, reserved: int) -> None:
    vcpu = 10**6
    content = {
        "name": "clipped",
        "cluster": CLUSTER | {"vcpu": 16},
        "trace": {"path": "trace", "too_large": "clip"},
    }
    file = yamlio.validate(SimulationFile, yamlio.load(yamlio.dump(content), "clipped.yaml"))
    known = {"f": TracedFunction(cpu * vcpu, 1, spot * vcpu, preemptible=False, qos="batch")}
    config = simulation.config(file, "npfu", "run", Path("out"), requests=(Path("rows"), known))
    (function,) = config["functions"]
    assert function["cpu"] == min(cpu, 16) * vcpu
    assert function["spot_cpu"] == (min(cpu, 16) - reserved) * vcpu


def test_phases_are_clipped_to_what_a_worker_has_and_counted(tmp_path: Path) -> None:
    def phases(*held: int) -> list[dict[str, int]]:
        return [{"duration": MS, "threads": 1, "memory": memory} for memory in held]

    rows = _rows(
        scheduled=[0, MS, 2 * MS],
        execution=[2 * MS, MS, MS],
        phases=[phases(2**30, 3 * 2**30), phases(2**30), phases(2**31)],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    trace = {"path": str(path), "too_large": "clip"}
    result, after = _simulate(tmp_path / "run", trace)
    assert result["clipped"] == 2
    assert after["memory_peak"].to_pylist() == [2**30] * 3
    warnings = yaml.safe_load((tmp_path / "run/run.yaml").read_text())["warnings"]
    assert any("2 requests held more memory" in words for words in warnings)


def _refused(folder: Path, **columns: list[Any]) -> str:
    """What is said of a table with these columns, before anything is simulated."""
    base = {"execution": [MS, MS], "cpu_user": [MS, MS], "memory_peak": [1, 1]}
    rows = _rows(scheduled=[0, 2 * MS], **(base | columns))
    record.write(rows, folder / "trace.parquet")
    with pytest.raises(UnciaError) as error:
        _simulate(folder / "run", {"path": str(folder / "trace.parquet")})
    assert not (folder / "run").exists()
    assert not list(folder.glob(".uncia-*"))
    assert str(folder / "trace.parquet") in error.value.message
    return error.value.message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"execution": [MS, -5]}, "execution is below 0 in 1 row, first that of invocation 'i1'"),
        ({"cpu_user": [-1, -1]}, "cpu_user is below 0 in 2 rows, first that of invocation 'i0'"),
        ({"memory_peak": [1, -1]}, "memory_peak is below 0"),
        ({"allocated_cpu": [None, -1]}, "allocated_cpu is below 0"),
        ({"spot_cpu": [-1, None]}, "spot_cpu is below 0"),
        ({"cpu_user": [2**62, MS], "execution": [1, MS]}, "CPU time is more than can be used"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_invocation(
    columns: dict[str, list[Any]], words: str, tmp_path: Path
) -> None:
    assert words in _refused(tmp_path, **columns)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({"duration": -MS}, "duration of a phase is below 0 in 1 row, first that of invocation"),
        ({"threads": -1}, "threads of a phase is below 0"),
        ({"threads": 2**62}, "threads of a phase are more than can be"),
        ({"memory": -1}, "memory of a phase is below 0"),
    ],
)
def test_phases_that_cannot_be_are_named_by_their_invocation(
    phase: dict[str, int], words: str, tmp_path: Path
) -> None:
    right = {"duration": MS, "threads": 1, "memory": 1}
    rest = right | {"duration": MS - phase.get("duration", MS)}
    assert words in _refused(tmp_path, phases=[None, [right | phase, rest]])


def test_phases_add_up_to_the_execution(tmp_path: Path) -> None:
    def phases(*durations: int) -> list[dict[str, int]]:
        return [{"duration": it, "threads": 1, "memory": 1} for it in durations]

    words = _refused(
        tmp_path,
        execution=[1000 * MS, 1000 * MS],
        phases=[phases(900 * MS, 100 * MS), phases(100 * MS)],
    )
    assert "phases do not add up to execution in 1 row, first that of invocation 'i1'" in words
    assert "they last 100ms, and its execution 1s" in words
    words = _refused(tmp_path, phases=[[], phases(MS + 2_000)])
    assert "in 2 rows, first that of invocation 'i0'" in words
    # Each may be rounded to microseconds; and what is not there says nothing.
    rows = _rows(
        scheduled=[0, 2 * MS],
        execution=[2 * MS, None],
        phases=[phases(MS + 700, MS + 700), phases(5 * MS)],
    )
    record.write(rows, tmp_path / "trace.parquet")
    _, after = _simulate(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert after["execution"].to_pylist() == [2 * MS + 1_400, 5 * MS]


def test_an_attempt_of_an_invocation_is_there_once(tmp_path: Path) -> None:
    columns = {"execution": [MS] * 4, "cpu_user": [MS] * 4, "memory_peak": [1] * 4}
    scheduled = [0, MS, 2 * MS, 3 * MS]
    path = tmp_path / "trace.parquet"
    rows = _rows(scheduled=scheduled, **columns, invocation=["a", "b", "b", "b"])
    record.write(rows, path)
    words = r"same attempt .* in 2 rows, first in that of invocation 'b', attempt 1"
    with pytest.raises(UnciaError, match=words):
        _simulate(tmp_path / "run", {"path": str(path)})
    assert not (tmp_path / "run").exists()
    # Other attempts, other runs and what is no request are not the same.
    rows = _rows(
        scheduled=scheduled,
        **columns,
        invocation=["a", "a", "a", "a"],
        attempt=[1, 2, 1, 1],
        run=["x", "x", "y", "x"],
        outcome=["ok", "ok", "ok", "timeout"],
    )
    record.write(rows, path)
    result, _ = _simulate(tmp_path / "run", {"path": str(path)})
    assert result["served"] == 3
    # Regions have requests of the same names, and some logs number them by function.
    rows = _rows(
        scheduled=scheduled,
        **columns,
        invocation=["a"] * 4,
        platform=["r1", "r2", "r1", "r2"],
        function=["f", "f", "g", "g"],
    )
    record.write(rows, path)
    result, _ = _simulate(tmp_path / "regions", {"path": str(path)})
    assert result["served"] == 4


def test_requests_whose_hashes_are_the_same_by_chance_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        request_checks, "_hashes", lambda rows: np.zeros(rows.num_rows, dtype=np.int64)
    )
    rows = _rows(scheduled=[0, 1], execution=[MS, MS], cpu_user=[MS, MS], memory_peak=[1, 1])
    record.write(rows, tmp_path / "trace.parquet")
    result, _ = _simulate(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert result["served"] == 2


def _warnings(run: Path) -> str:
    warnings: list[str] = yaml.safe_load((run / "run.yaml").read_text())["warnings"]
    return "\n".join(warnings)


def test_requests_of_functions_that_are_cut_are_counted(tmp_path: Path) -> None:
    rows = _rows(
        function=["wide", "wide", "high", "small"],
        scheduled=[0, MS, 2 * MS, 3 * MS],
        execution=[MS] * 4,
        cpu_user=[8 * MS, MS, MS, MS],
        memory_peak=[1] * 4,
        allocated_cpu=[8_000_000, None, 1_000_000, 1_000_000],
        allocated_memory=[1, None, 768 * 2**20, 1],
    )
    record.write(rows, tmp_path / "trace.parquet")
    trace = {"path": str(tmp_path / "trace.parquet"), "too_large": "clip"}
    file = {"name": "traced", "trace": trace, "models": ["slim", "sim", "npfu"]}
    # Under slim the function with much memory has more CPU than a worker, too.
    cluster = {"workers": 2, "vcpu": 4, "memory": "1GB"}
    result = uncia.simulate(
        file | {"cluster": cluster, "memory_per_vcpu": "128MB"}, out=tmp_path / "run"
    )
    assert {model: values["clipped"] for model, values in result.items()} == {
        "slim": 3,
        "sim": 2,
        "npfu": 2,
    }
    warnings = _warnings(tmp_path / "run")
    assert "3 requests are of functions with more CPU or memory than a worker" in warnings
    assert "2 requests are of functions" in warnings
    assert "under sim, npfu" in warnings


def test_more_cpu_than_is_allocated_is_counted(tmp_path: Path) -> None:
    rows = _rows(
        scheduled=[0, 5 * MS, 10 * MS],
        execution=[MS] * 3,
        # A kernel's tick more is none.
        cpu_user=[4 * MS, 1_005_000, MS],
        memory_peak=[1] * 3,
        allocated_cpu=[None, 1_000_000, 1_000_000],
        spot_cpu=[None, 5_000_000, 1_000_000],
    )
    record.write(rows, tmp_path / "trace.parquet")
    _simulate(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    warnings = _warnings(tmp_path / "run")
    assert "1 requests use more CPU than is allocated to them" in warnings
    assert "1 requests have more spot CPU than is allocated to them" in warnings
    trace = {"path": str(tmp_path / "trace.parquet"), "vcpu": 4}
    _simulate(tmp_path / "wide", trace)
    assert "use more CPU" not in _warnings(tmp_path / "wide")


def test_requests_of_a_real_run_come_from_the_first_on(run: Path, tmp_path: Path) -> None:
    rows = _rows(
        scheduled=[50_000 * MS, 50_007 * MS],
        execution=[MS, MS],
        cpu_user=[MS, MS],
        memory_peak=[1, 1],
    )
    made = tmp_path / "made"
    made.mkdir()
    record.write(rows, made / "invocations.parquet")
    _, after = _simulate(tmp_path / "of-made", {"path": str(made)})
    assert after["scheduled"].to_pylist() == [50_000 * MS, 50_007 * MS]
    with pytest.raises(UnciaError, match=r"no request arrives within trace\.window") as error:
        _simulate(tmp_path / "none", {"path": str(made), "window": "10s"})
    assert "50s" in str(error.value.hint)
    # The same rows of a run: its epoch is long before its requests.
    description = {"status": "complete", "platform": {"kind": "aws"}}
    (made / "run.yaml").write_text(yamlio.dump(description))
    for path in (made, made / "invocations.parquet"):
        trace = {"path": str(path), "window": "10s"}
        _, after = _simulate(tmp_path / f"run-of-{path.stem}", trace)
        assert after["scheduled"].to_pylist() == [0, 7 * MS]


@pytest.mark.parametrize("status", ["running", "failed", "crashed", "interrupted"])
def test_a_run_that_is_not_complete_is_not_taken_for_whole(
    status: str, run: Path, tmp_path: Path
) -> None:
    part = shutil.copytree(run, tmp_path / "part")
    description = (part / "run.yaml").read_text()
    assert description.count("status: complete") == 1
    (part / "run.yaml").write_text(description.replace("status: complete", f"status: {status}"))
    for change in (
        {"trace": {"path": str(part)}, "functions": None},
        {"starts": {"run": str(part)}},
    ):
        file = {key: value for key, value in (FILE | change).items() if value is not None}
        with pytest.raises(UnciaError, match=f"is not complete: its status is '{status}'"):
            uncia.simulate(file, out=tmp_path / "out")


def test_a_stream_without_end_is_not_taken_for_whole(run: Path, tmp_path: Path) -> None:
    stream = tmp_path / "part/invocations.000-x.arrows"
    stream.parent.mkdir()
    rows = record.read(run)
    with pa.OSFile(str(stream), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    stream.write_bytes(stream.read_bytes()[:-8])
    for path in (stream, stream.parent):
        with pytest.raises(UnciaError, match="has no end"):
            _simulate(tmp_path / "out", {"path": str(path)})


def test_rows_without_the_settings_of_npfu_are_named(run: Path, tmp_path: Path) -> None:
    for model in ("sim", "npfu"):
        file = {"name": "again", "cluster": CLUSTER, "models": [model], "trace": {"path": str(run)}}
        uncia.simulate(file, out=tmp_path / model)
        warnings = yaml.safe_load((tmp_path / model / "run.yaml").read_text())["warnings"]
        is_named = any("has spot CPU or is preemptible" in words for words in warnings)
        assert is_named == (model == "npfu")


def test_starts_take_as_long_as_in_a_run(run: Path, tmp_path: Path) -> None:
    file = FILE | {"name": "second", "starts": {"run": str(run)}}
    uncia.simulate(file, out=tmp_path / "run")

    def taken(folder: Path) -> set[int]:
        rows = record.read(folder, "instances")
        pairs = zip(rows["initialized"].to_pylist(), rows["started"].to_pylist(), strict=True)
        return {ready - began for ready, began in pairs if ready is not None}

    assert taken(tmp_path / "run") <= taken(run) <= {40 * MS, 90 * MS}
    starts = {"run": str(run), "function": "other"}
    with pytest.raises(UnciaError, match="no start of an instance"):
        uncia.simulate(file | {"starts": starts}, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_seeds_are_experiments_and_their_means_have_intervals(tmp_path: Path) -> None:
    single = uncia.simulate(FILE, seed=6, out=tmp_path / "single")
    result = uncia.simulate(FILE | {"repeat": 3}, out=tmp_path / "run")
    assert list(result) == ["sim-5", "sim-6", "sim-7"]
    for name in ("served", "completion_mean_s"):
        of = [values.get(name) or values["qos"]["interactive"][name] for values in result.values()]
        assert len(set(of)) > 1
    assert result["sim-6"]["totals"] == single["sim"]["totals"]
    summary = json.loads((tmp_path / "run/repeats.json").read_text())["sim"]
    mean = summary["qos.interactive.completion_mean_s"]
    values = [values["qos"]["interactive"]["completion_mean_s"] for values in result.values()]
    assert mean["mean"] == pytest.approx(sum(values) / 3)
    assert mean["low"] < min(values) < max(values) < mean["high"]
    assert set(record.read(tmp_path / "run")["experiment"].to_pylist()) == set(result)


def test_seeds_are_billed_each_by_itself(tmp_path: Path) -> None:
    file = FILE | {"models": ["slim", "npfu"]}
    result = uncia.simulate(file | {"repeat": 3}, out=tmp_path / "run")
    names = ("cost_usd", "revenue_usd_per_worker_hour", "price_factor_at_equal_revenue", "qos")
    alone = uncia.simulate(file, seed=6, out=tmp_path / "alone")
    for model in ("slim", "npfu"):
        for name in names:
            assert result[f"{model}-6"][name] == alone[model][name], (model, name)
    summary = json.loads((tmp_path / "run/repeats.json").read_text())["npfu"]
    for name in names[:2]:
        assert summary[name]["low"] < summary[name]["high"], name
    # The tariffs are those by which all seeds earn as much.
    rates = []
    for model in ("slim", "npfu"):
        cells = [name for name in result if name.startswith(model)]
        rows = record.read(tmp_path / "run")
        rows = rows.filter(pc.is_in(rows["experiment"].cast("string"), pa.array(cells)))
        (line,) = tariffs.bill(rows, [tmp_path / f"run/tariff-{model}.yaml"])
        assert line.exact_cost is not None
        rates.append(float(line.exact_cost) / sum(result[name]["end_s"] for name in cells))
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_utilisation_is_of_the_window_and_of_workers_that_are_there(tmp_path: Path) -> None:
    # One core is busy from 0 to 4 s; the request at 10 s runs for long after the last arrival.
    rows = _rows(
        scheduled=[0, 10_000 * MS],
        execution=[4_000 * MS, 90_000 * MS],
        cpu_user=[4_000 * MS, 90_000 * MS],
        memory_peak=[2**20, 2**20],
        allocated_cpu=[10**6, 10**6],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    cluster = {"workers": 2, "vcpu": 1, "memory": "1GB"}
    # Of 20 s of both workers, the idle one is gone for 8.
    failures = [{"worker": 1, "at": "1s", "lasts": "8s"}]
    trace = {"path": str(path)}
    keys = {"cluster": cluster, "failures": failures, "interval": "300ms"}
    values, after = _simulate(tmp_path / "run", trace, **keys)
    assert values["window_s"] == 10
    assert values["lost"] == 0
    assert after["worker"].to_pylist()[0] == "sim-worker-0"
    assert values["cpu_utilization"] == pytest.approx(4 / 12, rel=0.02)
    assert values["cpu_utilization_min"] == pytest.approx(0, abs=0.02)
    assert values["cpu_reservation"] == pytest.approx(4 / 12, rel=0.02)
    # The window ends with the simulation: exactly the integrals.
    values, _ = _simulate(tmp_path / "until", trace, **keys, until="10s")
    totals = {name: int(text) for name, text in values["totals"].items()}
    used = (totals["cpu_own"] + totals["cpu_borrowed"]) / totals["cpu_capacity"]
    assert values["cpu_utilization"] == pytest.approx(used, rel=1e-9)
    assert values["memory_utilization"] == pytest.approx(
        totals["memory_used"] / totals["memory_capacity"], rel=1e-9
    )


def test_failures_latency_and_what_is_measured(tmp_path: Path) -> None:
    file = FILE | {
        "latency": "2ms",
        "failures": [{"worker": 0, "at": "1s", "lasts": "500ms"}],
        "until": "3s",
    }
    values = uncia.simulate(file, out=tmp_path / "run")["sim"]
    assert values["failures"] == 1
    assert values["lost"] + values["served"] > 0
    assert values["window_s"] == 3
    rows = record.read(tmp_path / "run").to_pylist()
    in_window = [row for row in rows if row["outcome"] == "ok" and row["ended"] <= 3 * 10**9]
    assert values["throughput_in_window_per_s"] == pytest.approx(len(in_window) / 3)
    assert all(row["queued"] >= 2 * MS for row in rows if row["attempt"] == 1)
    qos = values["qos"]["interactive"]
    # Nothing takes less than alone.
    assert qos["slowdown_mean"] >= qos["slowdown_p50"] >= 1
    assert 0 < values["cpu_utilization_min"] <= values["cpu_utilization"] < 1
    # 20 a second of 20 ms, on 8 cores.
    assert values["offered_load"] == pytest.approx(0.05, rel=0.5)
    # Little's law, of the rows: what is there at the end has none.
    inside = sum(row["ended"] - row["scheduled"] for row in rows if row["outcome"] == "ok")
    assert values["requests_in_system"] * 3e9 >= inside - 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trace": {"path": "nowhere"}, "functions": None}, "nowhere does not exist"),
        ({"trace": {"path": "x"}}, "either functions or a trace"),
        ({"functions": None}, "either functions or a trace"),
        ({"latncy": "1ms"}, "latncy"),
        ({"failures": [{"worker": 9, "at": "1s", "lasts": "1s"}]}, "there is no worker 9"),
        ({"failures": {"works": "1h"}}, "lasts"),
        ({"starts": []}, "starts"),
        ({"seed": 2**64 - 1, "repeat": 2}, "repeated seeds"),
        ({"repeat": 0}, "repeat"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = {key: value for key, value in (FILE | change).items() if value is not None}
    with pytest.raises(UnciaError, match=words):
        uncia.simulate(file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("at", "value", "key", "words"),
    [
        (
            ("functions", "api", "phases", 1, "memory"),
            "500MB",
            "functions.api.phases[1].memory",
            "holds 500MB, and its function api may hold 128MB under npfu",
        ),
        (
            ("functions", "api", "vcpu"),
            5,
            "functions.api.vcpu",
            "under slim it needs 5vCPU and 1280MB, and no worker has as much",
        ),
        (
            ("functions", "api", "spot_vcpu"),
            1,
            "functions.api.spot_vcpu",
            "under npfu it reserves no CPU, so that it never runs where cores are shared by the"
            " rule 'pinned'",
        ),
        (("cluster", "memory"), "2000000GB", "cluster.memory", "a worker has at most 1048576GB"),
        (
            ("failures", 0, "worker"),
            2,
            "failures[0].worker",
            "there is no worker 2: they are from 0 to 1",
        ),
    ],
)
def test_what_no_worker_has_is_told_with_its_line(
    at: tuple[Any, ...], value: Any, key: str, words: str, tmp_path: Path
) -> None:
    models = ["slim", "npfu"] if at[-1] == "vcpu" else ["npfu"]
    failures = [{"worker": 1, "at": "1s", "lasts": "1s"}]
    keys = {"failures": failures, "models": models, "sharing": "pinned"}
    file = copy.deepcopy(FILE | keys)
    place: Any = file
    for part in at[:-1]:
        place = place[part]
    place[at[-1]] = value
    path = tmp_path / "file.yaml"
    path.write_text(yamlio.dump(file))
    line = yamlio.load(path).line(at)
    command = CliRunner().invoke(build(), ["simulate", str(path), "--out", str(tmp_path / "run")])
    assert isinstance(command.exception, UnciaError)
    assert command.exception.message == f"{path}:{line}: {key}: {words}"
    with pytest.raises(UnciaError) as error:
        uncia.simulate(path, out=tmp_path / "run")
    assert error.value.message == command.exception.message


@pytest.mark.parametrize(
    ("seed", "words"), [(-1, "seed: must be"), (2**64 - 1, "last of the repeated seeds")]
)
def test_a_seed_beside_the_file_is_checked_as_in_it(seed: int, words: str, tmp_path: Path) -> None:
    file = FILE | {"repeat": 2}
    path = tmp_path / "first.yaml"
    path.write_text(yamlio.dump(file))
    for given in (file, path):
        with pytest.raises(UnciaError, match=words):
            uncia.simulate(given, seed=seed, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_its_folder_goes_through_all_other_commands(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    uncia.simulate(FILE, seed=9, out=other)

    def command(*arguments: object) -> str:
        words = [sys.executable, "-m", "uncia", *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "aws" in command("bill", run, "--tariff", "aws-lambda-x86")
    command("report", run)
    assert (run / "report.html").stat().st_size > 10_000
    command("compare", run, other)
    command("export", run, "--csv", "--out", tmp_path / "csv")
    command("cost", "rounding", run)


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["a", "b"], "Its experiments: a, b."),
        ([None, None], "None of its rows names an experiment: leave trace.experiment out."),
    ],
)
def test_an_experiment_that_is_not_there_is_told(
    tmp_path: Path, names: list[str | None], hint: str
) -> None:
    file = tmp_path / "trace.parquet"
    record.write(_rows(scheduled=[0, MS], execution=[MS, MS], experiment=names), file)
    with pytest.raises(UnciaError, match="has no experiment 'c'") as caught:
        _simulate(tmp_path / "run", {"path": str(file), "experiment": "c"})
    assert caught.value.hint == hint
