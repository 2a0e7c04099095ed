"""Runs whose later experiments are made of the rows of earlier ones."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from load_helpers import Server

from uncia import record
from uncia.errors import RunFailedError
from uncia.experiment import runner
from uncia.experiment.plan import Plan
from uncia.experiment.progress import Silent
from uncia.runs.folder import read_run
from uncia.suites.study import planned

pytestmark = pytest.mark.usefixtures("engine_binary", "state_home")


def document(url: str, *counts: int) -> dict[str, Any]:
    """A file with an experiment for each of the counts, to two functions in turn."""
    return {
        "name": "sample",
        "seed": 1,
        "platform": {"kind": "http"},
        "functions": {"f": {"url": f"{url}f"}, "g": {"url": f"{url}g"}},
        "experiments": {
            f"e{number}": {
                "function": "fg"[number % 2],
                "arrivals": {"kind": "burst", "sizes": [count]},
            }
            for number, count in enumerate(counts)
        },
    }


def execute(folder: Path, url: str, extend: runner.Extend) -> runner.Outcome:
    plan, sources = planned(document(url, 2, 1))
    return runner.execute(plan, sources, out=folder, reporter=Silent(), extend=extend)


def test_a_run_goes_on_with_what_is_made_of_its_rows(tmp_path: Path) -> None:
    with Server() as server:
        asked: list[int] = []

        def extend(rows: pa.Table) -> Plan | None:
            asked.append(rows.num_rows)
            if len(asked) > 1:
                return None
            return planned(document(server.url, 2, 1, rows.num_rows + 1, 1))[0]

        outcome = execute(tmp_path / "run", server.url, extend)
    assert (outcome.failures, outcome.error) == ([], None)
    assert asked == [3, 8], "it is asked whenever all before is carried out"
    rows = record.read(tmp_path / "run").to_pylist()
    sent = [(row["experiment"], row["function"]) for row in rows]
    assert sorted(sent) == [
        *[("e0", "f")] * 2,
        ("e1", "g"),
        *[("e2", "f")] * 4,
        ("e3", "g"),
    ]
    described = read_run(tmp_path / "run")
    assert list(described["experiments"]) == list(described["file"]["experiments"])
    assert list(described["experiments"]) == ["e0", "e1", "e2", "e3"]


def test_a_run_that_cannot_go_on_says_why_and_keeps_its_rows(tmp_path: Path) -> None:
    def extend(rows: pa.Table) -> Plan | None:
        raise RunFailedError("nothing can be made of them")

    with Server() as server:
        outcome = execute(tmp_path / "run", server.url, extend)
    assert outcome.failures == ["nothing can be made of them"]
    assert read_run(tmp_path / "run")["status"] == "failed"
    assert record.read(tmp_path / "run").num_rows == 3
