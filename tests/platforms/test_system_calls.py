"""The embedded platform serves on a kernel without filters of system calls, and says so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from uncia.doctor.checks import capability_checks
from uncia.doctor.host import Host
from uncia.doctor.probe import engine_probe

WITHOUT_FILTERS = Path(__file__).resolve().parents[2] / "benches/platform/without_filters.py"

EXPERIMENT = """\
name: unfiltered
seed: 1
platform: {kind: embedded}
functions:
  hello: {source: hello, memory: 256MB}
experiments:
  warm:
    function: hello
    arrivals: {kind: constant, rate: 5/s, duration: 1s}
"""

WARNING = "The system calls of functions are not filtered: this kernel has no filters"


@pytest.fixture
def unfiltered(engine_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine, on such a kernel."""
    path = tmp_path / "engine"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {WITHOUT_FILTERS} {engine_binary} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("UNCIA_ENGINE", str(path))
    return path


def test_the_doctor_says_that_system_calls_are_not_filtered(unfiltered: Path) -> None:
    probe = engine_probe()
    assert probe.answer is not None
    assert probe.answer["seccomp"] is False
    (check,) = (it for it in capability_checks(Host(), probe) if it.id == "sandbox")
    assert check.status == "warn"
    assert WARNING in check.finding
    (check,) = (it for it in capability_checks(Host(), probe) if it.id == "features")
    # Java's are compiled too, where there is one.
    assert re.search(r"through a journal of format 1; packages for .*python are", check.finding)
    assert "from fresh or prepared" in check.finding
    assert "; system calls of functions are not filtered" in check.finding


def test_a_run_without_filters_says_so(unfiltered: Path, state_home: Path, tmp_path: Path) -> None:
    file, folder = tmp_path / "experiment.yaml", tmp_path / "run"
    file.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "uncia", "run", str(file), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = yaml.safe_load((folder / "run.yaml").read_text())
    assert any(it.startswith(WARNING) for it in run["warnings"]), run
    features = run["machine"]["platform_features"]
    assert features["system_call_filter"] is False
    assert "prepared" in features["start_from"]
