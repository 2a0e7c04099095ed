"""``uncia simulate`` with a key ``sweep``: a simulation for each point of a grid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import uncia
from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import progress, sweep
from uncia.experiment.sweep_task import Task, content_digest
from uncia.record.schema import conform

FILE: dict[str, Any] = {
    "name": "grid",
    "seed": 2,
    "cluster": {"workers": 1, "vcpu": 2, "memory": "1GB"},
    "models": ["sim"],
    "functions": {
        "api": {
            "vcpu": 1,
            "memory": "128MB",
            "arrivals": {"kind": "poisson", "rate": "20/s", "duration": "1s"},
            "phases": [{"duration": "20ms", "memory": "64MB"}],
        }
    },
}
GRID = {"cluster.workers": [1, 2], "functions.api.memory": ["128MB", "2GB"]}


def _document(content: dict[str, Any]) -> yamlio.Document:
    return yamlio.load(yamlio.dump(content), "grid.yaml")


def test_points_are_products_or_taken_in_step() -> None:
    product = sweep.points(_document(FILE | {"sweep": GRID}))
    assert [tuple(point.values.values()) for point in product] == [
        (1, "128MB"),
        (1, "2GB"),
        (2, "128MB"),
        (2, "2GB"),
    ]
    assert product[3].data["cluster"] == FILE["cluster"] | {"workers": 2}
    assert product[3].data["functions"]["api"]["memory"] == "2GB"
    step = sweep.points(_document(FILE | {"sweep": GRID | {"zip": True}}))
    assert [tuple(point.values.values()) for point in step] == [(1, "128MB"), (2, "2GB")]
    assert len({point.digest({}, {}) for point in product + step}) == 4
    # A key that is not in the file is one of its form.
    (point,) = sweep.points(_document(FILE | {"sweep": {"prices.spot": [0.3]}}))
    assert point.data["prices"] == {"spot": 0.3}


def test_items_of_lists_are_named_by_their_positions() -> None:
    name = "functions.api.phases.0.duration"
    grid = sweep.points(_document(FILE | {"sweep": {name: ["10ms", "20ms"]}}))
    for point, duration in zip(grid, ("10ms", "20ms"), strict=True):
        (phase,) = point.data["functions"]["api"]["phases"]
        assert phase == {"duration": duration, "memory": "64MB"}
    grid = sweep.points(
        _document(FILE | {"starts": ["1ms", "5ms"], "sweep": {"starts.1": ["2ms", "3ms"]}})
    )
    assert [point.data["starts"] for point in grid] == [["1ms", "2ms"], ["1ms", "3ms"]]


def test_a_parameter_within_the_value_of_another_is_its_points_own() -> None:
    traces = [{"path": "a"}, {"path": "b"}]
    file = {key: value for key, value in FILE.items() if key != "functions"}
    grid = sweep.points(
        _document(file | {"sweep": {"trace": traces, "trace.window": ["10min", "60min"]}})
    )
    assert [point.data["trace"] for point in grid] == [
        {"path": "a", "window": "10min"},
        {"path": "a", "window": "60min"},
        {"path": "b", "window": "10min"},
        {"path": "b", "window": "60min"},
    ]
    assert [point.values["trace"] for point in grid] == [traces[0]] * 2 + [traces[1]] * 2
    assert len({point.digest({}, {}) for point in grid}) == 4


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"cluster.wrokers": [1]}, "wrokers"),
        ({"cluster.workers": [1, 0]}, "cluster.workers = 0"),
        ({"cluster.workers": 3}, "must be a list"),
        ({"cluster.workers": [1], "seed": [1, 2], "zip": True}, "as many values in step"),
        ({"zip": True}, "there must be parameters"),
        ({"cluster.workers": 4}, r"sweep\.cluster\.workers: must be a list of values"),
        ({"cluster.workers": []}, r"sweep\.cluster\.workers: the list holds no value"),
        ({}, "which parameters have which values"),
        ({"seed": list(range(400)), "latency": ["1ms"] * 400}, "are more than"),
        ({"seed": [1, 2, 1]}, r"grid.yaml:\d+: sweep\.seed\[2\]: 1 is there twice"),
        ({"prices.spot": [0.3, 0.3]}, r"0\.3 is there twice: a sweep has each value once"),
        (
            {"seed": [1, 2, 1], "latency": ["1ms", "1ms", "1ms"], "zip": True},
            r"grid.yaml:\d+: sweep: two points in step are the same: seed = 1, latency = 1ms",
        ),
        (
            {"cluster.memory": ["1GB", "1024MB"]},
            r"two points are the same: cluster\.memory = 1GB, and cluster\.memory = 1024MB",
        ),
        (
            {"seed": [1, 1], "latency": ["1ms", "1000us"], "zip": True},
            "the same: seed = 1, latency = 1ms, and seed = 1, latency = 1000us",
        ),
        ({"policies.ordr": ["first-come"]}, "no policy makes the choice 'ordr'"),
        (
            {"policies.order": ["first-come", "frist-come"]},
            "policies.order = frist-come.*there is no policy 'frist-come'",
        ),
        (
            {"functions.api.phases.1.duration": ["1ms"]},
            r"phases\.1\.duration: '1' is no item of a list.*from 0 to 0",
        ),
        ({"functions.api.phases.duration": ["1ms"]}, "'duration' is no item of a list"),
    ],
)
def test_mistakes_are_found_before_the_start(grid: dict[str, Any], words: str) -> None:
    with pytest.raises(UnciaError, match=words):
        sweep.points(_document(FILE | {"sweep": grid}))


def test_a_mistake_of_a_point_is_on_its_line_of_the_file(tmp_path: Path) -> None:
    text = yamlio.dump(FILE) + (
        "sweep:\n"
        "  policies.order: [first-come]\n"
        "  cluster:\n"
        "  - {workers: 1, vcpu: 4, memory: 1GB}\n"
        "  - workers: 1\n"
        "    vcpu: some\n"
        "    memory: 1GB\n"
    )
    line = 1 + text.split("\n").index("    vcpu: some")
    with pytest.raises(UnciaError) as error:
        sweep.points(yamlio.load(text, "grid.yaml"))
    begin = f"grid.yaml:{line}, sweep at policies.order = first-come, cluster = "
    assert error.value.message.startswith(begin)
    assert "cluster.vcpu: 'some'" in error.value.message
    # What no parameter changes stands where it stood.
    wrong = text.replace("vcpu: some", "vcpu: 3").replace("models:", "modles:")
    line = 1 + [row.split(":")[0] for row in wrong.split("\n")].index("modles")
    with pytest.raises(UnciaError, match=f"grid.yaml:{line}, sweep at .*: modles: unknown key"):
        sweep.points(yamlio.load(wrong, "grid.yaml"))


def test_a_point_that_fails_is_a_row_and_the_others_finish(tmp_path: Path) -> None:
    file, out = tmp_path / "grid.yaml", tmp_path / "out"
    file.write_text(yamlio.dump(FILE | {"sweep": GRID}))

    def run(*more: str) -> tuple[int, list[dict[str, Any]], str]:
        command = [sys.executable, "-m", "uncia", "simulate", str(file), "--out", str(out)]
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        summary = out / "sweep.json"
        rows = json.loads(summary.read_text()) if summary.exists() else []
        return done.returncode, rows, done.stderr

    code, rows, _ = run("--processes", "2")
    assert code == 1
    assert [row["error"] is None for row in rows] == [True, False, True, False]
    assert rows[1]["error"].startswith("error: functions.api.memory: under sim it needs")
    assert "no worker has as much" in rows[1]["error"]
    # The same as by itself, byte for byte.
    alone = {**FILE, "cluster": {**FILE["cluster"], "workers": 2}}
    uncia.simulate(alone, out=tmp_path / "alone")
    point = out / "point-00002"
    expected = (tmp_path / "alone/simulation.json").read_bytes()
    assert (point / "simulation.json").read_bytes() == expected
    assert not list(out.glob(".*"))
    assert not (out / "point-00001").exists()

    code, _, words = run()
    assert code == 2
    assert "--resume" in words

    # What was half-way is simulated again, what was done is not.
    (point / "point.json").unlink()
    before = (out / "point-00000/simulation.json").stat()
    file.write_text(
        yamlio.dump(FILE | {"sweep": GRID | {"functions.api.memory": ["128MB", "256MB"]}})
    )
    code, rows, _ = run("--resume")
    assert code == 0
    assert [row["error"] for row in rows] == [None] * 4
    assert (point / "simulation.json").read_bytes() == expected
    after = (out / "point-00000/simulation.json").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def _trace(path: Path, requests: int) -> None:
    rows = pa.table(
        {
            "function": ["f"] * requests,
            "invocation": [f"i{number}" for number in range(requests)],
            "attempt": [1] * requests,
            "outcome": ["ok"] * requests,
            "scheduled": list(range(requests)),
            "execution": [10**6] * requests,
            "cpu_user": [10**6] * requests,
            "memory_peak": [1] * requests,
        }
    )
    record.write(conform(rows, "invocations"), path)


def test_what_a_point_is_made_from_is_part_of_what_is_kept(tmp_path: Path) -> None:
    table = tmp_path / "in/invocations.parquet"
    table.parent.mkdir()
    file = {key: value for key, value in FILE.items() if key != "functions"}
    for keys in (
        {"trace": {"path": "in"}},
        {"trace": {"path": "in/invocations.parquet"}},
        {"functions": FILE["functions"], "starts": {"run": "in"}},
    ):
        _trace(table, 3)
        grid = sweep.points(_document(file | keys | {"sweep": {"seed": [1]}}))
        versions = {"engine": "1"}
        before = sweep.digests(grid, tmp_path, versions)
        assert sweep.digests(grid, tmp_path, {"engine": "2"}) != before
        _trace(table, 3)
        assert sweep.digests(grid, tmp_path, versions) == before, "the same rows, written again"
        # As large and as old as before, as a copy that keeps times is.
        status, content = table.stat(), bytearray(table.read_bytes())
        content[len(content) // 2] ^= 1
        table.write_bytes(content)
        os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert sweep.digests(grid, tmp_path, versions) != before, "other content"


def test_a_trace_that_changed_is_simulated_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    _trace(tmp_path / "in/invocations.parquet", 3)
    file = {key: value for key, value in FILE.items() if key != "functions"}
    grid = sweep.points(_document(file | {"trace": {"path": "in"}, "sweep": {"seed": [1]}}))

    def served(*, resume: bool) -> int:
        reporter = progress.reporter(quiet=True)
        (row,) = sweep.execute(grid, tmp_path / "out", reporter, base=tmp_path, resume=resume)
        assert row["error"] is None
        return int(row["served"])

    assert served(resume=False) == 3
    kept = (tmp_path / "out/point-00000/simulation.json").stat().st_mtime_ns
    # Those of a sweep and a point that were killed.
    for name in (".uncia-sweep-a", ".uncia-simulate-b"):
        (tmp_path / "out" / name / "in").mkdir(parents=True)
    assert served(resume=True) == 3
    assert (tmp_path / "out/point-00000/simulation.json").stat().st_mtime_ns == kept
    assert not list((tmp_path / "out").glob(".*"))
    _trace(tmp_path / "in/invocations.parquet", 4)
    assert served(resume=True) == 4


def test_a_point_is_of_the_table_that_was_there_at_the_start(tmp_path: Path) -> None:
    table, folder = tmp_path / "in.parquet", tmp_path / "point-00000"
    _trace(table, 3)
    file = {key: value for key, value in FILE.items() if key != "functions"}

    def task(digest: str) -> Task:
        text = yamlio.dump(file | {"trace": {"path": str(table)}})
        return Task(0, {}, text, folder, tmp_path, False, "x", {table: digest})

    def never(_: object) -> None:
        raise AssertionError("nothing is simulated")

    error = task("another").simulate(never)
    assert error is not None
    assert f"{table} on " in error
    assert "another table than when the sweep was started" in error

    def replaced(start: Callable[[], subprocess.Popen[str]]) -> subprocess.Popen[str]:
        _trace(table, 4)
        return start()

    known = content_digest(table)
    assert task(known).simulate(replaced) == error
    assert not (folder / "point.json").exists()
    assert task(content_digest(table)).simulate() is None
    assert (folder / "point.json").exists()


def test_a_folder_of_another_sweep_is_refused_or_replaced(tmp_path: Path) -> None:
    def execute(content: dict[str, Any], **options: bool) -> list[dict[str, Any]]:
        reporter = progress.reporter(quiet=True)
        return sweep.execute(
            sweep.points(_document(content)), tmp_path / "out", reporter, **options
        )

    content = FILE | {"sweep": {"seed": [1, 2]}}
    # Left by points that were killed.
    for name in (".uncia-bb-x", ".point-00000.old-17", ".uncia-simulate-x", ".uncia-sweep-x"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "out" / "grid.json").write_text('{"name": "grid", "parameters": ["seed"]}')
    execute(content, resume=True)
    assert not list((tmp_path / "out").glob(".*"))
    for other, words in (
        (content | {"name": "other"}, "another sweep: 'grid', over seed"),
        (FILE | {"sweep": {"cluster.workers": [1, 2]}}, "another sweep"),
        (FILE | {"sweep": {"seed": [1]}}, "points that this sweep does not have: point-00001"),
    ):
        with pytest.raises(UnciaError, match=words):
            execute(other, resume=True)
    with pytest.raises(UnciaError, match="is not empty"):
        execute(content)
    assert (tmp_path / "out/point-00001/simulation.json").exists()
    rows = execute(FILE | {"sweep": {"cluster.workers": [2]}}, overwrite=True, with_report=True)
    assert [row["values"] for row in rows] == [{"cluster.workers": 2}]
    assert (tmp_path / "out/point-00000/report.html").exists()
    assert not (tmp_path / "out/point-00001").exists()
    # What is none of a sweep is kept.
    for name in ("grid.json", "sweep.json"):
        (tmp_path / "out" / name).unlink()
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(UnciaError, match="does not hold a sweep"):
            execute(content, **options)
    assert (tmp_path / "out/point-00000/report.html").exists()


def _processes(words: str) -> set[int]:
    """Processes with words in their command line, and the children of those."""
    result, parents = set(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        # Any may end meanwhile.
        with contextlib.suppress(OSError):
            *_, fields = (folder / "stat").read_text().rpartition(")")
            state, parent = fields.split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
                if words.encode() in (folder / "cmdline").read_bytes():
                    result.add(int(folder.name))
    return result | {pid for pid, parent in parents.items() if parent in result}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="a kernel tells children only on Linux")
def test_points_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    # It would take hours, of workers that fail and come back.
    phases = [{"duration": "1us", "memory": "64MB"}]
    functions = {"api": FILE["functions"]["api"] | {"phases": phases}}
    long = {
        "functions": functions,
        "failures": {"works": "1ms", "lasts": "1ms"},
        "until": "10000h",
        "interval": "10000h",
    }
    file, out = tmp_path / "grid.yaml", tmp_path / "out"
    file.write_text(yamlio.dump(FILE | long | {"sweep": {"seed": [1, 2]}}))
    command = [sys.executable, "-m", "uncia", "simulate", str(file), "--out", str(out)]
    first = subprocess.Popen([*command, "--processes", "1"], stderr=subprocess.DEVNULL)
    point: set[int] = set()
    try:
        _wait(lambda: len(_processes(f"{out}/point-")) > 1)
        point = _processes(f"{out}/point-")
        again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
        assert again.returncode == 2
        assert "is still going on" in again.stderr
        first.kill()
        first.wait()
        _wait(lambda: not point & _processes(""))
    finally:
        first.kill()
        first.wait()
        for pid in point:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_sweep_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    grid = sweep.points(_document(FILE | {"sweep": {"seed": [1, 2, 3]}}))

    class Impatient:
        def note(self, line: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.execute(grid, tmp_path, Impatient(), processes=1)  # type: ignore[arg-type]
    assert not list(tmp_path.glob(".uncia-*"))
    assert (tmp_path / "point-00000/point.json").exists()
    assert not (tmp_path / "sweep.json").exists()
