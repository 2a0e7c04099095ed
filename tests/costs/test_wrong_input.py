"""What analyses of costs refuse, and how they say so; rows that have no price."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cost_rows import instance, instances, row, table
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.advice import advice
from uncia.costs.breakeven import break_even
from uncia.costs.coldstarts import coldstarts
from uncia.costs.inflation import inflation
from uncia.costs.instances import instances as price_instances
from uncia.costs.instances import resolve
from uncia.costs.prices import prices
from uncia.errors import UnciaError

LAMBDA = "aws-lambda-x86"


def test_a_tariff_is_named_once() -> None:
    with pytest.raises(UnciaError, match=f"the tariff {LAMBDA} is named twice"):
        prices([LAMBDA, LAMBDA])
    with pytest.raises(UnciaError, match="the tariff gcp-run-instance is named twice"):
        resolve(["gcp-run-instance", "azure-premium", "gcp-run-instance"])


def test_distributions_are_not_of_groups() -> None:
    with pytest.raises(UnciaError, match="of the whole table, not of groups"):
        inflation(table([row()]), [LAMBDA], group_by=["function"], cdf=True)


def test_a_function_is_chosen_where_functions_are_named() -> None:
    nameless = table([row()]).drop_columns(["function"])
    with pytest.raises(UnciaError, match="the table has no column function"):
        break_even(nameless, [LAMBDA], function="f")


def test_rows_that_cannot_be_priced_have_no_rate() -> None:
    (pair,) = break_even(
        table([row(allocated_memory=None, memory_avg=None)]), [LAMBDA], ["gcp-run-instance"]
    ).to_dict("records")
    assert pair["usd_per_request"] is None
    assert pair["rate_per_s"] is None
    assert f"{LAMBDA} can price none of the rows" in pair["note"]


def test_prices_are_of_the_size_that_most_rows_have(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    rows = [row(allocated_cpu=500_000, allocated_memory=512 << 20)] * 3 + [row()]
    pq.write_table(table(rows), file)
    run = CliRunner().invoke(build(), ["cost", "prices", "-t", LAMBDA, str(file)])
    assert run.exit_code == 0, run.output
    assert "0.5vCPU/512MB" in run.output


def test_a_table_without_allocations_has_no_usual_size(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"execution": [1]}), file)
    run = CliRunner().invoke(build(), ["cost", "prices", str(file)])
    assert isinstance(run.exception, UnciaError)
    assert "allocated" in run.exception.message


def without_initializations(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["initialization"])


def with_timestamps(rows: pa.Table) -> pa.Table:
    index = rows.column_names.index("started")
    return rows.set_column(index, "started", rows.column(index).cast(pa.timestamp("us")))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_initializations, "the invocations table has no column initialization"),
        (
            with_timestamps,
            "the column started of the invocations table is timestamp(6), not whole ns",
        ),
    ],
)
def test_a_report_without_cold_starts_has_its_other_sections(
    change: Callable[[pa.Table], pa.Table], why: str, tmp_path: Path
) -> None:
    file, page = tmp_path / "rows.parquet", tmp_path / "page.html"
    pq.write_table(change(table([row(instance="a", started=5)])), file)
    command = ["cost", "report", str(file), "-t", LAMBDA, "--html", str(page)]
    result = CliRunner().invoke(build(), command)
    assert result.exit_code == 0, result.output
    assert f"note: without cold starts, as {why}\n" in result.stderr
    text = page.read_text(encoding="utf-8")
    assert 'id="rounding"' in text
    assert 'id="coldstarts"' not in text


def test_cold_starts_are_told_by_whole_ns() -> None:
    rows = table([row(instance="a", started=5)])
    message = r"started of the invocations table is timestamp\(6\), not whole ns, so cold starts"
    with pytest.raises(UnciaError, match=message):
        coldstarts(with_timestamps(rows), [LAMBDA])
    index = rows.column_names.index("initialization")
    floats = rows.set_column(index, "initialization", pa.array([0.5]))
    beside = instances([instance()])
    with pytest.raises(UnciaError, match="initialization of the invocations table is float64"):
        coldstarts(floats, [LAMBDA], instances=beside)
    index = beside.column_names.index("initialized")
    dates = beside.set_column(index, "initialized", pa.array([1], pa.int32()).cast(pa.date32()))
    with pytest.raises(UnciaError, match="initialized of the instances table is date"):
        coldstarts(rows, [LAMBDA], instances=dates)


def changed(rows: pa.Table, name: str, dtype: pa.DataType) -> pa.Table:
    """A table with a column of another type."""
    index = rows.column_names.index(name)
    return rows.set_column(index, name, rows.column(index).cast(dtype))


@pytest.mark.parametrize("dtype", [pa.float64(), pa.utf8(), pa.timestamp("us")])
@pytest.mark.parametrize(
    "name", ["started", "initialized", "ended", "allocated_cpu", "allocated_memory"]
)
def test_instances_are_billed_by_whole_numbers(name: str, dtype: pa.DataType) -> None:
    """A time of another type is no unknown one, with which instances would still be alive."""
    wrong = changed(instances([instance(ended=10)]), name, dtype)
    with pytest.raises(UnciaError, match=f"the column {name} of the instances table is"):
        price_instances(wrong, ["aws-ec2-c6g-medium"])


def test_instances_that_run_end_by_whole_numbers() -> None:
    rows = changed(table([row(started=5, ended=6)]), "ended", pa.float64())
    with pytest.raises(UnciaError, match="the column ended of the invocations table is float64"):
        price_instances(instances([instance()]), ["aws-ec2-c6g-medium"], invocations=rows)


def test_invocations_are_no_instances(tmp_path: Path) -> None:
    file = tmp_path / "invocations.parquet"
    pq.write_table(table([row(started=5, ended=6)]), file)
    run = CliRunner().invoke(build(), ["cost", "instances", str(file)])
    assert isinstance(run.exception, UnciaError)
    assert "its rows are invocations and no instances" in run.exception.message
    run = CliRunner().invoke(build(), ["cost", "instances", str(tmp_path)])
    assert isinstance(run.exception, UnciaError)
    assert (
        run.exception.message == f"{tmp_path} has no table of instances, so they cannot be billed"
    )
    pq.write_table(instances([instance(ended=10)]), tmp_path / "instances.parquet")
    run = CliRunner().invoke(build(), ["cost", "instances", str(tmp_path)])
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize("name", ["started", "ended"])
def test_advice_is_not_given_without_times_that_are_there(name: str) -> None:
    rows = changed(table([row(started=5, ended=6)]), name, pa.timestamp("us"))
    with pytest.raises(UnciaError, match=rf"the column {name} is timestamp\(6\), not whole ns"):
        advice(rows, tariffs=[LAMBDA])
