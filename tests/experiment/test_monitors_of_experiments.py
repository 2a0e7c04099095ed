"""Monitors that an experiment names for itself watch while it is measured, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from uncia import record
from uncia.experiment import files
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.runs.folder import read_run

Run = Callable[..., tuple[int, str, str]]

FILE = """\
name: watched
platform: {{kind: embedded}}
functions: {{hello: {{source: hello}}}}
monitors: [{{monitor: cgroup, interval: 50ms}}]
experiments:
  first:
    function: hello
    arrivals: {{kind: constant, rate: 20/s, duration: 500ms}}
  second:
    function: hello
    arrivals: {{kind: constant, rate: 20/s, duration: 500ms}}
    warmup: {{kind: constant, rate: 20/s, duration: 500ms}}
    monitors:
      - {second}
"""
CGROUP = "{monitor: cgroup, interval: 20ms}"


def _write(folder: Path, second: str) -> Path:
    file = folder / "watched.yaml"
    file.write_text(FILE.format(second=second))
    return file


def _times(rows: pa.Table, name: str) -> list[int]:
    of_monitor = rows.filter(pc.equal(rows["monitor"].cast("string"), name))
    times: list[int] = of_monitor["time"].to_pylist()
    return times


@pytest.fixture
def run(command: Run, engine_binary: Path, state_home: Path) -> Run:
    del engine_binary, state_home
    return command


def test_they_watch_while_it_is_measured(tmp_path: Path, run: Run) -> None:
    file = _write(tmp_path, CGROUP)
    code, _, err = run("run", file, "--out", tmp_path / "run")
    assert code == 0, err
    requests = record.read(tmp_path / "run")
    second = requests.filter(pc.equal(requests["experiment"].cast("string"), "second"))
    machine = record.read(tmp_path / "run", "machine")
    whole, own = _times(machine, "cgroup"), _times(machine, "second.cgroup")
    assert (
        min(own)
        > pc.max(
            requests.filter(pc.not_equal(requests["experiment"].cast("string"), "second"))[
                "received"
            ]
        ).as_py()
    )
    assert max(own) >= pc.max(second["scheduled"]).as_py()
    assert min(whole) < min(own)
    described = read_run(tmp_path / "run")["experiments"]
    assert described["second"]["monitors"] == ["second.cgroup"]
    assert not any("monitors" in described[name] for name in ("first", "second.warmup"))


def test_what_cannot_be_limited_ends_the_run_there(tmp_path: Path, run: Run) -> None:
    root = tmp_path / "nothing"
    second = f"{{monitor: resctrl, root: {root}, limits: {{bandwidth: 50%}}}}"
    file = _write(tmp_path, second)
    code, _, err = run("run", file, "--out", tmp_path / "run")
    assert code != 0
    assert "second.resctrl" in err
    rows = record.read(tmp_path / "run")
    assert set(rows["experiment"].cast("string").to_pylist()) == {"first", "second.warmup"}


def test_members_of_a_sweep_have_their_own(tmp_path: Path) -> None:
    file = _write(tmp_path, CGROUP)
    file.write_text(file.read_text() + "    sweep: {memory: [128MB, 256MB]}\n")
    checked, document = files.load(file)
    planned = plan(checked, Sources(document, tmp_path))
    names = [
        (it.name, [form.asked.within(it.name).row_name for form in it.monitors])
        for it in planned.experiments
    ]
    assert names == [
        ("first", []),
        *(
            pair
            for name in ("second-128", "second-256")
            for pair in ((f"{name}.warmup", []), (name, [f"{name}.cgroup"]))
        ),
    ]


def test_mistakes_are_told_where_they_stand(tmp_path: Path, run: Run) -> None:
    file = _write(tmp_path, "{monitor: bpftrace, file: absent.bt}")
    code, _, err = run("run", file, "--out", tmp_path / "run")
    assert code == 2
    assert "experiments.second.monitors[0].file" in err
    assert "absent.bt cannot be read" in err
    assert not (tmp_path / "run").exists()
