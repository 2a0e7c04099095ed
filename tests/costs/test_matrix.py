"""The matrix of sizes and tariffs, and estimates for rows of a platform that nobody sells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from advice_rows import MB, MS, aws_per_million, rows, table
from typer.testing import CliRunner

from uncia.backends import Backend, connect
from uncia.cli import build
from uncia.costs.advice import advice
from uncia.costs.advice.frames import MATRIX_COLUMNS, matrix_frame
from uncia.costs.advice.gather import study
from uncia.report.cost.headline import headlines
from uncia.tariffs import bill

AWS, GCP = "aws-lambda-x86", "gcp-run-request"
USUAL: dict[str, Any] = {"memory_avg": 50 * MB, "memory_peak": 60 * MB}


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def matrix(data: pa.Table, tariffs: list[str], backend: Backend, **more: Any) -> pd.DataFrame:
    options: dict[str, Any] = {
        "p95": None,
        "functions": None,
        "fit": "allocated",
        "confidence": 0.95,
        "of": "execution",
        "present": None,
    }
    with study(data, tariffs=tariffs, backend=backend, **(options | more)) as made:
        return matrix_frame(made)


def embedded(
    memory: int, share: int, n: int = 60, *, idle: int = 30, busy: int = 10
) -> list[dict[str, Any]]:
    """Rows of the embedded platform: ``busy`` ms of CPU time, throttled to the share, and idle."""
    throttled = busy * MS * 10**6 // share - busy * MS
    made = rows(
        "f",
        [(idle + busy) * MS + throttled] * n,
        memory=memory,
        cpu=share,
        platform="embedded",
        cpu_user=busy * MS,
        **USUAL,
    )
    return [row | {"throttled_time": throttled} for row in made]


def with_throttling(*groups: list[dict[str, Any]]) -> pa.Table:
    """A table with the column ``throttled_time``."""
    made = table(*groups)
    values = [row["throttled_time"] for group in groups for row in group]
    return made.append_column("throttled_time", pa.array(values, pa.int64()))


def test_rows_of_an_own_platform_are_estimates_for_every_provider(backend: Backend) -> None:
    data = with_throttling(embedded(1769, 10**6))
    frame = advice(data, tariffs=[AWS, GCP, "oracle-functions"], backend=backend)
    assert set(frame["basis"]) == {"estimated"}
    assert set(frame["present"]) == {False}
    # Nothing is throttled at a whole vCPU: the rows' own bill, exactly.
    row = frame[(frame["tariff"] == AWS) & (frame["memory_mb"] == 1769)].iloc[0]
    exact = aws_per_million([40 * MS], 1769)
    assert abs(Fraction(row["cost_usd_per_million"]) - exact) < Fraction(1, 10**12)


def test_throttling_of_the_size_that_ran_is_replaced_by_that_of_the_size_sold(
    backend: Backend,
) -> None:
    # At a quarter of a vCPU, 10 ms of CPU time take 40 ms; then 30 ms are idle.
    data = with_throttling(embedded(512, 250_000))
    frame = advice(data, tariffs=["oracle-functions", "huawei-functiongraph"], backend=backend)
    oracle = frame[frame["tariff"] == "oracle-functions"].iloc[0]
    assert oracle["p95_ms"] == 40  # its vCPU is not documented: taken not to throttle
    assert "nothing is throttled" in oracle["note"]
    huawei = frame[(frame["tariff"] == "huawei-functiongraph") & (frame["memory_mb"] == 512)]
    assert list(huawei["vcpu"]) == [0.6]
    assert huawei.iloc[0]["p95_ms"] == pytest.approx(30 + 10 / 0.6, abs=1e-3)
    aws = advice(data, tariffs=[AWS], backend=backend)
    assert "0.25 vCPU, 512 MB on embedded" in aws.iloc[0]["note"]


def test_throttling_that_was_measured_is_not_taken_for_idle_time(backend: Backend) -> None:
    # A burst of 5 ms within the quota of a period was not throttled, though the share is small.
    made = rows(
        "f",
        [105 * MS] * 60,
        memory=512,
        cpu=250_000,
        platform="embedded",
        cpu_user=5 * MS,
        **USUAL,
    )
    data = with_throttling([row | {"throttled_time": 0} for row in made])
    frame = advice(data, tariffs=["oracle-functions"], backend=backend)
    assert frame.iloc[0]["p95_ms"] == 105


def test_the_address_of_a_platform_does_not_tell_who_sells_it(backend: Backend) -> None:
    data = table(rows("f", [100 * MS] * 60, memory=1769, cpu=10**6, platform="http", **USUAL))
    assert set(advice(data, tariffs=[AWS], backend=backend)["basis"]) == {"estimated"}
    named = advice(data, tariffs=[AWS, GCP], present=AWS, backend=backend)
    basis = dict(zip(named["tariff"], named["basis"], strict=True))
    assert basis == {AWS: "measured", GCP: "estimated"}


def test_models_that_nobody_sells_head_no_ranking(backend: Backend) -> None:
    data = table(rows("f", [100 * MS] * 60, memory=1769, cpu_user=50 * MS, **USUAL))
    frame = advice(data, tariffs=["spfu", AWS], backend=backend)
    ranked = frame[frame["rank"].notna()]
    assert list(ranked["tariff"])[-1] == "spfu"
    costs = [Decimal(cost) for cost in ranked["cost_usd_per_million"]]
    assert costs[-1] < min(costs[:-1])  # though it is the cheapest
    assert "spfu" not in set(advice(data, backend=backend)["tariff"])


def test_warm_ups_are_no_rows_to_advise_on(backend: Backend) -> None:
    data = table(
        rows("f", [100 * MS] * 60, memory=512, **USUAL),
        rows("f", [900 * MS] * 90, memory=1024, **USUAL),
    )
    names = ["f"] * 60 + ["f.warmup"] * 90
    data = data.append_column("experiment", pa.array(names, pa.utf8()))
    frame = advice(data, tariffs=[AWS], backend=backend)
    assert frame[frame["basis"] == "measured"]["memory_mb"].tolist() == [512]
    assert frame["rows"].max() == 60
    assert frame.attrs["notes"][0].startswith("90 warm-up rows are left out")


@pytest.fixture(scope="module")
def measured() -> pa.Table:
    """Three sizes on AWS, of which the middle one is the cheapest that keeps 200 ms."""
    return table(
        rows("f", [250 * MS + k for k in range(80)], memory=512, cpu_user=70 * MS, **USUAL),
        rows("f", [150 * MS + k for k in range(80)], memory=1024, cpu_user=70 * MS, **USUAL),
        rows("f", [120 * MS + k for k in range(90)], memory=1769, cpu_user=70 * MS, **USUAL),
    )


def test_cells_are_the_bill_of_their_rows_and_the_choices_of_advice(
    measured: pa.Table, backend: Backend
) -> None:
    cells = matrix(measured, [AWS, GCP], backend, p95="200ms")
    assert tuple(cells.columns) == MATRIX_COLUMNS
    selected = cells[(cells["tariff"] == AWS) & (cells["basis"] == "measured")]
    assert selected["memory_mb"].tolist() == [512, 1024, 1769]
    for memory in (512, 1024, 1769):
        part = measured.filter(pa.compute.equal(measured["allocated_memory"], memory * MB))
        line = bill(part, [AWS], backend=backend)[0]
        cost = Fraction(selected[selected["memory_mb"] == memory].iloc[0]["cost_usd_per_million"])
        assert line.cost_usd_per_million is not None
        assert abs(cost - line.cost_usd_per_million) <= Fraction(1, 2 * 10**12)
    chosen = advice(measured, p95="200ms", tariffs=[AWS, GCP], backend=backend)
    by_size = {(row["tariff"], row["memory_mb"], row["vcpu"]): row for _, row in chosen.iterrows()}
    same = 0
    for _, cell in cells.iterrows():
        choice = by_size.get((cell["tariff"], cell["memory_mb"], cell["vcpu"]))
        if choice is not None and choice["rank"] is not None:
            same += 1
            for name in ("cost_usd_per_million", "p95_ms", "basis", "meets_bound"):
                assert cell[name] == choice[name], name
    assert same >= 4


def test_one_cell_of_a_function_is_the_best_and_sizes_ascend(
    measured: pa.Table, backend: Backend
) -> None:
    cells = matrix(measured, [AWS, GCP], backend, p95="200ms")
    best = cells[cells["best"]]
    assert [(row["tariff"], row["memory_mb"]) for _, row in best.iterrows()] == [(AWS, 1024)]
    memories = cells["memory_mb"].tolist()
    assert memories == sorted(memories)
    assert not cells.duplicated(["function", "memory_mb", "tariff"]).any()
    sentence = headlines(cells)["f"]
    assert sentence.startswith("1,024 MB on AWS (aws-lambda-x86): ")
    assert "p95 150 ms, measured; keeps 200 ms. Now: 1 vCPU, 1,769 MB on aws (90 of" in sentence


def test_a_bound_that_nothing_keeps_is_said(measured: pa.Table, backend: Backend) -> None:
    cells = matrix(measured, [AWS], backend, p95="1ms")
    assert "nothing keeps 1 ms" in headlines(cells)["f"]
    assert cells["best"].sum() == 1


def test_the_command(measured: pa.Table, tmp_path: Path) -> None:
    path, page = tmp_path / "rows.parquet", tmp_path / "matrix.html"
    pq.write_table(measured, path)
    arguments = ["cost", "matrix", str(path), "-t", AWS, "-t", GCP, "--p95", "200ms"]
    done = CliRunner().invoke(build(), [*arguments, "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "1,024 MB on AWS" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("1,024 MB"))
    assert line.split()[2].replace("*", "") != "-"
    assert "250 ms !" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "What each size costs" in text
    assert 'class="number best"' in text
    done = CliRunner().invoke(build(), [*arguments, "--json"])
    cells = json.loads(done.stdout)
    assert sum(cell["best"] for cell in cells) == 1
    done = CliRunner().invoke(build(), ["cost", "matrix", str(path), "--p95", "soon"])
    assert done.exit_code != 0
