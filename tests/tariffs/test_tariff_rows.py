"""Which rows are billed, which are counted under a reason, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet
import pytest
from tariff_rows import GB, MB, MS, S, row, table

from uncia import record
from uncia.errors import UnciaError
from uncia.tariffs import Line, bill, bill_table, bill_with_total, summary, summary_entry


def only_row(tariff: str, *rows: dict[str, Any]) -> Line:
    (line,) = bill(table(list(rows)), [tariff])
    return line


NOT_BILLED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outcome": "throttled", "execution": None}, "throttled"),
    ({"outcome": "throttled"}, "throttled"),
    ({"outcome": "preempted"}, "preempted"),
    ({"outcome": "timeout", "execution": None}, "timeout before it ran"),
    ({"outcome": "transport_error", "execution": None}, "transport error before it ran"),
)

UNPRICED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("slim", {"execution": None}, "execution is null"),
    ("slim", {"outcome": "function_error", "execution": None}, "execution is null"),
    ("slim", {"execution": -1}, "a value is negative or absurd"),
    ("slim", {"execution": 10**18}, "a value is negative or absurd"),
    ("slim", {"allocated_memory": 2**62}, "a value is negative or absurd"),
    ("slim", {"cpu_user": -(2**63)}, "a value is negative or absurd"),
    ("slim", {"allocated_memory": None}, "allocated_memory is null"),
    ("sim", {"allocated_cpu": None}, "allocated_cpu is null"),
    ("alibaba-fc", {"allocated_cpu": None}, "allocated_cpu is null"),
    ("azure-consumption", {"memory_avg": None}, "memory_avg is null"),
    ("spfu", {"memory_avg": None}, "memory_avg is null"),
    (
        "cloudflare-workers",
        {"cpu_user": None, "cpu_system": None},
        "cpu_user and cpu_system are null",
    ),
    (
        "aws-lambda-x86",
        {"start": "cold", "initialization": None},
        "initialization of a cold start is null",
    ),
    (
        "ibm-code-engine",
        {"allocated_memory": 5 * GB},
        "larger than every size of the tariff",
    ),
    (
        "azure-flex",
        {"allocated_cpu": 2_000_001},
        "larger than every size of the tariff",
    ),
    ("oracle-functions", {"allocated_memory": 4 * GB}, "larger than every size of the tariff"),
)


def apart(rows: list[dict[str, Any]], tariffs: list[str]) -> dict[tuple[str, int], Line]:
    """Each row billed by itself, in one query: by tariff and the row's place."""
    data = table([only_row | {"invocation": str(index)} for index, only_row in enumerate(rows)])
    lines = bill(data, tariffs, ["invocation"])
    assert len(lines) == len(rows) * len(tariffs)
    return {(line.tariff, int(str(line.group["invocation"]))): line for line in lines}


def test_rows_that_no_platform_bills_are_counted() -> None:
    lines = apart([row(**values) for values, _ in NOT_BILLED], ["aws-lambda-x86"])
    for index, (values, reason) in enumerate(NOT_BILLED):
        line = lines["aws-lambda-x86", index]
        assert (line.total_rows, line.rows, line.unpriced_rows) == (1, 0, 0), values
        assert line.not_billable == {reason: 1}, values
    whole = only_row("aws-lambda-x86", *(row(**values) for values, _ in NOT_BILLED), row())
    assert (whole.total_rows, whole.rows, whole.unpriced_rows) == (len(NOT_BILLED) + 1, 1, 0)
    assert sum(whole.not_billable.values()) == len(NOT_BILLED)


def test_whatever_ran_is_billed() -> None:
    outcomes = ["ok", "function_error", "timeout", "transport_error"]
    lines = apart([row(outcome=outcome) for outcome in outcomes], ["aws-lambda-x86"])
    for index, outcome in enumerate(outcomes):
        line = lines["aws-lambda-x86", index]
        assert line.rows == 1, outcome
        assert line.cost_usd == lines["aws-lambda-x86", 0].cost_usd


