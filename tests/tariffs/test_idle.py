"""The idle price: what instances cost that hints had kept or started."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia import record
from uncia.backends import connect
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, bill, idle, read, yaml_text

GB = 1 << 30
SECOND = 10**9
ROW = {
    "function": "f",
    "outcome": "ok",
    "start": "warm",
    "execution": SECOND,
    "allocated_cpu": 10**6,
    "allocated_memory": GB,
    "cpu_user": 0,
    "cpu_system": 0,
    "memory_avg": GB,
}


def write(folder: Path, price: str = "0.25", unit: str = "GB-second") -> Path:
    text = yaml_text("aws-lambda-x86").replace("id: aws-lambda-x86", "id: mine", 1)
    added = f'\nidle: {{price: "{price}", per: {unit}, source: pricing}}\n\nsizes:'
    path = folder / "mine.yaml"
    path.write_text(text.replace("\nsizes:", added, 1))
    return path


@pytest.fixture
def tariff(tmp_path: Path) -> Tariff:
    return read(write(tmp_path))


def instances(*rows: tuple[str, int | None, int | None]) -> pa.Table:
    names = ("function", "hint_idle", "allocated_memory")
    types = (pa.string(), pa.int64(), pa.int64())
    columns = zip(*rows, strict=True)
    return pa.table(
        {
            name: pa.array(values, type_)
            for name, values, type_ in zip(names, columns, types, strict=True)
        }
    )


def test_what_was_kept_for_hints_is_part_of_the_bill(tariff: Tariff) -> None:
    rows = pa.Table.from_pylist([ROW, {**ROW, "function": "g"}])
    (alone,) = bill(rows, [tariff])
    assert alone.hint_usd is None
    table = instances(("f", 2 * SECOND, GB), ("f", None, GB), ("g", SECOND, 2 * GB), ("h", 0, GB))
    (line,) = bill(rows, [tariff], instances=table)
    assert (line.hint_gb_s, line.hint_usd, line.hint_unknown) == (4, Decimal(1), 1)
    assert line.cost_usd == (alone.cost_usd or 0) + 1
    of_each = bill(rows, [tariff], ["function"], instances=table)
    assert [(each.group["function"], each.hint_usd) for each in of_each] == [
        ("f", Decimal("0.5")),
        ("g", Decimal("0.5")),
    ]
    (other,) = bill(rows, ["aws-lambda-x86"], instances=table)
    assert (other.hint_usd, other.cost_usd) == (None, alone.cost_usd)


def test_unknown_is_what_a_platform_that_reads_hints_does_not_say_yet(tariff: Tariff) -> None:
    rows = pa.Table.from_pylist([ROW])
    table = instances(("f", SECOND, GB), ("g", None, None), ("f", None, GB), ("f", None, GB))
    for column, names in (("run", "aabb"), ("platform", ["x", "x", None, None])):
        places = table.append_column(column, pa.array(list(names), pa.string()))
        of_each = bill(rows, [tariff], ["function"], instances=places)
        assert [(it.group["function"], it.hint_gb_s, it.hint_unknown) for it in of_each] == [
            ("f", 1, 0),
            ("g", 0, 1),
        ]


def test_functions_without_requests_are_lines_so_that_they_add_up(tariff: Tariff) -> None:
    rows = pa.Table.from_pylist([ROW])
    table = instances(("f", SECOND, GB), ("a", 2 * SECOND, GB), (None, SECOND, GB), ("h", 0, GB))
    tariffs = ["aws-lambda-x86", tariff]
    plain, whole = bill(rows, tariffs, instances=table)
    of_each = bill(rows, tariffs, ["function"], instances=table)
    assert [(each.tariff, each.group["function"], each.rows) for each in of_each] == [
        ("aws-lambda-x86", "f", 1),
        ("mine", "a", 0),
        ("mine", "f", 1),
        ("mine", None, 0),
    ]
    assert of_each[0].exact_cost == plain.exact_cost
    assert sum(each.exact_cost or 0 for each in of_each[1:]) == whole.exact_cost
    (alone,) = bill(rows.slice(0, 0), [tariff], ["function"], instances=instances(("a", 1, GB)))
    assert (alone.group, alone.total_rows, alone.hint_byte_ns) == ({"function": "a"}, 0, GB)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 1 << 42)), max_size=8))
def test_the_sum_is_exact(amounts: list[tuple[int, int]]) -> None:
    table = instances(("f", 0, 0), *(("f", time, memory) for time, memory in amounts))
    with connect() as backend:
        found = idle.quantities(table, (), backend)
    assert found[()] == (sum(time * memory for time, memory in amounts), 0)


@pytest.mark.parametrize("name", ["hint_idle", "allocated_memory"])
def test_what_is_no_whole_number_is_refused_and_not_rounded(tariff: Tariff, name: str) -> None:
    table = instances(("f", 2, 2), ("f", 3, 3))
    floats = table.set_column(table.column_names.index(name), name, pa.array([1.5, 2.5]))
    with pytest.raises(UnciaError, match=f"the column {name} of the instances table is float64"):
        bill(pa.Table.from_pylist([ROW]), [tariff], instances=floats)


def test_what_cannot_be_billed_is_an_error(tariff: Tariff, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{**ROW, "experiment": "e"}])
    for wrong in (("f", -1, GB), ("f", SECOND, None), ("f", SECOND, -GB), ("f", 10**18, GB)):
        with pytest.raises(UnciaError, match="1 instances have an absurd hint_idle"):
            bill(rows, [tariff], instances=instances(wrong))
    with pytest.raises(UnciaError, match="by experiment"):
        bill(rows, [tariff], ["experiment"], instances=instances(("f", 1, GB)))
    old = pa.table({"function": ["f"]})
    assert bill(rows, [tariff], instances=old)[0].hint_usd == 0
    for price, unit in (("-1", "GB-second"), ("1e3", "GB-second"), ("1", "instance-hour")):
        with pytest.raises(UnciaError, match="idle"):
            read(write(tmp_path, price, unit))


def test_the_command_shows_it_and_says_where_it_is_left_out(tmp_path: Path) -> None:
    path = str(write(tmp_path))
    run = tmp_path / "run"
    run.mkdir()
    rows = [{"invocation": "i", "attempt": 1, "open_loop": False, "experiment": "e", **ROW}]
    schema = record.schema("invocations")
    record.write(pa.Table.from_pylist(rows, schema), run / "invocations.parquet", "invocations")
    kept = {"function": "f", "instance": "i", "started": 0, "hint_idle": 4 * SECOND}
    schema = record.schema("instances")
    idle_alone = {**kept, "function": "a", "instance": "j", "allocated_memory": GB}
    lives = {**idle_alone, "instance": "k", "hint_idle": None}
    table = pa.Table.from_pylist([{**kept, "allocated_memory": GB}, idle_alone, lives], schema)
    record.write(table, run / "instances.parquet", "instances")
    command = ["bill", str(run), "--tariff", path]
    shown = CliRunner().invoke(build(), command)
    assert "hint GB-s" in shown.stdout, shown.output
    assert "mine: without what 1 instance idled on the account of hints" in shown.stdout
    (entry,) = json.loads(CliRunner().invoke(build(), [*command, "--json"]).stdout)
    assert (entry["hint_gb_s"], Decimal(entry["hint_usd"])) == (8.0, 2)
    assert entry["hint_unknown"] == 1
    by_function = CliRunner().invoke(build(), [*command, "--by", "function", "--strict"])
    assert by_function.exit_code == 0, "what has no requests is not priced in vain"
    assert "function a" in by_function.stdout
    assert Decimal(entry["cost_usd"] if isinstance(entry["cost_usd"], str) else 2) > 1
    by_experiment = CliRunner().invoke(build(), [*command, "--by", "experiment"])
    assert "without what instances cost" in by_experiment.output
    table_alone = CliRunner().invoke(
        build(), ["bill", str(run / "invocations.parquet"), *command[2:]]
    )
    assert "name the folder of a run" in table_alone.output
    shown = CliRunner().invoke(build(), ["tariffs", "show", path])
    assert "idle for hints" in shown.stdout
