"""``uncia simulate``: a run folder from a cluster in virtual time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from patience import scaled

from uncia import record, tariffs, yamlio
from uncia.errors import UnciaError
from uncia.experiment import progress, simulate, simulation
from uncia.experiment.prices import resolved, revenue

FILE = """\
name: small
seed: 3
cluster: {workers: 2, vcpu: 4, memory: 4GB}
models: [slim, sim, spfu, npfu]
starts: [100ms, 300ms]
functions:
  api:
    vcpu: 2
    memory: 256MB
    arrivals: {kind: poisson, rate: 8/s, duration: 20s}
    phases:
      - {drawn: {distribution: exponential, mean: 60ms}, vcpu: 1, memory: 100MB}
      - {duration: 20ms, vcpu: 0, memory: 120MB}
  train:
    vcpu: 2
    memory: 2GB
    spot_vcpu: 2
    preemptible: true
    qos: batch
    arrivals: {kind: poisson, rate: 2/s, duration: 20s}
    phases:
      - {drawn: {distribution: exponential, mean: 1s}, vcpu: 2, memory: 1GB}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulate")
    file = folder / "small.yaml"
    file.write_text(FILE)
    checked, _ = simulation.load(file)
    simulate.execute(checked, folder / "run", progress.reporter(quiet=True))
    return folder / "run"


def _load_and_execute(file: Path, out: Path) -> None:
    checked, _ = simulation.load(file)
    simulate.execute(checked, out, progress.reporter(quiet=True))


def _rows(run: Path, model: str) -> pa.Table:
    return record.read(run).filter(pc.field("experiment") == model)


def test_all_models_serve_the_same_requests(run: Path) -> None:
    asked = []
    for model in simulation.RULES:
        rows = _rows(run, model)
        first = rows.filter(pc.field("attempt") == 1).sort_by([("scheduled", "ascending")])
        asked.append((first["function"].to_pylist(), first["scheduled"].to_pylist()))
    assert asked[0] == asked[1] == asked[2] == asked[3]
    assert len(asked[0][0]) > 150


def _check_account(run: Path, result: dict[str, Any]) -> None:
    """What rows have used and what still runs is all that workers gave."""
    for model in simulation.RULES:
        rows, account = _rows(run, model), result[model]

        def given(name: str, account: dict[str, Any] = account) -> int:
            return int(account["totals"][name]) - int(account["running"][name])

        for column, total in (
            ("cpu_user", given("cpu_own") + given("cpu_borrowed")),
            ("borrowed_cpu_time", given("cpu_borrowed")),
            ("lent_cpu_time", given("cpu_lent")),
        ):
            # A row's time is rounded down to a nanosecond.
            exact = Fraction(total, 10**6)
            assert 0 <= exact - pc.sum(rows[column]).as_py() <= rows.num_rows, (model, column)


def test_the_account_of_a_model_is_that_of_its_rows(run: Path) -> None:
    result = json.loads((run / "simulation.json").read_text())
    _check_account(run, result)
    for model in simulation.RULES:
        rows = _rows(run, model)
        assert result[model]["served"] == pc.sum(pc.equal(rows["outcome"], "ok")).as_py()
        assert result[model]["unfinished"] == 0
    assert int(result["npfu"]["totals"]["cpu_borrowed"]) > 0
    assert int(result["slim"]["totals"]["cpu_borrowed"]) == 0


def test_each_model_has_workers_of_its_own(run: Path) -> None:
    for name in ("invocations", "instances", "machine"):
        workers = set(record.read(run, name)["worker"].to_pylist())
        expected = {f"{model}-worker-{number}" for model in simulation.RULES for number in (0, 1)}
        assert workers == expected, name


def test_what_is_preempted_was_sent_once(tmp_path: Path) -> None:
    file = tmp_path / "tight.yaml"
    # Batch invocations hold what interactive ones have reserved.
    for old, new in (
        ("workers: 2, vcpu: 4, memory: 4GB", "workers: 1, vcpu: 4, memory: 3GB"),
        ("[slim, sim, spfu, npfu]", "[npfu]"),
        ("memory: 256MB", "memory: 1GB"),
        ("memory: 100MB", "memory: 900MB"),
        ("memory: 120MB", "memory: 900MB"),
        ("vcpu: 2, memory: 1GB", "vcpu: 2, memory: 2GB"),
    ):
        text = file.read_text() if file.exists() else FILE
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    checked, _ = simulation.load(file)
    result = simulate.execute(checked, tmp_path / "run", progress.reporter(quiet=True))
    rows = record.read(tmp_path / "run")
    stopped = rows.filter(pc.field("outcome") == "preempted")
    assert stopped.num_rows == result["npfu"]["preempted"] > 0
    assert rows["sent"].equals(rows["scheduled"])
    assert pc.max(rows["attempt"]).as_py() > 1
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert not [words for words in summary["warnings"] if "generator" in words]
    (line,) = tariffs.bill(stopped, [tmp_path / "run/tariff-npfu.yaml"])
    assert line.not_billable == {"preempted": stopped.num_rows}


def test_what_still_runs_at_the_end_is_in_the_account(tmp_path: Path) -> None:
    file = tmp_path / "broken-off.yaml"
    file.write_text(FILE.replace("starts:", "until: 10s\nstarts:"))
    checked, _ = simulation.load(file)
    result = simulate.execute(checked, tmp_path / "run", progress.reporter(quiet=True))
    _check_account(tmp_path / "run", result)
    assert result["npfu"]["unfinished"] > 0
    assert int(result["npfu"]["running"]["cpu_borrowed"]) > 0
    assert int(result["npfu"]["running"]["memory_used"]) > 0


