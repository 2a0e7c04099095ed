"""Which rows a bill is over: results without warm-ups, the rows common to tariffs, or by memory."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia import record
from uncia.backends import Backend, connect
from uncia.cli import build
from uncia.cli.invocations import Printer
from uncia.errors import UnciaError
from uncia.tariffs import bill, get
from uncia.tariffs.catalogue import billable, is_model
from uncia.tariffs.common_rows import common_rows

MB, MS = 1 << 20, 10**6
WHOLE = {
    "execution": 100 * MS,
    "cpu_user": 40 * MS,
    "memory_avg": 100 * MB,
    "allocated_memory": 512 * MB,
    "allocated_cpu": 250_000,
    "initialization": None,
    "start": "warm",
    "outcome": "ok",
    "experiment": "main",
}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    texts = {"start", "outcome", "experiment"}
    return pa.table(
        {
            name: pa.array([row[name] for row in rows], pa.utf8() if name in texts else pa.int64())
            for name in WHOLE
        }
    )


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(build(), [str(word) for word in arguments])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Ten whole rows at two sizes, four without memory use, two warm-ups, two throttled."""
    small = [WHOLE | {"allocated_memory": 128 * MB}] * 4
    unknown = [WHOLE | {"memory_avg": None}] * 4
    warm = [WHOLE | {"experiment": "main.warmup"}] * 2
    none = [WHOLE | {"outcome": "throttled", "execution": None}] * 2
    path = tmp_path / "rows.parquet"
    pq.write_table(table([WHOLE] * 6 + small + unknown + warm + none), path)
    return path


