"""Neighbours: an experiment is measured alone and beside them, and they end with it."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml
from run_helpers import Uncia, finish

from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources

FILE = """\
name: beside
seed: 1
platform: {kind: embedded}
functions:
  hello: {source: hello, memory: 512MB}
  spin: {source: spin, memory: 1769MB}
experiments:
  asked:
    function: hello
    closed: {clients: 1, duration: 4s}
    warmup: {kind: burst, sizes: [1]}
    neighbours:
      - {function: spin, clients: 2, parameters: {cpu: 5ms}}
"""


def planned(path: Path) -> Plan:
    file, document = files.load(path)
    return plan(file, Sources(document, path.parent))


def test_an_experiment_is_measured_alone_and_beside_its_neighbours(
    tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    path = tmp_path / "beside.yaml"
    path.write_text(FILE)
    ended = finish(uncia("run", path, "--out", tmp_path / "out"))
    assert ended.code == 0, ended.out + ended.err
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet").to_pylist()
    sent: dict[str, list[int]] = {}
    for row in rows:
        assert row["outcome"] == "ok"
        sent.setdefault(row["experiment"], []).append(row["sent"])
    asked, busy = sent["asked"], sent["asked.neighbours"]
    # They were busy before the first request, until after the last, and not while it was alone.
    assert max(sent["asked.alone"]) < min(busy) < min(asked)
    assert max(busy) > max(asked) - 1_000_000_000
    names = {row["experiment"] for row in rows if row["function"] == "spin"}
    assert names == {"asked.neighbours"}
    meta = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())["experiments"]
    assert meta["asked.neighbours"]["beside"] == "asked"
    assert meta["asked"]["base"] == meta["asked.alone"]["base"] == "asked.alone"
    assert meta["asked.neighbours"]["base"] == "asked.neighbours"
    warnings = json.loads((tmp_path / "out" / "summary.json").read_text())["warnings"]
    assert not [text for text in warnings if "platform's log" in text]
    assert "Second by second" in (tmp_path / "out" / "report.html").read_text()
    assert not list((state_home / "journal").iterdir())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("function: spin, clients", "function: spun, clients", "there is no function 'spun'"),
        ("clients: 2", "clients: 0", "clients"),
        ("cpu: 5ms", "cpus: 5ms", "no parameter 'cpus'"),
    ],
)
def test_mistakes_in_neighbours_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "beside.yaml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(UnciaError) as error:
        planned(path)
    assert message in str(error.value)
    assert "beside.yaml" in str(error.value)