def test_what_earns_nothing_has_no_factor(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(FILE.replace("starts:", "until: 1ms\nstarts:"))
    checked, _ = simulation.load(file)
    result = simulate.execute(checked, tmp_path / "run", progress.reporter(quiet=True))
    for values in result.values():
        assert values["served"] == 0
        assert values["cost_usd"] == 0
        assert values["price_factor_at_equal_revenue"] is None


def test_rows_without_a_price_are_an_error_and_earn_not_nothing(run: Path, tmp_path: Path) -> None:
    checked = simulation.load(run.parent / "small.yaml")[0].model_copy(update={"models": ["sim"]})
    rows = _rows(run, "sim")
    index = rows.column_names.index("allocated_memory")
    sizes = pc.if_else(pc.equal(rows["function"].cast("string"), "api"), None, rows[index])
    lacking = rows.set_column(index, rows.schema.field(index), sizes)
    cell = ("sim", checked.seed)
    assert revenue(checked, {cell: rows}, {cell: 10**9}, tmp_path)[cell].cost > 0
    count = pc.sum(pc.is_null(lacking["allocated_memory"])).as_py()
    with pytest.raises(UnciaError, match=rf"sim-simulated prices not all.*\({count:,}\)"):
        revenue(checked, {cell: lacking}, {cell: 10**9}, tmp_path)


def test_models_honour_their_settings(run: Path) -> None:
    def sizes(model: str, function: str) -> list[tuple[int, ...]]:
        rows = _rows(run, model).filter(pc.field("function") == function)
        columns = ("allocated_cpu", "allocated_memory", "reserved_cpu", "spot_cpu", "preemptible")
        return list(set(zip(*(rows[name].to_pylist() for name in columns), strict=True)))

    gb = 2**30
    # A worker has 1 GB a vCPU: the larger of the two decides.
    assert sizes("slim", "api") == [(2_000_000, 2 * gb, 2_000_000, 0, False)]
    assert sizes("slim", "train") == [(2_000_000, 2 * gb, 2_000_000, 0, False)]
    assert sizes("sim", "api") == [(2_000_000, gb // 4, 2_000_000, 0, False)]
    assert sizes("npfu", "train") == [(2_000_000, 2 * gb, 0, 2_000_000, True)]


def test_all_models_earn_the_same_by_the_tariffs_in_the_folder(run: Path) -> None:
    result = json.loads((run / "simulation.json").read_text())
    rates = []
    for model in simulation.RULES:
        (line,) = tariffs.bill(_rows(run, model), [run / f"tariff-{model}.yaml"])
        assert line.exact_cost is not None
        rates.append(line.exact_cost / Fraction(str(result[model]["end_s"])))
    for rate in rates[1:]:
        # Prices have 18 digits.
        assert abs(rate / rates[0] - 1) < Fraction(1, 10**15)


def test_equal_settings_give_slims_bill_under_npfu(run: Path) -> None:
    checked, _ = simulation.load(run.parent / "small.yaml")
    rows = _rows(run, "slim")
    costs = []
    for model in ("slim", "npfu"):
        path = run.parent / f"{model}.yaml"
        path.write_text(yamlio.dump(resolved(checked, model)))
        (line,) = tariffs.bill(rows, [path])
        costs.append(line.exact_cost)
    assert costs[0] == costs[1] is not None


def test_the_same_file_gives_the_same_tables(run: Path, tmp_path: Path) -> None:
    checked, _ = simulation.load(run.parent / "small.yaml")
    simulate.execute(checked, tmp_path / "again", progress.reporter(quiet=True), with_report=False)
    for name in ("invocations", "instances", "machine"):
        assert record.read(tmp_path / "again", name).equals(record.read(run, name)), name
    assert (tmp_path / "again/simulation.json").read_bytes() == (
        run / "simulation.json"
    ).read_bytes()
    assert (run / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("workers: 2", "workers: 0", "cluster.workers"),
        ("spot_vcpu: 2", "spot_vcpu: 3", "spot_vcpu is a part of vcpu"),
        ("memory: 100MB", "memory: 300MB", "its function api may hold"),
        ("memory: 2GB", "memory: 5GB", "no worker has as much"),
        ("starts:", "policies: {admission: lottery}\nstarts:", "lottery"),
        ("[slim, sim,", "[slim, slim,", "more than once"),
        ("{duration: 20ms, ", "{", "either a duration or a distribution"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    assert old in FILE
    file.write_text(FILE.replace(old, new))
    with pytest.raises(UnciaError, match=words):
        _load_and_execute(file, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _children(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(child) for child in text.split()}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scaled(120)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="a kernel tells children only on Linux")
def test_the_engine_ends_with_a_simulation_that_is_killed(tmp_path: Path) -> None:
    file, out = tmp_path / "long.yaml", tmp_path / "out"
    # It would take hours, of workers that fail and come back.
    forever = "failures: {works: 1ms, lasts: 1ms}\nuntil: 10000h\ninterval: 10000h\n"
    file.write_text(FILE + forever)
    command = [sys.executable, "-m", "uncia", "simulate", str(file), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    engines: set[int] = set()
    try:
        _wait(lambda: bool(_children(process.pid)))
        engines = _children(process.pid)
        process.kill()
        process.wait()
        _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in engines))
    finally:
        process.kill()
        process.wait()
        for pid in engines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
