"""What ``uncia simulate`` takes besides functions: tables, starts of a run, several seeds."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from simulated_tables import CLUSTER, FILE, MS, request_rows, simulate_table
from typer.testing import CliRunner

import uncia
from uncia import record, tariffs, yamlio
from uncia.cli import build
from uncia.errors import UnciaError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "run"
    uncia.simulate(FILE, out=folder)
    return folder


def test_a_run_is_simulated_again_from_its_rows(run: Path, tmp_path: Path) -> None:
    before = record.read(run).sort_by([("scheduled", "ascending")])
    result, after = simulate_table(tmp_path / "again", {"path": str(run)})
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


def test_phases_of_rows_are_those_that_run(tmp_path: Path) -> None:
    phases = [
        [
            {"duration": 10 * MS, "threads": 2, "memory": 50},
            {"duration": 20 * MS, "threads": 0, "memory": 20},
        ],
        None,
        [{"duration": 5 * MS, "threads": 1, "memory": 30}],
    ]
    rows = request_rows(
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
    result, after = simulate_table(tmp_path / "run", {"path": str(tmp_path / "trace.parquet")})
    assert result["served"] == 3
    assert after["function"].to_pylist() == ["g", "f", "f"]
    assert after["execution"].to_pylist() == [8 * MS, 30 * MS, 5 * MS]
    assert after["cpu_user"].to_pylist() == [4 * MS, 20 * MS, 5 * MS]
    # 10 ms of 50 bytes and 20 ms of 20.
    assert after["memory_avg"].to_pylist() == [70, 30, 30]
    assert after["allocated_cpu"].to_pylist() == [1_000_000, 2_000_000, 2_000_000]


def test_what_a_trace_lacks_is_asked_for(tmp_path: Path) -> None:
    rows = request_rows(
        outcome=["ok", "ok", "timeout"],
        started=[10**18, 10**18 + 5, None],
        execution=[7, 8, None],
        memory_avg=[3, None, None],
    )
    path = tmp_path / "trace.parquet"
    record.write(rows, path)
    with pytest.raises(UnciaError, match=r"CPU time of 2 invocations") as error:
        simulate_table(tmp_path / "run", {"path": str(path)})
    assert "trace.used_vcpu" in str(error.value.hint)
    with pytest.raises(UnciaError, match=r"memory of 1 invocations"):
        simulate_table(tmp_path / "run", {"path": str(path), "used_vcpu": 1})
    trace = {"path": str(path), "used_vcpu": 1, "used_memory": "1KB"}
    _, after = simulate_table(tmp_path / "run", trace)
    # Times from the first request on.
    assert after["scheduled"].to_pylist() == [0, 5]
    assert not list(tmp_path.glob(".uncia-*")), "nothing is left beside the run"


def test_requests_of_a_real_run_come_from_the_first_on(run: Path, tmp_path: Path) -> None:
    rows = request_rows(
        scheduled=[50_000 * MS, 50_007 * MS],
        execution=[MS, MS],
        cpu_user=[MS, MS],
        memory_peak=[1, 1],
    )
    made = tmp_path / "made"
    made.mkdir()
    record.write(rows, made / "invocations.parquet")
    _, after = simulate_table(tmp_path / "of-made", {"path": str(made)})
    assert after["scheduled"].to_pylist() == [50_000 * MS, 50_007 * MS]
    with pytest.raises(UnciaError, match=r"no request arrives within trace\.window") as error:
        simulate_table(tmp_path / "none", {"path": str(made), "window": "10s"})
    assert "50s" in str(error.value.hint)
    # The same rows of a run: its epoch is long before its requests.
    description = {"status": "complete", "platform": {"kind": "aws"}}
    (made / "run.yaml").write_text(yamlio.dump(description))
    for path in (made, made / "invocations.parquet"):
        trace = {"path": str(path), "window": "10s"}
        _, after = simulate_table(tmp_path / f"run-of-{path.stem}", trace)
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
            simulate_table(tmp_path / "out", {"path": str(path)})


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
    rows = request_rows(
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
    values, after = simulate_table(tmp_path / "run", trace, **keys)
    assert values["window_s"] == 10
    assert values["lost"] == 0
    assert after["worker"].to_pylist()[0] == "sim-worker-0"
    assert values["cpu_utilization"] == pytest.approx(4 / 12, rel=0.02)
    assert values["cpu_utilization_min"] == pytest.approx(0, abs=0.02)
    assert values["cpu_reservation"] == pytest.approx(4 / 12, rel=0.02)
    # The window ends with the simulation: exactly the integrals.
    values, _ = simulate_table(tmp_path / "until", trace, **keys, until="10s")
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
    record.write(request_rows(scheduled=[0, MS], execution=[MS, MS], experiment=names), file)
    with pytest.raises(UnciaError, match="has no experiment 'c'") as caught:
        simulate_table(tmp_path / "run", {"path": str(file), "experiment": "c"})
    assert caught.value.hint == hint
