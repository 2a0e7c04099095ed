"""Runs whose instances are copies of a process that has run the function's imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from uncia import record
from uncia.doctor.probe import engine_probe

HELLO = Path(__file__).resolve().parents[2] / "functions/hello"

# Each request has an instance of its own.
EXPERIMENT = """\
name: copies
seed: 1
platform: {kind: embedded}
functions:
  copied: {source: ./copied, memory: 256MB, start_from: function_zygote, keep_alive: 1ms}
experiments:
  cold:
    function: copied
    arrivals: {kind: constant, rate: 2/s, duration: 2s}
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import decimal", None),
        ("import socket\nkept = socket.socket()", "it has opened a socket."),
    ],
)
def test_a_run_says_why_a_function_has_no_zygote(
    line: str, reason: str | None, engine_binary: Path, state_home: Path, tmp_path: Path
) -> None:
    probe = engine_probe()
    assert probe.answer is not None
    shutil.copytree(HELLO, tmp_path / "copied")
    handler = tmp_path / "copied/python/handler.py"
    handler.write_text(f"{line}\n{handler.read_text()}")
    file, folder = tmp_path / "experiment.yaml", tmp_path / "run"
    file.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "uncia", "run", str(file), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warnings = yaml.safe_load((folder / "run.yaml").read_text())["warnings"]
    refusals = [it for it in warnings if "has no zygote of its own" in it]
    rows = record.read(folder / "invocations.parquet", "invocations")
    assert set(rows["outcome"].to_pylist()) == {"ok"}
    starts = rows["start"].to_pylist()
    if "function_zygote" not in probe.answer["features"]["start_from"]:
        assert set(starts) == {"cold"}
    elif reason is None:
        assert refusals == []
        assert "restored" in starts
    else:
        assert [it.endswith(reason) for it in refusals] == [True]
        assert "restored" not in starts
