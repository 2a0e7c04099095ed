"""The function `throttle` on the embedded platform: a run that is a profile."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from uncia import record, yamlio
from uncia.bandwidth import profiles
from uncia.experiment.model import ExperimentFile
from uncia.paths import data

MS = 1_000_000

FILE = """\
name: throttle
seed: 1
platform: {kind: embedded}
functions:
  probe: {source: throttle, parameters: {duration: 500ms}}
experiments:
  native:
    function: probe
    settings: {runtime: provided, memory: 256MB}
    arrivals: {kind: burst, sizes: [1], bursts: 2, interval: 900ms}
  python:
    function: probe
    settings: {runtime: python, memory: 128MB}
    arrivals: {kind: burst, sizes: [1], bursts: 1}
"""

Uncia = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the platform limits CPU as root")
def test_a_run_of_the_function_holds_a_profile_for_each_experiment(
    tmp_path: Path, uncia: Uncia
) -> None:
    file = tmp_path / "throttle.yaml"
    file.write_text(FILE)
    out = tmp_path / "run"
    process = uncia("run", file, "--out", out)
    _, stderr = process.communicate(timeout=280)
    assert process.returncode == 0, stderr
    native, python = profiles.read_all(out)
    assert (native.name, python.name) == ("native", "python")
    assert (len(native.runs), len(python.runs)) == (2, 1)
    assert profiles.read(f"{out}:python").events == python.events
    rows = {row["invocation"]: row for row in record.read(out).to_pylist()}
    for profile in (native, python):
        for run in profile.runs:
            assert run.start_ns is not None
            assert run.duration_ns is not None
            assert run.duration_ns >= 500 * MS
            # By the function's clock and by the platform's, the same machine's.
            assert any(
                row["started"] <= run.start_ns + MS
                and run.start_ns + run.duration_ns <= row["ended"] + MS
                for row in rows.values()
            )
            assert run.events
            assert all(gap >= MS // 2 for _, gap in run.events)
    spans = record.read(out, "spans").to_pylist()
    assert {span["clock"] for span in spans if span["name"] in ("probe", "throttle")} == {
        "function"
    }


def test_the_experiment_is_right() -> None:
    document = yamlio.load(data("experiments") / "throttle.yaml")
    assert yamlio.validate(ExperimentFile, document).name == "throttle"