def entries(path: Path, *more: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = invoke("bill", path, "-t", "aws-lambda-x86", "-t", "spfu", "--json", *more)
    assert done.exit_code == 0, done.output
    return {(line["tariff"], line.get("memory", "")): line for line in json.loads(done.stdout)}


def test_warm_ups_are_billed_only_as_an_experiment_of_their_own(mixed: Path) -> None:
    assert entries(mixed)["aws-lambda-x86", ""]["rows"] == 14
    done = invoke("bill", mixed, "-t", "aws-lambda-x86")
    assert "2 warm-up rows are left out" in done.stdout
    done = invoke("bill", mixed, "-t", "aws-lambda-x86", "--by", "experiment", "--json")
    by_name = {line["experiment"]: line["rows"] for line in json.loads(done.stdout)}
    assert by_name == {"main": 14, "main.warmup": 2}


def test_analyses_of_bills_leave_out_the_warm_ups_too(mixed: Path) -> None:
    line = entries(mixed)["aws-lambda-x86", ""]
    done = invoke("cost", "decompose", mixed, "-t", "aws-lambda-x86", "--json")
    (parts,) = json.loads(done.stdout)
    assert parts["rows"] == line["rows"]
    assert Decimal(parts["cost_usd"]) == Decimal(line["cost_usd"])
    assert "note: 2 warm-up rows are left out" in done.stderr
    done = invoke("cost", "inflation", mixed, "-t", "aws-lambda-x86", "--json")
    # Of four more the use is not known.
    assert {row["rows"] for row in json.loads(done.stdout)} == {line["rows"] - 4}
    done = invoke(
        "cost", "decompose", mixed, "-t", "aws-lambda-x86", "--by", "experiment", "--json"
    )
    assert sorted(row["rows"] for row in json.loads(done.stdout)) == [2, line["rows"]]
    for command in (["utilization"], ["rounding", "--at-least", "0ms"], ["break-even"]):
        done = invoke("cost", command[0], mixed, *command[1:])
        assert done.exit_code == 0, done.output
        assert "note: 2 warm-up rows are left out" in done.stderr


def test_common_rows_are_those_that_every_tariff_can_price(mixed: Path) -> None:
    apart, common = entries(mixed), entries(mixed, "--common")
    assert (apart["aws-lambda-x86", ""]["rows"], apart["spfu", ""]["rows"]) == (14, 10)
    assert {line["rows"] for line in common.values()} == {10}
    assert common["spfu", ""]["cost_usd"] == apart["spfu", ""]["cost_usd"]
    done = invoke("bill", mixed, "-t", "aws-lambda-x86", "-t", "spfu")
    assert "14 (100.0%)" in done.stdout
    assert "10 (71.4%)" in done.stdout
    assert "over the same: --common" in done.stdout
    refused = invoke("bill", mixed, "--common", "--fit", "used-peak")
    assert refused.exit_code != 0
    assert "used-peak" in str(refused.exception)


def test_common_rows_are_refused_where_allocations_are_replaced(mixed: Path) -> None:
    refused = invoke("bill", mixed, "--common", "--fit", "used-peak")
    assert refused.exit_code != 0
    assert isinstance(refused.exception, UnciaError)
    assert "not known under the fit used-peak" in refused.exception.message
    assert "--fit allocated" in (refused.exception.hint or "")


def test_bills_by_memory_are_in_the_order_of_numbers_and_add_up(mixed: Path) -> None:
    parts = entries(mixed, "--by", "memory")
    aws = [key[1] for key in parts if key[0] == "aws-lambda-x86"]
    assert aws == ["128 MB", "512 MB"]
    whole = entries(mixed)
    for tariff in ("aws-lambda-x86", "spfu"):
        lines = [line for key, line in parts.items() if key[0] == tariff]
        assert sum(line["rows"] for line in lines) == whole[tariff, ""]["rows"]


def test_memory_that_is_not_known_cannot_be_grouped_by(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table([WHOLE]).drop_columns(["allocated_memory"]), path)
    done = invoke("bill", path, "--by", "memory", "-t", "spfu")
    assert done.exit_code != 0
    assert "no column allocated_memory" in str(done.exception)


def test_models_stand_below_what_is_sold(mixed: Path) -> None:
    done = invoke("bill", mixed)
    first = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    listed = [word for word in first if word in billable()]
    assert set(listed) == set(billable())
    assert [is_model(name) for name in listed] == sorted(is_model(name) for name in listed)


@pytest.fixture(scope="module")
def backend() -> Any:
    with connect() as opened:
        yield opened


_maybe = st.sampled_from([None, -1, 0, 5 * MS, 100 * MS])
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "execution": _maybe,
            "cpu_user": _maybe,
            "memory_avg": st.sampled_from([None, 10 * MB, 600 * MB]),
            "allocated_memory": st.sampled_from([None, 128 * MB, 1769 * MB, 9000 * MB]),
            "allocated_cpu": st.sampled_from([None, 80_000, 10**6, 5 * 10**6]),
            "initialization": _maybe,
            "start": st.sampled_from([None, "warm", "cold"]),
            "outcome": st.sampled_from(["ok", "throttled", "timeout"]),
            "experiment": st.none(),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(_rows, st.lists(st.sampled_from(billable()), min_size=1, max_size=4, unique=True))
@settings(max_examples=15, deadline=None)
def test_common_rows_are_exactly_what_each_bill_prices(
    backend: Backend, rows: list[dict[str, Any]], names: list[str]
) -> None:
    data = table(rows)
    kept = common_rows(backend.table(data), [get(name) for name in names])
    count = backend.collect(kept.aggregate(n=kept.count())).column("n")[0].as_py()
    by_row = table(rows).append_column("row", pa.array([str(i) for i in range(len(rows))]))
    priced = [
        {str(line.group["row"]) for line in bill(by_row, [name], ["row"], backend) if line.rows}
        for name in names
    ]
    assert count == len(set.intersection(*priced))


def test_sizes_a_byte_apart_are_bills_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    sizes = [10_240 * MB, 10_240 * MB + 1]
    pq.write_table(table([WHOLE | {"allocated_memory": size} for size in sizes]), path)
    ran = invoke("bill", path, "--tariff", "sim", "--by", "memory", "--json")
    names = [line["memory"] for line in json.loads(ran.stdout)]
    assert names[0] == "10,240 MB"
    assert len(set(names)) == 2


def test_no_price_in_several_groups_counts_the_rows_of_all_and_each_tariff_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.parquet"
    missing = WHOLE | {"execution": None}
    pq.write_table(table([missing] * 3 + [missing | {"experiment": "other"}] * 2), path)
    tariffs = ("--tariff", "sim", "--tariff", "aws-lambda-x86")
    ran = invoke("bill", path, *tariffs, "--by", "experiment", "--strict")
    assert ran.exit_code == 1
    message = "None of 5 rows (main; other) has a price under any of these 2 tariffs:"
    assert f"{message} execution is null." in ran.output


def test_strict_fails_without_rows_in_groups_as_well(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table([]), path)
    for by in ((), ("--by", "memory")):
        ran = invoke("bill", path, "--tariff", "sim", "--strict", *by)
        assert ran.exit_code == 1
        assert "There are no rows" in ran.output


@pytest.mark.parametrize(("user", "system"), [(7, 5), (7, None), (None, 5), (None, None)])
def test_serve_prints_the_cost_of_the_bill(user: int | None, system: int | None) -> None:
    result = WHOLE | {"cpu_user": user and user * MS, "cpu_system": system and system * MS}
    columns = {name: [value] for name, value in result.items() if value is not None}
    tariff = get("cloudflare-workers")
    (line,) = bill(pa.table(columns), [tariff])
    assert Printer(tariff, as_json=True)._cost(result) == line.exact_cost


@pytest.mark.parametrize("outcomes", [["OK", "success", "OK", "ok", None, "timeout"], [1, 2, 1]])
def test_outcomes_that_are_not_known_are_named(tmp_path: Path, outcomes: list[Any]) -> None:
    path = tmp_path / "rows.parquet"
    rows = table([WHOLE] * len(outcomes))
    rows = rows.append_column("function", pa.array(["f"] * len(outcomes)))
    at = rows.column_names.index("outcome")
    pq.write_table(rows.set_column(at, "outcome", pa.array(outcomes)), path)
    named = "2 'OK', 1 'success'" if "OK" in outcomes else "2 '1', 1 '2'"
    note = f"Outcomes that are not known, in 3 rows: {named}. They are billed as ok is. Known are"
    for command in (["bill"], ["cost", "decompose"], ["cost", "advice"]):
        done = invoke(*command, path, "-t", "aws-lambda-x86", "--json")
        assert done.exit_code == 0, done.output
        assert note in done.stderr, command


def test_known_outcomes_need_no_note(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table([{**WHOLE, "outcome": word} for word in record.OUTCOMES]), path)
    assert "Outcomes" not in invoke("bill", path, "-t", "aws-lambda-x86").output


def test_many_outcomes_are_not_all_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table([{**WHOLE, "outcome": str(code)} for code in range(7)]), path)
    output = " ".join(invoke("bill", path, "-t", "aws-lambda-x86").output.split())
    assert "in 7 rows: 1 '0', 1 '1', 1 '2', 1 '3', 1 '4' and 2 more. They" in output


@pytest.mark.parametrize("of_trace", [True, False])
def test_what_rows_need_fits_where_they_are_from(tmp_path: Path, of_trace: bool) -> None:
    path = tmp_path / "rows.parquet"
    rows = table([{**WHOLE, "allocated_memory": None}] * 2)
    if not of_trace:
        rows = rows.append_column("sent", pa.array([None, 1], pa.int64()))
    pq.write_table(rows, path)
    done = invoke("bill", path, "-t", "aws-lambda-x86")
    assert "Rows need the memory and the CPU of an instance" in done.output
    assert ("`uncia load" in done.output) is not of_trace
    assert ("which these rows do not say: add these columns" in done.output) is of_trace
