"""``uncia trace import`` of logs and pickles: told from the files, bad records kept by reason."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from uncia import record
from uncia.cli import trace

app = typer.Typer()
trace.register(app)

REPORT = (
    "REPORT RequestId: {}\tDuration: {} ms\tBilled Duration: 2 ms\tMemory Size: 128 MB\t"
    "Max Memory Used: 40 MB\t"
)
REQUEST = {
    "httpRequest": {"latency": "0.5s", "status": 200},
    "insertId": "a",
    "logName": "projects/p/logs/run.googleapis.com%2Frequests",
    "resource": {"labels": {"service_name": "svc"}},
    "timestamp": "2025-05-10T10:00:00Z",
}


def lambda_log(folder: Path) -> Path:
    events = [
        {"timestamp": 1, "message": REPORT.format("r-1", "1.50"), "eventId": "1"},
        {"timestamp": 2, "message": REPORT.format("r-2", "x"), "eventId": "2"},
        {"timestamp": 3, "message": REPORT.format("r-3", "-1"), "eventId": "3"},
        {"timestamp": 4, "message": REPORT.format("", "1"), "eventId": "4"},
    ]
    file = folder / "fn.json"
    file.write_text(json.dumps({"events": events}, indent=1))
    return file


def google_log(folder: Path) -> Path:
    bad = REQUEST | {"httpRequest": {"latency": "fast", "status": 200}}
    file = folder / "google.jsonl"
    file.write_text("\n".join(map(json.dumps, [REQUEST, bad, bad | {"insertId": "b"}])))
    return file


def week(folder: Path) -> Path:
    frame = pd.DataFrame(
        {
            "NamespaceHash": ["n"],
            "AppHash": ["a"],
            "InvocationTimes": [[1.0, -1.0, float("inf")]],
            "AppExecTimes": [[1.0, 1.0, 1.0]],
            "PodHash": [["p", "p", "p"]],
        }
    )
    file = folder / "week_1.pickle"
    file.write_bytes(pickle.dumps(frame))
    return file


def own_run(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet

    rows = [
        {"function": "f", "invocation": str(n), "attempt": 1, "outcome": outcome}
        for n, outcome in enumerate(["ok", "fine", "ok"])
    ]
    file = folder / "invocations.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), file)
    return file


CASES: list[tuple[str, Any, int, dict[str, int]]] = [
    (
        "aws-logs",
        lambda_log,
        1,
        {
            "Duration: not milliseconds, 0 or more": 2,
            "RequestId: not an identifier": 1,
        },
    ),
    ("gcp_logs", google_log, 1, {"httpRequest.latency: not seconds such as 0.123456s": 2}),
    ("IBM2026", week, 1, {"InvocationTimes: not seconds, from 0 to 4,000,000,000": 2}),
    (
        "uncia",
        own_run,
        2,
        {
            "outcome: not one of ok, function_error, throttled, timeout, transport_error,"
            " preempted": 1
        },
    ),
]


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize(("kind", "make", "kept", "rejected"), CASES)
def test_bad_records_are_kept_by_reason(
    kind: str, make: Any, kept: int, rejected: dict[str, int], auto: bool, tmp_path: Path
) -> None:
    file = make(tmp_path)
    out = tmp_path / "out"
    arguments = ["auto" if auto else kind, str(file), "--out", str(out), "--json"]
    result = CliRunner().invoke(app, ["trace", "import", *arguments])
    assert result.exit_code == 0, result.output
    done = json.loads(result.stdout)
    bad = sum(rejected.values())
    assert (done["read"], done["kept"], done["rejected"]) == (kept + bad, kept, rejected)
    assert record.read(out).num_rows == kept
    with Path(done["rejected_file"]).open(encoding="utf-8", newline="") as side:
        rows = list(csv.DictReader(side))
    assert len(rows) == bad
    assert {row["reason"] for row in rows} == set(rejected)
    assert all(row["row"] and int(row["line"]) >= 1 for row in rows)
    strict = CliRunner().invoke(
        app, ["trace", "import", kind, str(file), "--out", str(tmp_path / "none"), "--strict"]
    )
    assert strict.exit_code != 0
    assert not (tmp_path / "none").exists()
