"""The rules of times and amounts, as columns and as integers, and one rule in every analysis."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tariff_rows import GB, MB, MS, S, row, table
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.breakeven import break_even
from uncia.costs.decompose import decompositions
from uncia.costs.distributions import inflation_cdf
from uncia.costs.instances import instances
from uncia.costs.rounding import measure
from uncia.costs.sizes import price_per_second
from uncia.record import INSTANCE_STARTS
from uncia.tariffs import Tariff, bill, billable, get, ids, read
from uncia.tariffs.columns import Columns
from uncia.tariffs.exact import Number, at_most, round_up
from uncia.tariffs.fit import Size, fit, fit_size
from uncia.tariffs.request import cost
from uncia.tariffs.rules import KINDS, Granularity, Level, Maximum, Minimum, Rules
from uncia.tariffs.rules.free import Free

FILE = Path(__file__).parents[1] / "data" / "tariffs" / "first-free.yaml"
FREE = read(FILE)
GIB_S = Fraction("0.0000166667") / (GB * S)
VCPU_S = Fraction("0.00002") / S
HOUR = 3600 * S

few = settings(max_examples=10, deadline=None)
bounds = st.none() | st.integers(1, 10**12)


def as_column(rules: Rules, values: list[int | None]) -> list[int | None]:
    """What rules make of a column, a step for each, on DuckDB."""
    columns = Columns(ibis.memtable(pa.table({"a": pa.array(values, pa.int64())})))
    billed = rules.apply(columns, columns.base("a"))
    result = columns.table().select(billed=billed.name)
    return list(ibis.duckdb.connect().to_pyarrow(result)["billed"].to_pylist())


@few
@given(
    st.fixed_dictionaries({kind.key: bounds for kind in KINDS}),
    st.lists(st.none() | st.integers(0, 10**15), min_size=1, max_size=30),
    st.sampled_from(["plain", "unrounded", "stepped", "billed"]),
)
def test_columns_numbers_and_integers_agree(
    figures: dict[str, int | None], values: list[int | None], level: Level
) -> None:
    rules = Rules.of(figures).at(level)
    result = as_column(rules, values)
    assert result == [rules(Number(value)).value for value in values]
    assert result == [None if value is None else rules(value) for value in values]
    known = sorted(value for value in values if value is not None)
    assert [rules(value) for value in known] == sorted(rules(value) for value in known)


def test_rules_apply_in_their_order() -> None:
    rules = Rules.of({"maximum": 60, "free": 5, "minimum": 20, "granularity": 10})
    assert rules.rules == (Granularity(10), Minimum(20), Free(5), Maximum(60))
    assert [rules(amount) for amount in (0, 1, 21, 61, 10**6)] == [15, 15, 25, 60, 60]
    assert [rules.at("unrounded")(amount) for amount in (0, 21, 61)] == [0, 16, 56]
    assert [rules.at("stepped")(amount) for amount in (0, 21)] == [0, 30]
    assert rules.words(str) == ["in steps of 10", "at least 20", "the first 5 free", "at most 60"]


def test_the_same_step_is_the_same_column_and_another_constant_another() -> None:
    columns = Columns()
    time = columns.base("time")
    assert columns.add(round_up, time, granularity=5) == columns.add(round_up, time, granularity=5)
    assert columns.add(round_up, time, granularity=5) != columns.add(round_up, time, granularity=6)
    assert columns.add(Minimum(5), time) == columns.add(Minimum(5), time)
    assert columns.add(Minimum(5), time) != columns.add(Maximum(5), time)
    bound = 5
    with pytest.raises(TypeError, match="no function of a module"):
        columns.add(lambda value: at_most(value, bound), time)


@few
@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from([0, 72_357, 72_358, 250_001]) | st.integers(0, 10**9),
            st.none() | st.sampled_from([0, 128 * MB, 1769 * MB]) | st.integers(0, 1 << 42),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_sizes_are_the_same_as_columns_and_as_integers(
    pairs: list[tuple[int | None, int | None]],
) -> None:
    cpus, memories = zip(*pairs, strict=True)
    data = pa.table(
        {
            "n": range(len(pairs)),
            "cpu": pa.array(cpus, pa.int64()),
            "memory": pa.array(memories, pa.int64()),
        }
    )
    columns = Columns(ibis.memtable(data))
    tariffs = [get(name) for name in ids()]
    sizes = [
        fit(item.sizes, columns, columns.base("cpu"), columns.base("memory")) for item in tariffs
    ]
    result = ibis.duckdb.connect().to_pyarrow(columns.table().order_by("n"))
    for tariff, size in zip(tariffs, sizes, strict=True):
        expected = [fit_size(tariff.sizes, Size(*pair)) for pair in pairs]
        assert result[size.cpu.name].to_pylist() == [item.cpu for item in expected], tariff.id
        assert result[size.memory.name].to_pylist() == [item.memory for item in expected], tariff.id


def some_rows(n: int = 400) -> list[dict[str, Any]]:
    chance = random.Random(3)
    return [
        row(
            invocation=f"i{number}",
            function="fg"[number % 2],
            start=(cold := chance.choice(["cold", "warm"])),
            execution=(execution := chance.choice([0, 95 * MS, chance.randrange(400 * MS)])),
            initialization=chance.randrange(200 * MS) if cold == "cold" else None,
            allocated_memory=chance.choice([128 * MB, GB]),
            cpu_user=chance.randrange(execution + 1),
            cpu_system=chance.choice([0, 5 * MS]),
            memory_avg=chance.randrange(100 * MB),
        )
        for number in range(n)
    ]


def by_hand(row: dict[str, Any]) -> tuple[int, int]:
    """Billed time and CPU time of a row, ns, in plain Python."""
    turnaround = row["execution"] + (row["initialization"] or 0)
    used = row["cpu_user"] + row["cpu_system"]
    billed = max(-(-turnaround // (10 * MS)) * 10 * MS, 50 * MS)
    return max(billed - 100 * MS, 0), max(-(-used // MS) * MS - 20 * MS, 0)


def test_a_rule_shows_in_every_analysis() -> None:
    rows = some_rows()
    billed = [by_hand(item) for item in rows]
    memory = [item["allocated_memory"] * time for item, (time, _) in zip(rows, billed, strict=True)]
    cpu = [time for _, time in billed]
    expected = GIB_S * sum(memory) + VCPU_S * sum(cpu) + Fraction("0.0000002") * len(rows)
    assert 0 < cpu.count(0) < len(rows)
    data = table(rows)

    (line,) = bill(data, [FREE])
    assert line.exact_cost == expected
    assert line.billable_byte_ns == sum(memory)
    assert line.billable_micro_vcpu_ns == 10**6 * sum(cpu)
    unrounded = sum(
        GIB_S
        * item["allocated_memory"]
        * max(item["execution"] + (item["initialization"] or 0) - 100 * MS, 0)
        + VCPU_S * max(item["cpu_user"] + item["cpu_system"] - 20 * MS, 0)
        for item in rows
    )
    fees = len(rows) * Fraction("0.0000002")
    assert line.rounding_usd is not None
    assert abs(Fraction(line.rounding_usd) - (expected - fees - unrounded)) < Fraction(1, 10**17)

    apart = bill(data, [FREE], ["invocation"])
    assert sum(item.exact_cost or 0 for item in apart) == expected

    (parts,) = decompositions(data, [FREE])
    assert parts.total == expected
    assert parts.parts["minimum"] < 0 < parts.parts["rounding"]

    curves = inflation_cdf(data, [FREE])
    mine = curves[curves["tariff"] == "first-free"]
    comparable = [
        (size, time)
        for item, size, time in zip(rows, memory, cpu, strict=True)
        if item["cpu_user"] + item["cpu_system"]
    ]
    for resource, index, unit in (("memory", 0, GB * S), ("vcpu", 1, S)):
        values = sorted(pair[index] / unit for pair in comparable)
        for value, share in mine[mine["resource"] == resource][["value", "share"]].to_numpy():
            below = sum(item <= value * (1 + 1e-9) for item in values) / len(values)
            lower = sum(item <= value / 1.011 for item in values) / len(values)
            assert lower - 1e-9 <= share <= below + 1e-9, resource

    added = measure(data, [FREE], at_least=0).frame
    (rule,) = added.to_dict("records")
    assert rule["rule"] == "10ms, at least 50ms, the first 100ms free"
    executions = [item["execution"] for item in rows]
    more = sum(FREE.time.rules(item) - max(item - 100 * MS, 0) for item in executions)
    assert int(rule["added"]) == more

    (pair,) = break_even(data, [FREE], ["aws-fargate-arm"]).to_dict("records")
    assert Fraction(pair["usd_per_request"]) == pytest.approx(expected / len(rows))


def test_a_bill_of_a_table_is_the_bill_of_its_requests() -> None:
    rows = some_rows()
    chosen = [FREE, *(get(name) for name in billable())]
    for line in bill(table(rows), chosen, ["invocation"]):
        (result,) = (row for row in rows if row["invocation"] == line.group["invocation"])
        (tariff,) = (tariff for tariff in chosen if tariff.id == line.tariff)
        request = result | {"cpu_time": result["cpu_user"] + result["cpu_system"]}
        assert line.exact_cost == cost(tariff, request), (line.tariff, result)


durations = st.none() | st.sampled_from([0, 1, MS, 100 * MS]) | st.integers(0, S)
memories = st.none() | st.sampled_from([0, 128 * MB, 9 * GB]) | st.integers(0, 4 * GB)
shares = st.none() | st.sampled_from([0, 250_000, 250_001, 5 * 10**6]) | st.integers(0, 10**6)


@few
@given(
    st.lists(
        st.builds(
            row,
            start=st.sampled_from(["cold", "restored", "thawed", "warm", None]),
            execution=st.integers(0, S),
            initialization=durations,
            allocated_cpu=shares,
            allocated_memory=memories,
            cpu_user=durations,
            cpu_system=st.none(),
            memory_avg=memories,
            reserved_cpu=shares,
            borrowed_cpu_time=durations,
            lent_cpu_time=durations,
            lent_memory_avg=memories,
            preemptible=st.none() | st.booleans(),
        ),
        min_size=10,
        max_size=60,
    )
)
def test_every_basis_and_rule_bills_a_table_as_its_requests(rows: list[dict[str, Any]]) -> None:
    rows = [item | {"invocation": f"i{index:02}"} for index, item in enumerate(rows)]
    tariff = read(FILE.with_name("every-basis.yaml"))
    lines = bill(table(rows), [tariff, FREE], ["invocation"])
    for chosen, item in ((tariff, lines[: len(rows)]), (FREE, lines[len(rows) :])):
        for entry, line in zip(rows, item, strict=True):
            usd = cost(chosen, entry | {"cpu_time": entry["cpu_user"]})
            assert line.exact_cost == usd, entry
            assert line.rows == (usd is not None)
    for parts, chosen in zip(
        decompositions(table(rows), [tariff, FREE]), (tariff, FREE), strict=True
    ):
        costs = [cost(chosen, item | {"cpu_time": item["cpu_user"]}) for item in rows]
        assert parts.total == sum((usd for usd in costs if usd is not None), Fraction(0))


@pytest.mark.parametrize("start", ["cold", "restored", "thawed", "warm", None])
def test_a_start_that_is_not_known_has_no_cost(start: str | None) -> None:
    request = row(start=start, initialization=None) | {"cpu_time": S}
    assert (cost(FREE, request) is None) == (start in INSTANCE_STARTS)
    assert cost(FREE, request | {"initialization": 0}) is not None
    assert cost(get("cloudflare-workers"), request) is not None  # bills no turnaround


def test_instances_have_the_rule_too() -> None:
    document = get("gcp-run-instance").model_dump()
    document["time"] |= {"free": "100 s"}
    life = pa.table(
        {
            "started": [0, 0],
            "ended": [50 * S, 250 * S + 1],
            "allocated_cpu": [10**6] * 2,
            "allocated_memory": [GB] * 2,
        }
    )
    (result,) = instances(life, [Tariff.model_validate(document)]).to_dict("records")
    assert int(result["billed_ns"]) == 150 * S + 100 * MS
    assert int(result["instance_ns"]) == 300 * S + 1
    second = price_per_second(get("gcp-run-instance"), Size(10**6, GB)) or 0
    rounded = second * (100 * MS - 1) / S  # what is free is no negative rounding
    assert Fraction(result["rounding_usd"]) == pytest.approx(rounded)
    assert Fraction(result["rounding_usd"]) >= 0


def with_storage(**rules: str) -> Tariff:
    """Cloud Run by instance with 10 GB of storage under rules of their own."""
    document = get("gcp-run-instance").model_dump()
    storage = {"resource": "storage", "basis": "allocated", "price": "0.1", "per": "GB-month"}
    document["charges"].append(storage | {"amount": "10 GB", "source": "paper"} | rules)
    return Tariff.model_validate(document)


@pytest.mark.parametrize(
    ("rules", "unrounded", "billed"),
    [
        ({}, 10, 10),
        ({"free": "5 GB"}, 5, 5),
        ({"granularity": "4 GB"}, 10, 12),
        ({"minimum": "20 GB"}, 10, 20),
        ({"maximum": "3 GB"}, 3, 3),
        ({"granularity": "4 GB", "free": "5 GB", "maximum": "6 GB"}, 5, 6),
    ],
)
def test_storage_has_the_rules_too(rules: dict[str, str], unrounded: int, billed: int) -> None:
    tariff, base = with_storage(**rules), get("gcp-run-instance")
    unit = Fraction("0.1") / (720 * HOUR)
    size = Size(10**6, GB)
    second = price_per_second(tariff, size)
    assert second is not None
    assert second - (price_per_second(base, size) or 0) == unit * billed * S

    life = pa.table(
        {"started": [0], "ended": [HOUR], "allocated_cpu": [10**6], "allocated_memory": [GB]}
    )
    (result,) = instances(life, [tariff]).to_dict("records")
    assert int(result["storage_byte_ns"]) == billed * GB * HOUR
    assert Fraction(result["cost_usd"]) == pytest.approx(second * 3600)
    stepped = unit * HOUR * (billed - unrounded)
    assert Fraction(result["rounding_usd"]) == pytest.approx(stepped)

    rows = table([row(allocated_cpu=10**6, allocated_memory=GB)])
    (pair,) = break_even(rows, ["aws-lambda-x86"], [tariff]).to_dict("records")
    assert Fraction(pair["usd_per_hour"]) == pytest.approx(second * 3600)


def test_the_commands_say_the_rule(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table(some_rows(50)), tmp_path / "rows.parquet")
    shown = CliRunner().invoke(build(), ["tariffs", "show", str(FILE)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "turnaround, in steps of 10ms, at least 50ms, the first 100ms free" in shown.output
    assert "in steps of 1 ms, the first 20 ms free" in shown.output
    command = ["cost", "decompose", str(tmp_path / "rows.parquet"), "-t", str(FILE), "--json"]
    result = CliRunner().invoke(build(), command)
    (record,) = json.loads(result.stdout)
    assert Fraction(record["minimum_usd"]) < 0