def test_rows_that_a_tariff_cannot_price_are_counted() -> None:
    tariffs = sorted({tariff for tariff, _, _ in UNPRICED})
    lines = apart([row(**values) for _, values, _ in UNPRICED] + [row()], tariffs)
    for index, (tariff, values, reason) in enumerate(UNPRICED):
        line = lines[tariff, index]
        assert line.unpriced == {reason: 1}, (tariff, values)
        assert (line.rows, line.unpriced_rows, line.not_billable) == (0, 1, {})
        assert line.cost_usd is None
    for tariff in tariffs:
        assert lines[tariff, len(UNPRICED)].rows == 1, tariff
    mixed = only_row("sim", row(allocated_cpu=None), row())
    assert (mixed.unpriced, mixed.rows) == ({"allocated_cpu is null": 1}, 1)
    assert mixed.cost_usd == only_row("sim", row()).cost_usd


def test_nothing_priced_is_null_not_zero() -> None:
    line = only_row("azure-consumption", row(memory_avg=None))
    entry = summary_entry(line)
    assert entry["rows"] == 0
    assert entry["unpriced_rows"] == 1
    for name in ("cost_usd_per_million", "billable_vcpu_s", "billable_gb_s", "fee_share"):
        assert entry[name] is None, name
    written = bill_table([line]).to_pylist()[0]
    assert written["cost_usd"] is None
    assert written["billable_byte_ns"] is None


def test_an_empty_table_gives_lines_of_no_rows() -> None:
    line = only_row("slim")
    assert (line.total_rows, line.rows, line.cost_usd) == (0, 0, None)


