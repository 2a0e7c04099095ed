"""The parts of a bill: they sum to it, and each is what its definition says."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pyarrow.parquet as pq
import pytest
from cost_rows import GB, MB, MS, S, row, table
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.amounts import usd_parts
from uncia.costs.decompose import PARTS, TIME_PARTS, Decomposition, decompositions, frame
from uncia.costs.quantities import Collector, with_observed_cpu
from uncia.tariffs import FitRule, Tariff, bill, billable, get
from uncia.tariffs.used_cost import cost_of_use

few = settings(max_examples=2, deadline=None)

times = st.none() | st.integers(0, 5 * S) | st.sampled_from([0, 1, MS, 100 * MS])
memories = st.none() | st.integers(0, 9 * GB) | st.sampled_from([0, 128 * MB, 1769 * MB, 64 * GB])
shares = st.none() | st.sampled_from([0, 1, 72_357, 300_000, 10**6, 1_800_000, 50_000_000])

rows = st.builds(
    row,
    function=st.sampled_from(["f", "g", None]),
    outcome=st.sampled_from(["ok", "ok", "ok", "function_error", "timeout", "throttled"]),
    start=st.sampled_from([None, "warm", "cold"]),
    execution=times,
    initialization=times,
    allocated_cpu=shares,
    allocated_memory=memories,
    cpu_user=times | st.just(-1),
    cpu_system=times,
    memory_avg=memories,
    reserved_cpu=shares,
    borrowed_cpu_time=times,
    lent_cpu_time=times,
    lent_memory_avg=memories,
    throttled_time=times,
    cpu_wait=times,
    preemptible=st.sampled_from([None, True, False]),
)


def changed(name: str, **changes: Any) -> Tariff:
    """A tariff of the catalogue with other figures."""
    return Tariff.model_validate(get(name).model_dump() | changes)


def npfu() -> Tariff:
    """The tariff of lent and borrowed resources, with prices filled in."""
    document = get("npfu").model_dump()
    for charge in document["charges"]:
        charge["price"] = charge["price"] or "0.0000007"
    return Tariff.model_validate(document)


def hard() -> Tariff:
    """Granularity, minimum and cap on time, allocated and used amounts; turnaround."""
    document = get("gcp-run-request").model_dump()
    document["time"] |= {"granularity": "7 ms", "minimum": "23 ms"}
    first, second = document["charges"]
    first |= {"granularity": "0.7 vCPU", "minimum": "0.9 vCPU", "maximum": "2 vCPU"}
    used = second | {"basis": "used", "granularity": "96 MB", "minimum": "200 MB"}
    document["charges"] = [first, second | {"when": "preemptible"}, used | {"maximum": "3 GB"}]
    document["charges"].append(
        first | {"basis": "used", "granularity": "3 ms", "minimum": "5 ms", "maximum": "900 ms"}
    )
    return Tariff.model_validate(document | {"id": "hard"})


def generous() -> Tariff:
    """As `hard`, with a part of each time and amount that is free."""
    document = hard().model_dump()
    document["time"] |= {"free": "15 ms"}
    for charge in document["charges"]:
        charge["free"] = "0.2 vCPU" if charge["resource"] == "cpu" else "64 MB"
    document["charges"][-1]["free"] = "4 ms"
    return Tariff.model_validate(document | {"id": "generous"})


ALL: list[str | Tariff] = [*billable(), npfu(), hard(), generous()]


@few
@given(st.lists(rows, min_size=25, max_size=80))
def test_the_parts_sum_to_the_bill(some: list[dict[str, Any]]) -> None:
    data = table(some)
    lines = bill(data, ALL, ["function"])
    result = decompositions(data, ALL, ["function"])
    assert len(lines) == len(result)
    for line, item in zip(lines, result, strict=True):
        assert (item.tariff, item.group, item.rows) == (line.tariff, line.group, line.rows)
        assert item.left_out == {**line.not_billable, **line.unpriced}
        assert item.total == (line.exact_cost or 0), item.tariff
        rounded = item.parts["rounding"] + item.parts["minimum"]
        if not any(charge.maximum or charge.free for charge in _tariff(line.tariff).charges):
            assert usd_parts({"all": rounded})[1] == (line.rounding_usd or 0), item.tariff
    for (_, record), line in zip(frame(result, ["function"]).iterrows(), lines, strict=True):
        assert record["cost_usd"] == line.cost_usd
        if line.rows:
            assert sum(record[f"{part}_usd"] for part in PARTS) == line.cost_usd
    for item in decompositions(data, ALL, ["function"], by_time=True):
        (same,) = (it for it in result if (it.tariff, it.group) == (item.tariff, item.group))
        assert (item.total, item.left_out) == (same.total, same.left_out), item.tariff
        assert set(item.parts) == set(TIME_PARTS)


@pytest.mark.parametrize("fit", ["used-peak", "paper"])
def test_the_parts_sum_to_the_bill_of_every_fit(fit: FitRule) -> None:
    chosen = ["aws-lambda-x86", "gcp-run-request", "azure-consumption"]
    some = [
        row(
            function="fg"[number % 2],
            start="cold",
            initialization=number * MS,
            execution=(number + 1) * 7 * MS,
            allocated_cpu=[300_000, 10**6, 1_800_000][number % 3],
            allocated_memory=[128 * MB, GB, 2 * GB][number % 3],
            cpu_user=number * MS,
            memory_avg=number * 40 * MB,
        )
        for number in range(24)
    ]
    some += [row(function=None, cpu_user=None, cpu_system=None, allocated_cpu=None)]
    for line, item in zip(
        bill(table(some), chosen, fit=fit),
        decompositions(table(some), chosen, fit=fit),
        strict=True,
    ):
        assert (item.tariff, item.rows, item.fit) == (line.tariff, line.rows, line.fit)
        assert item.total == line.exact_cost
        assert item.left_out == {**line.not_billable, **line.unpriced}
        # The time in which a row was busy is that of the allocation it had, whatever the fit.
        assert (item.parts["idle"] > 0) == (item.tariff != "azure-consumption")


def _tariff(name: str) -> Tariff:
    return next(t if isinstance(t, Tariff) else get(t) for t in ALL if getattr(t, "id", t) == name)


def busy(row: dict[str, Any]) -> Fraction:
    """By the definition, row by row."""
    share = min(row["allocated_cpu"] or 10**6, 10**6)
    return min(Fraction(row["execution"]), Fraction(row["cpu_user"] * 10**6, share))


measured = st.builds(
    row,
    start=st.sampled_from(["warm", "cold"]),
    execution=st.integers(0, 3 * S),
    initialization=st.integers(0, 3 * S),
    allocated_cpu=st.sampled_from([0, 100_000, 300_000, 10**6, 1_800_000]),
    allocated_memory=st.sampled_from([128 * MB, GB]),
    cpu_user=st.integers(0, 3 * S),
    memory_avg=st.integers(0, 2 * GB),
)


@few
@given(st.lists(measured, min_size=20, max_size=60))
def test_each_part_is_what_its_definition_says(some: list[dict[str, Any]]) -> None:
    """SIM charges for what was allocated; with Google's time, row by row in plain Python."""
    time = get("gcp-run-request").time.model_dump() | {"minimum": "250 ms", "source": "pricing"}
    tariff = changed("sim", time=time, id="sim-turnaround")
    (result,) = decompositions(table(some), [tariff])
    expected = dict.fromkeys(PARTS, Fraction(0))
    prices = Fraction("0.000024") / 10**15, Fraction("0.0000025") / (GB * S)
    for item in some:
        run, ran = item["execution"], busy(item)
        for price, size, used in (
            (prices[0], item["allocated_cpu"], None),
            (prices[1], item["allocated_memory"], item["memory_avg"]),
        ):
            use = item["cpu_user"] * 10**6 if used is None else used * run
            use_while_busy = use if used is None else used * ran
            use_while_idle = 0 if used is None else used * (run - ran)
            stepped = -(-(run + item["initialization"]) // (100 * MS)) * 100 * MS
            expected["use"] += price * use
            expected["over_allocation"] += price * (size * ran - use_while_busy)
            expected["idle"] += price * (size * (run - ran) - use_while_idle)
            expected["initialization"] += price * size * item["initialization"]
            expected["rounding"] += price * size * (stepped - run - item["initialization"])
            expected["minimum"] += price * size * (max(stepped, 250 * MS) - stepped)
    assert dict(result.parts) == expected


def one_part(tariff: str | Tariff, **values: Any) -> Decomposition:
    (result,) = decompositions(table([row(**values)]), [tariff])
    return result


def test_each_part_of_an_execution_is_billed_what_it_lasted() -> None:
    some = [
        # 200 ms on a CPU, 300 throttled, 100 waiting, 400 blocked; two threads that wait for each
        # other's CPU; and one of which the waiting is not known.
        row(cpu_user=S // 5, throttled_time=3 * S // 10, cpu_wait=S // 10),
        row(cpu_user=4 * S // 5, throttled_time=None, cpu_wait=S, allocated_memory=2 * GB),
        row(cpu_user=S // 5),
    ]
    (result,) = decompositions(table(some), [changed("sim", id="sim-by-time")], by_time=True)
    cpu, memory = Fraction("0.000024"), Fraction("0.0000025")
    first, second = cpu + memory, cpu + 2 * memory
    assert dict(result.parts) == {
        "cpu": first / 5 + second * Fraction(4, 5),
        "throttled": first * Fraction(3, 10),
        "cpu_wait": first / 10 + second / 5,
        "blocked": first * Fraction(4, 10),
        "unmeasured": first,
        "rest": 0,
    }
    (used,) = decompositions(table(some), ["spfu"], by_time=True)
    assert used.parts["rest"] == 0
    # Memory is billed while it is held, whatever the function does; CPU time when it is used.
    held = next(it.unit_price for it in get("spfu").charges if it.resource == "memory")
    half = Fraction(held or 0) * GB * S / 2
    assert used.parts["throttled"] == half * Fraction(3, 10)


def test_a_throttled_function_is_busy_while_it_runs_at_its_share() -> None:
    """0.3 vCPU for 1 s with 0.3 s of CPU time: nothing is idle, nothing over-allocated."""
    result = one_part("sim", allocated_cpu=300_000, cpu_user=3 * S // 10, memory_avg=GB).parts
    assert result["idle"] == result["over_allocation"] == 0
    assert result["use"] == Fraction("0.000024") * Fraction(3, 10) + Fraction("0.0000025")


def test_what_was_not_measured_is_not_guessed() -> None:
    result = one_part("sim", cpu_user=None, cpu_system=None, memory_avg=None)
    assert result.total == result.parts["unmeasured"] == Fraction("0.0000265")
    half = one_part("sim", cpu_user=None, cpu_system=None)
    assert half.parts["use"] == Fraction("0.0000025") / 2
    assert half.parts["unmeasured"] == Fraction("0.0000025") / 2 + Fraction("0.000024")


def test_use_beyond_the_size_is_negative_over_allocation() -> None:
    result = one_part("sim", cpu_user=2 * S, memory_avg=GB).parts
    assert result["over_allocation"] == -Fraction("0.000024")
    assert result["use"] == 2 * Fraction("0.000024") + Fraction("0.0000025")


def test_what_was_lent_is_a_credit() -> None:
    """Half of a reserved vCPU used, a quarter of a second borrowed, a tenth lent."""
    lender = npfu()
    result = one_part(
        lender,
        reserved_cpu=500_000,
        borrowed_cpu_time=S // 4,
        lent_cpu_time=S // 10,
        lent_memory_avg=GB // 8,
        preemptible=False,
        memory_avg=GB,
    ).parts
    price, spot, memory = Fraction("0.000024"), Fraction("0.0000007"), Fraction("0.0000025")
    assert result["credit"] == -spot / 10 - spot / 8
    assert result["use"] == price / 4 + spot / 4 + memory
    # Busy half a second: a quarter vCPU-second reserved meanwhile, a quarter used of it.
    assert result["over_allocation"] == 0
    assert result["idle"] == price / 4


def test_a_cap_takes_off_in_the_minimum() -> None:
    result = one_part("azure-consumption", memory_avg=2 * GB).parts
    assert result["minimum"] == -Fraction("0.000016") / 2
    assert result["use"] == 2 * Fraction("0.000016")


@given(st.lists(st.fractions(), min_size=1, max_size=9))
def test_printed_parts_sum_to_what_is_printed(values: list[Fraction]) -> None:
    parts, total = usd_parts({str(index): value for index, value in enumerate(values)})
    assert sum(Fraction(value) for value in parts.values()) == Fraction(total)
    assert abs(Fraction(total) - sum(values)) <= Fraction(1, 2 * 10**18)
    for index, value in enumerate(values):
        assert abs(Fraction(parts[str(index)]) - value) <= Fraction(len(values) + 2, 10**18)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decompose") / "invocations.parquet"
    some = [row(function="f"), row(function="g", memory_avg=None), row(outcome="throttled")]
    pq.write_table(table(some), path)
    return path


def test_the_command_prints_json_page_and_table(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["cost", "decompose", str(file), "-t", "aws-lambda-x86", "-t", "spfu"]
    done = CliRunner().invoke(
        build(), [*arguments, "--json", "--by", "function", "--html", str(page)]
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [(item["tariff"], item["function"]) for item in result] == [
        *(("aws-lambda-x86", name) for name in "fg"),
        *(("spfu", name) for name in "fg"),
    ]
    for item in result:
        if item["rows"]:
            parts = sum(Decimal(item[f"{part}_usd"]) for part in PARTS)
            assert parts == Decimal(item["cost_usd"])
    assert result[3]["rows"] == 0
    assert result[3]["cost_usd"] is None
    assert "over-allocation" in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), arguments)
    assert shown.exit_code == 0, shown.output
    assert "USD a million" in shown.output
    message = " ".join(shown.output.split())
    assert "Not in the bill of aws-lambda-x86: 1 row (throttled)." in message
    assert "1 row (memory_avg is null)" in message


@pytest.mark.parametrize(
    ("dialect", "wide"), [("duckdb", False), ("duckdb", True), ("pyspark", False)]
)
def test_the_cells_are_free_of_floating_point(dialect: str, wide: bool) -> None:
    schema = table([]).schema
    data = ibis.table(ibis.Schema.from_pyarrow(schema), name="rows")
    tariffs = [*map(get, billable()), npfu(), hard()]
    collector = Collector(with_observed_cpu(data), ["function"], tariffs, wide=wide)
    sql = str(ibis.to_sql(collector.cells(), dialect=dialect)).upper()
    assert "DECIMAL(38, 0)" in sql
    for word in ("DOUBLE", "FLOAT", "REAL", "FLOOR", "CEIL", "ROUND("):
        assert word not in sql, word


def test_what_was_used_costs_the_same_beside_the_bill() -> None:
    data = table(
        [row(execution=n * MS, cpu_user=n * MS // 3, memory_avg=n * MB) for n in (10, 130, 900)]
    )
    for line in bill(data):
        tariff = get(line.tariff)
        used = cost_of_use(tariff, {"cpu": line.used_micro_vcpu_ns, "memory": line.used_byte_ns})
        (parts,) = decompositions(data, [tariff])
        assert line.rows == 3
        assert used == parts.parts["use"] > 0, tariff.id
    assert cost_of_use(npfu(), {"cpu": 1, "memory": 1}) is None
    assert cost_of_use(get("spfu"), {"cpu": 1, "memory": None}) is None
    assert cost_of_use(get("cloudflare-workers"), {"cpu": 10**15}) == Fraction("0.00002")
