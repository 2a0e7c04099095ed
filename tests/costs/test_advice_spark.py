"""Advice on Spark is the advice on DuckDB, to the last digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from advice_rows import MB, MS, S, rows, table

from uncia.backends import connect, names
from uncia.costs.advice.frames import choice_frame, hint_frame
from uncia.costs.advice.gather import study


@pytest.mark.timeout(900)  # dozens of queries, each compiled and planned
def test_spark_gives_the_same_choices_and_hints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    # Less compiling, as each query runs once.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if "spark" not in names():
        pytest.skip("there is no Spark backend")
    usual: dict[str, Any] = {"cpu_user": 20 * MS, "memory_avg": 50 * MB, "memory_peak": 90 * MB}
    begin = [place * S // 3 for place in range(80)]
    when = {"started": begin, "ended": [one + S for one in begin]}
    callers = [f"aws-{place}" for place in range(80)]
    some = [500 * MS + 1001 * place for place in range(80)]
    data = table(
        rows(
            "a", some, memory=1769, platform="gcp", cpu=10**6, invocation=callers, **usual, **when
        ),
        rows("a", some[:70], memory=512, platform="gcp", cpu=500_000, **usual),
        rows("b", some, memory=1024, cpu=10**6, platform="gcp", parent=callers, **usual, **when),
    )
    path = tmp_path / "table.parquet"
    pq.write_table(data, path)
    found = {}
    for engine in ("duckdb", "spark"):
        with (
            connect(engine) as backend,
            study(
                path,
                p95="600ms",
                functions=None,
                tariffs=["gcp-run-request"],
                fit="allocated",
                confidence=0.95,
                of="execution",
                present=None,
                backend=backend,
            ) as known,
        ):
            found[engine] = choice_frame(known), hint_frame(known)
    for mine, other in zip(found["duckdb"], found["spark"], strict=True):
        assert mine.to_dict("list") == other.to_dict("list")
    hints = set(found["spark"][1]["hint"])
    assert {"merge chain", "concurrency"} <= hints  # so that joins and windows ran there too