def test_inflation_is_over_rows_whose_use_is_known() -> None:
    known = row(allocated_memory=GB, memory_avg=GB // 4, cpu_user=S // 2, cpu_system=0)
    unknown = row(allocated_memory=8 * GB, memory_avg=None, cpu_user=None, cpu_system=None)
    line = only_row("sim", known, unknown)
    assert line.rows == 2
    assert (line.used_vcpu_rows, line.used_memory_rows) == (1, 1)
    assert line.inflation_memory == 4
    assert line.inflation_vcpu == 2
    assert line.used_byte_ns == GB // 4 * S
    assert line.billable_byte_ns == 9 * GB * S


def test_inflation_is_null_where_nothing_was_used_or_measured() -> None:
    assert only_row("sim", row(memory_avg=None)).inflation_memory is None
    assert only_row("sim", row(memory_avg=0)).inflation_memory is None
    assert only_row("sim", row(cpu_user=0, cpu_system=0)).inflation_vcpu is None
    assert only_row("sim", row(memory_avg=None)).used_byte_ns is None
    assert only_row("sim", row(memory_avg=0)).used_byte_ns == 0


def test_cloudflare_bills_no_memory() -> None:
    line = only_row("cloudflare-workers", row(allocated_cpu=None, allocated_memory=None))
    assert line.billable_byte_ns == 0
    assert line.inflation_memory == 0


def test_a_total_of_cpu_time_may_stand_in_one_column() -> None:
    for values in ({"cpu_system": None}, {"cpu_user": None, "cpu_system": S // 2 - 1000}):
        line = only_row("cloudflare-workers", row(**values))
        assert line.used_micro_vcpu_ns == (S // 2 - 1000) * 10**6


def test_a_vcpu_share_that_is_not_documented_is_null_where_it_was_not_observed() -> None:
    line = only_row("oracle-functions", row(allocated_cpu=None))
    assert line.rows == 1
    assert line.billable_micro_vcpu_ns is None
    assert line.inflation_vcpu is None
    assert line.cost_usd is not None


def test_rows_beyond_the_platforms_limits_are_priced_and_counted() -> None:
    within = row(memory_avg=100 * MB, memory_peak=100 * MB)
    large = row(memory_avg=100 * MB, memory_peak=2 * GB)
    slow = row(execution=601 * S, memory_peak=None)
    line = only_row("azure-consumption", within, large, slow)
    assert (line.rows, line.beyond_limits) == (3, 2)
    assert only_row("azure-consumption", within).beyond_limits == 0
    assert only_row("slim", large).beyond_limits == 0


def test_azure_bills_no_more_memory_than_the_instance_has() -> None:
    line = only_row("azure-consumption", row(memory_avg=3 * GB))
    assert line.billable_byte_ns == 1536 * MB * S
    assert line.rounding_usd == 0
    least = only_row("azure-consumption", row(execution=1, memory_avg=0))
    assert least.billable_byte_ns == 128 * MB * 100 * MS
    assert least.billable_micro_vcpu_ns == 10**6 * 100 * MS
    assert least.rounding_usd == Decimal("0.0000002")  # all of the 0.0125 GB-s


def test_rounding_is_what_the_bill_would_be_less_without_it() -> None:
    line = only_row("azure-flex", row(execution=150 * MS, allocated_memory=2 * GB))
    assert line.billable_gb_s == 2
    assert line.cost_usd == Decimal("0.0000524")
    assert line.rounding_usd == Decimal("0.0000442")  # 0.85 of 2 GB-s
    assert only_row("vercel-functions", row(execution=150 * MS)).rounding_usd == 0


def test_groups_are_billed_apart_and_sorted() -> None:
    rows = [
        row(experiment="warm", function="g"),
        row(experiment="warm", function="f"),
        row(experiment=None, function="f"),
        row(experiment="cold", function="f", outcome="throttled"),
    ]
    lines = bill(table(rows), ["slim"], ["experiment", "function"])
    assert [(line.group["experiment"], line.group["function"], line.rows) for line in lines] == [
        ("cold", "f", 0),
        ("warm", "f", 1),
        ("warm", "g", 1),
        (None, "f", 1),
    ]


def test_the_total_is_the_bill_without_groups() -> None:
    odd = [*(values for values, _ in NOT_BILLED), *(values for _, values, _ in UNPRICED), {}]
    data = table([row(**values, experiment=f"e{index % 3}") for index, values in enumerate(odd)])
    by = ("experiment", "function")
    some = ["aws-lambda-x86", "azure-consumption", "cloudflare-workers", "spfu"]
    assert bill_with_total(data, some, by) == (bill(data, some), bill(data, some, by))
    some, none = some[-1:], data.slice(0, 0)
    expected = bill(none, some), bill(none, some, by)
    assert bill_with_total(none, some, by) == expected
    peak = bill_with_total(data, some, by, fit="used-peak")
    assert peak == (bill(data, some, fit="used-peak"), bill(data, some, by, fit="used-peak"))


def test_the_output_names_the_rule_of_the_fit() -> None:
    rules = {line.tariff: line.fit for line in bill(table([row()]))}
    assert "1769MB per vCPU" in rules["aws-lambda-x86"]
    assert rules["sim"] == "as allocated"
    assert rules["oracle-functions"].endswith("vCPU as allocated")
    assert all(rules.values())


def test_the_summary_has_an_entry_for_each_tariff() -> None:
    entries = summary(bill(table([row()])))
    needed = {"billable_vcpu_s", "billable_gb_s", "cost_usd_per_million", "inflation_vcpu"}
    needed |= {"inflation_memory", "fee_share", "rounding_share", "rows", "unpriced_rows"}
    for tariff, entry in entries.items():
        assert needed <= set(entry), tariff
        assert entry["rows"] == 1
        assert all(isinstance(entry[name], (int, float)) for name in needed), tariff


def test_lines_become_the_bill_table_of_the_record(tmp_path: Path) -> None:
    rows = [row(experiment="e", function=name) for name in ("f", "g")]
    lines = bill(table(rows), None, ["experiment", "function"])
    written = bill_table(lines)
    assert written.schema.equals(record.schema("bill"), check_metadata=True)
    path = record.write(written, tmp_path / "bill.parquet", "bill")
    back = record.read(path, "bill").to_pylist()
    assert len(back) == len(lines)
    for line, item in zip(lines, back, strict=True):
        assert item["tariff"] == line.tariff
        assert item["function"] == line.group["function"]
        assert item["invocation"] is None
        assert item["billable_byte_ns"] == line.billable_byte_ns
        assert item["cost_usd"] == line.cost_usd


def full(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a complete invocation table of the record."""
    data = table([only_row | {"experiment": "e"} for only_row in rows])
    data = data.append_column("attempt", pa.array([1] * len(rows), pa.int64()))
    return record.conform(data, "invocations", epoch=0)


def test_runs_files_streams_and_expressions_bill_alike(tmp_path: Path) -> None:
    data = full([row(invocation=str(number), execution=number * MS) for number in range(50)])
    (expected,) = bill(data, ["aws-lambda-x86"])
    run = tmp_path / "run"
    run.mkdir()
    parquet = record.write(data, run / "invocations.parquet")
    stream = tmp_path / "invocations.arrows"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    halves = [tmp_path / f"{part}.parquet" for part in "ab"]
    record.write(data.slice(0, 20), halves[0])
    record.write(data.slice(20), halves[1])
    expression = ibis.duckdb.connect().create_table("i", data)
    for source in (run, str(run), parquet, stream, halves, expression, [halves[0], halves[1]]):
        assert bill(source, ["aws-lambda-x86"]) == [expected], source
    half = tmp_path / "b.arrows"
    part = data.slice(20)
    with pa.OSFile(str(half), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part)
    assert bill([halves[0], half], ["aws-lambda-x86"]) == [expected]


def test_a_foreign_table_needs_only_what_its_tariffs_need(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pa.parquet.write_table(
        pa.table(
            {
                "execution": pa.array([100 * MS, None], pa.int64()),
                "allocated_memory": pa.array([512 * MB, 512 * MB], pa.int32()),
                "memory_avg": pa.nulls(2),
            }
        ),
        path,
    )
    lines = {line.tariff: line for line in bill(path)}
    assert lines["aws-lambda-x86"].rows == 1
    assert lines["aws-lambda-x86"].unpriced == {"execution is null": 1}
    assert lines["gcp-run-request"].rows == 1
    assert lines["sim"].unpriced["allocated_cpu is null"] == 1
    assert lines["azure-consumption"].unpriced["memory_avg is null"] == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"execution": [0.1]}, "the column execution is float64, but bills are exact"),
        ({"execution": ["1"]}, "the column execution is string, but bills are exact"),
        ({"duration": [1]}, "the table has no column execution"),
    ],
)
def test_columns_that_are_missing_or_not_whole_numbers_are_refused(
    columns: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(UnciaError, match=message):
        bill(pa.table(columns), ["slim"])


def test_an_unknown_grouping_column_is_refused() -> None:
    with pytest.raises(UnciaError, match="the table has no column flavour"):
        bill(table([row()]), ["slim"], ["flavour"])


def test_tables_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="does not exist"):
        bill(tmp_path / "none", ["slim"])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnciaError, match="is not the folder of a run"):
        bill(empty, ["slim"])
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"not parquet at all")
    with pytest.raises(UnciaError, match=r"broken\.parquet cannot be read as Parquet"):
        bill(broken, ["slim"])
    with pytest.raises(UnciaError, match="no table was named"):
        bill([], ["slim"])
    with pytest.raises(UnciaError, match="no tariff was named"):
        bill(table([row()]), [])


def test_names_in_other_letters_are_told() -> None:
    rows = table([row()]).rename_columns(
        ["Execution" if name == "execution" else name for name in table([row()]).column_names]
    )
    with pytest.raises(UnciaError, match="the table has no column execution") as caught:
        bill(rows, ["slim"])
    assert caught.value.hint == "It has Execution: rename that to execution."
    with pytest.raises(UnciaError, match="the table has no column execution") as caught:
        bill(rows.drop_columns(["Execution"]), ["slim"])
    assert caught.value.hint is None


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_other_files_than_tables_are_told(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("execution,outcome\n1,ok\n", encoding="utf-8")
    with pytest.raises(UnciaError, match="neither a Parquet file nor an Arrow") as caught:
        bill(file, ["slim"])
    assert "COPY (FROM 'rows.csv')" in str(caught.value.hint)
