"""How Spark starts and ends: what is missing is named, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uncia.backends import connect, java, names
from uncia.errors import UnciaError

LOCAL = """
import json, sys
import pyarrow as pa
from pathlib import Path
from uncia.backends import connect

folder = Path(sys.argv[1])
with connect("spark", memory_limit="600MB", temporary=folder, master="local[1]") as backend:
    print(json.dumps({"java": backend._machine.gateway.proc.pid}), flush=True)
    data = pa.table({"function": pa.array(["f", "g", "f"]).dictionary_encode(), "n": [1, 2, 4]})
    rows = backend.table(data)
    answer = backend.collect(rows.group_by("function").aggregate(n=rows.n.sum()))
    print(json.dumps(sorted(answer.to_pylist(), key=str)), flush=True)
    backend._session.range(0, 10**15).createOrReplaceTempView("endless")
    endless = backend._ibis.table("endless")
    backend.write(endless.aggregate(n=(endless.id % 7).sum()), folder / "out.parquet")
"""


def running(pid: int) -> bool:
    """Whether a process still runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_local_spark_prints_nothing_and_is_gone_after_an_interrupt(
    java_options: None, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOCAL, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid = json.loads(process.stdout.readline())["java"]
    assert running(pid)
    assert json.loads(process.stdout.readline()) == [
        {"function": "f", "n": 5},
        {"function": "g", "n": 2},
    ]
    time.sleep(2)  # into the query that does not end
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert out == ""
    # The stack of the interrupt is Python's; Spark itself says nothing.
    head, _, tail = err.partition("Traceback")
    assert head == ""
    assert tail.rstrip().endswith("KeyboardInterrupt")
    assert not running(pid)
    assert list(tmp_path.iterdir()) == []


def not_while_spark_runs() -> None:
    """Skip what needs a Spark of its own; this module's place is before those that start one."""
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            pytest.skip("this process runs Spark already")


def refused(name: str = "spark", **options: str) -> str:
    with pytest.raises(UnciaError) as caught, connect(name, **options):  # type: ignore[arg-type]
        pass
    return str(caught.value)


def test_both_engines_are_known() -> None:
    assert names() == ("duckdb", "spark")
    assert "The backends are: duckdb, spark." in refused("dask")


def test_without_pyspark_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "pip install 'uncia[spark]'" in refused()


def test_a_java_that_is_missing_or_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnciaError, match="no java on the PATH") as caught:
        java.find()
    assert "openjdk-17-jre-headless" in str(caught.value)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnciaError, match=f"JAVA_HOME is {tmp_path}, but there is no"):
        java.find()
    script = tmp_path / "bin" / "java"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    script.chmod(0o755)
    with pytest.raises(UnciaError, match=f"{script} is Java 11; Spark needs 17"):
        java.find()
    script.write_text("#!/bin/sh\necho 'java version \"1.8.0_202\"' >&2\n")
    with pytest.raises(UnciaError, match="is Java 8"):
        java.find()
    script.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UnciaError, match="does not print its version"):
        java.find()


def test_masters_that_cannot_be_had_are_told_at_once() -> None:
    not_while_spark_runs()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    message = refused(master=f"spark://127.0.0.1:{port}")
    assert f"no Spark master can be reached at spark://127.0.0.1:{port}" in message
    assert "names no port" in refused(master="spark://127.0.0.1")
    assert "is no address of a Spark master" in refused(master="lokal[2]")


@pytest.mark.parametrize(
    ("engine", "limit", "message"),
    [
        ("duckdb", "much", "the memory limit: 'much'"),
        ("duckdb", "4", "the memory limit: '4'"),
        ("duckdb", "1KB", "a memory limit of 1KB is too little: DuckDB needs at least 64MB"),
        ("spark", "100MB", "a memory limit of 100MB is too little: Spark needs at least 512MB"),
    ],
)
def test_a_memory_limit_that_cannot_be_is_refused(engine: str, limit: str, message: str) -> None:
    if engine == "spark":
        not_while_spark_runs()
    assert message in refused(engine, memory_limit=limit)


def test_the_folder_for_what_does_not_fit_must_be_there(tmp_path: Path) -> None:
    for engine in names():
        with (
            pytest.raises(UnciaError, match="is no folder"),
            connect(engine, temporary=tmp_path / "none"),
        ):
            pass
    assert list(tmp_path.iterdir()) == []
