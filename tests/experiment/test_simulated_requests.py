"""Which rows of a table are requests that can be simulated, and what is cut of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from simulated_tables import CLUSTER, MS, request_rows, simulate_table

import uncia
from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import request_checks, simulation
from uncia.experiment.simulation import SimulationFile, TracedFunction


def test_what_is_no_request_is_counted_by_reason(tmp_path: Path) -> None:
    outcomes = ["ok", "function_error", "timeout", "timeout", "ok", "ok", "ok"]
    rows = request_rows(
        outcome=outcomes,
        started=[0, 10 * MS, 20 * MS, 30 * MS, None, 50 * MS, 9_000 * MS],
        execution=[5 * MS, 5 * MS, 5 * MS, 5 * MS, 5 * MS, None, 5 * MS],
    )
    path = tmp_path / "invocations.parquet"
    record.write(rows, path, "invocations")
    trace = {"path": str(path), "window": "2s", "used_vcpu": 1, "used_memory": "1MB"}
    result, _ = simulate_table(tmp_path / "out", trace)
    assert result["served"] == 1
    described = yamlio.load(tmp_path / "out" / "run.yaml").data
    assert described["warnings"] == [
        "Invocations of the trace that are no requests: 2 with the outcome timeout, 1 with the"
        " outcome function_error, 1 without a time of arrival, 1 without a duration, 1 after the"
        " window."
    ]


def test_functions_beyond_all_workers_are_refused_or_clipped(tmp_path: Path) -> None:
    rows = request_rows(
        scheduled=[0],
        execution=[MS],
        cpu_user=[8 * MS],
        memory_peak=[2**30],
        allocated_cpu=[8_000_000],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    with pytest.raises(UnciaError, match="no worker has as much"):
        simulate_table(tmp_path / "run", {"path": str(path)})
    trace = {"path": str(path), "too_large": "clip"}
    _, after = simulate_table(tmp_path / "run", trace)
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

    rows = request_rows(
        scheduled=[0, MS, 2 * MS],
        execution=[2 * MS, MS, MS],
        phases=[phases(2**30, 3 * 2**30), phases(2**30), phases(2**31)],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    trace = {"path": str(path), "too_large": "clip"}
    result, after = simulate_table(tmp_path / "run", trace)
    assert result["clipped"] == 2
    assert after["memory_peak"].to_pylist() == [2**30] * 3
    warnings = yaml.safe_load((tmp_path / "run/run.yaml").read_text())["warnings"]
    assert any("2 requests held more memory" in words for words in warnings)


def _refused(folder: Path, **columns: list[Any]) -> str:
    """What is said of a table with these columns, before anything is simulated."""
    base = {"execution": [MS, MS], "cpu_user": [MS, MS], "memory_peak": [1, 1]}
    rows = request_rows(scheduled=[0, 2 * MS], **(base | columns))
    record.write(rows, folder / "trace.parquet")
    with pytest.raises(UnciaError) as error:
        simulate_table(folder / "run", {"path": str(folder / "trace.parquet")})
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
    rows = request_rows(
        scheduled=[0, 2 * MS],
        execution=[2 * MS, None],
        phases=[phases(MS + 700, MS + 700), phases(5 * MS)],
    )
    record.write(rows, tmp_path / "trace.parquet")
    _, after = simulate_table(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert after["execution"].to_pylist() == [2 * MS + 1_400, 5 * MS]


def test_an_attempt_of_an_invocation_is_there_once(tmp_path: Path) -> None:
    columns = {"execution": [MS] * 4, "cpu_user": [MS] * 4, "memory_peak": [1] * 4}
    scheduled = [0, MS, 2 * MS, 3 * MS]
    path = tmp_path / "trace.parquet"
    rows = request_rows(scheduled=scheduled, **columns, invocation=["a", "b", "b", "b"])
    record.write(rows, path)
    words = r"same attempt .* in 2 rows, first in that of invocation 'b', attempt 1"
    with pytest.raises(UnciaError, match=words):
        simulate_table(tmp_path / "run", {"path": str(path)})
    assert not (tmp_path / "run").exists()
    # Other attempts, other runs and what is no request are not the same.
    rows = request_rows(
        scheduled=scheduled,
        **columns,
        invocation=["a", "a", "a", "a"],
        attempt=[1, 2, 1, 1],
        run=["x", "x", "y", "x"],
        outcome=["ok", "ok", "ok", "timeout"],
    )
    record.write(rows, path)
    result, _ = simulate_table(tmp_path / "run", {"path": str(path)})
    assert result["served"] == 3
    # Regions have requests of the same names, and some logs number them by function.
    rows = request_rows(
        scheduled=scheduled,
        **columns,
        invocation=["a"] * 4,
        platform=["r1", "r2", "r1", "r2"],
        function=["f", "f", "g", "g"],
    )
    record.write(rows, path)
    result, _ = simulate_table(tmp_path / "regions", {"path": str(path)})
    assert result["served"] == 4


def test_requests_whose_hashes_are_the_same_by_chance_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        request_checks, "_hashes", lambda rows: np.zeros(rows.num_rows, dtype=np.int64)
    )
    rows = request_rows(scheduled=[0, 1], execution=[MS, MS], cpu_user=[MS, MS], memory_peak=[1, 1])
    record.write(rows, tmp_path / "trace.parquet")
    result, _ = simulate_table(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert result["served"] == 2


def _warnings(run: Path) -> str:
    warnings: list[str] = yaml.safe_load((run / "run.yaml").read_text())["warnings"]
    return "\n".join(warnings)


def test_requests_of_functions_that_are_cut_are_counted(tmp_path: Path) -> None:
    rows = request_rows(
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
    rows = request_rows(
        scheduled=[0, 5 * MS, 10 * MS],
        execution=[MS] * 3,
        # A kernel's tick more is none.
        cpu_user=[4 * MS, 1_005_000, MS],
        memory_peak=[1] * 3,
        allocated_cpu=[None, 1_000_000, 1_000_000],
        spot_cpu=[None, 5_000_000, 1_000_000],
    )
    record.write(rows, tmp_path / "trace.parquet")
    simulate_table(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    warnings = _warnings(tmp_path / "run")
    assert "1 requests use more CPU than is allocated to them" in warnings
    assert "1 requests have more spot CPU than is allocated to them" in warnings
    trace = {"path": str(tmp_path / "trace.parquet"), "vcpu": 4}
    simulate_table(tmp_path / "wide", trace)
    assert "use more CPU" not in _warnings(tmp_path / "wide")
