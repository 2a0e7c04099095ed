"""A suite in miniature on the real platform: carried out, killed, gone on with, doctored."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from patience import scaled
from run_helpers import left_behind, wait_until

from uncia import record
from uncia.paths import data

pytestmark = pytest.mark.usefixtures("engine_binary")

HEADER = """\
title: A made-up paper
citation: Nobody, nowhere
description: For tests.
"""

FIRST = """\
name: first
platform: {kind: embedded}
functions: {hello: {source: hello}}
experiments:
  warm:
    function: hello
    closed: {clients: 1, requests: 20} # one after the other, so that no second instance is needed
    warmup: {kind: burst, sizes: [1]}
  cold:
    function: hello
    settings: {replicas: 10}
    arrivals: {kind: constant, rate: 40/s, duration: 250ms}
"""

LONG = """\
name: long
platform: {kind: embedded}
functions: {hello: {source: hello}}
experiments:
  long: {function: hello, arrivals: {kind: constant, rate: 40/s, duration: DURATION}}
"""


def claim(text: str) -> dict[str, str]:
    """A claim of an entry."""
    return {"paper": "Somebody says so", "place": "page 1", "claim": text}


CLAIMS = {
    "cold-starts": claim("cold.cold > warm.cold"),
    "all-cold": claim("cold.cold > 60%"),
}


def write(folder: Path, *, long: str, claims: dict[str, dict[str, str]] | None = None) -> Path:
    """A suite with two entries, of which the second sends requests for so long."""
    (folder / "experiments").mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(HEADER)
    (folder / "experiments" / "first.yaml").write_text(FIRST)
    (folder / "experiments" / "long.yaml").write_text(LONG.replace("DURATION", long))
    shared = {"shows": "Figure 1", "title": "starts", "section": "1", "description": "Starts."}
    figure = {
        "name": "cold",
        "title": "Cold starts",
        "x": {"title": " "},
        "y": {"title": "per cent"},
        "series": [
            {"name": "ours", "x": ["warm", "cold"], "subjects": ["warm", "cold"], "y": "*.cold"}
        ],
        "printed": [{"name": "A cloud", "x": "cold", "y": 99, "place": "page 1"}],
    }
    first = {
        **shared,
        "runs": {"only": {"file": "./experiments/first.yaml"}},
        "figures": [figure],
        "claims": CLAIMS if claims is None else claims,
    }
    second = {
        **shared,
        "runs": {"only": {"file": "./experiments/long.yaml"}},
        "claims": {"quick": claim("long.p50 < 999s")},
    }
    for name, entry in (("fig1", first), ("fig2", second)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(entry))
    return folder


def verdicts(folder: Path) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in json.loads((folder / "claims.json").read_text())}


def started(folder: Path) -> Callable[[], bool]:
    """Whether requests of the long entry are on the disk."""

    def condition() -> bool:
        parts = list((folder / "fig2" / "only").glob("invocations.*.arrows"))
        return bool(parts) and parts[0].stat().st_size > 10_000

    return condition


def test_a_suite_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, uncia: Any, state_home: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    folder = write(tmp_path / "mine", long="10min")
    out = tmp_path / "out"
    process = uncia("suite", "run", folder, "--out", out)
    wait_until(started(out), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    first = yaml.safe_load((out / "fig1" / "only" / "run.yaml").read_text())
    assert first["status"] == "complete"

    # What is there is judged, and what is not whole has no number.
    code, _, errors = command("suite", "report", str(out))
    assert code == 1
    assert "fig2/only: it was ended before it was whole" in errors
    assert verdicts(out)["fig2.quick"]["ours"] is None
    assert verdicts(out)["fig1.all-cold"]["verdict"] == "reproduced"

    code, _, errors = command("suite", "run", str(folder), "--out", str(out))
    assert (code, "--resume" in errors) == (2, True)

    write(folder, long="500ms")
    process = uncia("suite", "run", folder, "--out", out, "--resume")
    output, errors = process.communicate(timeout=scaled(240))
    assert process.returncode == 0, errors
    assert "fig1/only is whole" in errors
    again = yaml.safe_load((out / "fig1" / "only" / "run.yaml").read_text())
    assert again["run"] == first["run"]
    assert verdicts(out)["fig2.quick"]["verdict"] == "reproduced"
    assert {item["verdict"] for item in verdicts(out).values()} == {"reproduced"}
    assert "3 claims: 3 reproduced." in output
    assert left_behind(state_home) == []
    page = (out / "report.html").read_text()
    for text in ("A made-up paper", "fig1.all-cold", "printed: A cloud", "Somebody says so"):
        assert text in page

    _doctored_tables_flip_the_verdicts(out, command)


def _doctored_tables_flip_the_verdicts(
    out: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    """Of the run's own tables, with other starts; nothing but the rows decides."""
    path = out / "fig1" / "only" / "invocations.parquet"
    rows = pq.read_table(path)
    is_cold = pc.equal(rows["experiment"].cast(pa.utf8()), "cold")
    starts = pc.if_else(is_cold, "warm", "cold")
    index = rows.column_names.index("start")
    doctored = rows.set_column(index, "start", starts)
    record.write(record.conform(doctored, "invocations"), path, "invocations")
    code, output, _ = command("suite", "report", str(out))
    assert code == 0
    assert verdicts(out)["fig1.cold-starts"]["verdict"] == "differs"
    assert verdicts(out)["fig1.all-cold"]["verdict"] == "differs"
    assert verdicts(out)["fig2.quick"]["verdict"] == "reproduced"
    assert "2 not as in the paper" in output


