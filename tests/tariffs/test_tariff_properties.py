"""Properties that hold for every table, found by Hypothesis where there is arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tariff_rows import GB, INTEGERS, MB, MS, S, row, table

from uncia.backends.subqueries import unfused_selects
from uncia.errors import UnciaError
from uncia.tariffs import Line, Tariff, bill, billable, get
from uncia.tariffs.columns import Columns
from uncia.tariffs.equation import query
from uncia.tariffs.exact import (
    QUOTIENT_LIMIT,
    at_least,
    at_most,
    larger,
    product,
    quotient,
    round_up,
)
from uncia.tariffs.fit import fit
from uncia.tariffs.model import Charge
from uncia.tariffs.money import money
from uncia.tariffs.rows import MAX_CPU, MAX_MEMORY, MAX_TIME
from uncia.tariffs.sizes import Combinations, Fixed, Observed, Proportional

few = settings(max_examples=10, deadline=None)
fewer = settings(max_examples=2, deadline=None)  # a query takes seconds: many rows each

times = st.integers(0, 20 * S) | st.sampled_from([0, 1, MS, 100 * MS, S])
sizes = st.integers(0, 9 * GB) | st.sampled_from([128 * MB, 1769 * MB, 10240 * MB])
shares = st.integers(0, 6_000_000)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    execution = draw(times)
    cold = draw(st.booleans())
    return row(
        start="cold" if cold else "warm",
        execution=execution,
        initialization=draw(times) if cold else None,
        allocated_cpu=draw(shares),
        allocated_memory=draw(sizes),
        cpu_user=draw(times),
        cpu_system=draw(times),
        memory_avg=draw(sizes),
        function=draw(st.sampled_from(["f", "g", "h"])),
    )


def evaluate(expression: Any, values: Sequence[Any]) -> list[Any]:
    """What an expression of one int64 column `a` gives, on DuckDB."""
    data = ibis.duckdb.connect().create_table("t", pa.table({"a": pa.array(values, pa.int64())}))
    return list(data.select(r=expression(data["a"])).to_pyarrow()["r"].to_pylist())


@few
@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=50), st.integers(1, 2**40))
def test_rounding_up_is_exact_and_idempotent(values: list[int], step: int) -> None:
    once = evaluate(lambda a: round_up(a, step), values)
    assert once == [-(-value // step) * step for value in values]
    assert evaluate(lambda a: round_up(a, step), once) == once


@few
@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=50), st.integers(1, 2**40))
def test_rounding_up_by_division_and_by_mask_is_exact(values: list[int], step: int) -> None:
    for granularity in (step, 1 << (step.bit_length() - 1)):
        rounded = evaluate(lambda a, g=granularity: round_up(a, g, wide=True), values)
        assert rounded == [-(-value // granularity) * granularity for value in values]


@few
@given(st.lists(st.integers(0, MAX_TIME), min_size=1, max_size=50), st.integers(0, MAX_MEMORY))
def test_a_sum_of_wide_products_is_exact(values: list[int], factor: int) -> None:
    columns = {"a": pa.array(values, pa.int64()), "b": pa.array([factor] * len(values), pa.int64())}
    data = ibis.duckdb.connect().create_table("t", pa.table(columns))
    for first, second in ((data["a"], data["b"]), (data["b"], data["a"])):
        total = product(first, second, wide=True).sum().cast("decimal(38, 0)")
        assert data.aggregate(r=total).to_pyarrow()["r"].to_pylist() == [sum(values) * factor]


@fewer
@given(st.lists(rows(), min_size=40, max_size=80))
def test_wide_and_decimal_arithmetic_bill_the_same(some: list[dict[str, Any]]) -> None:
    data = ibis.duckdb.connect().create_table("t", table(some))
    tariffs = [get(name) for name in billable()]
    wide, narrow = (
        query(data, tariffs, ["function"], wide=wide).aggregation() for wide in (True, False)
    )
    with unfused_selects():
        assert _sorted(wide) == _sorted(narrow)


@fewer
@given(st.lists(rows(), max_size=60), st.sampled_from([(), ("function",)]))
def test_cells_add_up_to_the_same_without_the_engine(
    some: list[dict[str, Any]], groups: tuple[str, ...]
) -> None:
    data = ibis.duckdb.connect().create_table("t", table(some))
    planned = query(data, [get(name) for name in billable()], groups, wide=True)
    with unfused_selects():
        cells = planned.cells.to_pyarrow().to_pylist()
        of_engine = planned.aggregation().to_pyarrow().to_pylist()

    def ordered(result: list[dict[str, Any]]) -> list[dict[str, Any]]:
        plain = [{name: value or 0 for name, value in item.items()} for item in result]
        return sorted(plain, key=lambda row: str(row.get("g_function")))

    assert ordered(planned.add_up(cells)) == ordered(of_engine)


def _sorted(expression: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = expression.to_pyarrow().to_pylist()
    return sorted(rows, key=lambda row: str(row["g_function"]))


@few
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=50), st.integers(1, 2**62))
def test_quotients_of_multiples_are_exact(values: list[int], divisor: int) -> None:
    multiples = [value - value % divisor for value in values if value < QUOTIENT_LIMIT] + [0]
    expected = [multiple // divisor for multiple in multiples]
    assert evaluate(lambda a: quotient(a, divisor), multiples) == expected


@pytest.mark.parametrize("divisor", [2, 3, 7, 10**6, 1769 * MB, 4 * GB, 2048 * MB])
def test_quotients_are_exact_up_to_the_bound(divisor: int) -> None:
    top = QUOTIENT_LIMIT - 1
    multiples = [top - top % divisor - number * divisor for number in range(2000)]
    expected = [multiple // divisor for multiple in multiples]
    assert evaluate(lambda a: quotient(a, divisor), multiples) == expected


def test_what_is_null_stays_null() -> None:
    values = [None, 3, 9]
    assert evaluate(lambda a: at_least(a, 5), values) == [None, 5, 9]
    assert evaluate(lambda a: at_most(a, 5), values) == [None, 3, 5]
    assert evaluate(lambda a: larger(a, ibis.null("int64")), values) == [None, None, None]
    assert evaluate(lambda a: larger(ibis.literal(5, "int64"), a), values) == [None, 5, 9]
    assert evaluate(lambda a: round_up(a, 4), values) == [None, 4, 12]


@fewer
@given(st.lists(rows(), min_size=40, max_size=80))
def test_the_sum_over_a_partition_is_the_whole(some: list[dict[str, Any]]) -> None:
    data = table(some)
    whole = {line.tariff: line for line in bill(data)}
    parts: dict[str, list[Line]] = {}
    for line in bill(data, group_by=["function"]):
        parts.setdefault(line.tariff, []).append(line)
    assert set(whole) == set(parts) == set(billable())
    for tariff, line in whole.items():
        mine = parts[tariff]
        assert line.rows == sum(part.rows for part in mine)
        assert line.total_rows == len(some) == sum(part.total_rows for part in mine)
        assert line.rows + line.unpriced_rows + sum(line.not_billable.values()) == len(some)
        for name in ("billable_micro_vcpu_ns", "billable_byte_ns"):
            assert (getattr(line, name) or 0) == sum(getattr(part, name) or 0 for part in mine)
        assert (line.exact_cost or 0) == sum(part.exact_cost or 0 for part in mine)


@fewer
@given(st.lists(st.tuples(rows(), times, shares, sizes), min_size=20, max_size=60))
def test_more_never_costs_less(
    some: list[tuple[dict[str, Any], int, int, int]],
) -> None:
    """Monotone in time, allocation and use, as long as a size covers the larger one."""
    smaller = [item | {"invocation": str(number)} for number, (item, *_) in enumerate(some)]
    bigger = [
        item
        | {
            "execution": item["execution"] + time,
            "cpu_user": item["cpu_user"] + time,
            "allocated_cpu": item["allocated_cpu"] + share,
            "allocated_memory": item["allocated_memory"] + size,
            "memory_avg": item["memory_avg"] + size,
        }
        for item, (_, time, share, size) in zip(smaller, some, strict=True)
    ]
    both = [item | {"experiment": "before"} for item in smaller]
    both += [item | {"experiment": "after"} for item in bigger]
    lines = {
        (line.tariff, line.group["invocation"], line.group["experiment"]): line
        for line in bill(table(both), group_by=["experiment", "invocation"])
    }
    assert len(lines) == 2 * len(some) * len(billable())
    for (tariff, number, experiment), second in lines.items():
        if experiment == "before":
            continue
        first = lines[tariff, number, "before"]
        if second.rows:
            assert first.rows, "a smaller row must fit where a larger one does"
            assert (second.exact_cost or 0) >= (first.exact_cost or 0), second.tariff
            assert (second.billable_byte_ns or 0) >= (first.billable_byte_ns or 0)


def rounds_or_allocates(tariff: Tariff, resource: str) -> bool:
    """Whether billable must be at least used: the resource is billed, with no cap on it."""
    charges = [charge for charge in tariff.charges if charge.resource == resource]
    return bool(charges) and all(charge.maximum is None for charge in charges)


@fewer
@given(st.lists(rows(), min_size=20, max_size=60))
def test_billable_covers_used_when_use_stays_within_the_allocation(
    some: list[dict[str, Any]],
) -> None:
    within = [
        item
        | {
            "invocation": str(number),
            "memory_avg": min(item["memory_avg"], item["allocated_memory"]),
            "cpu_user": item["allocated_cpu"] * item["execution"] // 10**6,
            "cpu_system": 0,
        }
        for number, item in enumerate(some)
    ]
    for line in bill(table(within), group_by=["invocation"]):
        tariff = get(line.tariff)
        if not line.rows:
            continue
        if rounds_or_allocates(tariff, "memory"):
            assert (line.billable_byte_ns or 0) >= (line.used_byte_ns or 0), line.tariff
        # The Consumption plan gives one vCPU whatever was observed.
        if rounds_or_allocates(tariff, "cpu") and tariff.sizes.kind != "fixed":
            assert line.billable_micro_vcpu_ns is not None
            assert line.billable_micro_vcpu_ns >= (line.used_micro_vcpu_ns or 0), line.tariff
        assert line.rounding_usd is not None
        assert line.rounding_usd >= 0


@fewer
@given(st.lists(st.tuples(rows(), shares, sizes), min_size=30, max_size=60))
def test_spfu_does_not_depend_on_limits(some: list[tuple[dict[str, Any], int, int]]) -> None:
    """Three bills in one table: as observed, with other limits, and with none; row by row."""
    limits: dict[str, Callable[[int, int], dict[str, Any]]] = {
        "observed": lambda share, size: {},
        "other": lambda share, size: {"allocated_cpu": share, "allocated_memory": size},
        "none": lambda share, size: {"allocated_cpu": None, "allocated_memory": None},
    }
    data = [
        item | limit(share, size) | {"experiment": name, "invocation": str(number)}
        for name, limit in limits.items()
        for number, (item, share, size) in enumerate(some)
    ]
    lines: dict[str, list[Line]] = {name: [] for name in limits}
    for line in bill(table(data), ["spfu"], ["experiment", "invocation"]):
        lines[str(line.group["experiment"])].append(replace(line, group={}))
        assert line.inflation_vcpu in (1, None)
        assert line.inflation_memory in (1, None)
    assert lines["observed"] == lines["other"] == lines["none"]
    assert len(lines["observed"]) == len(some)


@fewer
@given(st.lists(st.tuples(rows(), st.booleans()), min_size=30, max_size=60))
def test_sim_with_proportional_caps_equals_slim(some: list[tuple[dict[str, Any], bool]]) -> None:
    """Whether the platform rounds its share of the vCPU down to a micro-vCPU, or up."""
    proportional = []
    for item, up in some:
        exact = item["allocated_memory"] * 10**6
        share = -(-exact // (1769 * MB)) if up else exact // (1769 * MB)
        proportional.append(item | {"allocated_cpu": share, "invocation": str(len(proportional))})
    lines = bill(table(proportional), ["slim", "sim"], ["invocation"])
    assert len(lines) == 2 * len(some)
    for slim, sim in zip(lines[: len(some)], lines[len(some) :], strict=True):
        assert slim.group == sim.group
        assert slim.exact_cost == sim.exact_cost
        assert slim.billable_micro_vcpu_ns == sim.billable_micro_vcpu_ns
        assert slim.billable_byte_ns == sim.billable_byte_ns


def npfu(spot: str, preemptible: str) -> Tariff:
    """NPFU with prices for what was borrowed, lent and used preemptibly."""
    form = get("npfu").model_dump(mode="json")
    for charge in form["charges"]:
        if charge["price"] is None:
            charge["price"] = spot if charge["resource"] == "cpu" else preemptible
    return Tariff.model_validate(form | {"id": "npfu-priced"})


@fewer
@given(st.lists(rows(), min_size=30, max_size=60))
def test_npfu_with_nothing_lent_and_proportional_caps_equals_slim(
    some: list[dict[str, Any]],
) -> None:
    reserved = []
    for item in some:
        share = item["allocated_memory"] * 10**6 // (1769 * MB)
        reserved.append(
            item
            | {"allocated_cpu": share, "reserved_cpu": share, "preemptible": False}
            | {"borrowed_cpu_time": 0, "lent_cpu_time": 0, "lent_memory_avg": 0}
            | {"invocation": str(len(reserved))}
        )
    priced = npfu("0.000012", "0.000001")
    lines = bill(table(reserved), [priced, "slim"], ["invocation"])
    assert len(lines) == 2 * len(some)
    for nearly, slim in zip(lines[: len(some)], lines[len(some) :], strict=True):
        assert nearly.group == slim.group
        assert nearly.exact_cost == slim.exact_cost
        assert nearly.billable_micro_vcpu_ns == slim.billable_micro_vcpu_ns


def test_npfu_by_hand() -> None:
    """Equations 1 to 3 of the Leopard paper: 2 s, a core reserved, 1.5 s borrowed, 0.5 s lent."""
    usual = {
        "execution": 2 * S,
        "reserved_cpu": 10**6,
        "borrowed_cpu_time": 3 * S // 2,
        "lent_cpu_time": S // 2,
        "allocated_memory": 4 * GB,
        "lent_memory_avg": GB,
        "memory_avg": 3 * GB,
    }
    priced = npfu("0.000012", "0.000001")
    (kept,) = bill(table([row(**usual, preemptible=False)]), [priced])
    cpu = 2 * Fraction("0.000024") + Fraction("1.5") * Fraction("0.000012") - Fraction("0.000006")
    memory = 8 * Fraction("0.0000025") - 2 * Fraction("0.000001")
    assert kept.exact_cost == cpu + memory
    (taken,) = bill(table([row(**usual, preemptible=True)]), [priced])
    assert taken.exact_cost == cpu + 6 * Fraction("0.000001")
    (preempted,) = bill(table([row(**usual, preemptible=True, outcome="preempted")]), [priced])
    assert preempted.rows == 0
    assert preempted.not_billable == {"preempted": 1}


@dataclass(frozen=True)
class Pair:
    cpu: int | None
    memory: int | None


def fitted(tariff: str, pairs: Sequence[tuple[int | None, int | None]]) -> list[Pair]:
    data = pa.table(
        {
            "n": pa.array(range(len(pairs)), pa.int64()),
            "cpu": pa.array([cpu for cpu, _ in pairs], pa.int64()),
            "memory": pa.array([memory for _, memory in pairs], pa.int64()),
        }
    )
    columns = Columns(ibis.duckdb.connect().create_table("t", data))
    size = fit(get(tariff).sizes, columns, columns.base("cpu"), columns.base("memory"))
    full = columns.table()
    result = full.select("n", c=full[size.cpu.name], m=full[size.memory.name]).order_by("n")
    return [Pair(item["c"], item["m"]) for item in result.to_pyarrow().to_pylist()]


def test_every_lambda_size_is_its_own_fit() -> None:
    """Whatever way a platform rounds the share of a size, the size stays what it is."""
    mib = range(128, 10241)
    for up in (False, True):
        shares_of = [
            (-(-size * 10**6 // 1769) if up else size * 10**6 // 1769, size * MB) for size in mib
        ]
        for pair, (cpu, memory) in zip(fitted("aws-lambda-x86", shares_of), shares_of, strict=True):
            assert pair == Pair(cpu, memory)


@fewer
@given(st.lists(st.tuples(shares, sizes), min_size=100, max_size=300))
def test_fits_cover_and_fitting_again_changes_nothing(some: list[tuple[int, int]]) -> None:
    for tariff in billable():
        kind = get(tariff).sizes
        if isinstance(kind, Fixed | Observed):
            continue
        once = fitted(tariff, some)
        for pair, (cpu, memory) in zip(once, some, strict=True):
            if pair.memory is not None:
                assert pair.memory >= memory, tariff
            if pair.cpu is not None and pair.memory is not None:
                assert pair.cpu >= cpu, tariff
        whole = [(p.cpu, p.memory) for p in once if p.cpu is not None and p.memory is not None]
        assert [(p.cpu, p.memory) for p in fitted(tariff, whole)] == whole, tariff


def test_fits_hold_at_the_largest_values_that_are_believed() -> None:
    for tariff in ("slim", "sim", "alibaba-fc", "gcp-run-request", "azure-flex"):
        (pair,) = fitted(tariff, [(MAX_CPU, MAX_MEMORY)])
        if tariff in ("slim", "sim"):
            assert pair.cpu is not None
            assert pair.memory is not None
            assert pair.cpu >= MAX_CPU
            assert pair.memory >= MAX_MEMORY
        else:
            assert None in (pair.cpu, pair.memory)


def test_a_memory_size_alone_decides_where_no_vcpu_is_known() -> None:
    assert fitted("aws-lambda-x86", [(None, 100 * MB)]) == [Pair(72_357, 128 * MB)]
    assert fitted("huawei-functiongraph", [(None, 300 * MB)]) == [Pair(600_000, 512 * MB)]
    assert fitted("gcp-run-request", [(None, 512 * MB)]) == [Pair(333_000, 512 * MB)]
    assert isinstance(get("aws-lambda-x86").sizes, Proportional)
    assert isinstance(get("huawei-functiongraph").sizes, Combinations)


def test_ten_gigabytes_for_hours_over_millions_of_rows_are_exact() -> None:
    """Far beyond int64, and beyond the 53 bits of a double in every product."""
    count = 2_000_000
    hours = 10 * 3600 * S
    spread = np.arange(count, dtype=np.int64) * 1_000_003
    data = pa.table(
        {
            "outcome": pa.array(["ok"] * count).dictionary_encode(),
            "execution": pa.array(hours + spread),
            "allocated_cpu": pa.array(np.full(count, 5_788_581, dtype=np.int64)),
            "allocated_memory": pa.array(np.full(count, 10240 * MB, dtype=np.int64)),
            "cpu_user": pa.array(hours + 3 * spread),
            "memory_avg": pa.array(10 * GB - np.arange(count, dtype=np.int64)),
        }
    )
    slim, spfu, aws = bill(data, ["slim", "spfu", "aws-lambda-x86"])
    total = count * hours + 1_000_003 * (count * (count - 1) // 2)
    assert slim.billable_byte_ns == 10240 * MB * total
    assert slim.billable_micro_vcpu_ns == 5_788_581 * total
    assert total * 10240 * MB > 2**63
    memory = sum((hours + number * 1_000_003) * (10 * GB - number) for number in range(count))
    assert spfu.billable_byte_ns == memory
    cpu = count * hours + 3 * 1_000_003 * (count * (count - 1) // 2)
    assert spfu.billable_micro_vcpu_ns == cpu * 10**6
    rounded = sum(-(-(hours + number * 1_000_003) // MS) * MS for number in range(count))
    assert aws.billable_byte_ns == 10240 * MB * rounded


def test_what_does_not_fit_38_digits_is_an_error_not_a_number() -> None:
    form = get("spfu").model_dump(mode="json")
    form["id"] = "absurd"
    form["charges"][1]["minimum"] = "8000000000GB"
    absurd = Tariff.model_validate(form)
    assert isinstance(absurd.charges[1], Charge)
    year = [row(execution=MAX_TIME, invocation=str(number)) for number in range(500)]
    with pytest.raises(UnciaError, match="38 digits"):
        bill(table(year), [absurd])


@pytest.mark.parametrize("dialect", ["duckdb", "pyspark"])
def test_the_query_is_the_same_for_spark_and_free_of_floating_point(dialect: str) -> None:
    schema = dict.fromkeys(("outcome", "start", "function"), "string")
    schema |= dict.fromkeys((*INTEGERS,), "int64")
    planned = query(
        ibis.table(schema, name="invocations"), [get(name) for name in billable()], ["function"]
    )
    sql = str(ibis.to_sql(planned.aggregation(), dialect=dialect)).upper()
    assert len(planned.plans) == len(billable())
    assert "DECIMAL(38, 0)" in sql
    for word in ("DOUBLE", "FLOAT", "REAL", "FLOOR", "CEIL", "ROUND("):
        assert word not in sql, word
    # A number with a point or an exponent outside quotes would be a double.
    bare = re.sub(r"'[^']*'", "", sql)
    assert re.findall(r"(?<![\w.])\d+(?:\.\d+|E[-+]?\d+)", bare) == []


@given(
    st.fractions() | st.integers() | st.builds(Fraction, st.integers(), st.just(2)),
    st.integers(0, 20),
)
def test_money_is_rounded_half_to_even(value: Fraction | int, places: int) -> None:
    units = round(Fraction(value) * 10**places)
    rounded = money(value, places)
    assert Fraction(rounded) == Fraction(units, 10**places)
    assert rounded.as_tuple().exponent == -places
