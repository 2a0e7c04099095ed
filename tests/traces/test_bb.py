"""The BB Trace from the command line: what is written, from what, and what cannot be."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from uncia import record, traces
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import bb_trace
from uncia.traces import synth
from uncia.traces.bb import Settings, forms

NORMAL = NormalDist()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    exit_code: int
    output: str
    stdout: str


def uncia(*arguments: object) -> Done:
    done = CliRunner().invoke(build(), [str(argument) for argument in arguments])
    if isinstance(done.exception, UnciaError):
        error = done.exception
        return Done(error.exit_code, f"{error.message} {error.hint}", done.stdout)
    return Done(done.exit_code, done.output, done.stdout)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic trace."""
    out = tmp_path_factory.mktemp("bb") / "trace"
    bb_trace.make(Settings(functions=60, seed=4, hour=7), out)
    return out


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of synthetic Azure files, imported."""
    folder = tmp_path_factory.mktemp("azure")
    synth.make("azure2019", 240, folder / "files", seed=2, files=2)
    traces.load([folder / "files"], folder / "imported", trace="azure2019")
    return folder / "imported"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_rows_say_what_their_phases_say(trace: Path) -> None:
    functions = {row["function"]: row for row in record.read(trace, "functions").to_pylist()}
    table = record.read(trace)
    rows = table.slice(0, 3000).to_pylist()
    assert table.num_rows > 1000
    assert pc.all(pc.less_equal(table["scheduled"][:-1], table["scheduled"][1:])).as_py()
    assert len(pc.unique(table["invocation"])) == table.num_rows
    for row in rows:
        phases, execution, mine = row["phases"], row["execution"], functions[row["function"]]
        assert sum(phase["duration"] for phase in phases) == execution
        cpu = sum(phase["duration"] * phase["threads"] for phase in phases)
        assert (row["cpu_user"], row["cpu_system"]) == (cpu, 0)
        held = sum(phase["duration"] * phase["memory"] for phase in phases)
        assert row["memory_avg"] == held // execution
        assert row["memory_peak"] == max(phase["memory"] for phase in phases)
        assert row["memory_peak"] <= row["allocated_memory"] == mine["allocated_memory"]
        knobs = ("allocated_cpu", "reserved_cpu", "spot_cpu", "preemptible", "qos")
        assert [row[name] for name in knobs] == [mine[name] for name in knobs]
        assert row["reserved_cpu"] + row["spot_cpu"] == row["allocated_cpu"]
        assert row["reserved_cpu_time"] == execution * row["reserved_cpu"] // 10**6
        above = [max(0, phase["threads"] * 10**6 - row["reserved_cpu"]) for phase in phases]
        borrowed = sum(p["duration"] * more for p, more in zip(phases, above, strict=True))
        assert row["borrowed_cpu_time"] == borrowed // 10**6
        assert (row["lent_cpu_time"], row["lent_memory_avg"]) == (0, 0)
        assert len(phases) == mine["phases"]
    counts = {name: row["invocations"] for name, row in functions.items() if row["invocations"]}
    entries = table["function"].combine_chunks().value_counts().to_pylist()
    assert {entry["values"]: entry["counts"] for entry in entries} == counts


def test_the_same_seed_is_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    done = uncia("trace", "bb", "--synthetic", "--functions", 60, "--seed", 4, "--hour", 7,
                 "--out", out, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["functions"] == 60
    assert digests(out) == digests(trace)
    # Of the rows themselves, so that every machine that runs this test is compared with the others.
    phases = record.read(trace)["phases"].slice(0, 1000).to_pylist()
    digest = hashlib.sha256(json.dumps(phases).encode()).hexdigest()
    assert digest.startswith("da727131902d2a0b")


def test_drawn_profiles_can_be_given_and_others_too(trace: Path, tmp_path: Path) -> None:
    settings = Settings(functions=60, seed=4, hour=7)
    bb_trace.make(settings, tmp_path / "given", profiles=trace / "profiles.yaml")
    given, drawn = digests(tmp_path / "given"), digests(trace)
    assert {**given, "trace.json": ""} == {**drawn, "trace.json": ""}
    measured = tmp_path / "measured.yaml"
    sizes = "{small: {mean: 1, max: 1}, medium: {mean: 1.5, max: 2}, large: {mean: 2, max: 5}}"
    measured.write_text(
        f"profiles:\n- {{name: f, qos: interactive, urgent: false, phases: 3, sizes: {sizes}}}\n"
    )
    done = uncia("trace", "bb", "--synthetic", "--functions", 30, "--profiles", measured,
                 "--out", tmp_path / "measured", "-q")  # fmt: skip
    assert done.exit_code == 0, done.output
    row = record.read(tmp_path / "measured", "functions").to_pylist()[0]
    assert (row["bb_function"], row["phases"]) == ("f", 3)
    assert (row["allocated_cpu"], row["spot_cpu"]) == (2_000_000, 2_000_000)
    measured.write_text(measured.read_text().replace("mean: 1.5", "mean: 2.5"))
    done = uncia("trace", "bb", "--synthetic", "--profiles", measured, "--out", tmp_path / "no")
    assert done.exit_code == 2
    assert "measured.yaml" in done.output
    assert "mean is above max" in done.output


def test_bills_and_costs_of_a_trace(trace: Path) -> None:
    def run(*arguments: str) -> Any:
        done = uncia(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    rows = record.read(trace).num_rows
    for tariff in ("slim", "sim", "spfu"):
        (line,) = run("bill", str(trace), "--tariff", tariff)
        assert line["rows"] == rows
    for analysis in ("decompose", "inflation", "rounding", "utilization"):
        tariffs = [] if analysis == "utilization" else ["--tariff", "sim"]
        assert run("cost", analysis, str(trace), *tariffs)


def test_functions_of_an_import_are_sampled(imported: Path, tmp_path: Path) -> None:
    made = bb_trace.make(Settings(functions=20, seed=1, hour=30), tmp_path / "a", folder=imported)
    assert made.functions == 20
    names = set(record.read(tmp_path / "a", "functions")["function"].to_pylist())
    counts = record.read(imported, "arrivals").filter(
        (pc.field("minute") >= 29 * 60) & (pc.field("minute") < 30 * 60)
    )
    expected = {
        (row["function"], row["minute"] - 29 * 60): row["count"]
        for row in counts.to_pylist()
        if row["function"] in names
    }
    made: dict[tuple[str, int], int] = {}
    for row in record.read(tmp_path / "a").select(["function", "scheduled"]).to_pylist():
        minute = row["scheduled"] // (60 * 10**9)
        made[row["function"], minute] = made.get((row["function"], minute), 0) + 1
    assert made == expected
    other = bb_trace.make(Settings(functions=20, seed=2), tmp_path / "b", folder=imported)
    assert other.functions == 20
    assert set(record.read(tmp_path / "b", "functions")["function"].to_pylist()) != names


def test_values_of_an_import_stay_within_its_profiles(imported: Path, tmp_path: Path) -> None:
    bb_trace.make(Settings(functions=20, seed=1, hour=2), tmp_path / "a", folder=imported)
    profiles = record.read(imported, "profiles").filter(
        (pc.field("statistic") == "quantile") & (pc.field("minute") == 0)
    )
    durations: dict[str, list[int]] = {}
    memory: dict[str, list[int]] = {}
    for row in profiles.to_pylist():
        if row["function"] is None:
            memory.setdefault(f"{row['owner']}/{row['app']}", []).append(row["memory"])
        else:
            durations.setdefault(row["function"], []).append(row["duration"])
    for row in record.read(tmp_path / "a").slice(0, 3000).to_pylist():
        known = durations[row["function"]]
        assert min(known) <= max(row["execution"], 1) <= max(*known, len(row["phases"]))
        held = memory[row["function"].rpartition("/")[0]]
        assert all(min(held) <= phase["memory"] <= max(held) for phase in row["phases"])
        assert row["allocated_memory"] == max(held)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-share", "1.2"], "--batch-share 1.2"),
        (["--utilization", "0"], "--utilization 0"),
        (["--load", "-1"], "--load -1"),
        (["--functions", "0"], "--functions 0"),
        (["--hour", "0"], "--hour 0"),
    ],
)
def test_values_out_of_range_are_refused(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = uncia("trace", "bb", "--synthetic", *arguments, "--out", tmp_path / "no")
    assert done.exit_code == 2
    assert message in done.output
    assert list(tmp_path.iterdir()) == []


def test_folders_with_too_little_are_refused(trace: Path, imported: Path, tmp_path: Path) -> None:
    def error(*arguments: str | Path) -> str:
        done = uncia("trace", "bb", *arguments, "--out", tmp_path / "no")
        assert done.exit_code == 2
        assert list(tmp_path.iterdir()) == []
        return str(done.output)

    assert "has no table of arrivals" in error(trace)
    assert "--functions" in error(imported, "--functions", "1000")
    assert (
        "the trace's last minute is 2,8"
        in error(imported, "--functions", "20", "--hour", "99").lower()
    )
    assert "either the folder of an import or --synthetic" in error()
    assert "either the folder of an import or --synthetic" in error(imported, "--synthetic")
    assert uncia("trace", "bb", "--synthetic", "--out", trace).exit_code == 1


def test_negative_durations_are_refused(imported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    record.write(record.read(imported, "arrivals"), folder / "arrivals.parquet", "arrivals")
    profiles = record.read(imported, "profiles")
    index = profiles.column_names.index("duration")
    worse = pc.negate(profiles["duration"])
    profiles = profiles.set_column(index, profiles.schema.field(index), worse)
    record.write(profiles, folder / "profiles.parquet", "profiles")
    done = uncia("trace", "bb", folder, "--functions", "10", "--out", tmp_path / "no")
    assert done.exit_code == 2
    assert "the durations of the function" in done.output
    assert "a value is below 0" in done.output
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize(("size", "table"), [("8k", "functions"), ("1m", "invocations")])
def test_a_full_disk_leaves_nothing(size: str, table: str, tmp_path: Path) -> None:
    # The engine writes the functions, and Python what it reads from it.
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", tmp_path], check=True)
    try:
        done = uncia("trace", "bb", "--synthetic", "--functions", "300", "--out", tmp_path / "full")
        assert done.exit_code == 1, done.output
        words = " ".join(done.output.split())
        assert f"{tmp_path / 'full' / table}." in words, "by its final name"
        assert "No space left on device" in words
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "uncia", "trace", "bb", "--synthetic", "--load", "1",
               "--functions", "3000", "--out"]  # fmt: skip
    process = subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob(".*/invocations.parquet*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_the_prior_is_table_1() -> None:
    prior = forms.prior()
    by_qos = {qos: [f.name for f in prior.functions if f.qos == qos]
              for qos in ("interactive", "batch", "both")}  # fmt: skip
    assert (len(prior.functions), len({f.application for f in prior.functions})) == (22, 7)
    assert {qos: len(names) for qos, names in by_qos.items()} == {
        "interactive": 8, "batch": 8, "both": 6}  # fmt: skip
    urgent = {f.name for f in prior.functions if f.urgent}
    assert urgent == {"upload", "dynamic_html", "get", "image_label", "q_and_a"}
    assert (prior.mean.low, prior.mean.high) == (0.04, 35)
    sizes = prior.by_size
    assert (sizes.large / sizes.medium, sizes.large / sizes.small) == (1.5, 3)


def test_the_population_follows_from_what_is_published() -> None:
    daily = forms.population().daily
    hourly, minutely = NORMAL.inv_cdf(0.45), NORMAL.inv_cdf(0.81)
    deviation = math.log(1440 / 24) / (minutely - hourly)
    assert daily.log_deviation == pytest.approx(deviation, rel=1e-9)
    assert daily.log_mean == pytest.approx(math.log(24) - hourly * deviation, rel=1e-9)
    # The mean, by the trapezoidal rule: z is mirrored where it is above its bound.
    step, edge = 1e-3, daily.max_deviations
    mean = sum(
        step
        * NORMAL.pdf(z)
        * math.exp(daily.log_mean + daily.log_deviation * (z if z <= edge else -z))
        for z in (-9 + step * (n + 0.5) for n in range(18_000))
    )
    assert mean == pytest.approx(8.8e9 / 14 / 52_000, rel=2e-3)


def test_the_files_of_azure_have_the_published_mean(tmp_path: Path) -> None:
    """As many functions are invoked as often as is published, whatever the few largest do."""
    synth.make("azure2019", 2000, tmp_path / "files", seed=5, files=1)
    lines = (tmp_path / "files/invocations_per_function_md.anon.d01.csv").read_text().splitlines()
    daily = [sum(map(int, line.split(",")[4:])) for line in lines[1:]]
    for most, share in ((24, 0.45), (1440, 0.81)):
        part = sum(count <= most for count in daily) / len(daily)
        assert abs(part - share) < 5 * math.sqrt(share * (1 - share) / len(daily)) + 0.01
    assert max(daily) < 1.1 * math.exp(14.42)
    # The expected mean of what is below the bound has an error of 7 means over the root of 2,000.
    assert 12_088 * 0.3 < sum(daily) / len(daily) < 12_088 * 1.8
