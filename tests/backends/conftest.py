"""A real Spark: a standalone master and two workers on this machine, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uncia.backends import connect, java
from uncia.errors import UnciaError

# Rows and hand-written rules of the tests of tariffs and costs.
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("tariffs", "costs")]

# Less compiling, and no verifying of Spark's own classes, as the tests are short and start several
# Javas.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def why_not() -> str | None:
    """Why Spark cannot run here; None if it can."""
    try:
        import pyspark  # noqa: F401

        java.find()
    except ImportError:
        return "PySpark is not installed"
    except UnciaError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def java_options() -> Iterator[None]:
    """Every Java that the tests start is told to start quickly."""
    if reason := why_not():
        pytest.skip(reason)
    before = os.environ.get("JDK_JAVA_OPTIONS")
    os.environ["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS
    yield
    if before is None:
        del os.environ["JDK_JAVA_OPTIONS"]
    else:
        os.environ["JDK_JAVA_OPTIONS"] = before


@pytest.fixture(scope="session")
def master(
    java_options: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[int]]]:
    """The address of a master with two workers of a core each, and the processes' ids."""
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    folder = tmp_path_factory.mktemp("cluster")
    log = folder / "master.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(output: Path, kind: str, *arguments: str) -> None:
        with output.open("wb") as sink:
            started.append(
                subprocess.Popen(
                    [
                        home / "bin" / "spark-class",
                        f"org.apache.spark.deploy.{kind.lower()}.{kind}",
                        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                        *arguments,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
                )
            )

    try:
        start(log, "Master")
        address = _address(log, started[0])
        for number in range(2):
            work = folder / f"worker-{number}"
            start(
                folder / f"worker-{number}.log",
                "Worker",
                *("--cores", "1", "--memory", "1g", "--work-dir", str(work), address),
            )
        yield address, [process.pid for process in started]
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            _, result, address = line.partition("Starting Spark master at ")
            if result:
                return address.strip()
        time.sleep(0.1)
    raise AssertionError(f"the master does not start: {log.read_text(errors='replace')}")


@pytest.fixture(scope="session")
def spark(master: tuple[str, list[int]]) -> Iterator[Any]:
    """A session on the cluster, with both of its workers there."""
    with connect("spark", master=master[0]) as backend:
        context = backend._session.sparkContext  # type: ignore[attr-defined]
        until = time.monotonic() + 120
        while context._jsc.sc().getExecutorMemoryStatus().size() < 3:  # the driver is one
            assert time.monotonic() < until, "the workers do not come up"
            time.sleep(0.1)
        # A few partitions for each worker: the tables are small, and each of 200 costs a file.
        backend._session.conf.set("spark.sql.shuffle.partitions", "4")  # type: ignore[attr-defined]
        yield backend


@pytest.fixture(scope="session")
def duckdb() -> Iterator[Any]:
    """The engine to compare with."""
    with connect("duckdb") as backend:
        yield backend
