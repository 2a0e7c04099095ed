"""Sweeps of simulations on a Spark cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import progress, spark_sweep, sweep
from uncia.record.schema import conform

FILE: dict[str, Any] = {
    "name": "grid",
    "seed": 1,
    "cluster": {"workers": 1, "vcpu": 2, "memory": "1GB"},
    "models": ["sim"],
    "functions": {
        "api": {
            "vcpu": 1,
            "memory": "128MB",
            "arrivals": {"kind": "poisson", "rate": "20/s", "duration": "5s"},
            "phases": [{"duration": "20ms", "memory": "64MB"}],
        }
    },
}


def _grid(sweeps: dict[str, Any]) -> list[sweep.Point]:
    return sweep.points(yamlio.load(yamlio.dump(FILE | {"sweep": sweeps}), "grid.yaml"))


def _summaries(folder: Path) -> dict[str, bytes]:
    names = ("simulation.json", "invocations.parquet", "instances.parquet")
    files = (file for name in names for file in folder.glob(f"point-*/{name}"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files} | {
        "sweep.json": (folder / "sweep.json").read_bytes()
    }


def _executors() -> list[int]:
    result = []
    for folder in Path("/proc").glob("[0-9]*"):
        # Any may end meanwhile.
        with contextlib.suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                result.append(int(folder.name))
    return result


@pytest.mark.long
def test_a_cluster_gives_what_this_machine_gives(
    master: tuple[str, list[int]], tmp_path: Path
) -> None:
    address, _ = master
    reporter = progress.reporter(quiet=True)
    grid = _grid({"seed": [1, 2, 3, 4, 5, 6], "cluster.workers": [1, 2]})
    assert len(grid) == 12
    sweep.execute(grid, tmp_path / "here", reporter)

    def kill_one() -> None:
        # As soon as the first point is there.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(tmp_path.glob("there/point-*/point.json")):
            time.sleep(0.02)
        for pid in _executors()[:1]:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    killed: list[int] = []
    killer = threading.Thread(target=kill_one)
    killer.start()
    sweep.execute(grid, tmp_path / "there", reporter, master=address)
    killer.join()
    assert killed, "an executor was killed half-way"
    assert _summaries(tmp_path / "there") == _summaries(tmp_path / "here")
    assert not list(tmp_path.glob("there/.uncia-sweep-*"))


def test_a_point_that_fails_on_a_cluster_is_a_row(
    master: tuple[str, list[int]], tmp_path: Path
) -> None:
    address, _ = master
    grid = _grid({"functions.api.memory": ["128MB", "2GB"]})
    rows = sweep.execute(grid, tmp_path / "out", progress.reporter(quiet=True), master=address)
    assert [row["error"] is None for row in rows] == [True, False]
    assert (tmp_path / "out/point-00000/simulation.json").exists()


def test_another_table_there_is_a_sentence_before_the_start(
    master: tuple[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = master
    rows = pa.table(
        {
            "function": ["f"],
            "invocation": ["i"],
            "attempt": [1],
            "outcome": ["ok"],
            "scheduled": [0],
            "execution": [10**6],
            "cpu_user": [10**6],
            "memory_peak": [1],
        }
    )
    record.write(conform(rows, "invocations"), tmp_path / "in.parquet")
    file = {key: value for key, value in FILE.items() if key != "functions"}
    content = file | {"trace": {"path": "in.parquet"}, "sweep": {"seed": [1]}}
    grid = sweep.points(yamlio.load(yamlio.dump(content), "grid.yaml"))

    def execute() -> list[dict[str, Any]]:
        reporter = progress.reporter(quiet=True)
        return sweep.execute(grid, tmp_path / "out", reporter, base=tmp_path, master=address)

    with monkeypatch.context() as patch:
        # What this machine reads is another table than what executors see.
        patch.setattr(sweep, "content_digest", lambda path: "another")
        with pytest.raises(UnciaError, match=r"does not see the same table under .*in\.parquet"):
            execute()
    assert not list(tmp_path.glob("out/point-*"))
    shutil.rmtree(tmp_path / "out")
    (row,) = execute()
    assert (row["error"], row["served"]) == (None, 1)


def test_another_version_there_is_a_sentence_before_the_start(
    master: tuple[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = master
    here = spark_sweep.versions() | {"engine": "uncia-engine 99"}
    monkeypatch.setattr(spark_sweep, "versions", lambda: here)
    with pytest.raises(UnciaError, match="and this machine uncia-engine 99"):
        sweep.execute(
            _grid({"seed": [1]}), tmp_path / "out", progress.reporter(quiet=True), master=address
        )
    assert not list(tmp_path.glob("out/point-*"))
