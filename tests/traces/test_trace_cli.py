"""The command ``uncia trace``, run as a person runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from trace_files import AZURE2021, REQUESTS, left_over, request, write

import uncia
from uncia import record

INTERRUPTED = 130


def start(*arguments: object) -> subprocess.Popen[str]:
    source = str(Path(uncia.__file__).resolve().parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "uncia", "trace", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source, "COLUMNS": "200", "TERM": "dumb"},
    )


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``uncia trace`` in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    return lambda *arguments: command("trace", *arguments)


def csv_rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def trace(folder: Path) -> Path:
    return write(folder / "t.csv", AZURE2021, [("a", "f", "2", "1"), ("a", "f", "3", "x")])


def test_list_names_each_trace_with_its_license_and_source() -> None:
    process = start("list")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    for name in ("azure2019", "azure2021", "huawei2023", "huawei2025"):
        text = out.partition(f"{name} (")[2].partition("\n\n")[0]
        assert "https://github.com/" in text
        assert "license" in text.lower()


def test_a_bad_row_ends_the_import_with_its_place(run: Run, tmp_path: Path) -> None:
    file = trace(tmp_path)
    code, out, err = run("import", "auto", file, "--out", tmp_path / "out", "--strict")
    assert (code, out) == (2, "")
    assert f"{file}, line 3, column duration: 'x' is not seconds, 0 or more" in err
    assert "--strict" in err
    assert "Traceback" not in err
    assert left_over(tmp_path) == []


def test_bad_rows_are_counted_by_reason_and_kept(run: Run, tmp_path: Path) -> None:
    file = trace(tmp_path)
    code, out, err = run("import", "AZURE_2021", file, "--out", tmp_path / "out")
    assert code == 0
    assert "2 rows read: 1 taken, 1 rejected" in out
    assert "rejected 1: duration: not seconds, 0 or more" in out
    assert f"{tmp_path / 'out' / 'rejected.csv'}: the rejected rows" in out
    assert "1 row of invocations" in out
    assert "warning: 1 bad row was left out" in err
    assert record.read(tmp_path / "out").num_rows == 1


def test_without_a_kind_it_is_said_how_to_write_it(run: Run, tmp_path: Path) -> None:
    file = trace(tmp_path)
    code, _, err = run("import", file, "--out", tmp_path / "out")
    assert code == 2
    assert "but the kind of the trace comes first" in err
    assert f"uncia trace import auto {file} --out DIR" in err
    code, _, err = run("import", tmp_path / "nothing", file, "--out", tmp_path / "out")
    assert code == 2
    assert "there is no trace" in err
    assert left_over(tmp_path) == []


def test_options_of_huawei_2025(run: Run, tmp_path: Path) -> None:
    pods = ("p-6600-16384-1", "p-300-128-1")
    file = write(tmp_path / "R1" / "part.csv", REQUESTS, [request(podID=pod) for pod in pods])
    out = tmp_path / "out"
    code, message, _ = run("import", "Huawei-2025", file, "--out", out, "--json")
    assert code == 0
    assert json.loads(message)["rejected"] == {"memory above 10240 MB": 1}
    code, message, _ = run(
        *("import", "huawei2025", file, "--out", tmp_path / "all", "--max-memory", "none"),
        *("--unsorted", "--partition-by", "platform", "--json"),
    )
    assert (json.loads(message)["read"], json.loads(message)["rejected"]) == (2, {})
    assert json.loads(message)["tables"] == {
        "invocations": str(tmp_path / "all/invocations.parquet")
    }
    assert (tmp_path / "all/invocations.parquet/platform=huawei-R1/part-0.parquet").is_file()
    code, _, err = run("import", "huawei2025", file, "--out", out, "--max-memory", "10240")
    assert code == 2
    assert "--max-memory: '10240'" in err


def test_the_format_can_be_named_and_the_outcome_printed_as_json(run: Run, tmp_path: Path) -> None:
    file = trace(tmp_path)
    target = tmp_path / "x.parquet"
    code, out, _ = run("import", "azure-2021", file, "--out", target, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["rows"] == {"invocations": 1}
    assert answer["tables"] == {"invocations": str(target)}
    assert (answer["read"], answer["kept"]) == (2, 1)
    assert answer["rejected"] == {"duration: not seconds, 0 or more": 1}
    assert answer["rejected_file"] == str(tmp_path / "x.rejected.csv")
    kept = csv_rows(tmp_path / "x.rejected.csv")
    reason = "duration: not seconds, 0 or more"
    assert kept == [
        ["file", "line", "column", "reason", "row"],
        [str(file), "3", "duration", reason, "a,f,3,x"],
    ]
    code, _, err = run("import", "huawei2025", file, "--out", tmp_path / "y")
    assert code == 2
    assert "no file of the trace huawei2025" in err


def long_import(folder: Path) -> subprocess.Popen[str]:
    """An import of many rows into ``result/out``; it is in the middle of them."""
    file = folder / "in" / "large.csv"
    file.parent.mkdir()
    duckdb.sql(
        "copy (select i % 99 as app, i % 7 as func, i / 7 as end_timestamp, 0.5 as duration"
        f" from range(4000000) t(i)) to '{file}' (header)"
    )
    process = start("import", "auto", file, "--out", folder / "result" / "out")
    deadline = time.monotonic() + 60
    while not list(folder.glob("result/.uncia-trace-*/stage-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_what_a_killed_import_left_the_next_removes(run: Run, tmp_path: Path) -> None:
    process = long_import(tmp_path)
    try:
        process.send_signal(signal.SIGSTOP)  # it lives, and stays where it is
        (work,) = tmp_path.glob("result/.uncia-trace-*")
        small = trace(tmp_path)
        code, _, err = run("import", "auto", small, "--out", tmp_path / "result" / "a")
        assert code == 0, err
        assert list(tmp_path.glob("result/.uncia-trace-*")) == [work]
    finally:
        process.kill()
        process.communicate()
    assert list(work.glob("stage-*"))
    code, _, err = run("import", "auto", small, "--out", tmp_path / "result" / "b")
    assert code == 0, err
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["a", "b"]


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    process = long_import(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
