"""``uncia simulate`` with a key ``sweep``: a simulation for each point of a grid."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import uncia
from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import sweep

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
    assert len({point.digest() for point in product + step}) == 4
    # A key that is not in the file is one of its form.
    (point,) = sweep.points(_document(FILE | {"sweep": {"prices.spot": [0.3]}}))
    assert point.data["prices"] == {"spot": 0.3}


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
    assert len({point.digest() for point in grid}) == 4


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"cluster.wrokers": [1]}, "wrokers"),
        ({"cluster.workers": [1, 0]}, "cluster.workers = 0"),
        ({"cluster.workers": 3}, "must be a list"),
        ({"cluster.workers": []}, "must be a list"),
        ({"cluster.workers": [1], "seed": [1, 2], "zip": True}, "as many values in step"),
        ({"zip": True}, "there must be parameters"),
        ({}, "which parameters have which values"),
        ({"seed": list(range(400)), "latency": ["1ms"] * 400}, "are more than"),
    ],
)
def test_mistakes_are_found_before_the_start(grid: dict[str, Any], words: str) -> None:
    with pytest.raises(UnciaError, match=words):
        sweep.points(_document(FILE | {"sweep": grid}))


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