def test_an_entry_that_fails_is_failed_with_its_reason(
    tmp_path: Path, state_home: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    del state_home
    folder = write(tmp_path / "mine", long="500ms")
    path = folder / "experiments" / "first.yaml"
    # Half of what is declared does not come about.
    path.write_text(FIRST + "    expect: {cold: none}\n")
    out = tmp_path / "out"
    code, _, errors = command("suite", "run", str(folder), "--only", "fig1", "--out", str(out))
    assert code == 1
    assert "Failed: fig1/only: cold: 10 of 10 cold (declared: none)" in errors
    item = verdicts(out)["fig1.all-cold"]
    assert (item["verdict"], item["ours"]) == ("cannot be checked here", None)
    assert "declared: none" in item["why"]
    assert "declared: none" in (out / "report.html").read_text()
    assert verdicts(out)["fig2.quick"]["why"] == "long.p50: not run"


HEARTBEAT = """\
name: heartbeat
platform: {kind: embedded, stop_grace: 1min}
functions: {heart: {source: SOURCE, network: host, replicas: 2}}
experiments:
  beat: {function: heart, arrivals: {kind: burst, sizes: [2]}}
"""


def test_a_listener_hears_what_instances_do(
    tmp_path: Path, state_home: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    del state_home
    folder = write(tmp_path / "mine", long="500ms")
    source = data("experiments") / "cost-paper" / "heartbeat"
    shutil.copytree(source, folder / "experiments" / "heartbeat")
    text = HEARTBEAT.replace("SOURCE", "./heartbeat")
    (folder / "experiments" / "heartbeat.yaml").write_text(text)
    entry = {
        "shows": "Table 1",
        "title": "ends",
        "section": "1",
        "description": "Ends.",
        "runs": {"only": {"file": "./experiments/heartbeat.yaml", "listener": "heart"}},
        "claims": {"told": claim("beat.signalled > 10%")},
    }
    (folder / "table1.yaml").write_text(yaml.safe_dump(entry))
    out = tmp_path / "out"
    arguments = ("suite", "run", str(folder), "--only", "table1", "--out", str(out), "--json")
    code, output, errors = command(*arguments)
    assert code == 0, errors
    heard = json.loads((out / "table1" / "only" / "listener.json").read_text())
    # The platform has them end by SIGTERM when their function is deleted.
    assert [(item["end"], item["signalled"]) for item in heard] == [("closed", True)] * 2
    answer = {item["id"]: item for item in json.loads(output)}["table1.told"]
    assert (answer["ours"], answer["verdict"]) == (100, "reproduced")


def test_results_are_not_mixed(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    folder = write(tmp_path / "mine", long="500ms")
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear")
    code, _, errors = command("suite", "run", str(folder), "--out", str(other))
    assert (code, "nothing was deleted" in errors) == (2, True)
    code, _, errors = command("suite", "report", str(other))
    assert (code, "has no results of a suite" in errors) == (2, True)
    (other / "suite.json").write_text("{")
    code, _, errors = command("suite", "report", str(other))
    assert (code, "is damaged" in errors) == (2, True)
